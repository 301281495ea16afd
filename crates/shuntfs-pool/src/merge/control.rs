//! The control file of a merge: `.mergerfs` in its root.
//!
//! It is a file of no branch. It is not listed, has no bytes, and cannot be opened, changed, linked, removed or moved; its extended attributes
//! are the settings. Something of that name on a branch is hidden by it, and stays as it is there: no operation through the mount reaches it.
//!
//! Its node is not in the table: every operation that does not know it is refused with EPERM ([`Shared::node`]).

use std::borrow::Cow;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use shuntfs::{Attr, AttrReply, Entry, Errno, NodeId, Result, Timestamp};
use shuntfs_sys::spawn::{effective_gid, effective_uid};
use shuntfs_sys::stat_at;

use super::change::{BranchChange, change_by, check_kernel, tell_kernel};
use super::options::{BranchOptions, BranchWords, MoveOnFull};
use super::queries::PREFIX;
use super::relocate::{is_note, is_temporary};
use super::settings::{size, size_text};
use super::state::Merge;
use crate::branch::Branch;
use crate::mode;
use crate::name_buf::NameBuf;
use crate::policy::{Category, Function, Policy};
use crate::shared::Shared;
use crate::who::Who;

const NAME: &CStr = c".mergerfs";
/// The number of its node, which no other has: those of the table begin at 1.
pub(crate) const NODE: NodeId = NodeId::new(u64::MAX).expect("it is not zero");
/// Only the owner of the mount writes, and so changes settings; others may read them.
const MODE: u32 = mode::FILE | 0o644;
/// `XATTR_CREATE`.
const CREATE: u32 = 1;

/// Whose the control file is, and since when there is one.
#[derive(Debug)]
pub(crate) struct Control {
    uid: u32,
    gid: u32,
    since: Timestamp,
}

impl Control {
    pub(super) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let secs = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let since = Timestamp { secs, nanos: since.subsec_nanos() };
        Self { uid: effective_uid(), gid: effective_gid(), since }
    }

    /// What `stat` shows.
    pub(crate) fn attr(&self, shared: &Shared) -> AttrReply {
        let attr = Attr {
            ino: NODE.get(),
            size: 0,
            blocks: 0,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            mode: MODE,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
        };
        AttrReply { attr, ttl: shared.ttl() }
    }

    /// What a lookup finds.
    pub(crate) fn entry(&self, shared: &Shared) -> Entry {
        Entry::new(NODE, self.attr(shared)).with_ttl(shared.ttl())
    }

    /// Asked here, too, because the kernel may have been told to check nothing.
    fn may_set(&self, who: Who) -> bool {
        who.uid() == 0 || who.uid() == self.uid
    }
}

/// Whether a name in this folder is that of the control file.
pub(crate) fn is_named(shared: &Shared, folder: NodeId, name: &NameBuf) -> bool {
    shared.merge.is_some() && folder == NodeId::ROOT && name.as_c_str() == NAME
}

/// Whether a name in this folder is that of the control file, or of a copy that is not finished.
pub(crate) fn is_reserved(shared: &Shared, folder: NodeId, name: &NameBuf) -> bool {
    is_named(shared, folder, name)
        || shared.merge.is_some() && folder == NodeId::ROOT && is_own(name.as_c_str())
}

/// Whether a name in the top folder is that of something that the pool itself keeps on a branch for a while.
fn is_own(name: &CStr) -> bool {
    is_temporary(name) || is_note(name)
}

/// Refuses changes of the name: neither is the control file removed, nor does anything take its place.
///
/// # Errors
/// EPERM.
pub(crate) fn check_name(shared: &Shared, folder: NodeId, name: &NameBuf) -> Result<()> {
    if is_reserved(shared, folder, name) { Err(Errno::PERM) } else { Ok(()) }
}

/// Says so where a branch has what cannot be seen.
pub(super) fn warn_if_hidden(branch: &Branch) {
    if stat_at(&**branch.root(), NAME).is_ok() {
        tracing::warn!(branch = ?branch.source(), name = ?NAME, "the control file hides what has its name there");
    }
}

/// A setting, by the name that mergerfs has for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    Branches,
    Category(Category),
    Function(Function),
    InodeCalc,
    MinFree,
    MoveOnFull,
    Pid,
    SrcMounts,
    Version,
}

