//! Servers of the example `kept` are killed while programs call: no call fails, and no byte is wrong. Needs CAP_SYS_ADMIN and /dev/fuse;
//! elsewhere it says so and passes.

mod callers;
#[path = "../examples/kept.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod kept;
mod support;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use callers::{Callers, Seen, is_caller, is_to_stop};
use shuntfs_sys::spawn::{Push, push};
use support::kept::Kept;
use support::{LIMIT, can_mount, is_mounted, wait_until};

const KILLS: usize = 40;
const CALLERS: usize = 4;

/// Waits until files are there.
fn is_served(kept: &Kept) {
    wait_until("a mount that is served", || fs::metadata(kept.file(0)).ok());
}

/// How many descriptors of a process are rings.
fn rings(pid: u32) -> usize {
    let table = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = table.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("io_uring")).count()
}

/// How many descriptors a process has where none is on its way: once a second the keeper has a file of procfs open for a moment, and so has a
/// server that begins. One look saw such a one, and the next did not.
fn descriptors(pid: u32) -> usize {
    let looks = (0..50).map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        fs::read_dir(format!("/proc/{pid}/fd")).expect("its table").count()
    });
    looks.min().expect("some")
}

/// Stats and reads past the page cache until standard input ends.
fn call(folder: &Path) {
    let (mut seen, mut random) = (Seen::default(), u64::from(std::process::id()));
    let mut open: Option<(u64, File)> = None;
    while !is_to_stop() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (number, offset) = (random >> 60, (random >> 20) % (kept::SIZE / 4096) * 4096);
        let path = folder.join(number.to_string());
        if let Some(found) = seen.call("stat", || fs::metadata(&path)) {
            seen.wrong += u64::from(found.len() != kept::SIZE || found.ino() != kept::FIRST + number);
        }
        // Most files stay open over many deaths.
        if open.is_none() || random.is_multiple_of(64) {
            let direct = || OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
            open = seen.call("open", direct).map(|file| (kept::FIRST + number, file));
        }
        if let Some((node, file)) = &open {
            let mut room = [0; 4096];
            if seen.call("read", || file.read_exact_at(&mut room, offset)).is_some() {
                let is_right = (offset..).zip(room).all(|(at, byte)| byte == kept::byte_at(*node, at));
                seen.wrong += u64::from(!is_right);
            }
        }
    }
    seen.say();
}

#[test]
fn privileged_forty_kills_and_no_failed_call() {
    if let Some(folder) = is_caller() {
        return call(&folder);
    }
    if !can_mount() {
        return;
    }
    for kind in ["device", "cloned"] {
        let Some(mut kept) = Kept::start(&[kind, "1000"], |_| ()) else { return };
        is_served(&kept);
        let callers = Callers::start(CALLERS, "privileged_forty_kills_and_no_failed_call", kept.path());
        let keeper = kept.keeper.id();
        let mut server = kept.next_server(None);
        let open = descriptors(keeper);
        for kill in 0..KILLS {
            // Some of them before they are ready.
            std::thread::sleep(Duration::from_millis([80, 3, 150, 40, 20][kill % 5]));
            assert_eq!((rings(keeper), rings(server)), (0, 0), "on {kind}: a ring would outlive its server");
            push(server, Push::Die).expect("it is there");
            server = kept.next_server(Some(server));
        }
        is_served(&kept);
        let still_open = descriptors(keeper);
        let seen = callers.stop();
        println!("{kind}: {KILLS} kills, {seen:?}");
        let Seen { calls, failed, wrong, .. } = seen;
        assert_eq!((failed, wrong), (0, 0), "on {kind}, of {calls} calls:\n{}", kept.said());
        assert!(calls > 1000, "on {kind}: {calls} calls");
        assert_eq!(still_open, open, "on {kind}: descriptors gather");
        push(keeper, Push::End).expect("it is there");
        assert!(kept.ended().success(), "{}", kept.said());
        assert!(!is_mounted(kept.path()), "on {kind}");
    }
}

/// Whoever waits has an error in the end, and the reason is told.
#[test]
fn privileged_servers_that_die_at_once_are_given_up() {
    if !can_mount() {
        return;
    }
    let Some(mut kept) = Kept::start(&["cloned"], |_| ()) else { return };
    is_served(&kept);
    let path = kept.file(3);
    let caller = std::thread::spawn(move || {
        let end = Instant::now() + LIMIT;
        while fs::metadata(&path).is_ok() && Instant::now() < end {}
        fs::metadata(&path).is_err()
    });
    let mut last = None;
    let ended = wait_until("the end", || {
        if let Some(server) = kept.server().filter(|server| Some(*server) != last) {
            // Between two looks it may have gone by itself.
            let _gone = push(server, Push::Die);
            last = Some(server);
        }
        kept.keeper.try_wait().expect("is a child")
    });
    assert!(!ended.success());
    assert!(kept.said().contains("5 servers died"), "{}", kept.said());
    assert!(!is_mounted(kept.path()));
    assert!(caller.join().expect("no panic"), "its calls still went well");
}

#[test]
fn privileged_rings_are_refused_with_the_reason() {
    if !can_mount() {
        return;
    }
    let Some(mut kept) = Kept::start(&["uring"], |_| ()) else { return };
    assert!(!kept.ended().success());
    assert!(kept.said().contains("ECANCELED"), "{}", kept.said());
    assert!(!is_mounted(kept.path()));
}
