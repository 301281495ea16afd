use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;

use super::*;
use crate::backing::Registrar;
use crate::backing::test::FakeRegistrar;

fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

fn lower() -> Result<Arc<LowerFile>> {
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    Ok(Arc::new(LowerFile::new(OwnedFd::from(file))))
}

impl Nodes {
    fn open(
        &self,
        node: NodeId,
        wish: Wish,
        cache: CacheHint,
        lower: &dyn Fn() -> Result<Arc<LowerFile>>,
    ) -> Result<SettledOpen> {
        self.settle_open(node, Ask { wish, cache, in_pages: true }, lower)
    }
}

fn nodes(kept_max: usize) -> (Arc<FakeRegistrar>, Nodes) {
    let fake = Arc::new(FakeRegistrar::default());
    let backings = Backings::new(Arc::clone(&fake) as Arc<dyn Registrar>, None);
    (fake, Nodes::new(backings, false, kept_max))
}

fn live(fake: &FakeRegistrar) -> usize {
    fake.live.lock().len()
}

#[test]
fn one_id_a_node_and_none_more_than_the_limit_is_kept() {
    let (fake, nodes) = nodes(2);
    let open =
        |number| nodes.open(node(number), Wish::Whole(Way::Passthrough), CacheHint::Keep, &lower).unwrap();
    let first = open(5);
    let second = open(5);
    assert_eq!(first, second);
    assert!(first.backing.is_some());
    nodes.close(node(5), first.counted);
    nodes.close(node(5), second.counted);
    assert_eq!((nodes.open_count(), nodes.kept_count(), live(&fake)), (0, 1, 1));
    assert_eq!(open(5).backing, first.backing, "reopened without another registration");
    assert_eq!((nodes.open_count(), nodes.kept_count()), (1, 0));
    nodes.close(node(5), first.counted);
    for number in 6..10 {
        let settled = open(number);
        nodes.close(node(number), settled.counted);
    }
    assert_eq!((nodes.kept_count(), live(&fake)), (2, 2));
    assert_eq!(nodes.flow_of(node(5)), None);
    assert_eq!(nodes.flow_of(node(9)), Some(Flows::both(Flow::Passthrough, Reason::Wished)));
}

/// A regression: an id that was to go while the file was being registered stayed, and later opens went to that file.
#[test]
fn an_id_that_is_dropped_while_it_is_made_goes_with_the_last_close() {
    let (fake, nodes) = nodes(8);
    let (wish, first) = (Wish::Whole(Way::Passthrough), std::cell::Cell::new(true));
    let switched = || {
        let file = lower();
        if first.take() {
            nodes.drop_backing(node(5));
        }
        file
    };
    for kept in [0, 1] {
        let settled = nodes.open(node(5), wish, CacheHint::Keep, &switched).unwrap();
        nodes.close(node(5), settled.counted);
        assert_eq!((nodes.kept_count(), live(&fake)), (kept, kept));
    }
}

