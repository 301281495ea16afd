//! What happens to operations that panic, answer ENOSYS, or wait; and of answers that share memory with their
//! request. Needs CAP_SYS_ADMIN and /dev/fuse.

mod common;

use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::odd::{Odd, Seen};
use common::{Mounted, on_each_transport};
use shuntfs::{Name, NodeId, NotifyError, Opcode, SessionOptions};

const EIO: i32 = 5;
const EOPNOTSUPP: i32 = 95;
const EDQUOT: i32 = 122;

fn odd(options: &SessionOptions) -> (Arc<Seen>, Mounted) {
    let seen = Arc::new(Seen::default());
    (Arc::clone(&seen), Mounted::new(Odd(seen), options))
}

fn errno_of(path: std::path::PathBuf) -> Option<i32> {
    fs::metadata(path).err().and_then(|error| error.raw_os_error())
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_panic_is_an_io_error_and_nothing_more() {
    on_each_transport(|options| {
        let (_, mounted) = odd(options);
        for _ in 0..3 {
            assert_eq!(errno_of(mounted.join("panics")), Some(EIO));
            assert_eq!(errno_of(mounted.join("panics-later")), Some(EIO));
        }
        assert_eq!(errno_of(mounted.join("fine")), None);
        let status = mounted.session().status();
        assert_eq!((status.panics, status.ops["LOOKUP"].errors), (6, 6));
        mounted.end();
    });
}

#[test]
fn a_file_systems_enosys_is_not_remembered() {
    on_each_transport(|options| {
        let (_, mounted) = odd(options);
        let file = File::open(mounted.join("f")).unwrap();
        for _ in 0..3 {
            assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(EOPNOTSUPP));
        }
        assert_eq!(errno_of(mounted.join("nosys")), Some(EOPNOTSUPP));
        drop(file);
        assert_eq!(mounted.session().status().requests(Opcode::Fsync), 3);
        mounted.end();
    });
}

#[test]
fn what_is_not_in_the_set_is_asked_for_once() {
    on_each_transport(|options| {
        let (_, mounted) = odd(options);
        for _ in 0..3 {
            // FLUSH is not among the operations, though the opens ask for it.
            drop(File::open(mounted.join("f")).unwrap());
            let made = File::options().write(true).create_new(true).open(mounted.join("missing"));
            assert_eq!(
                made.unwrap_err().raw_os_error(),
                Some(EOPNOTSUPP),
                "CREATE becomes MKNOD, which is refused"
            );
        }
        let status = mounted.session().status();
        assert_eq!(
            (status.requests(Opcode::Flush), status.requests(Opcode::Create)),
            (0, 1),
            "{:?}",
            status.ops
        );
        assert_eq!(status.requests(Opcode::Mknod), 3);
        mounted.end();
    });
}

#[test]
fn answers_do_not_overwrite_what_they_are_made_from() {
    on_each_transport(|options| {
        let (_, mounted) = odd(options);
        let file = mounted.join("f");
        let mut script = String::from("import os, sys, fcntl\npath = sys.argv[1]\n");
        script.push_str("for n in (b'', b'-' + b'x' * 200):\n");
        script.push_str("    assert os.getxattr(path, b'user.mirror' + n) == (b'user.mirror' + n) * 8\n");
        script.push_str("assert os.listxattr(path) == ['user.mirror', 'user.other']\n");
        script.push_str("os.setxattr(path, 'user.a', b'fine')\n");
        script.push_str("for name, value, number in (('user.a', b'bad', 28), ('user.none', None, 61)):\n");
        script.push_str("    try:\n");
        script.push_str("        os.setxattr(path, name, value) if value else os.getxattr(path, name)\n");
        script.push_str("        assert False\n");
        script.push_str("    except OSError as error:\n");
        script.push_str("        assert error.errno == number, error\n");
        // _IOWR('Q', 1, 64) carries 64 bytes both ways; the answer repeats the first byte.
        script.push_str("data = bytearray([7] + [0] * 63)\n");
        script.push_str("with open(path) as f:\n");
        script
            .push_str("    assert fcntl.ioctl(f, 0xc0405101, data) == 3 and data == bytes([7] * 64), data\n");
        let status = Command::new("python3").arg("-c").arg(script).arg(&file).status().expect("python3 runs");
        assert!(status.success());
        assert_eq!(mounted.session().status().panics, 0);
        mounted.end();
    });
}

