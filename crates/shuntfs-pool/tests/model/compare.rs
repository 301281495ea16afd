//! Everything that a mount shows, beside the model.

use std::collections::HashMap;

use shuntfs::Errno;

use super::generate::NAMES;
use super::op::Mount;
use super::pool::{Found, Pool};
use super::tree::Kind;

/// How the mount differs from the model.
pub(crate) fn difference(pool: &Pool, mount: &impl Mount) -> Option<String> {
    let mut numbers = HashMap::new();
    let mut ahead = vec![Vec::<String>::new()];
    while let Some(way) = ahead.pop() {
        let (folder, parts) = (format!("/{}", way.join("/")), pool.parts(&way));
        let (expected, listed) = (pool.names(&parts), mount.list(&folder));
        if listed.as_ref() != Ok(&expected) {
            return Some(format!("the listing of {folder}: model {expected:?}, mount {listed:?}"));
        }
        for name in NAMES {
            let path = format!("{}/{name}", folder.trim_end_matches('/'));
            let Some(found) = pool.look(&parts, name) else {
                if mount.lstat(&path).err() != Some(Errno::NOENT) {
                    return Some(format!("{path} is there"));
                }
                continue;
            };
            if let Some(difference) = entry(pool, mount, &path, &found, &mut numbers) {
                return Some(difference);
            }
            if found.is_folder() {
                ahead.push([&way[..], &[name.to_owned()]].concat());
            }
        }
    }
    None
}

fn entry(
    pool: &Pool,
    mount: &impl Mount,
    path: &str,
    found: &Found,
    numbers: &mut HashMap<u64, Found>,
) -> Option<String> {
    let expected = pool.stat(found);
    let (seen, number) = match mount.lstat(path) {
        Ok(seen) => seen,
        Err(errno) => return Some(format!("{path}: {errno:?}, model {expected:?}")),
    };
    if !seen.is_as(&expected) {
        return Some(format!("{path}:\n  model {expected:?}\n  mount {seen:?}"));
    }
    if let Some(other) = numbers.insert(number, found.clone())
        && other != *found
    {
        return Some(format!("{path} has the number of something else"));
    }
    let inode = pool.inode(found.shown());
    let is_same = match &inode.kind {
        Kind::File(bytes) => mount.read(path).as_ref() == Ok(bytes),
        Kind::Symlink(target) => mount.readlink(path).as_ref() == Ok(target),
        Kind::Folder(_) | Kind::Fifo => true,
    };
    if !is_same {
        return Some(format!("what {path} holds: model {:?}, mount {:?}", inode.kind, mount.read(path)));
    }
    if matches!(inode.kind, Kind::File(_) | Kind::Folder(_)) {
        let expected = inode.attributes.xattrs.get("user.x").cloned().ok_or(Errno::NODATA);
        let seen = mount.xattr(path, "user.x");
        if seen != expected {
            return Some(format!("user.x of {path}: model {expected:?}, mount {seen:?}"));
        }
    }
    None
}
