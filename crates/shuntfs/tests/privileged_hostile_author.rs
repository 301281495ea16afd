//! Whatever an author's handlers leave behind, no request sees another's memory, none is answered from memory in use, and no queue
//! stops. Needs CAP_SYS_ADMIN and /dev/fuse.
//!
//! Before operations belonged to their slots, a future that was leaked let the kernel write into the next request's memory, one that was
//! dropped held up its queue until the kernel was done, and a descriptor could be closed before the kernel saw it.

mod common;

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use common::author::{Author, PLAIN, SIZE, Stage, pattern};
use common::{Mounted, is_mounted, on_each_transport, options};
use shuntfs::{LowerFile, MountOptions, Opcode, Session, SessionOptions, Transport, TransportKind};

const EMLINK: i32 = 31;
const EIO: i32 = 5;
const ENOLCK: i32 = 37;
const SIGABRT: i32 = 6;
/// How long something may take that should be done at once.
const LIMIT: Duration = Duration::from_secs(20);

struct Scene {
    stage: Arc<Stage>,
    mounted: Mounted,
    pipe: (PipeReader, PipeWriter),
    _lower: tempfile::NamedTempFile,
}

/// A stage, and the lower file and the pipe that it uses: the end for reading, or that for writing.
fn stage(for_writing: bool) -> (Arc<Stage>, (PipeReader, PipeWriter), tempfile::NamedTempFile) {
    let mut lower = tempfile::NamedTempFile::new().expect("a file");
    lower.write_all(&(0..SIZE).map(pattern).collect::<Vec<_>>()).expect("written");
    let pipe = std::io::pipe().expect("a pipe");
    let end: OwnedFd = if for_writing {
        pipe.1.try_clone().expect("dup").into()
    } else {
        pipe.0.try_clone().expect("dup").into()
    };
    let stage = Arc::new(Stage {
        pipe: Arc::new(LowerFile::new(end).that_can_block()),
        into: pipe.1.try_clone().expect("dup"),
        lower: Arc::new(LowerFile::new(lower.as_file().try_clone().expect("dup").into())),
        hung: None.into(),
        gate: Arc::default(),
        seen: Default::default(),
        interrupted: 0.into(),
    });
    (stage, pipe, lower)
}

impl Scene {
    /// One queue, which whatever holds it would hold up for all. Operations use the pipe's end for reading, or that for writing.
    fn new(options: &SessionOptions, for_writing: bool) -> Self {
        Self::with(&SessionOptions { queues: Some(1), ..options.clone() }, for_writing)
    }

    fn with(options: &SessionOptions, for_writing: bool) -> Self {
        let (stage, pipe, lower) = stage(for_writing);
        let mounted = Mounted::new(Author(Arc::clone(&stage)), options);
        Self { stage, mounted, pipe, _lower: lower }
    }

    fn open(&self, name: &str) -> File {
        File::options().read(true).write(true).open(self.mounted.join(name)).expect("opens")
    }

    /// Waits until so many requests of a kind have reached the handlers, and a moment longer.
    fn arrived(&self, opcode: Opcode, count: u64) {
        wait_until("requests", || self.mounted.session().status().requests(opcode) >= count);
        std::thread::sleep(Duration::from_millis(20));
    }

    /// Other requests of the same queue are answered, and rightly.
    fn others_go_on(&self) {
        self.others_go_on_at(None);
    }

    /// The same from a CPU.
    fn others_go_on_at(&self, cpu: Option<usize>) {
        let plain = self.mounted.join("plain");
        let (told, tells) = mpsc::channel();
        std::thread::spawn(move || {
            go_to(cpu);
            let plain = File::open(plain).expect("opens");
            for _ in 0..20 {
                let mut room = vec![0; 65_536];
                plain.read_exact_at(&mut room, 0).expect("reads");
                assert!(room.iter().all(|byte| *byte == PLAIN));
            }
            // The mount must be free of it.
            drop(plain);
            told.send(()).expect("somebody listens");
        });
        let went_on = tells.recv_timeout(LIMIT);
        // Whoever waits for it must not keep the test.
        if went_on.is_err() {
            self.stage.gate.open();
        }
        went_on.expect("the queue goes on");
    }

    /// Ends the mount; gives what is left in the pipe then.
    fn end(self) -> Vec<u8> {
        let (mut out, into) = self.pipe;
        self.mounted.end();
        // The last ends for writing: reading comes to an end.
        drop((into, self.stage));
        let mut left = Vec::new();
        out.read_to_end(&mut left).expect("reads");
        left
    }
}

fn go_to(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        shuntfs_sys::threads::pin_to_cpu(cpu).expect("a CPU");
    }
}

