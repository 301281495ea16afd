//! Servers that die with requests in hand, and those who come after them. A server dies here by not answering: what it has read is
//! sent again, and each request is answered once in the end.

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuntfs::takeover::{Handover, HandoverError, Stateless, TakeoverError, resend};
use shuntfs::{
    Attr, AttrReply, Cx, Entry, Errno, FileType, Filesystem, FuseDevice, InitFlags, Name, NodeId,
    NotifyError, Offered, OpSet, Opcode, Result, Session, SessionOptions, Transport, TransportKind, Wanted,
};
use shuntfs_fake::{Fake, Settings};
use shuntfs_sys::OsError;
use shuntfs_wire::{GetattrIn, InHeader, InitOut, OutHeader, abi};
use zerocopy::{FromBytes, IntoBytes};

const ROOT: u64 = 1;
const FILE: NodeId = NodeId::new(2).expect("not zero");

/// Whether the requests for attributes had come before, as they came.
type Resent = Arc<Mutex<Vec<bool>>>;

/// A folder with one file, and with one name whose lookup waits for a signal.
#[derive(Debug, Default)]
struct Plain(Resent);

fn attr(node: NodeId) -> AttrReply {
    let kind = if node == FILE { FileType::Regular } else { FileType::Directory };
    Attr::new(node.get(), kind, 0o555).valid_for(Duration::ZERO)
}

impl Filesystem for Plain {
    type File = ();
    type Dir = ();

    async fn lookup(&self, cx: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        match name.as_bytes() {
            b"file" => Ok(Entry::new(FILE, attr(FILE))),
            b"waits" => {
                cx.interrupted().await;
                Err(Errno::INTR)
            }
            _ => Err(Errno::NOENT),
        }
    }

    async fn getattr(&self, cx: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        self.0.lock().expect("whole").push(cx.is_resent());
        Ok(attr(node))
    }
}

impl Stateless for Plain {}

/// One that gives out numbers of open files, unless it is told not to.
#[derive(Debug)]
struct Opens(Option<OpSet>);

impl Filesystem for Opens {
    type File = ();
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN;

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, shuntfs::InitError> {
        Ok(Wanted { ops: self.0, dont_mask: true, ..Wanted::default() })
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        Ok(attr(node))
    }
}

impl Stateless for Opens {}

fn settings(kind: TransportKind) -> Settings {
    let mut settings = Settings::default();
    settings.session =
        SessionOptions { transport: Transport::Only(kind), queues: Some(2), ..settings.session };
    settings
}

/// A server that dies after it has told what it will agree on, and before it answers INIT.
fn dies_early(device: &FuseDevice, settings: &Settings) -> Handover {
    let mut told = None;
    let device = device.clone_of().expect("dup");
    let died =
        Session::serve_lasting(Arc::new(Plain::default()), device, &settings.session, |handover, clones| {
            assert_eq!(clones.len() + 1, handover.descriptors);
            told = Some(handover.clone());
            Err(io::Error::other("it dies"))
        });
    assert!(matches!(died, Err(TakeoverError::Untold(_))), "{died:?}");
    told.expect("it was told")
}

fn take_over<F: Stateless>(
    fs: F,
    device: &FuseDevice,
    handover: &Handover,
    settings: &Settings,
) -> std::result::Result<Session, TakeoverError> {
    let duplicates = || device.clone_of().expect("dup");
    let clones = (1..handover.descriptors).map(|_| duplicates()).collect();
    Session::take_over(Arc::new(fs), duplicates(), clones, handover, &settings.session)
}

fn read(device: &FuseDevice) -> InHeader {
    let mut request = vec![0; 1 << 16];
    let len = device.read(&mut request).expect("a request");
    InHeader::read_from_prefix(&request[..len]).expect("a header").0
}

fn answer_init(device: &FuseDevice, init: &InHeader, handover: &Handover) {
    let agreed = &handover.agreed;
    let mut out = InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: agreed.max_readahead,
        max_background: agreed.max_background,
        congestion_threshold: agreed.congestion_threshold,
        max_write: agreed.max_write,
        time_gran: agreed.time_gran,
        max_pages: agreed.max_pages,
        ..InitOut::default()
    };
    out.set_agreed(agreed.init_flags());
    let header = OutHeader::success(init.request(), size_of::<InitOut>());
    let written = device.write(&[IoSlice::new(header.as_bytes()), IoSlice::new(out.as_bytes())]);
    assert_eq!(written, Ok(80));
}

#[test]
fn a_successor_answers_init_where_it_was_not() {
    for kind in [TransportKind::Device, TransportKind::Cloned] {
        let settings = settings(kind);
        let (mut fake, device) = Fake::bare(&settings).unwrap();
        let handover = dies_early(&device, &settings);
        let session = take_over(Plain::default(), &device, &handover, &settings).unwrap();
        assert_eq!(session.negotiated(), handover.agreed);
        fake.greet(&settings).unwrap();
        assert_eq!(fake.stat("/file").unwrap().ino, 2);
        assert_eq!(fake.stat("/gone").err(), Some(Errno::NOENT));
        assert_eq!(session.status().transport.kind, kind.to_string());
        fake.end();
        session.wait();
    }
}

