//! What a lower file is (statx) and where it lives (statfs).

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::retry_on_intr;

use crate::{OsError, Result, faults};

pub use crate::statfs::{FsMagic, FsStat, filesystem_of};

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds, 0..1_000_000_000.
    pub nanos: u32,
}

/// A device number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Device {
    /// Which driver.
    pub major: u32,
    /// Which of the driver's devices.
    pub minor: u32,
}

/// The alignment that direct I/O on a file needs, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectIoAlign {
    /// Of the memory.
    pub memory: u32,
    /// Of the offset and the length; 0 where the file has no direct I/O.
    pub offset: u32,
}

/// The attributes of a lower file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth, where the file system keeps it.
    pub btime: Option<Time>,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Which device a special file stands for.
    pub rdev: Device,
    /// The device that the file is on.
    pub dev: Device,
    /// Preferred size of I/O in bytes.
    pub blksize: u32,
    /// `STATX_ATTR_*` bits that are set.
    pub attributes: u64,
    /// `STATX_ATTR_*` bits that the file system knows.
    pub attributes_mask: u64,
    /// The mount that the file was reached through (the short, reusable id), where the kernel tells.
    pub mnt_id: Option<u64>,
    /// What direct I/O needs, where the kernel tells.
    pub dio_align: Option<DirectIoAlign>,
}

impl Stat {
    /// Whether it is a folder.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    /// Whether it is a symlink.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFLNK
    }
}

/// The attributes of `name`, a symlink itself included; nothing is mounted by asking.
///
/// # Errors
/// What statx(2) gives: ENOENT, EACCES, ENOTDIR, ENAMETOOLONG.
pub fn stat_at(dir: impl AsFd, name: &CStr) -> Result<Stat> {
    faults::point()?;
    stat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// The attributes of an open file; an `O_PATH` descriptor will do.
///
/// # Errors
/// What statx(2) gives; EIO and ESTALE from a broken lower file system.
pub fn stat_of(fd: impl AsFd) -> Result<Stat> {
    faults::point()?;
    stat(fd, c"", AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW)
}

fn stat(dir: impl AsFd, name: &CStr, how: AtFlags) -> Result<Stat> {
    let how = how | AtFlags::NO_AUTOMOUNT;
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID | StatxFlags::DIOALIGN;
    match retry_on_intr(|| rustix::fs::statx(&dir, name, how, mask)) {
        Ok(found) => Ok(from_statx(&found)),
        Err(OsError::NOSYS) => {
            retry_on_intr(|| rustix::fs::statat(&dir, name, how)).map(|found| from_stat(&found))
        }
        Err(error) => Err(error),
    }
}

fn from_statx(found: &rustix::fs::Statx) -> Stat {
    let mask = StatxFlags::from_bits_retain(found.stx_mask);
    let time = |t: rustix::fs::StatxTimestamp| Time { secs: t.tv_sec, nanos: t.tv_nsec };
    let align = DirectIoAlign { memory: found.stx_dio_mem_align, offset: found.stx_dio_offset_align };
    Stat {
        ino: found.stx_ino,
        size: found.stx_size,
        blocks: found.stx_blocks,
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        btime: mask.contains(StatxFlags::BTIME).then(|| time(found.stx_btime)),
        mode: u32::from(found.stx_mode),
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        rdev: Device { major: found.stx_rdev_major, minor: found.stx_rdev_minor },
        dev: Device { major: found.stx_dev_major, minor: found.stx_dev_minor },
        blksize: found.stx_blksize,
        attributes: found.stx_attributes.bits(),
        attributes_mask: found.stx_attributes_mask.bits(),
        mnt_id: mask.contains(StatxFlags::MNT_ID).then_some(found.stx_mnt_id),
        dio_align: mask.contains(StatxFlags::DIOALIGN).then_some(align),
    }
}

fn from_stat(found: &rustix::fs::Stat) -> Stat {
    let device = |dev| Device { major: rustix::fs::major(dev), minor: rustix::fs::minor(dev) };
    let time = |secs: i64, nanos| Time { secs, nanos: u32::try_from(nanos).unwrap_or(0) };
    Stat {
        ino: found.st_ino,
        size: u64::try_from(found.st_size).unwrap_or(0),
        blocks: u64::try_from(found.st_blocks).unwrap_or(0),
        atime: time(found.st_atime, found.st_atime_nsec),
        mtime: time(found.st_mtime, found.st_mtime_nsec),
        ctime: time(found.st_ctime, found.st_ctime_nsec),
        mode: found.st_mode,
        nlink: u32::try_from(found.st_nlink).unwrap_or(u32::MAX),
        uid: found.st_uid,
        gid: found.st_gid,
        rdev: device(found.st_rdev),
        dev: device(found.st_dev),
        blksize: u32::try_from(found.st_blksize).unwrap_or(0),
        ..Stat::default()
    }
}

/// Encodes a device number in the 32 bits that FUSE carries (`new_encode_dev`); higher bits are lost there.
#[must_use]
pub fn encode_dev(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

/// The 32 bits of a device number as stat(2) gives it.
#[must_use]
pub fn encode_raw_dev(dev: u64) -> u32 {
    encode_dev(rustix::fs::major(dev), rustix::fs::minor(dev))
}

/// The device number behind the 32 bits that FUSE carries (`new_decode_dev`).
#[must_use]
pub fn decode_dev(dev: u32) -> Device {
    Device { major: (dev & 0xf_ff00) >> 8, minor: (dev & 0xff) | ((dev >> 12) & 0xf_ff00) }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn device_numbers_survive_the_wire() {
        for (major, minor) in [(0, 0), (1, 3), (8, 255), (8, 256), (259, 1_048_575), (4095, 0xf_ffff)] {
            assert_eq!(decode_dev(encode_dev(major, minor)), Device { major, minor });
        }
        assert_eq!(encode_dev(1, 3), 0x103);
        assert_eq!(encode_dev(8, 256), 0x10_0800);
    }

    #[test]
    fn statx_and_stat_agree() {
        let name = c"/dev/null";
        let full = stat_at(rustix::fs::CWD, name).unwrap();
        let plain = from_stat(&rustix::fs::statat(rustix::fs::CWD, name, AtFlags::empty()).unwrap());
        assert_eq!(full.rdev, Device { major: 1, minor: 3 });
        assert!(full.mnt_id.is_some());
        let stripped =
            Stat { btime: None, attributes: 0, attributes_mask: 0, mnt_id: None, dio_align: None, ..full };
        assert_eq!(stripped, plain);
    }
}
