//! What permission bits and ACLs let somebody do, as the kernel checks them before the server is asked.

use std::path::{Path, PathBuf};

use shuntfs_sys::mount::MountInfo;
use shuntfs_sys::{OsError, Stat, get_xattr, open, stat_of};

use super::place::Located;
use crate::control::{Asker, What};
use crate::mounts::{self, shown};

const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;
/// The sticky bit: each removes only his own names.
const STICKY: u32 = 0o1000;
const ACL: &std::ffi::CStr = c"system.posix_acl_access";
/// The longest extended attribute.
const ACL_MAX: usize = 64 << 10;

/// Why the kernel refuses, before the server is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) error: &'static str,
    pub(super) reason: String,
}

impl Refusal {
    fn access(reason: String) -> Self {
        Self { error: "EACCES", reason }
    }
}

/// Whether the kernel lets somebody do it; `to` is the other name that has a part in it.
pub(super) fn refusal(what: What, at: &Located, to: Option<&Located>, asker: &Asker) -> Option<Refusal> {
    let who = Who(asker);
    who.is_shut_out(&at.mount)
        .or_else(|| [Some(at), to].into_iter().flatten().find_map(|at| who.way(at)))
        .or_else(|| {
            let of_names = |at: &Located| who.changes_names(at);
            match what {
                What::Read | What::List => who.may(&at.path, READ, "read"),
                What::Write | What::Append | What::Truncate => who.may(&at.path, WRITE, "write to"),
                What::Exec => who.may(&at.path, SEARCH, "run"),
                What::Create | What::Mkdir | What::Remove => of_names(at),
                What::Rename => of_names(at).or_else(|| to.and_then(of_names)),
                What::Link => to.and_then(of_names),
                What::Attributes => who.owns(at),
            }
        })
}

struct Who<'a>(&'a Asker);

impl Who<'_> {
    /// A mount without `allow_other` is for its own user alone.
    fn is_shut_out(&self, mount: &MountInfo) -> Option<Refusal> {
        let is_for_all = mount.super_options.split(',').any(|option| option == "allow_other");
        let owner = mounts::owner(mount)?;
        let reason = format!("the mount is for user {owner} alone; --allow-other is for all");
        (!is_for_all && self.0.uid != owner).then(|| Refusal::access(reason))
    }

    /// Whether the way to a path may be gone.
    fn way(&self, at: &Located) -> Option<Refusal> {
        let folders: Vec<&Path> = at.path.ancestors().skip(1).collect();
        folders.into_iter().rev().find_map(|folder| self.may(folder, SEARCH, "go through"))
    }

    /// Whether names in the folder of a path may come and go.
    fn changes_names(&self, at: &Located) -> Option<Refusal> {
        let folder = at.path.parent().unwrap_or(&at.path);
        let refusal = self.may(folder, WRITE, "change names in");
        let held = || stat_of(open::open_target(folder).ok()?).ok();
        refusal.or_else(|| {
            let (folder, file) = (held()?, at.stat?);
            let is_others = self.0.uid != 0 && self.0.uid != file.uid && self.0.uid != folder.uid;
            let reason = "the folder has the sticky bit, and the name belongs to somebody else";
            (folder.mode & STICKY != 0 && is_others)
                .then(|| Refusal { error: "EPERM", reason: reason.to_owned() })
        })
    }

    fn owns(&self, at: &Located) -> Option<Refusal> {
        let owner = at.stat?.uid;
        let reason = format!("user {} does not own it, user {owner} does", self.0.uid);
        (self.0.uid != 0 && self.0.uid != owner).then_some(Refusal { error: "EPERM", reason })
    }

    fn may(&self, path: &Path, wanted: u32, verb: &str) -> Option<Refusal> {
        let held = open::open_target(path).ok()?;
        let stat = stat_of(&held).ok()?;
        let entries = acl_of(&held);
        if may(self.0, &stat, &entries, wanted) {
            return None;
        }
        let with = if entries.is_empty() { "" } else { ", and an ACL" };
        let (mode, owner, group) = (stat.mode & 0o7777, stat.uid, stat.gid);
        let (uid, path) = (self.0.uid, shown(PathBuf::from(path)));
        Some(Refusal::access(format!(
            "user {uid} may not {verb} {path} (mode {mode:04o}, owner {owner}, group {group}{with})"
        )))
    }
}

/// An entry of an ACL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    tag: u16,
    bits: u32,
    id: u32,
}

const USER: u16 = 2;
const GROUP_OF_FILE: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;

