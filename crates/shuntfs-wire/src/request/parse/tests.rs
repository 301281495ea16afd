use zerocopy::IntoBytes;

use super::*;
use crate::op::{GetxattrIn, WriteIn};

fn header(opcode: Opcode, extensions: u16) -> InHeader {
    InHeader { opcode: opcode.number(), nodeid: 1, total_extlen: extensions, ..InHeader::default() }
}

fn parse<'a>(opcode: Opcode, fixed: &'a [u8], rest: &'a [u8]) -> Result<Op<'a>, ParseError> {
    Request::parse(&header(opcode, 0), fixed, rest).map(|request| request.op)
}

#[test]
fn names_are_checked() {
    assert!(
        matches!(parse(Opcode::Lookup, b"", b"file\0"), Ok(Op::Lookup { name }) if name.as_bytes() == b"file")
    );
    assert_eq!(parse(Opcode::Lookup, b"", b".\0"), Ok(Op::LookupDot));
    assert_eq!(parse(Opcode::Lookup, b"", b"..\0"), Ok(Op::LookupDotDot));
    assert_eq!(parse(Opcode::Lookup, b"", b"file"), Err(ParseError::NoNul));
    assert_eq!(parse(Opcode::Lookup, b"", b"a/b\0"), Err(ParseError::Name));
    assert_eq!(parse(Opcode::Unlink, b"", b".\0"), Err(ParseError::Name));
    assert_eq!(parse(Opcode::Unlink, b"", b"a\0b\0"), Err(ParseError::Trailing { got: 2 }));
    let two = parse(Opcode::Rename, &[0; 8], b"a\0b\0");
    assert!(
        matches!(two, Ok(Op::Rename { name, new_name, .. }) if name.as_bytes() == b"a" && new_name.as_bytes() == b"b")
    );
    assert_eq!(parse(Opcode::Rename, &[0; 8], b"a\0"), Err(ParseError::NoNul));
    assert_eq!(parse(Opcode::Rename, &[0; 7], b"a\0b\0"), Err(ParseError::Fixed { got: 7, needed: 8 }));
    let link = parse(Opcode::Symlink, b"", b"n\0any/../target\0");
    assert!(matches!(link, Ok(Op::Symlink { target, .. }) if target.to_bytes() == b"any/../target"));
    assert!(matches!(parse(Opcode::Tmpfile, &[0; 16], b"/\0"), Ok(Op::Tmpfile { .. })));
}

#[test]
fn data_is_as_long_as_announced() {
    let arg = WriteIn { size: 3, ..WriteIn::default() };
    let write = parse(Opcode::Write, arg.as_bytes(), b"abc");
    assert!(matches!(write, Ok(Op::Write { data: b"abc", .. })));
    assert_eq!(parse(Opcode::Write, arg.as_bytes(), b"abcd"), Err(ParseError::Data { got: 4, announced: 3 }));
    assert_eq!(parse(Opcode::Write, arg.as_bytes(), b""), Err(ParseError::Data { got: 0, announced: 3 }));
    let batch = BatchForgetIn { count: 2, dummy: 0 };
    assert!(
        matches!(parse(Opcode::BatchForget, batch.as_bytes(), &[1; 32]), Ok(Op::BatchForget(all)) if all.len() == 2)
    );
    assert!(parse(Opcode::BatchForget, batch.as_bytes(), &[1; 16]).is_err());
    assert!(parse(Opcode::BatchForget, batch.as_bytes(), &[1; 33]).is_err());
    let huge = BatchForgetIn { count: u32::MAX, dummy: 0 };
    assert!(parse(Opcode::BatchForget, huge.as_bytes(), &[1; 32]).is_err());
}

#[test]
fn both_forms_of_setxattr_and_init_parse() {
    let long = SetxattrIn { size: 2, ..SetxattrIn::default() };
    for fixed in [long.as_bytes(), &long.as_bytes()[..8]] {
        let set = parse(Opcode::Setxattr, fixed, b"user.x\0ab");
        assert!(matches!(set, Ok(Op::Setxattr { name, value: b"ab", .. }) if name.to_bytes() == b"user.x"));
    }
    let init = InitIn { major: 7, minor: 45, flags2: 9, ..InitIn::default() };
    assert_eq!(parse(Opcode::Init, init.as_bytes(), b""), Ok(Op::Init(init)));
    assert_eq!(parse(Opcode::Init, init.as_bytes(), b"newer"), Ok(Op::Init(init)));
    let short = InitIn { flags2: 0, ..init };
    assert_eq!(parse(Opcode::Init, &init.as_bytes()[..16], b""), Ok(Op::Init(short)));
    let get = GetxattrIn { size: 0, padding: 0 };
    assert!(matches!(parse(Opcode::Getxattr, get.as_bytes(), b"user.x\0"), Ok(Op::Getxattr { .. })));
    assert_eq!(parse(Opcode::Listxattr, get.as_bytes(), b"x"), Err(ParseError::Trailing { got: 1 }));
}

