//! Branches and calls that follow from numbers: few names, so that they meet.

use super::numbers::Numbers;
use super::op::{EXCHANGE, NOREPLACE, Op, SLOTS};
use super::policy::{ANY_DISKS, Action, SIZED_DISKS};
use super::pool::Pool;
use super::tree::{Branch, Kind, Mode, ROOT};

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];
const XATTR: &str = "user.x";
const MODES: [u32; 5] = [0o755, 0o700, 0o711, 0o2755, 0o644];

fn path(numbers: &mut Numbers) -> String {
    let depth = numbers.one(&[1, 1, 1, 2, 2, 3]);
    (0..depth).map(|_| format!("/{}", numbers.one(&NAMES))).collect()
}

fn bytes(numbers: &mut Numbers) -> Vec<u8> {
    (0..1 + numbers.below(20)).map(|_| b'a' + u8::try_from(numbers.below(26)).unwrap()).collect()
}

fn target(numbers: &mut Numbers) -> String {
    let name = numbers.one(&NAMES);
    if numbers.once_in(3) { format!("{name}/{}", numbers.one(&NAMES)) } else { name.to_owned() }
}

/// Branches with something on them; `frees` says how much space disks of their own have.
pub(crate) fn pool(numbers: &mut Numbers, frees: &[u64], me: (u32, u32)) -> Pool {
    let creates = if frees.is_empty() { ANY_DISKS.to_vec() } else { [&ANY_DISKS[..], &SIZED_DISKS].concat() };
    let count = if frees.is_empty() { 2 + numbers.below(3) } else { frees.len() };
    let branches = (0..count).map(|index| {
        let mode = match numbers.below(10) {
            0 => Mode::ReadOnly,
            1 => Mode::NoCreate,
            _ => Mode::ReadWrite,
        };
        let free = frees.get(index).copied().unwrap_or(0);
        let mut branch = Branch::new(mode, numbers.once_in(10), free, me);
        for _ in 0..numbers.below(12) {
            lay_out(numbers, &mut branch, me);
        }
        branch
    });
    let branches = branches.collect();
    let action = if numbers.once_in(4) { Action::First } else { Action::All };
    Pool { branches, create: numbers.one(&creates), action, me }
}

fn lay_out(numbers: &mut Numbers, branch: &mut Branch, me: (u32, u32)) {
    let path = path(numbers);
    let mut names: Vec<&str> = path.split('/').skip(1).collect();
    let last = names.pop().unwrap();
    let mut folder = ROOT;
    for name in names {
        folder = match branch.child(folder, name) {
            Some(inode) if branch.inodes[inode].is_folder() => inode,
            Some(_) => return,
            None => branch.make(folder, name, Kind::Folder([].into()), 0o755, me),
        };
    }
    if branch.child(folder, last).is_some() {
        return;
    }
    let files = branch.walk().into_iter().map(|(_, inode)| inode);
    let files: Vec<usize> = files.filter(|inode| !branch.inodes[*inode].is_folder()).collect();
    let kind = match numbers.below(10) {
        0 => Kind::Symlink(target(numbers)),
        1 => Kind::Fifo,
        2 if !files.is_empty() => return branch.link(folder, last, numbers.one(&files)),
        3..=5 => Kind::Folder([].into()),
        _ => Kind::File(bytes(numbers)),
    };
    let is_link = matches!(kind, Kind::Symlink(_));
    let mode = match kind {
        Kind::Folder(_) => numbers.one(&MODES[..4]),
        Kind::Symlink(_) => 0o777,
        _ => numbers.one(&[0o644, 0o600]),
    };
    let may_have_xattrs = matches!(kind, Kind::File(_) | Kind::Folder(_));
    let inode = branch.make(folder, last, kind, mode, me);
    let attributes = &mut branch.inodes[inode].attributes;
    // What a set-group-id folder would do to it is not done below.
    (attributes.mode, attributes.gid) = (mode, me.1);
    if !is_link && numbers.once_in(2) {
        attributes.mtime = Some(1_000_000 + numbers.below(1000) as u64);
    }
    if may_have_xattrs && numbers.once_in(4) {
        attributes.xattrs.insert(XATTR.to_owned(), bytes(numbers));
    }
}

/// A call.
pub(crate) fn op(numbers: &mut Numbers, me: (u32, u32)) -> Op {
    let (path, slot) = (path(numbers), numbers.below(SLOTS));
    match numbers.below(44) {
        0..=2 => Op::Create { path, mode: numbers.one(&[0o644, 0o600]), slot },
        3..=4 => Op::Save { path, bytes: bytes(numbers) },
        5..=7 => Op::Open { path, writes: numbers.once_in(2), slot },
        8..=10 => Op::Write { slot, at: numbers.below(30), bytes: bytes(numbers) },
        11..=12 => Op::Read { slot },
        13 => Op::Close { slot },
        14 => Op::Truncate { path, len: numbers.below(30) },
        15..=18 => Op::Mkdir { path, mode: numbers.one(&[0o755, 0o700]) },
        19 => Op::Mkfifo { path },
        20 => Op::Mknod { path },
        21 => Op::Symlink { target: target(numbers), path },
        22 => Op::Link { old: path, new: self::path(numbers) },
        23..=24 => Op::Unlink { path },
        25..=26 => Op::Rmdir { path },
        27..=33 => {
            let flags = numbers.one(&[0, 0, 0, 0, NOREPLACE, EXCHANGE]);
            Op::Rename { old: path, new: self::path(numbers), flags }
        }
        34 => Op::Chmod { path, mode: numbers.one(&MODES) },
        35 if me.0 == 0 => {
            let id = u32::try_from(70_000 + numbers.below(3)).unwrap();
            Op::Chown { path, uid: id, gid: id + 10 }
        }
        35 => Op::Chown { path, uid: me.0, gid: me.1 },
        36 => Op::SetMtime { path, secs: 2_000_000 + numbers.below(1000) as u64 },
        37 => Op::SetXattr { path, name: XATTR, value: bytes(numbers) },
        38 => Op::RemoveXattr { path, name: XATTR },
        39..=40 => Op::List { path },
        41..=42 => Op::Stat { path },
        _ => Op::Forget,
    }
}