/// With the options: the CPU of callers that are kept waiting, and that of others, which have nothing to do with them. On a device
/// they may all be anywhere; on a ring each CPU has its queue. `None` where there is one CPU.
fn two_queues(options: &SessionOptions) -> Option<(SessionOptions, Option<usize>, Option<usize>)> {
    if !matches!(options.transport, Transport::Only(TransportKind::Uring)) {
        return Some((SessionOptions { queues: Some(2), ..options.clone() }, None, None));
    }
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
        println!("SKIPPED on a ring: there is one CPU");
        return None;
    }
    Some((SessionOptions { queues: None, ..options.clone() }, Some(0), Some(1)))
}

fn error_of(read: std::io::Result<usize>) -> Option<i32> {
    read.err().and_then(|error| error.raw_os_error())
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}: not in 30 s");
}

/// Reads whose answers lie in the payload while something else happens; all of them must be whole.
fn while_answers_wait(scene: &Scene, meanwhile: impl FnOnce()) {
    let before = scene.mounted.session().status().requests(Opcode::Read);
    std::thread::scope(|scope| {
        let reads: Vec<_> = (0..4)
            .map(|_| {
                let file = scene.open("waits");
                scope.spawn(move || {
                    let mut room = vec![0; 65_536];
                    file.read_exact_at(&mut room, 0).map(|()| room)
                })
            })
            .collect();
        scene.arrived(Opcode::Read, before + 4);
        meanwhile();
        scene.stage.gate.open();
        for read in reads {
            let room = read.join().expect("no panic").expect("reads");
            assert_eq!(room.iter().filter(|byte| **byte != PLAIN).count(), 0, "somebody else's bytes");
        }
    });
}

/// A read that is leaked, with or without a panic after it, does not reach the memory of the requests that come next.
#[test]
fn privileged_a_leaked_read_writes_into_no_other_request() {
    for (name, errno) in [("forgets", EMLINK), ("panics", EIO)] {
        on_each_transport(|options| {
            let mut scene = Scene::new(options, false);
            for _ in 0..3 {
                assert_eq!(error_of(scene.open(name).read_at(&mut [0; 65_536], 0)), Some(errno));
            }
            let mut into = scene.pipe.1.try_clone().unwrap();
            while_answers_wait(&scene, || {
                into.write_all(&[b'X'; 32_768]).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            });
            drop(into);
            scene.others_go_on();
            scene.pipe.1.write_all(b"end").unwrap();
            assert_eq!(scene.end().len(), 32_768 + 3, "nobody reads any more");
        });
    }
}

/// A write that is leaked writes nothing that came after it, and the answer that was given without it is held until it has ended.
#[test]
fn privileged_a_leaked_write_writes_nobody_elses_bytes() {
    on_each_transport(|options| {
        let mut scene = Scene::new(options, true);
        // As much as a pipe holds, so that whatever comes next waits.
        scene.pipe.1.write_all(&[b'.'; 1 << 16]).unwrap();
        for _ in 0..3 {
            assert_eq!(scene.open("writes").write_at(&[b'w'; 4096], 0).unwrap(), 4096);
        }
        while_answers_wait(&scene, || {
            let mut room = vec![0; 1 << 16];
            (&scene.pipe.0).read_exact(&mut room).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        });
        scene.others_go_on();
        assert_eq!(scene.end(), b"", "they were given up");
    });
}

/// A future that is dropped while the kernel cannot end its operation holds up its own request, and no other.
#[test]
fn privileged_a_read_that_cannot_be_ended_holds_its_own_request_alone() {
    on_each_transport(|transport| {
        // Its own reads wait for its gate, and the kernel does not take them back.
        let below = Scene::new(&options(TransportKind::Device), false);
        let scene = Scene::new(transport, false);
        let hung = LowerFile::new(below.open("waits").into()).that_can_block();
        *scene.stage.hung.lock().unwrap() = Some(Arc::new(hung));
        let file = scene.open("selects");
        std::thread::scope(|threads| {
            let selects = threads.spawn(|| error_of(file.read_at(&mut [0; 65_536], 0)));
            below.arrived(Opcode::Read, 1);
            scene.stage.gate.open();
            std::thread::sleep(Duration::from_millis(50));
            scene.others_go_on();
            assert!(!selects.is_finished(), "its memory is in use");
            below.stage.gate.open();
            assert_eq!(selects.join().unwrap(), Some(EMLINK));
        });
        *scene.stage.hung.lock().unwrap() = None;
        scene.others_go_on();
        drop(file);
        scene.end();
        below.end();
    });
}