/// A regression: whoever opened or closed a node waited for the lower file system of somebody who opened it first.
#[test]
fn others_open_and_close_a_node_while_its_lower_file_is_waited_for() {
    let (fake, nodes) = nodes(8);
    let wish = Wish::Whole(Way::Passthrough);
    let other = std::cell::Cell::new(None);
    let slow = || {
        std::thread::scope(|scope| {
            let opens = scope.spawn(|| {
                let settled = nodes.open(node(5), wish, CacheHint::Keep, &lower).unwrap();
                let again = nodes.open(node(5), wish, CacheHint::Keep, &lower).unwrap();
                nodes.close(node(5), again.counted);
                settled
            });
            for _ in 0..1000 {
                if opens.is_finished() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            if !opens.is_finished() {
                // It waits for the lock that this thread has.
                std::process::abort();
            }
            other.set(Some(opens.join().unwrap()));
        });
        lower()
    };
    let mine = nodes.open(node(5), wish, CacheHint::Keep, &slow).unwrap();
    let other = other.take().unwrap();
    assert_eq!((mine.backing, mine.flows), (other.backing, other.flows), "all opens of a node share one");
    assert_eq!((nodes.open_count(), live(&fake)), (1, 1), "the second registration was taken back");
    nodes.close(node(5), mine.counted);
    nodes.close(node(5), other.counted);
    assert_eq!((nodes.kept_count(), live(&fake)), (1, 1));
}

#[test]
fn what_had_better_be_moved_by_us_is_not_registered() {
    let (fake, nodes) = nodes(8);
    let wish = Wish::Whole(Way::Passthrough);
    let near_full = || -> Result<Arc<LowerFile>> { Err(Errno::NOSPC) };
    let ours = nodes.open(node(3), wish, CacheHint::Keep, &near_full).unwrap();
    assert_eq!((ours.flows, ours.backing), (Flows::both(Flow::Splice, Reason::NearFull), None));
    let beside = nodes.open(node(3), wish, CacheHint::Keep, &lower).unwrap();
    assert_eq!(beside.flows, Flows::both(Flow::Splice, Reason::CachedOpens));
    nodes.close(node(3), ours.counted);
    nodes.close(node(3), beside.counted);
    let passed = nodes.open(node(3), wish, CacheHint::Keep, &lower).unwrap();
    let bound = nodes.open(node(3), wish, CacheHint::Keep, &near_full).unwrap();
    assert_eq!(bound.flows, passed.flows, "a node that is in passthrough stays so");
    assert_eq!(live(&fake), 1);
}

#[test]
fn wishes_bend_to_the_first_open() {
    let (fake, nodes) = nodes(8);
    let cached = nodes.open(node(2), Wish::Whole(Way::Served), CacheHint::Keep, &lower).unwrap();
    let late = nodes.open(node(2), Wish::Whole(Way::Passthrough), CacheHint::Keep, &lower).unwrap();
    assert_eq!((late.flows, late.backing), (Flows::both(Flow::Splice, Reason::CachedOpens), None));
    nodes.close(node(2), cached.counted);
    nodes.close(node(2), late.counted);
    let backed = nodes.open(node(2), Wish::Whole(Way::Passthrough), CacheHint::Keep, &lower).unwrap();
    let served = nodes.open(node(2), Wish::Whole(Way::Served), CacheHint::Keep, &lower).unwrap();
    assert_eq!(served.flows, Flows::both(Flow::Served, Reason::PassthroughOpens));
    assert_eq!(served.backing, backed.backing);
    assert!(served.flags.contains(FopenFlags::DIRECT_IO | FopenFlags::PASSTHROUGH));
    nodes.close(node(2), backed.counted);
    nodes.close(node(2), served.counted);
    assert_eq!(live(&fake), 1);
}

#[test]
fn what_is_read_again_leaves_passthrough_once_nobody_has_it_open() {
    let (fake, nodes) = nodes(8);
    let open = |cache| nodes.open(node(4), Wish::Whole(Way::Passthrough), cache, &lower).unwrap();
    let first = open(CacheHint::Keep);
    let beside = open(CacheHint::Again);
    assert_eq!(beside, first, "an open binds the next one");
    nodes.close(node(4), first.counted);
    nodes.close(node(4), beside.counted);
    assert_eq!((nodes.kept_count(), live(&fake)), (1, 1));
    let again = open(CacheHint::Again);
    assert_eq!(again.flows.reads.reason, Reason::ReadAgain);
    assert_eq!((again.counted.kind, again.backing), (OpenKind::Cached, None));
    assert_eq!((nodes.open_count(), nodes.kept_count(), live(&fake)), (1, 0, 0));
    nodes.close(node(4), again.counted);
    let back = open(CacheHint::Keep);
    assert!(back.backing.is_some());
    nodes.close(node(4), back.counted);
    assert_eq!((nodes.open_count(), nodes.kept_count(), live(&fake)), (0, 1, 1));
}

#[test]
fn a_forgotten_node_lets_its_id_go_but_not_under_an_open() {
    let (fake, nodes) = nodes(8);
    let settled = nodes.open(node(3), Wish::Whole(Way::Passthrough), CacheHint::Drop, &lower).unwrap();
    nodes.drop_backing(node(3));
    assert_eq!(live(&fake), 1, "an open counts on it");
    let again = nodes.open(node(3), Wish::Whole(Way::Passthrough), CacheHint::Drop, &lower).unwrap();
    assert_eq!(again.backing, settled.backing);
    nodes.close(node(3), settled.counted);
    nodes.close(node(3), again.counted);
    assert_eq!((live(&fake), nodes.kept_count()), (0, 0));
    let settled = nodes.open(node(3), Wish::Whole(Way::Passthrough), CacheHint::Drop, &lower).unwrap();
    nodes.close(node(3), settled.counted);
    assert_eq!(live(&fake), 1);
    nodes.drop_backing(node(3));
    nodes.drop_backing(node(3));
    assert_eq!((live(&fake), nodes.kept_count()), (0, 0));
}

/// What a map was lifted to is one file; the next open of the node may have a map that is another.
#[test]
fn a_lifted_open_joins_only_its_own_file() {
    use shuntfs_sys::stat::Device;
    let (_, nodes) = nodes(8);
    let key = |ino| (Device { major: 1, minor: 2 }, ino);
    let open = |wish| nodes.open(node(7), wish, CacheHint::Keep, &lower).unwrap();
    let first = open(Wish::Lifted(key(5)));
    assert_eq!(first.flows, Flows::both(Flow::Passthrough, Reason::Wished));
    let same = open(Wish::Lifted(key(5)));
    assert_eq!((same.flows, same.backing), (first.flows, first.backing));
    let other = open(Wish::Lifted(key(6)));
    assert_eq!(other.flows, Flows::both(Flow::Ranges, Reason::PassthroughOpens));
    for settled in [first, same, other] {
        nodes.close(node(7), settled.counted);
    }
    nodes.drop_backing(node(7));
    let whole = open(Wish::Whole(Way::Passthrough));
    let lifted = open(Wish::Lifted(key(5)));
    assert_eq!(lifted.flows.reads.flow, Flow::Ranges, "nobody said which file the node's own is");
    nodes.close(node(7), whole.counted);
    nodes.close(node(7), lifted.counted);
}

/// A kept id stands for a file whose bytes nobody checks: a mapping of a checked open would show them.
#[test]
fn a_checked_open_gets_no_backing_id_that_an_unchecked_one_left() {
    let (fake, nodes) = nodes(8);
    let open = |way| nodes.open(node(7), Wish::Whole(way), CacheHint::Keep, &lower);
    let unchecked = open(Way::Passthrough).unwrap();
    assert_eq!(open(Way::Verified), Err(Errno::BUSY), "the backing file is mapped as it is");
    assert_eq!(open(Way::VerifiedBelow), Err(Errno::BUSY));
    nodes.close(node(7), unchecked.counted);
    assert_eq!((nodes.kept_count(), live(&fake)), (1, 1));
    let checked = open(Way::Verified).unwrap();
    assert_eq!((checked.counted.kind, checked.backing), (OpenKind::Cached, None));
    assert!(!checked.flags.contains(FopenFlags::PASSTHROUGH));
    assert_eq!((nodes.kept_count(), live(&fake)), (0, 0));
    for way in [Way::Passthrough, Way::Served, Way::Splice, Way::Ranges] {
        assert_eq!(open(way), Err(Errno::BUSY), "{way:?} brings pages that nobody checks");
    }
    nodes.close(node(7), checked.counted);
    let below = open(Way::VerifiedBelow).unwrap();
    assert!(below.backing.is_some());
    let beside = open(Way::Verified).unwrap();
    assert_eq!(beside.backing, below.backing, "the lower file system checks what is mapped");
    nodes.close(node(7), below.counted);
    nodes.close(node(7), beside.counted);
    assert_eq!(live(&fake), 1);
    let unchecked = open(Way::Passthrough).unwrap();
    assert_ne!(unchecked.backing, below.backing);
    nodes.close(node(7), unchecked.counted);
    nodes.forget(node(7));
    assert_eq!((nodes.open_count(), nodes.kept_count(), live(&fake), nodes.pages.len()), (0, 0, 0, 0));
    assert!(nodes.shards.iter().all(|shard| shard.lock().is_empty()));
}

/// Pages that an unchecked open brought are no checked one's.
#[test]
fn a_checked_open_finds_no_page_that_nobody_checked() {
    let (_, nodes) = nodes(8);
    let open = |way| nodes.open(node(9), Wish::Whole(way), CacheHint::Keep, &lower).unwrap();
    let keeps = |settled: SettledOpen| settled.flags.contains(FopenFlags::KEEP_CACHE);
    let unchecked = open(Way::Splice);
    nodes.close(node(9), unchecked.counted);
    let (first, second) = (open(Way::Verified), open(Way::Verified));
    assert!(!keeps(first) && !keeps(second), "the first may not be through with dropping them");
    nodes.undo(node(9), second.counted);
    assert!(!keeps(open(Way::Verified)), "an answer that never left drops nothing");
    nodes.close(node(9), first.counted);
    let later = open(Way::Verified);
    assert!(keeps(later));
    nodes.close(node(9), later.counted);
    nodes.close(node(9), first.counted);
    let unchecked = open(Way::Splice);
    assert!(keeps(unchecked), "checked pages are good for anybody");
    nodes.close(node(9), unchecked.counted);
    let checked = open(Way::Verified);
    assert!(!keeps(checked));
    nodes.close(node(9), checked.counted);
    assert_eq!(nodes.pages.len(), 1);
    nodes.forget(node(9));
    assert_eq!(nodes.pages.len(), 0);
    assert!(!keeps(open(Way::Verified)), "a node that was forgotten is a new one");
}

/// What the kernel refuses once is not asked for at each open, whoever else would check the bytes.
#[test]
fn a_file_that_is_verified_below_is_registered_where_that_is_allowed() {
    let (fake, nodes) = nodes(8);
    *fake.error.lock() = Some(shuntfs_sys::OsError::PERM);
    for _ in 0..10 {
        let settled = nodes.open(node(4), Wish::Whole(Way::VerifiedBelow), CacheHint::Keep, &lower).unwrap();
        assert_eq!(settled.flows, Flows::both(Flow::Verified, Reason::NotPrivileged));
        nodes.close(node(4), settled.counted);
    }
    assert_eq!(fake.asked.load(Ordering::Relaxed), 1);
    let off = Backings::new(Arc::new(FakeRegistrar::default()), Some(Reason::TurnedOff));
    let nodes = Nodes::new(off, false, 8);
    let settled = nodes.open(node(4), Wish::Whole(Way::VerifiedBelow), CacheHint::Keep, &lower).unwrap();
    assert_eq!(settled.flows, Flows::both(Flow::Verified, Reason::TurnedOff));
    nodes.close(node(4), settled.counted);
}

#[test]
fn rings_that_were_refused_relay_nothing() {
    let fake = Arc::new(FakeRegistrar::default());
    let nodes = Nodes::new(Backings::new(fake as Arc<dyn Registrar>, None), true, 8);
    let flow = || {
        let settled = nodes.open(node(4), Wish::Whole(Way::Splice), CacheHint::Keep, &lower).unwrap();
        nodes.close(node(4), settled.counted);
        settled.flows.reads.flow
    };
    assert_eq!(flow(), Flow::Relay);
    nodes.without_ring();
    assert_eq!(flow(), Flow::Splice);
}

#[test]
fn a_refused_registration_falls_to_a_flow_that_works() {
    let (fake, nodes) = nodes(8);
    *fake.error.lock() = Some(shuntfs_sys::OsError::PERM);
    for _ in 0..10 {
        let settled = nodes.open(node(4), Wish::Whole(Way::Passthrough), CacheHint::Keep, &lower).unwrap();
        assert_eq!(settled.flows, Flows::both(Flow::Splice, Reason::NotPrivileged));
        assert_eq!(settled.flags, FopenFlags::KEEP_CACHE);
        nodes.close(node(4), settled.counted);
    }
    assert_eq!(fake.asked.load(Ordering::Relaxed), 1, "not tried at each open");
    let failing = || Err(shuntfs_wire::Errno::IO);
    *fake.error.lock() = None;
    let (_, nodes) = self::nodes(8);
    let settled = nodes.open(node(4), Wish::Whole(Way::Passthrough), CacheHint::Keep, &failing).unwrap();
    assert_eq!(settled.flows, Flows::both(Flow::Splice, Reason::RegisterFailed));
}

/// The kernel's rule, checked from outside: what is open at one moment agrees on one io mode and one id.
#[test]
fn racing_opens_agree() {
    const MODE_BACKED: u32 = 1 << 16;
    let (fake, nodes) = nodes(3);
    let open: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for seed in 0..4_u32 {
            let (nodes, open) = (&nodes, &open);
            scope.spawn(move || {
                let mut random = seed.wrapping_mul(2_654_435_761) | 1;
                for _ in 0..4000 {
                    random ^= random << 13;
                    random ^= random >> 17;
                    random ^= random << 5;
                    let number = random % 8;
                    let wish = match random >> 8 & 3 {
                        0 => Wish::Whole(Way::Served),
                        1 => Wish::Whole(Way::Splice),
                        _ => Wish::Whole(Way::Passthrough),
                    };
                    let id = node(u64::from(number) + 2);
                    let settled = nodes.open(id, wish, CacheHint::Drop, &lower).unwrap();
                    let unit = if settled.counted.kind == OpenKind::Backed { MODE_BACKED } else { 1 };
                    let before = open[number as usize].fetch_add(unit, Ordering::SeqCst);
                    if unit == MODE_BACKED {
                        assert_eq!(before & 0xffff, 0, "passthrough beside cached opens");
                    } else {
                        assert_eq!(before >> 16, 0, "cached beside passthrough opens");
                    }
                    assert_eq!(settled.backing.is_some(), unit == MODE_BACKED);
                    if random >> 20 & 7 == 0 {
                        nodes.drop_backing(id);
                    }
                    open[number as usize].fetch_sub(unit, Ordering::SeqCst);
                    nodes.close(id, settled.counted);
                }
            });
        }
    });
    assert_eq!(nodes.open_count(), 0);
    assert!(nodes.kept_count() <= 3);
    assert_eq!(live(&fake), nodes.kept_count());
    for number in 2..10 {
        nodes.drop_backing(node(number));
    }
    assert_eq!(live(&fake), 0);
    assert!(nodes.shards.iter().all(|shard| shard.lock().is_empty()));
}
