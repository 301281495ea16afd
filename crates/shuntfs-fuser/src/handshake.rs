//! INIT.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use shuntfs_sys::{FuseDevice, OsError, event};
use shuntfs_wire as wire;
use shuntfs_wire::{InHeader, InitIn, InitOut, Op, Opcode, abi};
use zerocopy::{FromBytes, IntoBytes};

use crate::errno::Errno;
use crate::sender;

/// The oldest protocol whose answer to INIT has the length of today's.
const MINOR_MIN: u32 = 23;
/// INIT is on its way as soon as the mount is.
const LIMIT: Duration = Duration::from_secs(10);

/// The kernel's INIT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Greeting {
    pub(crate) header: InHeader,
    pub(crate) init: InitIn,
}

impl Greeting {
    /// Reads INIT.
    pub(crate) fn read(device: &FuseDevice) -> io::Result<Self> {
        let mut buffer = vec![0; abi::MIN_READ_BUFFER * 2];
        loop {
            if !event::wait_readable(&[device.as_fd()], Some(LIMIT))? {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel sends no INIT"));
            }
            let len = match device.read(&mut buffer) {
                Ok(len) => len,
                Err(OsError::INTR | OsError::AGAIN | OsError::NOENT) => continue,
                Err(OsError::NODEV) => {
                    return Err(io::Error::new(io::ErrorKind::NotConnected, "unmounted before INIT"));
                }
                Err(error) => return Err(error.into()),
            };
            let greeting = Self::parse(&buffer[..len])
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the first request is no INIT"))?;
            if greeting.init.major > abi::MAJOR {
                // A newer kernel is told the version and asks again.
                greeting.agree(device, &InitOut { major: abi::MAJOR, ..InitOut::default() });
                continue;
            }
            if (greeting.init.major, greeting.init.minor) < (abi::MAJOR, MINOR_MIN) {
                greeting.refuse(device, Errno::EPROTO);
                let what = format!("FUSE {}.{} is too old", greeting.init.major, greeting.init.minor);
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
            return Ok(greeting);
        }
    }

    /// Answers.
    pub(crate) fn agree(&self, device: &FuseDevice, out: &InitOut) {
        sender::write(device, self.header.request(), Ok(&[out.as_bytes()]));
    }

    /// Answers with an error.
    pub(crate) fn refuse(&self, device: &FuseDevice, errno: Errno) {
        sender::write(device, self.header.request(), Err(errno.to_wire()));
    }

    fn parse(message: &[u8]) -> Option<Self> {
        let (header, rest) = InHeader::read_from_prefix(message).ok()?;
        if header.operation() != Some(Opcode::Init) {
            return None;
        }
        let (fixed, rest) = rest.split_at(Opcode::Init.fixed_len().min(rest.len()));
        match wire::Request::parse(&header, fixed, rest).ok()?.op {
            Op::Init(init) => Some(Self { header, init }),
            _ => None,
        }
    }
}
