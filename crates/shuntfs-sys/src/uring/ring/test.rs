//! The ring against this kernel.

use std::os::fd::AsFd;
use std::time::Duration;

use super::*;
use crate::event::EventFd;

/// A ring of so many entries; says so where there is none.
fn ring(entries: u32) -> Option<Ring> {
    let ring = Ring::new(entries);
    if ring.is_err() {
        println!("SKIPPED: io_uring is not to be had here");
    }
    ring.ok()
}

/// All that completes until nothing does for a while.
fn completions(ring: &mut Ring) -> Vec<(u64, i32)> {
    let mut seen = Vec::new();
    ring.enter(1, None).expect("enter");
    loop {
        seen.extend(std::iter::from_fn(|| ring.next_completion()).map(|done| (done.user_data, done.result)));
        if ring.enter(1, Some(Duration::from_millis(50))) == Err(Errno::TIME) {
            return seen;
        }
    }
}

/// What completes of a read of 4096 bytes so far from the end of the own program with another linked behind it, where `polls` of a bell
/// that does not ring are queued already.
fn linked_pair(ring: &mut Ring, from_end: u64, polls: u32) -> Vec<(u64, i32)> {
    let silent = EventFd::new().expect("eventfd");
    (0..polls).for_each(|_| ring.push_poll(silent.as_fd(), 9));
    let file = std::fs::File::open("/proc/self/exe").expect("own program");
    let len = file.metadata().expect("stat").len();
    let mut first = vec![0_u8; 4096];
    let mut second = vec![0_u8; 4096];
    let one = Submission::read(file.as_fd(), (first.as_mut_ptr(), 4096), len - from_end, 1);
    let two = Submission::read(file.as_fd(), (second.as_mut_ptr(), 4096), 0, 2);
    // SAFETY: both buffers and the file outlive the last `enter` below, which waits for both operations.
    unsafe { ring.push_linked(one, two) };
    completions(ring)
}

#[test]
fn a_linked_pair_completes_once_whole_or_broken() {
    let Some(mut ring) = ring(8) else { return };
    assert_eq!(linked_pair(&mut ring, 8192, 0), [(2, 4096)]);
    assert_eq!(linked_pair(&mut ring, 100, 0), [(1, 100)], "a short read drops what is linked behind it");
}

/// A regression: with room for one of the two they were submitted apart, and the second did not wait for the first.
#[test]
fn a_linked_pair_is_submitted_whole_wherever_the_queue_is_full() {
    for polls in 0..=9 {
        let Some(mut ring) = ring(8) else { return };
        assert_eq!(linked_pair(&mut ring, 100, polls), [(1, 100)], "after {polls} others");
    }
}

/// More than the queue holds, twice over, is submitted in order; nothing is lost.
#[test]
fn more_than_there_is_room_for_is_submitted_all_the_same() {
    let Some(mut ring) = ring(4) else { return };
    let bell = EventFd::new().expect("eventfd");
    bell.signal();
    (0..100).for_each(|user_data| ring.push_poll(bell.as_fd(), user_data));
    let mut seen: Vec<_> = completions(&mut ring).into_iter().map(|(user_data, _)| user_data).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..100));
    assert!(!ring.has_queued());
}

/// Where the kernel takes nothing more, what is pushed waits, and a chain stays whole.
#[test]
fn what_has_no_room_waits_in_chains() {
    let Some(mut ring) = ring(8) else { return };
    let bell = EventFd::new().expect("eventfd");
    bell.signal();
    let entry =
        |user_data| opcode::PollAdd::new(Fd(bell.as_fd().as_raw_fd()), 1).build().user_data(user_data).into();
    for first in [0, 2, 4] {
        ring.backlog.push_back(vec![entry(first), entry(first + 1)]);
    }
    ring.push_poll(bell.as_fd(), 6);
    assert!(ring.backlog.is_empty() && ring.has_queued());
    let seen: Vec<_> = completions(&mut ring).into_iter().map(|(user_data, _)| user_data).collect();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_poll_tells_once_and_a_cancelled_one_at_once() {
    let Some(mut ring) = ring(8) else { return };
    let bell = EventFd::new().expect("eventfd");
    let nothing = |ring: &mut Ring| ring.enter(1, Some(Duration::from_millis(5)));
    ring.push_poll(bell.as_fd(), 1);
    ring.enter(0, None).expect("a call that submits tells of that, and not of the time");
    assert_eq!(nothing(&mut ring), Err(Errno::TIME), "it waits");
    bell.signal();
    ring.enter(0, None).expect("collects without waiting");
    assert_eq!(ring.next_completion().map(|done| (done.user_data, done.result)), Some((1, 1)));
    bell.signal();
    assert_eq!(nothing(&mut ring), Err(Errno::TIME), "it told already");
    bell.drain();
    ring.push_poll(bell.as_fd(), 2);
    ring.push_cancel(2, 3);
    ring.enter(1, None).expect("the poll ends");
    let cancelled = -Errno::CANCELED.raw_os_error();
    assert_eq!(ring.next_completion().map(|done| (done.user_data, done.result)), Some((2, cancelled)));
    assert!(ring.next_completion().is_none(), "a cancellation that worked says nothing");
    ring.push_cancel(2, 3);
    ring.enter(1, None).expect("there is nothing to cancel any more");
    let missing = -Errno::NOENT.raw_os_error();
    assert_eq!(ring.next_completion().map(|done| (done.user_data, done.result)), Some((3, missing)));
}

#[test]
fn waiting_ends_with_the_timeout() {
    let Some(mut ring) = ring(8) else { return };
    assert_eq!(ring.enter(1, Some(Duration::from_millis(5))), Err(Errno::TIME));
}

/// The kernel's threads for what would wait are made in the class of the ring's thread, where they may starve.
#[test]
fn workers_of_a_ring_are_found_and_leave_the_light_class() {
    use crate::sched::{Class, is_light, may_change_class, set_class};
    use crate::threads::{gettid, ring_workers};

    std::thread::spawn(|| {
        let Some(mut ring) = ring(8) else { return };
        if !may_change_class() {
            println!("SKIPPED: CAP_SYS_NICE is not to be had");
            return;
        }
        set_class(gettid(), Class::Light).expect("the light class");
        // It knows no reading without waiting, so that a worker does it.
        let file = std::fs::File::open("/proc/self/status").expect("opens");
        let mut room = vec![0_u8; 16];
        let read = Submission::read(file.as_fd(), (room.as_mut_ptr(), 16), 0, 1);
        // SAFETY: the buffer and the file outlive the `enter` that waits for the operation.
        unsafe { ring.push(read) };
        assert_eq!(completions(&mut ring), [(1, 16)]);
        let light: Vec<u32> = ring_workers().into_iter().filter(|tid| is_light(*tid)).collect();
        assert!(!light.is_empty(), "there is a worker, and it inherited the class");
        for tid in light {
            set_class(tid, Class::Normal).expect("the normal class");
            assert!(!is_light(tid));
        }
    })
    .join()
    .expect("no panic");
}