#[test]
fn extensions_are_walked_within_their_bounds() {
    let mut groups = Vec::new();
    for word in [16_u32, 32, 1, 1234] {
        groups.extend_from_slice(&word.to_ne_bytes());
    }
    let rest = |name: &[u8], ext: &[u8]| [name, ext].concat();
    let whole = rest(b"name\0", &groups);
    let request = Request::parse(&header(Opcode::Mkdir, 2), &[0; 8], &whole).unwrap();
    assert_eq!(request.extensions.supplementary_group(), Some(1234));
    assert!(matches!(request.op, Op::Mkdir { name, .. } if name.as_bytes() == b"name"));

    let mut both = [8_u32.to_ne_bytes(), 0_u32.to_ne_bytes()].concat();
    both.extend_from_slice(&groups);
    let whole = rest(b"name\0", &both);
    let request = Request::parse(&header(Opcode::Mkdir, 3), &[0; 8], &whole).unwrap();
    assert_eq!(request.extensions.groups().collect::<Vec<_>>(), [1234]);

    for broken in [[0_u32, 32, 1, 7], [12, 32, 1, 7], [24, 32, 1, 7], [16, 32, 2, 7], [16, 32, u32::MAX, 7]] {
        let bytes: Vec<u8> = broken.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let whole = rest(b"name\0", &bytes);
        let outcome = Request::parse(&header(Opcode::Mkdir, 2), &[0; 8], &whole);
        assert_eq!(outcome, Err(ParseError::Extensions), "{broken:?}");
    }
    let longer = Request::parse(&header(Opcode::Mkdir, 9), &[0; 8], b"name\0");
    assert_eq!(longer, Err(ParseError::Extensions));
}

#[test]
fn security_contexts_stay_within_their_extension() {
    let extension = |size: u32, context: &[u8]| {
        let mut bytes = vec![];
        for word in [32_u32, 1, size, 0] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(b"label\0");
        bytes.extend_from_slice(context);
        bytes.resize(32, 0);
        [b"name\0", &bytes[..]].concat()
    };
    let whole = extension(5, b"value");
    let request = Request::parse(&header(Opcode::Mkdir, 4), &[0; 8], &whole).unwrap();
    assert_eq!(request.extensions.security_contexts().len(), 24);
    for size in [11, 4096, u32::MAX] {
        let broken = extension(size, b"value");
        let outcome = Request::parse(&header(Opcode::Mkdir, 4), &[0; 8], &broken);
        assert_eq!(outcome, Err(ParseError::Extensions), "a context of {size} bytes");
    }
}

#[test]
fn every_opcode_refuses_cut_and_padded_requests() {
    for opcode in Opcode::ALL.iter().copied() {
        let fixed = vec![0_u8; opcode.fixed_len()];
        for cut in 0..fixed.len() {
            let short = matches!(opcode, Opcode::Setxattr) && cut == SetxattrIn::SHORT_LEN
                || matches!(opcode, Opcode::Init) && cut == InitIn::SHORT_LEN;
            assert!(short || parse(opcode, &fixed[..cut], b"").is_err(), "{opcode} with {cut} bytes");
        }
        if fixed.is_empty() {
            assert!(
                parse(opcode, b"12345678", b"x\0").is_err(),
                "{opcode} with arguments that it does not have"
            );
        }
        let lax = matches!(opcode, Opcode::Init | Opcode::CuseInit);
        assert!(lax || parse(opcode, &fixed, b"x\0y\0z\0w").is_err(), "{opcode} with garbage behind it");
    }
}

#[test]
fn what_the_abi_does_not_have_is_unknown() {
    let header = InHeader { opcode: 54, ..InHeader::default() };
    assert_eq!(Request::parse(&header, b"", b"anything").map(|request| request.op), Ok(Op::Unknown(54)));
}