/// Threads that look at a draft see it unchanged, although the future that lent it was leaked; the request is answered after them.
#[test]
fn privileged_a_leaked_draft_stays_as_it_was_lent() {
    on_each_transport(|options| {
        let scene = Scene::new(options, false);
        let file = scene.open("lends");
        std::thread::scope(|threads| {
            let lends = threads.spawn(|| error_of(file.read_at(&mut [0; 65_536], 4096)));
            scene.arrived(Opcode::Read, 1);
            scene.others_go_on();
            assert!(!lends.is_finished(), "its memory is lent");
            scene.stage.gate.open();
            assert_eq!(lends.join().unwrap(), Some(EMLINK));
        });
        let seen = scene.stage.seen.each_ref().map(|count| count.load(Ordering::SeqCst));
        assert_eq!(seen, [3, 0], "whole and changed");
        drop(file);
        scene.end();
    });
}

/// The lower file of a request may be closed as soon as it was named: the kernel reads from that file and from no other.
#[test]
fn privileged_a_lower_file_that_is_named_once_is_read() {
    on_each_transport(|options| {
        let scene = Scene::new(options, false);
        let file = scene.open("ranges");
        let mut room = vec![0; 65_536];
        for round in 0..50 {
            let offset = round % 16 * 65_536;
            file.read_exact_at(&mut room, offset as u64).unwrap();
            assert!((0..).zip(&room).all(|(at, byte)| *byte == pattern(offset + at)), "round {round}");
        }
        drop(file);
        scene.end();
    });
}

/// Many operations of one request, more than the ring has room for, beside answers that are linked behind reads.
#[test]
fn privileged_many_joined_reads_and_linked_answers_stay_whole() {
    on_each_transport(|options| {
        let scene = Scene::new(options, false);
        std::thread::scope(|threads| {
            for name in ["joins", "relayed", "joins", "relayed"] {
                let file = scene.open(name);
                threads.spawn(move || {
                    let mut room = vec![0; 65_536];
                    for round in 0..60 {
                        // The last one ends with the file, short of what is asked for.
                        let offset = round % 15 * 65_536 + 100;
                        file.read_exact_at(&mut room, offset as u64).unwrap();
                        let is_whole = (0..).zip(&room).all(|(at, byte)| *byte == pattern(offset + at));
                        assert!(is_whole, "{name} at {offset}");
                    }
                });
            }
        });
        scene.end();
    });
}

/// A handler that wakes itself again and again leaves the queue to others between two of its turns.
#[test]
fn privileged_a_handler_that_spins_starves_nobody() {
    on_each_transport(|options| {
        let scene = Scene::new(options, false);
        let file = scene.open("spins");
        std::thread::scope(|threads| {
            let spins = threads.spawn(|| file.read_at(&mut [0; 4096], 0).unwrap());
            scene.arrived(Opcode::Read, 1);
            scene.others_go_on();
            assert!(!spins.is_finished());
            scene.stage.gate.open();
            assert_eq!(spins.join().unwrap(), 4096);
        });
        drop(file);
        scene.end();
    });
}

/// A signal wakes whoever waits for it, by the waker that it waits with.
#[test]
fn privileged_a_signal_reaches_a_future_with_a_waker_of_its_own() {
    on_each_transport(|options| {
        let scene = Scene::new(options, false);
        for round in 1..=3 {
            let mut caller =
                Command::new("cat").arg(scene.mounted.join("nested")).stdout(Stdio::null()).spawn().unwrap();
            scene.arrived(Opcode::Read, round);
            caller.kill().unwrap();
            wait_until("the signal", || scene.stage.interrupted.load(Ordering::SeqCst) as u64 == round);
            caller.wait().unwrap();
        }
        scene.end();
    });
}

/// A handler that blocks its thread holds up what that thread has read, and no other caller: a regression, for the one reader of a
/// device that reads was the one that was blocked. On a ring the thread is the queue of its callers' CPU.
#[test]
fn privileged_a_handler_that_blocks_its_thread_holds_up_no_other_queue() {
    on_each_transport(|options| {
        let Some((options, here, elsewhere)) = two_queues(options) else { return };
        let scene = Scene::with(&options, false);
        let file = scene.open("blocks");
        std::thread::scope(|threads| {
            let blocks = threads.spawn(|| {
                go_to(here);
                file.read_at(&mut [0; 4096], 0).unwrap()
            });
            scene.arrived(Opcode::Read, 1);
            for _ in 0..3 {
                scene.others_go_on_at(elsewhere);
            }
            assert!(!blocks.is_finished());
            scene.stage.gate.open();
            assert_eq!(blocks.join().unwrap(), 4096);
        });
        scene.others_go_on();
        drop(file);
        scene.end();
    });
}

