//! Callers on io_uring that wait, and get a signal, while the program of their mount is replaced: before its server stops to answer, while it does not answer,
//! or when the next one does. Needs root, /dev/fuse, FUSE over io_uring, and perl. `SHUNTFS_TEST_UPGRADES` says how often it is upgraded.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
#[path = "programs/lockers.rs"]
mod lockers;
mod programs;
#[path = "programs/rings.rs"]
mod rings;

use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use callers::{Callers, is_caller};
use common::{eventually, is_alive};
use kept::Kept;
use lockers::{INTERRUPTED, Locker, has_perl, send};
use programs::upgrading;
use rings::Programs;
use rustix::process::Signal;

const UPGRADES: u64 = 6;
const CALLERS: usize = 2;
/// How many are interrupted at each moment.
const WAITERS: usize = 2;
/// The keeper goes on for so long before it is checked again whether its server has stopped to answer.
const STEP: Duration = Duration::from_millis(1);
const STEPS_MAX: u32 = 2000;
/// Who has no answer after so long gets none for now.
const PATIENCE: Duration = Duration::from_millis(300);

/// The kernel tells of a signal by a request of its own (INTERRUPT), which one of two servers reads, and it tells no other. Whoever waited has EINTR,
/// whichever that was, and who got no signal goes on waiting.
#[test]
fn privileged_a_signal_ends_a_wait_while_the_program_is_replaced_on_io_uring() {
    if let Some(folder) = is_caller() {
        return rings::work(&folder).say();
    }
    if !has_perl() {
        return;
    }
    let Some(kept) = rings::start(&["--locks", "lower"]) else { return };
    let (programs, mnt) = (Programs::of(&kept), kept.room.mnt());
    let test = "privileged_a_signal_ends_a_wait_while_the_program_is_replaced_on_io_uring";
    let callers = Callers::start(CALLERS, test, &mnt);
    // Of one kind each, which are nothing to each other.
    let mut owners = ["flock", "posix"].map(|kind| Locker::start(kind, &kept.room.src().join("hello")));
    owners.iter_mut().for_each(Locker::has_it);
    let (mut stay, mut stood_still) = (Vec::new(), 0);
    for count in 1..=upgrades() {
        let kind = if count.is_multiple_of(2) { "posix" } else { "flock" };
        let start = |_| Locker::start(kind, &mnt.join("hello"));
        let mut moments: [Vec<Locker>; 3] = [0; 3].map(|_| (0..WAITERS).map(start).collect());
        stay.push(start(0));
        moments.iter().flatten().chain(&stay).for_each(Locker::waits);
        let [before, meanwhile, after] = &moments;
        let server = kept.room.pid();
        send(kept.keeper, Signal::STOP);
        let mut replacing = upgrading(&mnt, programs.next(count)).spawn().expect("starts");
        let stands_still = stand_still(&kept, server, before);
        meanwhile.iter().for_each(Locker::interrupt);
        if stands_still {
            // For who is answered now, it did not.
            std::thread::sleep(PATIENCE / 3);
            stood_still += u32::from(is_alive(server) && meanwhile.iter().all(Locker::is_alive));
        }
        send(kept.keeper, Signal::CONT);
        let replaced = replacing.wait().expect("is a child");
        after.iter().for_each(Locker::interrupt);
        assert!(replaced.success(), "{}", kept.log());
        programs.has_replaced(&kept, count);
        eventually("all have ended who got a signal", || !moments.iter().flatten().any(Locker::is_alive));
        let codes = moments.iter_mut().flatten().map(Locker::code);
        assert_eq!(codes.collect::<Vec<_>>(), [Some(INTERRUPTED); 3 * WAITERS], "{count}: {}", kept.log());
        assert!(stay.iter().all(Locker::is_alive), "{count}: {}", kept.log());
    }
    let seen = callers.stop();
    println!("{} upgrades, {stood_still} of them met while nobody is answered, {seen:?}", upgrades());
    assert!(stood_still > 0, "{}", kept.log());
    assert!(seen.calls > 100 && (seen.failed, seen.wrong) == (0, 0), "{seen:?}\n{}", kept.log());
    stay.iter_mut().for_each(Locker::is_to_end);
    owners.iter_mut().for_each(Locker::ends);
    stay.iter_mut().for_each(|waiter| assert_eq!(waiter.code(), Some(0), "it gets the lock"));
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

fn upgrades() -> u64 {
    rings::upgrades(UPGRADES)
}

/// Has the keeper go on step by step, until its server answers nobody any more and is about to be killed. `before` get their signal when that is about to begin.
/// False where that moment was missed.
fn stand_still(kept: &Kept, server: u32, before: &[Locker]) -> bool {
    let (mut is_tried, mut stands_still) = (false, false);
    for step in 0..STEPS_MAX {
        // Nobody collects the trial while the keeper does not go on.
        if !is_tried && has_ended_child(kept.keeper) {
            is_tried = true;
            before.iter().for_each(Locker::interrupt);
        }
        send(kept.keeper, Signal::CONT);
        std::thread::sleep(STEP);
        send(kept.keeper, Signal::STOP);
        stands_still = !answers(kept, &format!("none-{server}-{step}"));
        if stands_still || !is_alive(server) {
            break;
        }
    }
    if !is_tried {
        before.iter().for_each(Locker::interrupt);
    }
    stands_still && is_alive(server)
}

/// Whether a child of a process has ended, and was not asked for.
fn has_ended_child(parent: u32) -> bool {
    let told = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    told.split_whitespace().filter_map(|number| number.parse().ok()).any(|child| !is_alive(child))
}

/// Whether somebody is answered who asks for what the kernel cannot know.
fn answers(kept: &Kept, unknown: &str) -> bool {
    let path = kept.room.mnt().join(unknown);
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let found = path.exists();
        // Nobody may wait for it any more.
        let _heard = done.send(found);
    });
    is_done.recv_timeout(PATIENCE) == Ok(false)
}
