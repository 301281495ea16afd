//! What rules ask about files and callers, from the lower file system and from `/proc`.

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_rules::{Attributes, CallerFacts, FileFacts, HEAD_LEN, Unknown};
use shuntfs_sys::data::read_at;
use shuntfs_sys::{FsMagic, Stat, stat_of};

use crate::error::errno;
use crate::find::{self, Found};
use crate::guard::Spot;
use crate::mode;
use crate::node::Node;
use crate::shared::Shared;
use crate::who::Who;

/// Bits of the mode that are no type.
const PERMISSIONS: u32 = 0o7777;

fn attributes(stat: &Stat) -> Attributes {
    Attributes { size: stat.size, owner: stat.uid, group: stat.gid, mode: stat.mode & PERMISSIONS }
}

fn unknown(what: &str) -> impl Fn(Errno) -> Unknown {
    move |error| Unknown(format!("{what}: {error}"))
}

/// A node under one of its paths.
pub(crate) struct OfNode<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) node: &'s Arc<Node>,
    pub(crate) path: &'s [u8],
}

impl FileFacts for OfNode<'_> {
    fn path(&self) -> &[u8] {
        self.path
    }

    fn attributes(&self) -> std::result::Result<Attributes, Unknown> {
        let read = || stat_of(self.shared.descriptor(self.node)?).map_err(errno);
        read().map(|stat| attributes(&stat)).map_err(unknown("its attributes cannot be read"))
    }

    fn head(&self) -> std::result::Result<Vec<u8>, Unknown> {
        if !self.node.is_file() {
            return Ok(Vec::new());
        }
        let lower = || self.shared.descriptor(self.node);
        lower().and_then(|lower| head_of(self.shared, &lower)).map_err(unknown("its content cannot be read"))
    }
}

/// A name in a folder, before anybody made a node of it: what is shown by it, wherever that is.
pub(crate) struct OfName<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) spot: Spot<'s>,
    pub(crate) path: &'s [u8],
}

impl FileFacts for OfName<'_> {
    fn path(&self) -> &[u8] {
        self.path
    }

    fn attributes(&self) -> std::result::Result<Attributes, Unknown> {
        let found = find::find(self.shared, self.spot);
        found.map(|found| attributes(&found.stat)).map_err(unknown("its attributes cannot be read"))
    }

    fn head(&self) -> std::result::Result<Vec<u8>, Unknown> {
        let found = find::find(self.shared, self.spot).map_err(unknown("its content cannot be read"))?;
        OfFound { shared: self.shared, found: &found, path: self.path }.head()
    }
}

/// What a name was found to mean, on one branch, before anybody made a node of it.
pub(crate) struct OfFound<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) found: &'s Found,
    pub(crate) path: &'s [u8],
}

impl FileFacts for OfFound<'_> {
    fn path(&self) -> &[u8] {
        self.path
    }

    fn attributes(&self) -> std::result::Result<Attributes, Unknown> {
        Ok(attributes(&self.found.stat))
    }

    fn head(&self) -> std::result::Result<Vec<u8>, Unknown> {
        if !self.found.stat.is_file() {
            return Ok(Vec::new());
        }
        let read = || head_of(self.shared, &self.found.open(self.shared)?);
        read().map_err(unknown("its content cannot be read"))
    }
}

/// What is about to be made.
pub(crate) struct OfNew<'p> {
    pub(crate) shared: &'p Shared,
    pub(crate) path: &'p [u8],
    /// As its maker would have them anywhere.
    pub(crate) attributes: Attributes,
    /// The folder that it comes to, and whether it will be one itself; `None` where there is no such folder.
    pub(crate) within: Option<(&'p LowerFile, bool)>,
}

impl FileFacts for OfNew<'_> {
    fn path(&self) -> &[u8] {
        self.path
    }

    /// In a folder with the set-group-ID bit the kernel gives what is new the folder's group, and a folder that bit, too. A file
    /// system may be mounted so that it gives the group always; ext4 then does not hand the bit on.
    fn attributes(&self) -> std::result::Result<Attributes, Unknown> {
        let Some((dir, is_folder)) = self.within else { return Ok(self.attributes) };
        let found = stat_of(dir).map_err(errno).map_err(unknown("its folder cannot be looked at"))?;
        let branches = &self.shared.branches;
        let mount = found.mnt_id.and_then(|id| branches.known().find_map(|branch| branch.mounts.find(id)));
        let (has_bit, gives_group) =
            (found.mode & mode::SGID != 0, mount.is_some_and(|mount| mount.gives_group));
        if !has_bit && !gives_group {
            return Ok(self.attributes);
        }
        let hands_bit_on =
            has_bit && !(gives_group && mount.is_some_and(|mount| mount.magic == FsMagic::EXT));
        let handed_on = if is_folder && hands_bit_on { mode::SGID } else { 0 };
        Ok(Attributes { group: found.gid, mode: self.attributes.mode | handed_on, ..self.attributes })
    }

    fn head(&self) -> std::result::Result<Vec<u8>, Unknown> {
        Ok(Vec::new())
    }
}

/// The first bytes of a lower file.
fn head_of(shared: &Shared, lower: &LowerFile) -> Result<Vec<u8>> {
    let flags = mode::O_RDONLY | mode::O_NONBLOCK;
    let open = |flags| shared.opening(|| shuntfs_sys::reopen(lower, flags));
    // Looking is no access; where we are not the owner, it counts as one.
    let fd = open(flags | mode::O_NOATIME).or_else(|_| open(flags))?;
    let mut bytes = vec![0; HEAD_LEN];
    let mut len = 0;
    while len < bytes.len() {
        match read_at(&fd, &mut bytes[len..], len as u64).map_err(errno)? {
            0 => break,
            more => len += more,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

impl CallerFacts for Who {
    fn uid(&self) -> std::result::Result<u32, Unknown> {
        known(Who::uid(*self), "user")
    }

    fn gid(&self) -> std::result::Result<u32, Unknown> {
        known(Who::gid(*self), "group")
    }

    fn groups(&self) -> std::result::Result<Vec<u32>, Unknown> {
        let mut groups =
            self.supplementary().ok_or_else(|| Unknown("the caller's groups are not known".into()))?;
        groups.push(CallerFacts::gid(self)?);
        Ok(groups)
    }

    fn exe(&self) -> std::result::Result<Vec<u8>, Unknown> {
        let failed = |error| Unknown(format!("the caller's program is not known: {error}"));
        if self.pid() == 0 {
            return Err(Unknown("the caller's program is not known: its process is not visible here".into()));
        }
        let exe = std::fs::read_link(format!("/proc/{}/exe", self.pid())).map_err(failed)?;
        Ok(exe.into_os_string().into_vec())
    }
}

/// Requests through an id-mapped mount name nobody.
fn known(id: u32, what: &str) -> std::result::Result<u32, Unknown> {
    if id == u32::MAX {
        Err(Unknown(format!("the request does not say the caller's {what}")))
    } else {
        Ok(id)
    }
}