impl Key {
    /// All of them, in the order of their names.
    const ALL: [(&str, Self); 17] = [
        ("branches", Self::Branches),
        ("category.action", Self::Category(Category::Action)),
        ("category.create", Self::Category(Category::Create)),
        ("category.search", Self::Category(Category::Search)),
        ("func.create", Self::Function(Function::Create)),
        ("func.getattr", Self::Function(Function::GetAttr)),
        ("func.mkdir", Self::Function(Function::Mkdir)),
        ("func.mknod", Self::Function(Function::Mknod)),
        ("func.rename", Self::Function(Function::Rename)),
        ("func.symlink", Self::Function(Function::Symlink)),
        ("func.unlink", Self::Function(Function::Unlink)),
        ("inodecalc", Self::InodeCalc),
        ("minfreespace", Self::MinFree),
        ("moveonenospc", Self::MoveOnFull),
        ("pid", Self::Pid),
        ("srcmounts", Self::SrcMounts),
        ("version", Self::Version),
    ];

    /// The key of an attribute.
    ///
    /// # Errors
    /// ENODATA where it is none.
    fn of(name: &CStr) -> Result<Self> {
        let name = name.to_bytes().strip_prefix(PREFIX).ok_or(Errno::NODATA)?;
        let known = Self::ALL.iter().find(|(known, _)| known.as_bytes() == name);
        known.map(|(_, key)| *key).ok_or(Errno::NODATA)
    }

    fn value(self, shared: &Shared, merge: &Merge) -> Vec<u8> {
        let paths = |text: &dyn Fn(&Branch) -> Vec<u8>| {
            shared.branches.in_use().into_iter().map(text).collect::<Vec<_>>().join(&b':')
        };
        let text: Cow<'static, str> = match self {
            Self::SrcMounts => return paths(&|branch| branch.source().as_os_str().as_bytes().to_owned()),
            Self::Branches => return paths(&branch_text),
            Self::Category(category) => merge.settings.policies_of(category).into(),
            Self::Function(function) => merge.settings.policy(function).name().into(),
            Self::InodeCalc => merge.options.inode_calc.name().into(),
            Self::MinFree => size_text(merge.settings.min_free()).into(),
            Self::MoveOnFull => merge.settings.moves().map_or("false", Policy::name).into(),
            Self::Pid => std::process::id().to_string().into(),
            Self::Version => concat!("shuntfs ", env!("CARGO_PKG_VERSION")).into(),
        };
        text.into_owned().into_bytes()
    }

    fn set(self, shared: &Shared, merge: &Merge, value: &str, request: u64) -> Result<()> {
        let _until_told = Merge::begin_change(shared);
        match self {
            Self::Branches => return set_branches(shared, merge, value, request),
            Self::Category(category) => {
                set_policies(shared, merge, |function| function.category() == category, value)?;
            }
            Self::Function(function) => set_policies(shared, merge, |other| other == function, value)?,
            Self::MinFree => merge.settings.set_min_free(size(value)?),
            Self::MoveOnFull => merge.settings.set_moves(MoveOnFull::of(value).ok_or(Errno::INVAL)?),
            Self::InodeCalc | Self::Pid | Self::SrcMounts | Self::Version => return Err(Errno::ROFS),
        }
        merge.note_in_force_by(shared, request);
        Ok(())
    }
}

/// Gives functions a policy. That of a category goes to all that are of it, as in mergerfs.
///
/// # Errors
/// EINVAL where there is no such policy, and what [`check_kernel`] says where names would mean other copies.
fn set_policies(
    shared: &Shared,
    merge: &Merge,
    is_meant: impl Fn(Function) -> bool,
    value: &str,
) -> Result<()> {
    let policy = Policy::of(value).ok_or(Errno::INVAL)?;
    let shows_others = is_meant(Function::GetAttr);
    if shows_others {
        check_kernel(shared).map_err(|error| error.errno())?;
    }
    for function in Function::ALL.into_iter().filter(|function| is_meant(*function)) {
        merge.settings.set_policy(function, policy);
    }
    if shows_others {
        merge.forget_hints();
        tell_kernel(shared);
    }
    Ok(())
}

/// `PATH=MODE`, and what must be left free there and what it is called if that is said for this branch.
fn branch_text(branch: &Branch) -> Vec<u8> {
    let mut text = branch.source().as_os_str().as_bytes().to_owned();
    text.extend_from_slice(b"=");
    text.extend_from_slice(branch.terms().mode.word().as_bytes());
    if let Some(bytes) = branch.terms().min_free {
        text.extend_from_slice(format!(",{}", size_text(bytes)).as_bytes());
    }
    if let Some(id) = branch.id() {
        text.extend_from_slice(format!(",id={id}").as_bytes());
    }
    text
}

