//! A ring whose driver is a test.

use std::io::{IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::*;
use crate::uring::{Ring, Submission};
use crate::{FuseDevice, Peer};

/// A table of one place, and what was told of it.
#[derive(Debug, Default)]
struct Driver {
    pages: Mutex<Option<Arc<Pages>>>,
    told: Mutex<Vec<String>>,
    end: Mutex<Option<RingEnd>>,
}

impl Driver {
    fn tell(&self, what: String) {
        self.told.lock().unwrap().push(what);
    }
}

impl Peer for Arc<Driver> {
    fn write(&self, _: &[IoSlice<'_>]) -> Result<usize> {
        Err(Errno::INVAL)
    }

    fn backing_open(&self, _: BorrowedFd<'_>) -> Result<u32> {
        Err(Errno::INVAL)
    }

    fn backing_close(&self, _: u32) -> Result<()> {
        Err(Errno::INVAL)
    }

    fn ring(self: Arc<Self>, end: RingEnd) -> Result<Arc<dyn RingPeer>> {
        *self.end.lock().unwrap() = Some(end);
        Ok(Arc::clone(&*self) as Arc<dyn RingPeer>)
    }
}

impl RingPeer for Driver {
    fn make_table(&self, places: u16) -> Result<()> {
        if places == 1 { Ok(()) } else { Err(Errno::NOMEM) }
    }

    fn pin(&self, place: u16, (_, len): (u64, usize)) -> Result<()> {
        self.tell(format!("pinned {len} bytes in {place}"));
        Ok(())
    }

    fn pages(&self, place: u16, moves: Moves, part: Range<u32>) -> Result<Arc<Pages>> {
        self.tell(format!("{place} {moves:?} {part:?}"));
        self.pages.lock().unwrap().clone().filter(|_| place == 0).ok_or(Errno::FAULT)
    }

    fn moved(&self, place: u16, _: &Arc<Pages>) {
        self.tell(format!("moved {place}"));
    }

    fn queued(&self, _: u64, command: &UringCommand, is_linked: bool) -> Queued {
        self.tell(format!("queued {} {is_linked}", command.op));
        match command.op {
            10 => Queued::Taken,
            11 => Queued::Done(Ok(())),
            12 => Queued::Done(Err(Errno::PERM)),
            _ => Queued::Sent,
        }
    }
}

fn next(ring: &mut Ring) -> Option<(u64, i32)> {
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while std::time::Instant::now() < deadline {
        let entered = ring.enter(1, Some(Duration::from_millis(100)));
        assert!(matches!(entered, Ok(()) | Err(Errno::TIME)), "{entered:?}");
        if let Some(done) = ring.next_completion() {
            return Some((done.user_data, done.result));
        }
    }
    None
}

fn ring(driver: &Arc<Driver>) -> Option<(FuseDevice, Ring, RingEnd)> {
    if Ring::new(4).is_err() {
        println!("SKIPPED: io_uring is not to be had here");
        return None;
    }
    let (device, _) = FuseDevice::of_peer(Arc::new(Arc::clone(driver))).expect("a device");
    let ring = Ring::of_device(&device, 8).expect("a ring");
    let end = driver.end.lock().unwrap().take().expect("it was met");
    Some((device, ring, end))
}

fn command(device: &FuseDevice, op: u32, user_data: u64) -> Submission {
    let command = UringCommand { op, bytes: [7; 40], iovecs: 1 << 40, iovecs_count: 2, pinned: Some(9) };
    Submission::command(device.as_fd(), &command, user_data)
}

#[test]
fn commands_reach_the_driver_which_completes_them_later() {
    let driver = Arc::default();
    let Some((device, mut ring, end)) = ring(&driver) else { return };
    assert_eq!((ring.make_table(2), ring.make_table(1)), (Err(Errno::NOMEM), Ok(())));
    // SAFETY: to this driver the address in it means nothing.
    unsafe { ring.push(command(&device, 3, 55)) };
    ring.enter(0, None).expect("submits");
    let (user_data, seen) = end.next_command().expect("it came");
    assert_eq!(
        (user_data, seen.op, seen.bytes, seen.iovecs, seen.iovecs_count, seen.pinned),
        (55, 3, [7; 40], 1 << 40, 2, Some(9))
    );
    ring.enter(0, None).expect("collects");
    assert!(ring.next_completion().is_none(), "it is under way");
    end.complete(55, -5).expect("told");
    assert_eq!(next(&mut ring), Some((55, -5)));
    for (op, done) in [(11, 0), (12, -1)] {
        // SAFETY: as above.
        unsafe { ring.push(command(&device, op, 56)) };
        ring.enter(0, None).expect("submits");
        let seen = ring.next_completion().map(|done| (done.user_data, done.result));
        assert_eq!(seen, Some((56, done)), "at once");
    }
    // SAFETY: as above.
    unsafe { ring.push(command(&device, 10, 57)) };
    ring.enter(0, None).expect("submits");
    assert!(ring.next_completion().is_none(), "the driver has it");
    end.complete(57, 1).expect("told");
    assert_eq!(next(&mut ring), Some((57, 1)));
    drop(ring);
    assert!(end.next_command().is_none(), "the ring is gone");
}

#[test]
fn what_is_linked_behind_a_move_waits_for_it() {
    let driver = Arc::default();
    let Some((device, mut ring, end)) = ring(&driver) else { return };
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"below the surface").expect("writes");
    let pages = Arc::new(Pages::new(100).expect("memory"));
    *driver.pages.lock().unwrap() = Some(Arc::clone(&pages));
    let bytes = |len| {
        let mut seen = vec![0; len];
        let memory = std::fs::File::open("/proc/self/mem").expect("opens");
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut seen, pages.address()).expect("mapped");
        seen
    };
    for (part, offset, whole) in [(0..5, 6, Some(b"the s")), (0..20, 6, None)] {
        let read = Submission::read_to_pages(file.as_fd(), (0, part), offset, 1);
        // SAFETY: to this driver the address in the command means nothing.
        unsafe { ring.push_linked(read, command(&device, 2, 2)) };
        ring.enter(0, None).expect("submits");
        if let Some(whole) = whole {
            assert_eq!(end.next_command().expect("behind the read").0, 2);
            assert_eq!(bytes(5), whole);
            end.complete(2, 0).expect("told");
            assert_eq!(next(&mut ring), Some((2, 0)));
        } else {
            assert_eq!(next(&mut ring), Some((1, 11)), "the file ends");
        }
    }
    let told = ["0 In 0..5", "queued 2 true", "moved 0", "0 In 0..20", "queued 2 true", "moved 0"];
    assert_eq!(*driver.told.lock().unwrap(), told);
    // Out of the pages, from their middle; and where there are none, or too few.
    let write = Submission::write_from_pages(file.as_fd(), (0, 2..5), 0, 3);
    // SAFETY: it names memory of the driver's, which is there.
    unsafe { ring.push(write) };
    assert_eq!(next(&mut ring), Some((3, 3)));
    assert_eq!(crate::data::read_at(&file, &mut [0; 3], 0), Ok(3));
    let faults = [(0, 98..101), (1, 0..1)];
    for (place, part) in faults {
        let read = Submission::read_to_pages(file.as_fd(), (place, part), 0, 4);
        // SAFETY: as above.
        unsafe { ring.push(read) };
        assert_eq!(next(&mut ring), Some((4, -Errno::FAULT.raw_os_error())));
    }
}

#[test]
fn a_driver_without_rings_refuses_one() {
    #[derive(Debug)]
    struct Deaf;
    impl Peer for Deaf {
        fn write(&self, _: &[IoSlice<'_>]) -> Result<usize> {
            Err(Errno::INVAL)
        }
        fn backing_open(&self, _: BorrowedFd<'_>) -> Result<u32> {
            Err(Errno::INVAL)
        }
        fn backing_close(&self, _: u32) -> Result<()> {
            Err(Errno::INVAL)
        }
    }
    let (device, _) = FuseDevice::of_peer(Arc::new(Deaf)).expect("a device");
    if Ring::new(4).is_ok() {
        assert_eq!(Ring::of_device(&device, 4).map(drop), Err(Errno::OPNOTSUPP));
    }
}
