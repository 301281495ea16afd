//! What a slot's uses exclude, and whom the last one wakes.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Wake, Waker};

use crate::hold::{Hold, Use};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn the_last_use_wakes_who_waits_and_nobody_else() {
    let count = Arc::new(Count::default());
    let woken = || count.0.load(std::sync::atomic::Ordering::SeqCst);
    let hold = Hold::new(Waker::from(Arc::clone(&count)));
    assert!(hold.wait_free());
    hold.begin(Use::Reads);
    hold.begin(Use::Reads);
    assert!(!hold.is_free() && hold.is_readable());
    hold.end(Use::Reads);
    hold.end(Use::Reads);
    assert_eq!(woken(), 0, "nobody waits");
    hold.begin(Use::Writes);
    assert!(!hold.is_readable() && !hold.is_given());
    assert!(!hold.wait_free());
    hold.end(Use::Writes);
    assert_eq!(woken(), 1);
    assert!(hold.wait_free());
    hold.begin(Use::Has);
    assert!(hold.is_given());
    hold.end(Use::Has);
    assert_eq!(woken(), 1, "it waits no more");
}

#[test]
fn uses_that_exclude_each_other_do_not_begin() {
    for (there, comes) in [
        (Use::Writes, Use::Reads),
        (Use::Writes, Use::Writes),
        (Use::Reads, Use::Writes),
        (Use::Has, Use::Reads),
        (Use::Reads, Use::Has),
    ] {
        let hold = Hold::new(Waker::noop().clone());
        hold.begin(there);
        let begun = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hold.begin(comes)));
        assert!(begun.is_err(), "{comes:?} beside {there:?}");
    }
}
