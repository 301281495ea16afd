//! INIT: read before the queues exist, answered when everything that can fail is set up.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::{OsError, event};
use shuntfs_wire::{InHeader, InitIn, InitOut, Op, Opcode, OutHeader, Request, abi};
use zerocopy::{FromBytes, IntoBytes};

use crate::mount::MountError;
use crate::negotiate::Negotiated;

/// INIT is on its way as soon as the mount is; this only bounds a kernel that is not.
const INIT_LIMIT: Duration = Duration::from_secs(10);

/// The kernel's INIT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Greeting {
    pub(crate) init: InitIn,
    header: InHeader,
}

/// Reads INIT.
pub(crate) fn greet(device: &FuseDevice) -> Result<Greeting, MountError> {
    let end = Instant::now() + INIT_LIMIT;
    let mut buffer = vec![0; abi::MIN_READ_BUFFER * 2];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if !event::wait_readable(&[device.as_fd()], Some(left)).map_err(MountError::Init)? {
            return Err(MountError::NoInit("nothing came within ten seconds"));
        }
        let len = match device.read(&mut buffer) {
            Ok(len) => len,
            Err(OsError::INTR | OsError::AGAIN | OsError::NOENT) => continue,
            Err(error) => return Err(MountError::Init(error)),
        };
        let greeting = parse(&buffer[..len])?;
        if greeting.init.major > abi::MAJOR {
            // A newer kernel is told the version and asks again.
            answer(device, &greeting, &InitOut { major: abi::MAJOR, ..InitOut::default() })?;
            continue;
        }
        if greeting.init.major < abi::MAJOR {
            return Err(MountError::NoInit("it speaks a protocol before FUSE 7"));
        }
        return Ok(greeting);
    }
}

/// Answers INIT.
pub(crate) fn agree(
    device: &FuseDevice,
    greeting: &Greeting,
    negotiated: &Negotiated,
) -> Result<(), MountError> {
    answer(device, greeting, &negotiated.reply())
}

fn answer(device: &FuseDevice, greeting: &Greeting, out: &InitOut) -> Result<(), MountError> {
    let header = OutHeader::success(greeting.header.request(), size_of::<InitOut>());
    let message = [IoSlice::new(header.as_bytes()), IoSlice::new(out.as_bytes())];
    device.write(&message).map(drop).map_err(MountError::Init)
}

fn parse(message: &[u8]) -> Result<Greeting, MountError> {
    let malformed = MountError::NoInit("its first request is no INIT");
    let Ok((header, rest)) = InHeader::read_from_prefix(message) else { return Err(malformed) };
    if header.operation() != Some(Opcode::Init) {
        return Err(malformed);
    }
    let (fixed, rest) = rest.split_at(Opcode::Init.fixed_len().min(rest.len()));
    match Request::parse(&header, fixed, rest) {
        Ok(Request { op: Op::Init(init), .. }) => Ok(Greeting { init, header }),
        _ => Err(malformed),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn message(opcode: Opcode, init: &InitIn) -> Vec<u8> {
        let body = init.as_bytes();
        let len = u32::try_from(InHeader::LEN + body.len()).unwrap();
        let header = InHeader { len, opcode: opcode.number(), unique: 2, ..InHeader::default() };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn only_an_init_opens_the_conversation() {
        let init = InitIn { major: 7, minor: 45, ..InitIn::default() };
        let greeting = parse(&message(Opcode::Init, &init)).unwrap();
        assert_eq!((greeting.init.minor, greeting.header.unique), (45, 2));
        assert!(parse(&message(Opcode::Statfs, &init)).is_err());
        assert!(parse(&message(Opcode::Init, &init)[..50]).is_err());
        assert!(parse(&[]).is_err());
    }
}
