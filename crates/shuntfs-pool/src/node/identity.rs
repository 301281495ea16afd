//! What makes a lower inode the same one.

use shuntfs_sys::{Device, FileHandle, Stat, encode_dev};

use crate::branch::MountIndex;

/// What makes a lower inode the same one: never a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// Inode number.
    pub(crate) ino: u64,
    /// Device, in 32 bits; 0 where there is a handle, which says by itself which subvolume it is of.
    pub(crate) device: u32,
    /// The mount, because a folder that is mounted twice must be two nodes: it has two parents.
    pub(crate) mount: MountIndex,
    /// The handle, whose generation tells two lives of one inode number apart; `None` where there are none.
    pub(crate) handle: Option<FileHandle>,
}

impl Identity {
    pub(crate) fn new(stat: &Stat, mount: MountIndex, handle: Option<FileHandle>) -> Self {
        let device = if handle.is_some() { 0 } else { device_number(stat.dev) };
        Self { ino: stat.ino, device, mount, handle }
    }

    /// The identity that a handle alone gives, where its inode number is known.
    pub(crate) fn of_handle(ino: u64, mount: MountIndex, handle: FileHandle) -> Self {
        Self { ino, device: 0, mount, handle: Some(handle) }
    }

    /// The identity of a folder that may be in several places: a number that no other has.
    pub(crate) fn of_folder(serial: u64) -> Self {
        Self { ino: serial, device: 0, mount: MountIndex::NOWHERE, handle: None }
    }

    /// A hash of it; inode numbers of one device spread by themselves, so one round of mixing will do.
    pub(crate) fn hash(&self) -> u64 {
        let place = (u64::from(self.device) << 32) | u64::from(self.mount.bits());
        mix(self.ino ^ mix(place))
    }
}

impl std::hash::Hash for Identity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(Self::hash(self));
    }
}

pub(crate) fn device_number(device: Device) -> u32 {
    encode_dev(device.major, device.minor)
}

/// Spreads the bits of a number (the finalizer of splitmix64).
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
