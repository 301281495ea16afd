//! Servers that do not die, and callers that are to die while there is no server. Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere it says
//! so and passes.

mod support;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shuntfs::takeover::KeptMount;
use shuntfs::{FileType, FuseDevice, MountOptions};
use shuntfs_keeper::{Ended, Limits, keep};
use shuntfs_sys::spawn::{Push, inherited_fd, push};
use shuntfs_testkit::supervisor::Supervisor;

use support::{
    ATTRIBUTES, LIMIT, Scene, alone, can_mount, die, greet, is_mounted, log_to, read, refuse, wait_until,
};

const EIO: i32 = 5;

/// A second descriptor of a device, for a thread or a server that speaks to it by hand.
fn duplicate(number: i32) -> FuseDevice {
    inherited_fd(number).and_then(FuseDevice::from_fd).expect("is open")
}

fn mount(path: &Path) -> KeptMount {
    KeptMount::mount(path, &MountOptions::default(), FileType::Directory).expect("mounts")
}

/// A server that was killed while a thread of it waits for a disk that does not answer, here a mount of which nobody answers what was
/// read. It is reported with that thread, and waited for.
#[test]
fn privileged_a_server_that_is_stuck_in_the_kernel_is_described_and_waited_for() {
    if !can_mount() {
        return;
    }
    let (folder, hung) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (log, pid) = (folder.path().join("log"), folder.path().join("pid"));
    let lower = mount(hung.path());
    let supervisor = Supervisor::of(hung.path(), LIMIT).expect("a supervisor");
    let device = duplicate(lower.device().as_raw_fd());
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| {
            greet(&device);
            let request = read(&device);
            // Long enough to be found stuck.
            std::thread::sleep(Duration::from_secs(6));
            // Its caller may be gone, if this has failed.
            let _answered = refuse(&device, request, EIO);
            request.opcode
        });
        alone(|| {
            log_to(&log);
            let limits = Limits { kill: Duration::from_secs(1), ..Limits::default() };
            let (outcome, notes) = Scene::new().keep(&limits, |seat, stage| {
                if seat.predecessors() > 0 {
                    let first = fs::read_to_string(&pid).expect("it was there");
                    assert!(fs::metadata(format!("/proc/{first}")).is_err(), "the first one lives");
                    stage.note("second");
                    return seat.ready().map_err(|error| error.to_string());
                }
                fs::write(&pid, std::process::id().to_string()).expect("writes");
                seat.ready().map_err(|error| error.to_string())?;
                let path = hung.path().to_owned();
                let below = std::thread::Builder::new().name("below".into());
                below.spawn(move || fs::metadata(path).map(drop)).expect("starts");
                // It is waiting by then.
                std::thread::sleep(Duration::from_millis(500));
                die()
            });
            assert_eq!((outcome.expect("no fault"), notes.as_str()), (Ended::Served, "second"));
            let log = fs::read_to_string(&log).expect("a log");
            let stuck = log.find("stuck in the kernel").unwrap_or_else(|| panic!("not reported: {log}"));
            assert!(log.contains(" below: D"), "{log}");
            assert!(log[stuck..].contains("callers waited for the end of the server"), "{log}");
        });
        assert!(ATTRIBUTES.contains(&answers.join().expect("no panic")));
    });
    drop(lower);
    drop(supervisor);
}

/// A caller whose request a dead server had read can be killed at once, because it was asked for again before there is a successor.
#[test]
fn privileged_callers_can_be_killed_in_the_gap() {
    if !can_mount() {
        return;
    }
    let (folder, at) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (was_read, gap, done) =
        (folder.path().join("read"), folder.path().join("gap"), folder.path().join("done"));
    let make = |path: &Path| fs::write(path, "").expect("writes");
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            wait_until("a mount", || is_mounted(at.path()).then_some(()));
            let supervisor = Supervisor::of(at.path(), LIMIT).expect("a supervisor");
            let mut caller = Command::new("stat");
            caller.arg(at.path()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut caller = caller.spawn().expect("starts");
            wait_until("a server that has read its request", || was_read.exists().then_some(()));
            wait_until("its successor", || gap.exists().then_some(()));
            assert!(matches!(caller.try_wait(), Ok(None)), "nobody has answered");
            push(caller.id(), Push::Die).expect("it is there");
            let start = Instant::now();
            let killed = wait_until("its end", || caller.try_wait().expect("is a child"));
            make(&done);
            (killed.success(), start.elapsed(), supervisor)
        });
        alone(|| {
            let mount = mount(at.path());
            let number = mount.device().as_raw_fd();
            let outcome = keep(mount, &Limits::default(), |seat| -> Result<(), String> {
                let device = duplicate(number);
                seat.ready().map_err(|error| error.to_string())?;
                if seat.predecessors() > 0 {
                    // It reads nothing.
                    make(&gap);
                    wait_until("the caller's end", || done.exists().then_some(()));
                    return Ok(());
                }
                greet(&device);
                assert!(ATTRIBUTES.contains(&read(&device).opcode));
                make(&was_read);
                die()
            });
            assert_eq!(outcome.expect("the second one ended well"), Ended::Served);
        });
        let (succeeded, took, supervisor) = caller.join().expect("no panic");
        assert!(!succeeded && took < Duration::from_secs(2), "it took {took:?}");
        drop(supervisor);
    });
}
