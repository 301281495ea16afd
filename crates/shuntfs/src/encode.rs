//! From what file systems say to what travels: pure conversions, the same for every file system.

use std::time::Duration;

use shuntfs_wire as wire;

use crate::args::{LockRange, LockType};
use crate::attr::{Attr, AttrReply, Birth, Entry, Statfs, Timestamp};

/// `STATX_BASIC_STATS`.
const STATX_BASIC: u32 = 0x7ff;
/// `STATX_BTIME`.
const STATX_BTIME: u32 = 0x800;

/// Seconds and nanoseconds; the longest duration is what the kernel takes for "forever".
fn ttl(ttl: Duration) -> (u64, u32) {
    if ttl == Duration::MAX { (u64::MAX, 0) } else { (ttl.as_secs(), ttl.subsec_nanos()) }
}

fn attr(attr: &Attr) -> wire::Attr {
    wire::Attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.secs.cast_unsigned(),
        mtime: attr.mtime.secs.cast_unsigned(),
        ctime: attr.ctime.secs.cast_unsigned(),
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
        flags: wire::AttrFlags::empty(),
    }
}

pub(crate) fn attr_out(reply: &AttrReply) -> wire::AttrOut {
    let (attr_valid, attr_valid_nsec) = ttl(reply.ttl);
    wire::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attr(&reply.attr) }
}

pub(crate) fn entry_out(entry: &Entry) -> wire::EntryOut {
    let (entry_valid, entry_valid_nsec) = ttl(entry.ttl);
    let (attr_valid, attr_valid_nsec) = ttl(entry.attr_ttl);
    wire::EntryOut {
        nodeid: entry.node.map_or(0, wire::NodeId::get),
        generation: entry.generation.0,
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: attr(&entry.attr),
    }
}

fn sx_time(time: Timestamp) -> wire::SxTime {
    wire::SxTime { tv_sec: time.secs, tv_nsec: time.nanos, reserved: 0 }
}

pub(crate) fn statx_out(reply: &AttrReply, birth: &Birth) -> wire::StatxOut {
    let (attr_valid, attr_valid_nsec) = ttl(reply.ttl);
    let attr = &reply.attr;
    let stat = wire::Statx {
        mask: STATX_BASIC | if birth.btime.is_some() { STATX_BTIME } else { 0 },
        blksize: attr.blksize,
        attributes: birth.attributes,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: u16::try_from(attr.mode & 0xffff).unwrap_or_default(),
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        attributes_mask: birth.attributes_mask,
        atime: sx_time(attr.atime),
        btime: sx_time(birth.btime.unwrap_or_default()),
        ctime: sx_time(attr.ctime),
        mtime: sx_time(attr.mtime),
        rdev_major: attr.rdev >> 8 & 0xfff,
        rdev_minor: attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00,
        ..wire::Statx::default()
    };
    wire::StatxOut { attr_valid, attr_valid_nsec, stat, ..wire::StatxOut::default() }
}

pub(crate) fn statfs_out(state: &Statfs) -> wire::StatfsOut {
    let st = wire::Kstatfs {
        blocks: state.blocks,
        bfree: state.bfree,
        bavail: state.bavail,
        files: state.files,
        ffree: state.ffree,
        bsize: state.bsize,
        namelen: state.namelen,
        frsize: state.frsize,
        ..wire::Kstatfs::default()
    };
    wire::StatfsOut { st }
}

const F_RDLCK: u32 = 0;
const F_WRLCK: u32 = 1;
const F_UNLCK: u32 = 2;

pub(crate) fn lock_out(lock: &LockRange) -> wire::LkOut {
    let kind = match lock.kind {
        LockType::Read => F_RDLCK,
        LockType::Write => F_WRLCK,
        LockType::Unlock => F_UNLCK,
    };
    wire::LkOut { lk: wire::FileLock { start: lock.start, end: lock.end, r#type: kind, pid: lock.pid } }
}

/// `None` for a kind that does not exist.
pub(crate) fn lock_in(lock: &wire::FileLock) -> Option<LockRange> {
    let kind = match lock.r#type {
        F_RDLCK => LockType::Read,
        F_WRLCK => LockType::Write,
        F_UNLCK => LockType::Unlock,
        _ => return None,
    };
    Some(LockRange { start: lock.start, end: lock.end, kind, pid: lock.pid })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn durations_and_times_keep_their_meaning() {
        assert_eq!(ttl(Duration::MAX), (u64::MAX, 0));
        assert_eq!(ttl(Duration::new(3, 7)), (3, 7));
        assert_eq!(ttl(Duration::ZERO), (0, 0));
        let before = Attr { mtime: Timestamp { secs: -2, nanos: 5 }, ..Attr::default() };
        assert_eq!(attr(&before).mtime, u64::MAX - 1);
        assert_eq!(attr(&before).mtimensec, 5);
    }

    #[test]
    fn a_negative_entry_has_no_node() {
        let out = entry_out(&Entry::negative(Duration::from_millis(1500)));
        assert_eq!((out.nodeid, out.entry_valid, out.entry_valid_nsec), (0, 1, 500_000_000));
    }

    #[test]
    fn device_numbers_come_apart() {
        // major 0x345, minor 0x6789a, encoded as the kernel's new_encode_dev does.
        let rdev = 0x9a | 0x345 << 8 | (0x6789a & !0xff) << 12;
        let reply = AttrReply { attr: Attr { rdev, mode: 0o20644, ..Attr::default() }, ttl: Duration::ZERO };
        let out = statx_out(&reply, &Birth::default());
        assert_eq!((out.stat.rdev_major, out.stat.rdev_minor), (0x345, 0x6789a));
        assert_eq!((out.stat.mask, out.stat.mode), (STATX_BASIC, 0o20644));
    }

    #[test]
    fn locks_go_both_ways() {
        for kind in [LockType::Read, LockType::Write, LockType::Unlock] {
            let lock = LockRange { start: 3, end: wire::abi::LOCK_END_OF_FILE, kind, pid: 9 };
            assert_eq!(lock_in(&lock_out(&lock).lk), Some(lock));
        }
        assert_eq!(lock_in(&wire::FileLock { r#type: 3, ..wire::FileLock::default() }), None);
    }
}