/// A server that dies before it has told anything leaves a connection that is begun anew.
#[test]
fn init_that_nobody_spoke_of_is_read_again() {
    let settings = settings(TransportKind::Device);
    let (mut fake, device) = Fake::bare(&settings).unwrap();
    assert!(!read(&device).is_resent());
    resend(&device).unwrap();
    let next = device.clone_of().unwrap();
    let session =
        Session::serve_lasting(Arc::new(Plain::default()), next, &settings.session, |_, _| Ok(())).unwrap();
    fake.greet(&settings).unwrap();
    assert_eq!(fake.stat("/file").unwrap().ino, 2);
    fake.end();
    session.wait();
}

#[test]
fn what_was_read_comes_again_and_is_answered_once() {
    for kind in [TransportKind::Device, TransportKind::Cloned] {
        let settings = settings(kind);
        let (mut fake, device) = Fake::bare(&settings).unwrap();
        let handover = dies_early(&device, &settings);
        resend(&device).unwrap();
        let init = read(&device);
        assert!(init.is_resent());
        answer_init(&device, &init, &handover);
        fake.greet(&settings).unwrap();
        let ask = || fake.start(Opcode::Getattr.number(), ROOT, GetattrIn::default().as_bytes()).unwrap();
        let (first, second) = (ask(), ask());
        let waits = fake.start(Opcode::Lookup.number(), ROOT, b"waits\0").unwrap();
        let taken: Vec<InHeader> = (0..3).map(|_| read(&device)).collect();
        assert!(taken.iter().all(|header| !header.is_resent()));
        let unread = ask();

        let resent = Resent::default();
        let session = take_over(Plain(Arc::clone(&resent)), &device, &handover, &settings).unwrap();
        for pending in [first, second, unread] {
            pending.wait().unwrap();
        }
        let mut seen = resent.lock().unwrap().clone();
        seen.sort_unstable();
        assert_eq!(seen, [false, true, true]);
        // The dead server was not quite dead.
        let late = OutHeader::error(taken[0].request(), Errno::IO);
        assert_eq!(device.write(&[IoSlice::new(late.as_bytes())]), Err(OsError::NOENT));
        waits.interrupt().unwrap();
        assert_eq!(waits.wait(), Err(Errno::INTR), "the INTERRUPT found the request that came again");
        fake.end();
        session.wait();
    }
}

#[test]
fn a_kernel_that_cannot_send_again_is_refused() {
    let mut settings = settings(TransportKind::Device);
    settings.offered -= InitFlags::HAS_RESEND;
    settings.limit = Duration::from_millis(100);
    let (fake, device) = Fake::bare(&settings).unwrap();
    assert_eq!(resend(&device), Err(NotifyError::Unsupported));
    let refused =
        Session::serve_lasting(Arc::new(Plain::default()), device, &settings.session, |_, _| Ok(()));
    let error = refused.expect_err("it has no RESEND");
    assert!(matches!(error, TakeoverError::NoResend) && error.to_string().contains("6.9"), "{error}");
    fake.finish().expect_err("INIT was not answered");
}

#[test]
fn what_cannot_be_gone_on_with_is_refused_and_the_next_one_goes_on() {
    let settings = settings(TransportKind::Cloned);
    let (mut fake, device) = Fake::bare(&settings).unwrap();
    let handover = dies_early(&device, &settings);
    let of = |error: std::result::Result<Session, TakeoverError>| error.map(drop).unwrap_err();

    let keeps = of(take_over(Opens(None), &device, &handover, &settings));
    assert!(matches!(keeps, TakeoverError::Keeps("OPEN")), "{keeps}");
    let other = of(take_over(Opens(Some(OpSet::empty())), &device, &handover, &settings));
    let differs = HandoverError::Differs { what: "the INIT flags" };
    assert!(matches!(&other, TakeoverError::Handover(error) if *error == differs), "{other}");
    let mut ring = handover.clone();
    ring.agreed.flags |= InitFlags::OVER_IO_URING.bits();
    assert!(matches!(of(take_over(Plain::default(), &device, &ring, &settings)), TakeoverError::Ring));
    let mut newer = handover.clone();
    newer.version += 1;
    let newer = of(take_over(Plain::default(), &device, &newer, &settings));
    assert!(newer.to_string().contains("layout 2"), "{newer}");
    let alone = device.clone_of().unwrap();
    let fewer =
        of(Session::take_over(Arc::new(Plain::default()), alone, Vec::new(), &handover, &settings.session));
    assert!(fewer.to_string().contains("1 descriptors were left"), "{fewer}");

    let session = take_over(Plain::default(), &device, &handover, &settings).unwrap();
    fake.greet(&settings).unwrap();
    assert_eq!(fake.stat("/file").unwrap().ino, 2);
    fake.end();
    session.wait();
}
