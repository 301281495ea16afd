//! Requests recorded from a kernel (see `golden/README.md`), each read and looked into.

mod files;
mod frames;
mod names;
mod nodes;
mod rings;

use std::collections::BTreeSet;

use frames::all;
use shuntfs_wire::{InHeader, InitFlags, Op, Opcode, Request};
use zerocopy::FromBytes;

#[test]
fn every_frame_is_what_its_name_says() {
    let mut seen = BTreeSet::new();
    for (file, bytes) in all() {
        let (header, fixed, rest) = split(&bytes);
        let opcode = header.operation().unwrap();
        assert_eq!(file.trim_end_matches(".bin").split('-').next(), Some(opcode.name()), "{file}");
        assert_eq!(header.len as usize, bytes.len(), "{file}");
        assert_eq!((header.uid, header.gid, header.padding), (0, 0, 0), "{file}");
        assert!(!header.is_resent(), "{file}");
        assert_eq!(fixed.len(), opcode.fixed_len(), "{file}");
        let request = Request::parse(&header, fixed, rest).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_ne!(request.op, Op::Unknown(header.opcode), "{file}");
        seen.insert(opcode);
    }
    assert!(seen.len() >= 46, "only {} operations: {seen:?}", seen.len());
    let missing: Vec<_> = Opcode::ALL.iter().filter(|opcode| !seen.contains(opcode)).collect();
    let elsewhere = [
        Opcode::Bmap,
        Opcode::Destroy,
        Opcode::Setupmapping,
        Opcode::Removemapping,
        Opcode::Syncfs,
        Opcode::CuseInit,
    ];
    assert_eq!(missing, elsewhere.iter().collect::<Vec<_>>(), "what an ordinary mount is never asked for");
}

#[test]
fn a_frame_reads_the_same_at_any_address() {
    for (file, bytes) in all() {
        let (header, fixed, rest) = split(&bytes);
        let straight = Request::parse(&header, fixed, rest).unwrap();
        for shift in 1..8 {
            let moved = [&vec![0; shift], fixed, rest].concat();
            let (fixed, rest) = moved[shift..].split_at(fixed.len());
            assert_eq!(Request::parse(&header, fixed, rest).unwrap(), straight, "{file} at {shift}");
        }
    }
}

#[test]
fn a_frame_that_was_cut_is_refused() {
    for (file, bytes) in all() {
        for len in InHeader::LEN..bytes.len() {
            let (header, fixed, rest) = split(&bytes[..len]);
            let short_init = header.operation() == Some(Opcode::Init) && fixed.len() == 16;
            assert_eq!(Request::parse(&header, fixed, rest).is_ok(), short_init, "{file} cut to {len}");
        }
    }
}

#[test]
fn a_frame_with_more_at_its_end_is_refused() {
    for (file, mut bytes) in all() {
        bytes.extend_from_slice(&[0; 8]);
        let (header, fixed, rest) = split(&bytes);
        let request = Request::parse(&header, fixed, rest);
        let longer_init = header.operation() == Some(Opcode::Init);
        assert_eq!(request.is_ok(), longer_init, "{file}: {request:?}");
    }
}

#[test]
fn init_offers_what_linux_6_18_has() {
    let arg = request("INIT.bin", |request| match request.op {
        Op::Init(arg) => arg,
        other => panic!("{other:?}"),
    });
    assert_eq!((arg.major, arg.minor, arg.max_readahead), (7, 45, 131_072));
    assert_eq!(arg.unused, [0; 11]);
    let offered = arg.offered();
    assert_eq!(offered.bits() & !InitFlags::all().bits(), 0, "a flag that this crate does not know");
    for flag in [
        InitFlags::INIT_EXT,
        InitFlags::POSIX_LOCKS,
        InitFlags::DO_READDIRPLUS,
        InitFlags::WRITEBACK_CACHE,
        InitFlags::SECURITY_CTX,
        InitFlags::CREATE_SUPP_GROUP,
        InitFlags::PASSTHROUGH,
        InitFlags::HAS_RESEND,
        InitFlags::ALLOW_IDMAP,
        InitFlags::REQUEST_TIMEOUT,
    ] {
        assert!(offered.contains(flag), "{flag:?}");
    }
    assert!(!offered.intersects(InitFlags::RESERVED | InitFlags::FILE_OPS | InitFlags::MAP_ALIGNMENT));
}

/// The same without the second word, as a kernel before 5.17 sends it.
#[test]
fn init_is_read_in_its_short_form() {
    let (_, bytes) = all().into_iter().find(|(file, _)| file == "INIT.bin").unwrap();
    let (header, fixed, rest) = split(&bytes[..56]);
    assert!(rest.is_empty());
    let Op::Init(arg) = Request::parse(&header, fixed, rest).unwrap().op else { panic!("no INIT") };
    assert_eq!((arg.minor, arg.flags2), (45, 0));
}

#[test]
fn the_interrupt_names_the_lock_that_waited() {
    let waiting = request("SETLKW.bin", |request| request.header.unique);
    request("INTERRUPT.bin", |request| {
        assert!(matches!(request.op, Op::Interrupt(arg) if arg.unique == waiting), "{request:?}");
        assert_eq!(request.header.unique, waiting | shuntfs_wire::abi::UNIQUE_INTERRUPT);
    });
}

/// Header, fixed struct and what follows, as a device's buffer is taken apart.
fn split(frame: &[u8]) -> (InHeader, &[u8], &[u8]) {
    let (header, body) = InHeader::read_from_prefix(frame).expect("longer than a header");
    let (fixed, rest) = body.split_at(header.operation().map_or(0, Opcode::fixed_len).min(body.len()));
    (header, fixed, rest)
}

/// What `look` sees in the request of this file.
fn request<T>(file: &str, look: impl FnOnce(Request<'_>) -> T) -> T {
    let path = format!("{}/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (header, fixed, rest) = split(&bytes);
    look(Request::parse(&header, fixed, rest).unwrap_or_else(|error| panic!("{file}: {error}")))
}