/// A queue all of whose requests wait reads no other: then another queue does, which also reads who was interrupted. A regression: the
/// one reader of a device stayed the only one.
#[test]
fn privileged_a_full_queue_keeps_no_other_from_reading() {
    on_each_transport(|options| {
        let Some((options, here, elsewhere)) = two_queues(options) else { return };
        let scene = Scene::with(&SessionOptions { depth: 2, ..options }, false);
        let file = scene.open("waits");
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| {
                go_to(here);
                file.read_at(&mut [0; 4096], 0).unwrap()
            });
            let nested = scene.mounted.join("nested");
            let caller = threads.spawn(move || {
                go_to(here);
                Command::new("cat").arg(nested).stdout(Stdio::null()).spawn().unwrap()
            });
            let mut caller = caller.join().unwrap();
            scene.arrived(Opcode::Read, 2);
            scene.others_go_on_at(elsewhere);
            caller.kill().unwrap();
            wait_until("the signal", || scene.stage.interrupted.load(Ordering::SeqCst) == 1);
            caller.wait().unwrap();
            scene.stage.gate.open();
            assert_eq!(waits.join().unwrap(), 4096);
        });
        drop(file);
        scene.end();
    });
}

/// Who waits for locks leaves room for whoever has them to unlock.
#[test]
fn privileged_waiting_for_locks_never_fills_a_queue() {
    on_each_transport(|options| {
        let scene = Scene::new(options, false);
        let (told, tells) = mpsc::channel();
        let files: Vec<_> = (0..4).map(|_| scene.open("plain")).collect();
        let last = files.last().unwrap().try_clone().unwrap();
        for (nth, file) in (1..).zip(files) {
            let told = told.clone();
            std::thread::spawn(move || {
                go_to(Some(0));
                let error = file.lock().err().and_then(|error| error.raw_os_error());
                drop(file);
                told.send(error).expect("somebody listens");
            });
            scene.arrived(Opcode::Setlkw, nth);
        }
        let refused = tells.recv_timeout(LIMIT);
        if refused.is_ok() {
            scene.others_go_on_at(Some(0));
        }
        let unlocked = if refused.is_ok() { last.unlock() } else { Ok(()) };
        scene.stage.gate.open();
        assert_eq!(refused, Ok(Some(ENOLCK)), "the last one");
        unlocked.expect("unlocks");
        assert_eq!((0..3).map(|_| tells.recv_timeout(LIMIT)).collect::<Vec<_>>(), [Ok(None); 3]);
        drop(last);
        scene.end();
    });
}

/// A regression: where the queue had no room for one more that waits, nobody got a lock that was free.
#[test]
fn privileged_a_free_lock_is_taken_where_nobody_may_wait() {
    on_each_transport(|options| {
        let scene = Scene::new(&SessionOptions { depth: 1, ..options.clone() }, false);
        scene.stage.gate.open();
        let file = scene.open("plain");
        file.lock().expect("nobody has it");
        file.unlock().expect("unlocks");
        drop(file);
        scene.end();
    });
}

/// What serves the mount of the next test: this program again, told so by its environment.
const SERVES: &str = "SHUNTFS_TEST_SERVES";

fn serve_at(place: &str) {
    let (kind, path) = place.split_once(' ').expect("two words");
    let options = SessionOptions { queues: Some(1), ..options(kind.parse().expect("a transport")) };
    let author = Arc::new(Author(stage(false).0));
    Session::mount(author, Path::new(path), &MountOptions::default(), &options).expect("mounts").wait();
}

/// A panic that is no handler's ends the process, and with it the mount: nobody else would answer what the thread had.
#[test]
fn privileged_a_panic_of_a_loop_leaves_no_caller_waiting() {
    if let Ok(place) = std::env::var(SERVES) {
        return serve_at(&place);
    }
    on_each_transport(|options| {
        let Transport::Only(kind) = options.transport else { unreachable!("one at a time") };
        let dir = tempfile::tempdir().unwrap();
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "privileged_a_panic_of_a_loop_leaves_no_caller_waiting"])
            .env(SERVES, format!("{kind} {}", dir.path().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the mount", || is_mounted(dir.path()));
        let (told, tells) = mpsc::channel();
        let path = dir.path().join("wakes");
        std::thread::spawn(move || {
            let read = File::open(path).and_then(|file| file.read_at(&mut [0; 4096], 0));
            told.send(read.is_err()).expect("somebody listens");
        });
        let answered = tells.recv_timeout(LIMIT);
        let _may_have_ended = server.kill();
        let ended = server.wait().unwrap();
        let gone = Command::new("umount").arg("-l").arg(dir.path()).status();
        assert!(gone.is_ok_and(|status| status.success()));
        assert_eq!(answered, Ok(true), "its caller waits");
        assert_eq!(ended.signal(), Some(SIGABRT));
    });
}