/// Adds, removes or replaces branches, as the value says: `+LIST` (or `+>LIST`) and `+<LIST` add behind and before the others, `-LIST` removes,
/// `->` and `-<` the last and the first, `LIST` (or `=LIST`) is all of them.
///
/// # Errors
/// EINVAL for another value, and those of the change.
fn set_branches(shared: &Shared, merge: &Merge, value: &str, request: u64) -> Result<()> {
    let is_sign = |byte: &u8| b"+-=<>".contains(byte);
    let (sign, list) = value.split_at(value.bytes().take(2).take_while(|byte| is_sign(byte)).count());
    let branches = || list.split(':').map(branch_of).collect::<Result<Vec<_>>>();
    let wanted = match (sign, list) {
        ("" | "=", _) => BranchChange::Set(branches()?),
        ("+" | "+>", _) => BranchChange::Append(branches()?),
        ("+<", _) => BranchChange::Prepend(branches()?),
        ("-", _) => BranchChange::Remove(branches()?.into_iter().map(|branch| branch.path).collect()),
        ("-<" | "->", "") => {
            let order = shared.branches.order();
            let end = if sign == "-<" { order.first() } else { order.last() };
            let end = end.ok_or(Errno::INVAL)?;
            BranchChange::Remove(vec![shared.branches.at(*end).source().to_owned()])
        }
        _ => return Err(Errno::INVAL),
    };
    let changed = change_by(shared, merge, &wanted, request).map(drop);
    changed
        .inspect_err(|error| tracing::warn!(%error, value, "the branches stay"))
        .map_err(|error| error.errno())
}

/// Reads `PATH[=MODE[,MINFREE][,id=NAME]]`. The server's folder is not the caller's, so a path begins at the root.
fn branch_of(text: &str) -> Result<BranchOptions> {
    let branch = match BranchWords::part(text.as_bytes()) {
        Some((path, words)) => {
            let BranchWords { mode, min_free, id } = words.map_err(|_| Errno::INVAL)?;
            let path = OsStr::from_bytes(path).into();
            BranchOptions { path, mode, min_free: min_free.map(size).transpose()?, id: id.map(str::to_owned) }
        }
        // Equals signs of the path.
        None => BranchOptions::new(text),
    };
    if branch.path.is_absolute() { Ok(branch) } else { Err(Errno::INVAL) }
}

/// The value of a setting.
///
/// # Errors
/// ENODATA for what is none.
pub(super) fn get(shared: &Shared, merge: &Merge, name: &CStr) -> Result<Vec<u8>> {
    Key::of(name).map(|key| key.value(shared, merge))
}

/// The attributes that LISTXATTR tells. `srcmounts` is `branches` once more, and not told, as mergerfs has it.
pub(crate) fn list() -> Vec<u8> {
    let shown = Key::ALL.iter().filter(|(_, key)| *key != Key::SrcMounts);
    shown.flat_map(|(name, _)| [PREFIX, name.as_bytes(), b"\0"].concat()).collect()
}

/// Changes a setting.
///
/// # Errors
/// EACCES for others than the superuser and the owner of the mount; ENODATA for what is no setting, EEXIST where it must be new, EROFS for what does
/// not change, EINVAL for a value that means nothing.
pub(crate) fn set(
    shared: &Shared,
    merge: &Merge,
    who: Who,
    name: &CStr,
    value: &[u8],
    flags: u32,
) -> Result<()> {
    if !merge.control.may_set(who) {
        return Err(Errno::ACCES);
    }
    let key = Key::of(name)?;
    if flags & CREATE != 0 {
        return Err(Errno::EXIST);
    }
    let value = std::str::from_utf8(value).map_err(|_| Errno::INVAL)?;
    let kept = shared.options.kept.as_ref().filter(|_| who.is_begun());
    if kept.is_some_and(|kept| kept.was_done(who.request())) {
        // By a server that is dead, which may not have come to tell the kernel.
        tell_kernel(shared);
    } else {
        key.set(shared, merge, value, who.request())?;
    }
    tracing::info!(setting = ?name, value, uid = who.uid(), "a setting was changed");
    Ok(())
}