#[test]
fn a_waiting_lock_hears_of_the_signal() {
    on_each_transport(|options| {
        let (seen, mounted) = odd(options);
        let file = mounted.join("f");
        let limited = Command::new("timeout").args(["0.3", "flock"]).arg(&file).arg("true").status();
        assert_eq!(limited.expect("timeout runs").code(), Some(124));
        wait_until("the interrupt", || seen.interrupted.load(Ordering::SeqCst) == 1);
        let refused = Command::new("flock").arg("-n").arg(&file).arg("true").status().expect("flock runs");
        assert!(!refused.success());
        mounted.end();
    });
}

/// An operation that holds its reply, in the request's own memory, hears of signals as the others do.
#[test]
fn a_waiting_reply_hears_of_the_signal() {
    on_each_transport(|options| {
        let (seen, mounted) = odd(options);
        let script = "import os, sys\nos.getxattr(sys.argv[1], 'user.waits')\n";
        let caller = Command::new("python3").args(["-c", script]).arg(mounted.join("f")).spawn();
        let mut caller = caller.expect("python3 runs");
        wait_until("the request", || mounted.session().status().requests(Opcode::Getxattr) == 1);
        caller.kill().expect("a signal");
        caller.wait().expect("it ends");
        wait_until("the interrupt", || seen.interrupted.load(Ordering::SeqCst) == 1);
        assert_eq!(errno_of(mounted.join("missing")), Some(2), "the queue goes on");
        mounted.end();
    });
}

/// A mount whose every queue waits must still answer others.
#[test]
fn many_waiting_locks_do_not_stop_the_mount() {
    on_each_transport(|options| {
        let (seen, mounted) = odd(&SessionOptions { depth: 64, ..options.clone() });
        let mut waiting: Vec<_> = (0..30)
            .map(|_| {
                Command::new("timeout")
                    .args(["2", "flock"])
                    .arg(mounted.join("f"))
                    .arg("true")
                    .spawn()
                    .unwrap()
            })
            .collect();
        wait_until("all wait", || mounted.session().status().requests(Opcode::Setlkw) == 30);
        assert_eq!(errno_of(mounted.join("offloaded")), Some(EDQUOT));
        assert_eq!(errno_of(mounted.join("missing")), Some(2));
        for child in &mut waiting {
            assert_eq!(child.wait().unwrap().code(), Some(124));
        }
        assert_eq!(seen.interrupted.load(Ordering::SeqCst), 30);
        mounted.end();
    });
}

#[test]
fn each_open_file_is_released_once_and_each_lookup_forgotten() {
    on_each_transport(|options| {
        let (seen, mounted) = odd(options);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| drop(File::open(mounted.join("f")).unwrap())));
            }
        });
        wait_until("all releases", || seen.released.load(Ordering::SeqCst) == 400);
        let session = mounted.session();
        let lookups = session.status().requests(Opcode::Lookup);
        // Pruning works where nothing uses the node; FORGET then brings the whole count.
        let node = NodeId::new(2).unwrap();
        if session.notifier().prune(&[node]).is_ok() {
            wait_until("the forget", || seen.forgotten.load(Ordering::SeqCst) == lookups);
        }
        assert_eq!(session.status().nodes_open, 0);
        mounted.end();
    });
}

#[test]
fn notifications_reach_the_kernel() {
    on_each_transport(|options| {
        let (seen, mounted) = odd(options);
        let notifier = mounted.session().notifier();
        let (node, name) = (NodeId::new(2).unwrap(), Name::new(c"f").unwrap());
        let requests = |opcode| mounted.session().status().requests(opcode);
        assert_eq!(notifier.attributes(node), Err(NotifyError::Unknown));
        assert_eq!(fs::metadata(mounted.join("f")).unwrap().len(), 0);
        seen.size.store(55, Ordering::SeqCst);
        assert_eq!(fs::metadata(mounted.join("f")).unwrap().len(), 0, "believed for ever");
        notifier.attributes(node).unwrap();
        assert_eq!(fs::metadata(mounted.join("f")).unwrap().len(), 55);
        let looked_up = requests(Opcode::Lookup);
        notifier.entry(NodeId::ROOT, name).unwrap();
        fs::metadata(mounted.join("f")).unwrap();
        assert_eq!(requests(Opcode::Lookup), looked_up + 1);
        notifier.data(node, 0, 0).unwrap();
        notifier.store(node, 0, b"kept").unwrap();
        for sent in [notifier.new_epoch(), notifier.expire(NodeId::ROOT, name)] {
            assert!(matches!(sent, Ok(()) | Err(NotifyError::Unsupported)), "{sent:?}");
        }
        notifier.delete(NodeId::ROOT, node, name).unwrap();
        mounted.end();
        assert_eq!(notifier.attributes(node), Err(NotifyError::Ended));
    });
}