/// The ACL of a file, empty where it has none.
fn acl_of(fd: &std::os::fd::OwnedFd) -> Vec<Entry> {
    let mut value = vec![0; ACL_MAX];
    match get_xattr(fd, ACL, &mut value) {
        Ok(len) => parse(&value[..len]),
        Err(OsError::NODATA | OsError::OPNOTSUPP) | Err(_) => Vec::new(),
    }
}

/// Version 2 of `struct posix_acl_xattr_header`, then entries of tag, bits and id.
fn parse(value: &[u8]) -> Vec<Entry> {
    let entries = value.get(4..).unwrap_or_default().as_chunks::<8>().0;
    let entry = |bytes: &[u8; 8]| {
        let [a, b, c, d, e, f, g, h] = *bytes;
        let bits = u32::from(u16::from_le_bytes([c, d]));
        Entry { tag: u16::from_le_bytes([a, b]), bits, id: u32::from_le_bytes([e, f, g, h]) }
    };
    entries.iter().map(entry).collect()
}

/// As `generic_permission` and `posix_acl_permission` in `fs/namei.c` and `fs/posix_acl.c`.
fn may(who: &Asker, stat: &Stat, acl: &[Entry], wanted: u32) -> bool {
    if who.uid == 0 {
        // Root passes all checks but one: what nobody may run is no program.
        return wanted != SEARCH || stat.is_dir() || stat.mode & 0o111 != 0;
    }
    let has = |bits: u32| bits & wanted == wanted;
    if who.uid == stat.uid {
        return has(stat.mode >> 6);
    }
    let is_in = |gid: u32| gid == who.gid || who.groups.contains(&gid);
    if acl.is_empty() {
        return if is_in(stat.gid) { has(stat.mode >> 3) } else { has(stat.mode) };
    }
    let mask = acl.iter().find(|entry| entry.tag == MASK).map_or(7, |entry| entry.bits);
    if let Some(user) = acl.iter().find(|entry| entry.tag == USER && entry.id == who.uid) {
        return has(user.bits & mask);
    }
    let mut groups = acl.iter().filter(|entry| match entry.tag {
        GROUP_OF_FILE => is_in(stat.gid),
        GROUP => is_in(entry.id),
        _ => false,
    });
    match groups.clone().next() {
        Some(_) => groups.any(|entry| has(entry.bits & mask)),
        None => has(stat.mode),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const OWNER: u16 = 1;

    fn who(uid: u32, groups: &[u32]) -> Asker {
        Asker { uid, gid: uid, groups: groups.to_vec(), exe: None }
    }

    #[test]
    fn bits_say_what_they_say_in_the_kernel() {
        let file = Stat { mode: 0o100_640, uid: 5, gid: 6, ..Stat::default() };
        for (uid, groups, wanted, expected) in [
            (5, &[][..], WRITE, true),
            (5, &[], SEARCH, false),
            (7, &[6], READ, true),
            (7, &[6], WRITE, false),
            (7, &[], READ, false),
            (0, &[], WRITE, true),
            (0, &[], SEARCH, false),
        ] {
            assert_eq!(may(&who(uid, groups), &file, &[], wanted), expected, "{uid} {groups:?} {wanted}");
        }
        // The owner's bits count for the owner, though others have more.
        let odd = Stat { mode: 0o100_007, ..file };
        assert!(!may(&who(5, &[6]), &odd, &[], READ) && may(&who(8, &[]), &odd, &[], READ));
    }

    #[test]
    fn acls_name_users_and_groups_up_to_a_mask() {
        let file = Stat { mode: 0o100_660, uid: 5, gid: 6, ..Stat::default() };
        let mut value = vec![2, 0, 0, 0];
        for (tag, bits, id) in
            [(OWNER, 6, u32::MAX), (USER, 7, 9), (GROUP_OF_FILE, 4, u32::MAX), (GROUP, 6, 50), (MASK, 6, 0)]
        {
            value.extend(tag.to_le_bytes());
            value.extend(u16::to_le_bytes(bits));
            value.extend(u32::to_le_bytes(id));
        }
        let acl = parse(&value);
        assert_eq!(acl.len(), 5);
        for (uid, groups, wanted, expected) in [
            (9, &[][..], WRITE, true),
            (9, &[], SEARCH, false),
            (8, &[6], READ, true),
            (8, &[6], WRITE, false),
            (8, &[6, 50], WRITE, true),
            (8, &[], READ, false),
            (5, &[], WRITE, true),
        ] {
            assert_eq!(may(&who(uid, groups), &file, &acl, wanted), expected, "{uid} {groups:?} {wanted}");
        }
    }
}
