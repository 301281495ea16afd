//! What goes by a ring with a pool and zero copy, recorded from Linux 7.3: commands as a server gave them, and the head areas of entries as
//! the kernel filled them.

use shuntfs_wire::{
    InHeader, InitFlags, Op, Request, UringAddBufpool, UringCmdReq, UringEntFlags, UringEntInOut,
    UringQueueFlags,
};
use zerocopy::{FromBytes, IntoBytes};

const OP_IN: usize = 128;
const ENT_IN_OUT: usize = 256;

fn frame(name: &str) -> Vec<u8> {
    let path = format!("{}/golden/linux-7.3/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The header of a request, what is said of its entry, and the fixed struct as read with `rest` behind it.
fn entry<T>(name: &str, rest: &[u8], look: impl FnOnce(InHeader, UringEntInOut, Request<'_>) -> T) -> T {
    let bytes = frame(name);
    assert_eq!(bytes.len(), 288, "{name}");
    let (header, _) = InHeader::read_from_prefix(&bytes).expect("a header");
    let (said, _) = UringEntInOut::read_from_prefix(&bytes[ENT_IN_OUT..]).expect("32 bytes");
    let opcode = header.operation().expect("a known one");
    assert_eq!((opcode.name(), said.commit_id), (name, header.unique));
    let fixed = &bytes[OP_IN..OP_IN + opcode.fixed_len()];
    look(header, said, Request::parse(&header, fixed, rest).expect("it parses"))
}

#[test]
fn init_offers_pools() {
    let bytes = frame("INIT");
    let (header, fixed) = InHeader::read_from_prefix(&bytes).unwrap();
    let Op::Init(arg) = Request::parse(&header, fixed, &[]).unwrap().op else { panic!("no INIT") };
    assert_eq!((arg.major, arg.minor, arg.unused), (7, 46, [0; 11]));
    let offered = arg.offered();
    assert_eq!(offered.bits() & !InitFlags::all().bits(), 0, "a flag that this crate does not know");
    assert!(offered.contains(InitFlags::HAS_IO_URING_BUFPOOL | InitFlags::PASSTHROUGH));
}

#[test]
fn commands_are_as_the_kernel_took_them() {
    let is = |name: &str, command: &[u8]| {
        let bytes = frame(name);
        assert!(bytes.starts_with(command) && bytes[command.len()..].iter().all(|byte| *byte == 0), "{name}");
    };
    is("ADD_QUEUE", UringCmdReq::add_queue(0, UringQueueFlags::ZERO_COPY).as_bytes());
    is("REGISTER", UringCmdReq::default().as_bytes());
    is("COMMIT_AND_FETCH", UringCmdReq { commit_id: 4, ..UringCmdReq::default() }.as_bytes());
    let (pool, _) = UringAddBufpool::read_from_prefix(&frame("ADD_BUFPOOL")).unwrap();
    assert_eq!((pool.flags, pool.qid, pool.len), (0, 0, 2 * 8192), "two payloads of `max_write`");
    assert!(pool.address != 0);
}

#[test]
fn pages_are_said_of_reads_and_writes_alone() {
    entry("READ", &[], |_, said, request| {
        assert!(matches!(request.op, Op::Read(arg) if (arg.fh, arg.size) == (9, 4)), "{request:?}");
        assert_eq!((said.flags, said.payload_sz, said.offset), (UringEntFlags::ZERO_COPY, 0, 0));
    });
    // The bytes lie in the pages; their count is said.
    entry("WRITE", b"four", |header, said, request| {
        assert!(matches!(request.op, Op::Write { arg, .. } if (arg.fh, arg.size) == (9, 4)), "{request:?}");
        assert_eq!((said.flags, said.payload_sz, header.len), (UringEntFlags::ZERO_COPY, 4, 84));
    });
    entry("LOOKUP", b"file\0", |_, said, request| {
        assert!(matches!(request.op, Op::Lookup { name, .. } if name.as_bytes() == b"file"), "{request:?}");
        assert_eq!((said.flags, said.payload_sz), (UringEntFlags::empty(), 5), "the name, in a buffer");
    });
    for name in ["OPEN", "FLUSH", "RELEASE"] {
        let (flags, len) = entry(name, &[], |_, said, _| (said.flags, said.payload_sz));
        assert_eq!((flags, len), (UringEntFlags::empty(), 0), "{name}");
    }
}
