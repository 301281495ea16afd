//! Another FUSE server below a sealed tree, which answers what it likes or nothing at all. Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use common::liar::{Liar, State};
use common::{BLOCK, Fixture, content, each, options, seal};
use shuntfs::{MountOptions, Session, SessionOptions, Transport, TransportKind};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::LowerKind;
use shuntfs_testkit::supervisor::Supervisor;
use shuntfs_verified::{Seals, SealsOptions};

const LEN: usize = 20 * BLOCK;
const EIO: Option<i32> = Some(5);

/// Mounts a liar over a folder: `file` in it is as long as it was sealed and has another content, and its digest is said to be
/// the sealed one. With who ends the mount from outside where this process hangs; to be dropped after the session.
fn mount_liar(at: &Path, seals: &Seals, sealed: &[u8]) -> (Supervisor, Session, Arc<State>) {
    let index = seals.manifest().find(sealed).unwrap().unwrap();
    let digest = seals.manifest().node(index).unwrap().digest().unwrap();
    let state = Arc::new(State::default());
    let liar = Liar { bytes: vec![0x66; LEN], digest, state: Arc::clone(&state) };
    let mount = MountOptions { allow_other: true, ..MountOptions::default() };
    let options = SessionOptions {
        transport: Transport::Only(TransportKind::Device),
        queues: Some(1),
        // Others may then have its files as backing files.
        passthrough: false,
        ..SessionOptions::default()
    };
    let session = Session::mount(Arc::new(liar), at, &mount, &options).unwrap();
    (Supervisor::of(at, Duration::from_secs(120)).unwrap(), session, state)
}

/// What another server says of its file was believed, and its bytes were passed through unseen.
#[test]
fn a_lower_server_that_says_it_verifies_is_not_believed() {
    each(&[LowerKind::Ext4], |kind, lower| {
        for (nested, path) in [(true, "tree/nested/file"), (false, "tree/file")] {
            let tree = lower.path().join("tree");
            fs::create_dir_all(tree.join("nested")).unwrap();
            fs::write(lower.path().join(path), content(LEN)).unwrap();
            seal(&tree, &[]);
            let store = lower.path().join("store");
            fs::rename(tree.join(".shunt"), &store).unwrap();
            let mut options_of_seal = SealsOptions::new(&tree);
            options_of_seal.store = Some(store);
            let before = Seals::open(&options_of_seal).unwrap();
            let (below, name) = if nested { (tree.join("nested"), "nested/file") } else { (tree, "file") };
            let (_until, liar, state) = mount_liar(&below, &before, name.as_bytes());
            // The lie reaches whoever asks.
            let mut room = [0; 64];
            let asked = shuntfs_sys::verity::measure(File::open(below.join("file")).unwrap(), &mut room);
            assert_eq!((asked.is_ok(), state.measured.load(Ordering::SeqCst)), (true, 1));
            let fixture = Fixture::of(Seals::open(&options_of_seal).unwrap(), &options(kind));
            let file = File::open(fixture.path().join(name)).unwrap();
            for offset in [0, 5 * BLOCK as u64] {
                let answer = file.read_at(&mut [0; 4096], offset).map_err(|error| error.raw_os_error());
                assert_eq!(answer, Err(EIO), "{kind} {name} at {offset}");
            }
            let flows = fixture.session().status().flows;
            assert_eq!(flows["passthrough"], 0, "{flows:?}");
            assert_eq!(fixture.facts().native_files, 0);
            assert_eq!(state.measured.load(Ordering::SeqCst), 1, "it was asked");
            drop((file, fixture, liar));
            fs::remove_dir_all(lower.path().join("tree")).unwrap();
            fs::remove_dir_all(lower.path().join("store")).unwrap();
        }
    });
}

/// One that answers nothing held up the queue that asked it, and so everybody else.
#[test]
fn a_lower_server_that_does_not_answer_holds_up_nobody_else() {
    each(&[LowerKind::Ext4], |kind, lower| {
        let tree = lower.folder("tree").unwrap();
        fs::create_dir(tree.join("nested")).unwrap();
        fs::write(tree.join("nested/file"), content(LEN)).unwrap();
        for number in 0..4 {
            fs::write(tree.join(format!("file {number}")), content(LEN)).unwrap();
        }
        seal(&tree, &[]);
        let seals = common::open(&tree, None).unwrap();
        let (_until, liar, state) = mount_liar(&tree.join("nested"), &seals, b"nested/file");
        let fixture = Fixture::of(seals, &options(kind));
        state.hangs.store(true, Ordering::SeqCst);
        let (send, answers) = channel();
        // As many as there are queues, and fewer than there is room for in one.
        for _ in 0..2 {
            let (send, path) = (send.clone(), fixture.path().join("nested/file"));
            std::thread::spawn(move || {
                let answer = fs::read(path).map(drop).map_err(|error| error.raw_os_error());
                let _the_test_may_have_failed = send.send(answer);
            });
        }
        let asked = wait_until(Duration::from_secs(5), || state.waiting.load(Ordering::SeqCst) > 0);
        assert!(asked, "{kind}: nobody asked the nested server");
        std::thread::sleep(Duration::from_millis(200));
        let (send, others) = channel();
        for number in 0..4 {
            let (send, path) = (send.clone(), fixture.path().join(format!("file {number}")));
            std::thread::spawn(move || {
                let _the_test_may_have_failed = send.send(fs::read(path).unwrap() == content(LEN));
            });
        }
        let read: Vec<_> = (0..4).map(|_| others.recv_timeout(Duration::from_secs(5))).collect();
        state.hangs.store(false, Ordering::SeqCst);
        assert_eq!(read, [Ok(true); 4], "{kind}: readers of other files");
        for _ in 0..2 {
            assert_eq!(answers.recv_timeout(Duration::from_secs(10)), Ok(Err(EIO)), "{kind}");
        }
        drop((fixture, liar));
    });
}
