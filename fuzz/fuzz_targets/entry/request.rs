//! Takes any bytes for a request. Refusing it is fine; a panic is a bug, and so is a request that was read and does
//! not hold what its type promises. Runs under libFuzzer and in the tests of `shuntfs-wire`.

use shuntfs_wire::{InHeader, InitFlags, Name, Op, Opcode, Request};
use zerocopy::FromBytes;

pub(crate) fn run(bytes: &[u8]) {
    let Ok((header, body)) = InHeader::read_from_prefix(bytes) else { return };
    // As a device hands it over, with and without the long form of SETXATTR, and split where no kernel would.
    let full = header.operation().map_or(0, Opcode::fixed_len);
    let agreed = header.operation().map_or(0, |opcode| opcode.fixed_len_agreed(InitFlags::empty()));
    for fixed_len in [full, agreed, usize::from(header.padding)] {
        let (fixed, rest) = body.split_at(fixed_len.min(body.len()));
        if let Ok(request) = Request::parse(&header, fixed, rest) {
            check(&request, &header, fixed, rest);
        }
    }
}

fn check(request: &Request<'_>, header: &InHeader, fixed: &[u8], rest: &[u8]) {
    assert_eq!(request.header, *header);
    assert_eq!(Request::parse(header, fixed, rest).as_ref(), Ok(request), "read twice, and differently");
    assert!(!format!("{request:?}").is_empty());
    let extensions = request.extensions;
    assert!(
        extensions.groups().count() * 4 + extensions.security_contexts().len() <= header.extensions_len()
    );
    assert_eq!(extensions.groups().next(), extensions.supplementary_group());
    // What is borrowed, and what lies between: all of the rest is accounted for.
    let body_len = rest.len() - header.extensions_len();
    let used = match request.op {
        Op::Lookup { name } | Op::Unlink { name } | Op::Rmdir { name } => len_of(name),
        Op::Mknod { name, .. } | Op::Mkdir { name, .. } | Op::Link { name, .. } | Op::Create { name, .. } => {
            len_of(name)
        }
        Op::Symlink { name, target } => len_of(name) + target.to_bytes_with_nul().len(),
        Op::Rename { name, new_name, .. } | Op::Rename2 { name, new_name, .. } => {
            len_of(name) + len_of(new_name)
        }
        Op::Setxattr { arg, name, value } => {
            assert_eq!(value.len(), arg.size as usize);
            name.to_bytes_with_nul().len() + value.len()
        }
        Op::Getxattr { name, .. } | Op::Removexattr { name } => name.to_bytes_with_nul().len(),
        Op::Write { arg, data } => {
            assert_eq!(data.len(), arg.size as usize);
            data.len()
        }
        Op::Ioctl { arg, data } => {
            assert_eq!(data.len(), arg.in_size as usize);
            data.len()
        }
        Op::NotifyReply { arg, data } => {
            assert_eq!(data.len(), arg.size as usize);
            data.len()
        }
        Op::BatchForget(records) => size_of_val(records),
        Op::Removemapping(records) => size_of_val(records),
        // What follows these says nothing, or is not known here.
        Op::LookupDot
        | Op::LookupDotDot
        | Op::Tmpfile { .. }
        | Op::Init(_)
        | Op::CuseInit(_)
        | Op::Unknown(_) => {
            return;
        }
        _ => 0,
    };
    assert_eq!(used, body_len, "{request:?}");
}

/// The length of a name with its NUL, once it was checked that it is one.
fn len_of(name: Name<'_>) -> usize {
    assert_eq!(Name::new(name.as_c_str()), Some(name));
    name.as_c_str().to_bytes_with_nul().len()
}
