use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{File, read_link};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuntfs_sys::descriptors::{LeftDescriptors, OpenNumbers};
use shuntfs_sys::shared_words::SharedWords;
use shuntfs_wire::abi::UNIQUE_RESEND;
use shuntfs_wire::{Errno, Fh, InHeader, LookupCount, NodeId, Opcode};

use super::layout::{COUNTERS, REQUESTS};
use super::opens::FoundOpen;
use super::requests::Found;
use super::*;
use crate::counters::{Counters, QueueCounters};
use crate::delegation::{Flow, Flows, Reason};
use crate::flow::{OpenKind, Worth};
use crate::latency::Latencies;
use crate::nodes::Counted;
use crate::takeover::surviving::{Deaths, FileIdentity};

/// Everything that a successor would find.
#[derive(Clone, PartialEq, Debug)]
struct All {
    requests: Vec<Found>,
    files: Vec<FoundOpen>,
    folders: Vec<FoundOpen>,
    nodes: Vec<Node>,
    sealed: StoredHandover,
}

/// A node as a successor gets it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Node {
    node: NodeId,
    lookups: LookupCount,
    words: [u64; 8],
    marks: Option<u32>,
}

/// As a successor looks at it, which maps it anew.
fn look(store: &Store) -> Result<All, StoreError> {
    let copy = store.as_fd().try_clone_to_owned().expect("a duplicate");
    let store = Arc::new(Store::open(copy)?);
    let (_, left) = KeptNodes::take(&store, &mut LeftDescriptors::none())?;
    let nodes = left.map(|left| {
        left.map(|LeftNode { node, lookups, words, marks, .. }| Node { node, lookups, words, marks })
    });
    Ok(All {
        requests: store.found_requests()?,
        files: store.found_opens(Table::Files)?,
        folders: store.found_opens(Table::Folders)?,
        nodes: nodes.collect::<Result<_, _>>()?,
        sealed: store.sealed()?,
    })
}

fn node(number: u64) -> NodeId {
    NodeId::new(number).expect("not zero")
}

fn fh(generation: u64, index: u64) -> Fh {
    Fh(generation << 32 | index)
}

fn file(number: u64) -> OpenRecord {
    OpenRecord {
        node: node(number),
        unique: number << 1,
        counted: Counted { kind: OpenKind::Backed, drops_pages: true },
        worth: Worth::Checked,
        flows: Flows::both(Flow::Passthrough, Reason::Wished),
        backing: 3,
        descriptor: Some((17, FileIdentity { device: 8, inode: number })),
        words: [5, u64::MAX],
    }
}

fn header(opcode: Opcode, unique: u64) -> InHeader {
    InHeader { opcode: opcode as u32, unique, ..InHeader::default() }
}

/// A server's work: one request after the other, each of which may be its last.
fn work(store: &Arc<Store>) -> Result<(), StoreError> {
    let mut left = LeftDescriptors::none();
    let server = store.server_begins()?;
    let (requests, _) = Requests::take(store, server, Deaths::default())?;
    let (nodes, _) = KeptNodes::take(store, &mut left)?;
    let own = RefCell::default();
    store.seal(&StoredHandover(b"agreed".to_vec()))?;
    let at = |opcode, unique| match requests.begin(&header(opcode, unique), &own) {
        Begun::Serve(at) => at,
        other => unreachable!("{other:?}"),
    };
    let lookup = at(Opcode::Lookup, 2);
    let kept = |number, words| KeptNode { node: node(number), file: None, words };
    let place = nodes.keep(&kept(2, [7; 8])).expect("there is room");
    requests.done(lookup, None, &[1; 128]);
    requests.end(lookup, &header(Opcode::Lookup, 2), &own);
    let open = at(Opcode::Open, 4);
    store.backing_registered(3);
    store.opened(Table::Files, fh(1, 0), &file(2)).expect("there is room");
    requests.done(open, None, &[2; 16]);
    requests.end(open, &header(Opcode::Open, 4), &own);
    let again = at(Opcode::Lookup, 6);
    nodes.raise(&place, LookupCount(1));
    requests.done(again, Some(Errno::NOENT), &[]);
    requests.end(again, &header(Opcode::Lookup, 6), &own);
    let folder =
        OpenRecord { descriptor: Some((18, FileIdentity::default())), ..OpenRecord::of_folder(node(1), 8) };
    store.opened(Table::Folders, fh(4, 0), &folder).expect("there is room");
    store.closes(Table::Files, fh(1, 0));
    store.opened(Table::Files, fh(2, 0), &file(2)).expect("there is room");
    store.backing_registered(4);
    store.backing_goes(3);
    let other = nodes.keep(&kept(3, [0; 8])).expect("there is room");
    nodes.mark(&other, 4);
    if nodes.lower(&place, LookupCount(2)) == LookupCount(0) {
        nodes.let_go(place);
    }
    nodes.raise(&other, LookupCount(4));
    at(Opcode::Rename2, 10);
    requests.note(&header(Opcode::Rename2, 10), [5, u64::MAX]);
    Ok(())
}

fn store() -> Arc<Store> {
    let store = Arc::new(Store::create().expect("memory"));
    store.seal(&StoredHandover(b"agreed".to_vec())).expect("is short");
    store
}

#[test]
fn what_was_written_is_found() {
    let store = store();
    work(&store).expect("is whole");
    let All { requests, files, folders, nodes, sealed } = look(&store).expect("is whole");
    assert_eq!(files, [FoundOpen { index: 0, generation: 2, open: Some(file(2)) }]);
    assert_eq!((folders.len(), folders[0].generation), (1, 4));
    assert_eq!(nodes.len(), 1, "the other was forgotten");
    assert_eq!((nodes[0].node, nodes[0].lookups, nodes[0].marks), (node(3), LookupCount(5), Some(4)));
    assert_eq!(sealed.0, b"agreed");
    // One queue had one request at a time, so one slot served them all.
    assert_eq!((requests.len(), requests[0].unique, requests[0].result), (1, 10, None));
    assert_eq!(requests[0].note, Some([5, u64::MAX]));
    assert_eq!(store.backings_below(6).expect("is whole"), [1, 2, 3, 4, 5]);
}

/// However far a server comes, what it leaves is whole, and each record is either there or not.
#[test]
fn a_server_may_be_killed_after_any_store() {
    let mut kills = 0;
    loop {
        let store = store();
        store.fuse.store(kills, Ordering::Relaxed);
        work(&store).expect("the part that was written is whole");
        let is_over = store.fuse.load(Ordering::Relaxed) > 0;
        let All { requests, files, folders, nodes, .. } =
            look(&store).unwrap_or_else(|error| panic!("{kills}: {error}"));
        for found in files.iter().chain(&folders).filter_map(|found| found.open) {
            assert!([file(2).words, [0; 2]].contains(&found.words), "{kills}");
        }
        for found in &nodes {
            let expected = if found.node == node(2) { [7; 8] } else { [0; 8] };
            assert!(found.words == expected && found.lookups.0 <= 5, "{kills}: {found:?}");
        }
        for found in requests.iter().filter(|found| found.opcode == Opcode::Open as u16) {
            // A result is there only after what it tells of.
            assert!(found.result.is_none() || files.iter().any(|file| file.open.is_some()), "{kills}");
        }
        // The next one goes on with it.
        let copy = store.as_fd().try_clone_to_owned().expect("a duplicate");
        let next = Arc::new(Store::open(copy).expect("is whole"));
        let server = next.server_begins().expect("is whole");
        Requests::take(&next, server, Deaths::default()).expect("is whole");
        if is_over {
            break;
        }
        kills += 1;
    }
    assert!(kills > 100, "{kills} stores");
}

/// Whichever word is wrong, it is refused, or nothing follows from it, or less is there: never anything else.
#[test]
fn no_damaged_word_is_believed() {
    let store = store();
    work(&store).expect("is whole");
    let whole = look(&store).expect("is whole");
    let mut used: Vec<usize> = Store::first_words().filter(|word| store.get(*word) != 0).collect();
    // The slots that were used are the last.
    used.extend((0..32).map(|word| REQUESTS.at(whole.requests[0].index) + word));
    assert!(used.len() > 50, "{} words", used.len());
    let (mut refused, mut same, mut less) = (0, 0, 0);
    for word in used {
        let was = store.get(word);
        let bits = (0..64).map(|bit| was ^ (1 << bit));
        for damaged in bits.chain([0, u64::MAX, !was, was.swap_bytes()]).filter(|damaged| *damaged != was) {
            store.publish(word, damaged);
            match look(&store) {
                Err(_) => refused += 1,
                Ok(found) if is_no_more(&found, &whole) => {
                    if found == whole {
                        same += 1;
                    } else {
                        less += 1;
                    }
                }
                Ok(found) => panic!("word {word}: {was:#x} became {damaged:#x}, and {found:#?} was found"),
            }
        }
        store.publish(word, was);
    }
    println!("refused {refused}, without effect {same}, less {less}");
    assert!(refused > 1000, "{refused}");
}

/// Whether everything that was found is in `whole`, but for what needs no check, the server that noted a request that has no result, and for marks that
/// are not known any more.
fn is_no_more(found: &All, whole: &All) -> bool {
    let opens = |found: &[FoundOpen], whole: &[FoundOpen]| {
        let open = |found: &FoundOpen| found.open.is_some();
        found.iter().filter(|found| open(found)).all(|found| whole.contains(found))
    };
    let is_known = |found: &Found| {
        whole.requests.iter().any(|one| Found { server: found.server, ..one.clone() } == *found)
    };
    let is_kept =
        |found: &Node| whole.nodes.iter().any(|one| one == found || Node { marks: None, ..*one } == *found);
    opens(&found.files, &whole.files)
        && opens(&found.folders, &whole.folders)
        && found.nodes.iter().all(is_kept)
        && found.requests.iter().all(is_known)
        && found.sealed == whole.sealed
}

#[test]
fn a_request_is_answered_once() {
    let store = store();
    let own = RefCell::default();
    let take = |server| Requests::take(&store, server, Deaths::default()).expect("is whole");
    let (first, unfinished) = take(1);
    assert_eq!(unfinished, HashSet::new());
    let (mkdir, unlink) = (header(Opcode::Mkdir, 20), header(Opcode::Unlink, 22));
    let Begun::Serve(at) = first.begin(&mkdir, &own) else { panic!("it is new") };
    first.done(at, None, b"twelve bytes");
    let Begun::Serve(at) = first.begin(&unlink, &own) else { panic!("it is new") };
    first.done(at, Some(Errno::NOTEMPTY), &[]);
    // The server dies before either was answered.
    let (second, unfinished) = take(2);
    assert_eq!(unfinished, HashSet::new());
    let again = |header: InHeader| InHeader { unique: header.unique | UNIQUE_RESEND, ..header };
    let mut room = [0; 64];
    let Begun::Answer(at) = second.begin(&again(mkdir), &own) else { panic!("it is known") };
    assert_eq!(second.answer(at, &mut room), Ok(12));
    assert_eq!(&room[..12], b"twelve bytes");
    let Begun::Answer(at) = second.begin(&again(unlink), &own) else { panic!("it is known") };
    assert_eq!(second.answer(at, &mut room), Err(Errno::NOTEMPTY));
    assert!(
        matches!(second.begin(&again(header(Opcode::Mkdir, 24)), &own), Begun::Serve(_)),
        "it was never begun"
    );
    assert!(!second.is_begun_again(&again(header(Opcode::Mkdir, 24))));
}

#[test]
fn the_third_server_that_dies_of_a_request_is_the_last() {
    let store = store();
    let own = RefCell::default();
    let poison = header(Opcode::Mkdir, 20);
    let again = InHeader { unique: 20 | UNIQUE_RESEND, ..poison };
    let (first, _) = Requests::take(&store, 1, Deaths::default()).expect("is whole");
    assert!(matches!(first.begin(&poison, &own), Begun::Serve(_)));
    for server in 2..=3 {
        let (next, unfinished) = Requests::take(&store, server, Deaths::default()).expect("is whole");
        assert_eq!(unfinished, HashSet::from([20]));
        assert!(matches!(next.begin(&again, &RefCell::default()), Begun::Serve(_)), "{server}");
        assert!(next.is_begun_again(&again));
    }
    let (last, _) = Requests::take(&store, 4, Deaths::default()).expect("is whole");
    assert!(matches!(last.begin(&again, &RefCell::default()), Begun::Refuse(_)));
}

/// A regression: a request of which three servers of a new program had died was refused, and did not lead back to the program before; and that one
/// refused it as well.
#[test]
fn servers_of_another_program_that_died_of_a_request_do_not_count() {
    let store = store();
    let poison = header(Opcode::Mkdir, 20);
    let again = InHeader { unique: 20 | UNIQUE_RESEND, ..poison };
    let is_served = |server, header: &InHeader, deaths| {
        let (requests, _) = Requests::take(&store, server, deaths).expect("is whole");
        matches!(requests.begin(header, &RefCell::default()), Begun::Serve(_))
    };
    let (usual, patient) = (Deaths::default(), Deaths { max: 5, anew: false });
    assert!(is_served(1, &poison, usual));
    assert!((2..=5).all(|server| is_served(server, &again, patient)));
    assert!(is_served(6, &again, Deaths { anew: true, ..usual }), "by the program before");
    assert!((7..=8).all(|server| is_served(server, &again, usual)));
    assert!(!is_served(9, &again, usual), "three of its own");
}

#[test]
fn a_note_is_there_until_the_request_is_done() {
    let store = store();
    let rename = header(Opcode::Rename2, 20);
    let again = InHeader { unique: 20 | UNIQUE_RESEND, ..rename };
    let take = |server| Requests::take(&store, server, Deaths { max: 4, anew: false }).expect("is whole").0;
    let own = RefCell::default();
    let first = take(1);
    assert!(matches!(first.begin(&rename, &own), Begun::Serve(_)));
    assert!(matches!(first.begin(&header(Opcode::Rename2, 22), &own), Begun::Serve(_)));
    first.note(&rename, [7, 8]);
    first.note(&header(Opcode::Rename2, 24), [9, 9]);
    assert_eq!(first.note_of(&rename), None, "it is for those who come after");
    for server in 2..=3 {
        let next = take(server);
        assert!(matches!(next.begin(&again, &RefCell::default()), Begun::Serve(_)));
        assert_eq!(next.note_of(&again), Some([7, 8]), "{server}");
        let other = InHeader { unique: 22 | UNIQUE_RESEND, ..rename };
        assert!(matches!(next.begin(&other, &RefCell::default()), Begun::Serve(_)));
        assert!(next.note_of(&other).is_none() && next.is_begun_again(&other));
        // Noted once more, it is as before.
        next.note(&again, [1, 1]);
    }
    let last = take(4);
    let Begun::Serve(at) = last.begin(&again, &RefCell::default()) else { panic!("it is begun") };
    last.done(at, None, &[]);
    assert!(matches!(take(5).begin(&again, &RefCell::default()), Begun::Answer(_)));
}

/// Slots that nobody asks for do not use up all there are.
#[test]
fn requests_are_noted_over_any_number_of_deaths() {
    let store = store();
    for server in 1..=1000 {
        let (requests, _) = Requests::take(&store, server, Deaths::default()).expect("is whole");
        for unique in 0..8 {
            let header = header(Opcode::Mkdir, (u64::from(server) << 8) + unique * 2);
            assert!(matches!(requests.begin(&header, &RefCell::default()), Begun::Serve(_)), "{server}");
        }
    }
}

#[test]
fn a_place_is_used_again_and_a_full_table_says_so() {
    let store = store();
    let (nodes, left) = KeptNodes::take(&store, &mut LeftDescriptors::none()).expect("is whole");
    assert!(left.is_empty());
    let kept = |number| KeptNode { node: node(number), file: None, words: [number; 8] };
    let first = nodes.keep(&kept(2)).expect("there is room");
    let second = nodes.keep(&kept(3)).expect("there is room");
    nodes.let_go(first);
    let (nodes, left) = KeptNodes::take(&store, &mut LeftDescriptors::none()).expect("is whole");
    let left = left.collect::<Result<Vec<_>, _>>().expect("is whole");
    assert_eq!((left.len(), &left[0].place, left[0].words), (1, &second, [3; 8]));
    nodes.keep(&kept(4)).expect("there is room");
    assert_eq!(look(&store).expect("is whole").nodes.len(), 2);
    assert_eq!(store.opened(Table::Folders, fh(1, 1 << 16), &file(2)), Err(Errno::NFILE));
}

/// The descriptor of one that was read is its reader's. Another server finds the others as this one did.
#[test]
#[expect(unsafe_code, reason = "takes descriptors by their numbers")]
fn descriptors_of_nodes_that_were_not_read_stay_open() {
    let path = tempfile::NamedTempFile::new().expect("makes");
    let is_open = |number: i32| {
        read_link(format!("/proc/self/fd/{number}")).is_ok_and(|found| found.as_path() == path.path())
    };
    for read in 0..3 {
        let store = store();
        let (nodes, _) = KeptNodes::take(&store, &mut LeftDescriptors::none()).expect("is whole");
        let files: Vec<OwnedFd> = (0..3).map(|_| File::open(path.path()).expect("opens").into()).collect();
        for (number, file) in (2..).zip(&files) {
            let file = Some((file.as_fd(), FileIdentity::of(file).expect("is open")));
            nodes.keep(&KeptNode { node: node(number), file, words: [0; 8] }).expect("there is room");
        }
        let numbers: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
        std::mem::forget(files);
        let mut open = OpenNumbers::look().expect("procfs");
        let others: Vec<i32> = open.numbers().iter().copied().filter(|one| !numbers.contains(one)).collect();
        others.into_iter().for_each(|number| open.remove(number));
        // SAFETY: they are open, and nobody has them.
        let mut descriptors = unsafe { LeftDescriptors::new(open) };
        let (_, mut left) = KeptNodes::take(&store, &mut descriptors).expect("is whole");
        let apart = left.extract(|found| found == node(3));
        let read: Vec<u64> = left.take_next(read).map(|left| left.expect("is whole").node.get()).collect();
        drop((left, apart, descriptors));
        let open: Vec<u64> =
            (2..).zip(numbers).filter(|(_, number)| is_open(*number)).map(|(node, _)| node).collect();
        let unread: Vec<u64> = (2..5).filter(|node| !read.contains(node)).collect();
        assert_eq!(open, unread);
    }
}

/// The new record may come before the old one in the table, and the server that finds both may be killed as well.
#[test]
fn a_record_that_is_replaced_is_there_once_over_two_kills() {
    let kept = |number, word| KeptNode { node: node(number), file: None, words: [word; 8] };
    for (first, second) in (0..24).flat_map(|first| (0..6).map(move |second| (first, second))) {
        let store = store();
        let (nodes, _) = KeptNodes::take(&store, &mut LeftDescriptors::none()).expect("is whole");
        let other = nodes.keep(&kept(2, 2)).expect("there is room");
        let place = nodes.keep(&kept(3, 3)).expect("there is room");
        nodes.let_go(other);
        store.fuse.store(first, Ordering::Relaxed);
        nodes.replace(&place, &kept(3, 4)).expect("there is room");
        store.fuse.store(second, Ordering::Relaxed);
        KeptNodes::take(&store, &mut LeftDescriptors::none()).expect("is whole");
        store.fuse.store(u64::MAX, Ordering::Relaxed);
        let (_, left) = KeptNodes::take(&store, &mut LeftDescriptors::none()).expect("is whole");
        let found: Vec<_> =
            left.map(|left| left.expect("is whole")).map(|left| (left.node, left.words[0])).collect();
        let whole = [[(node(3), 3)], [(node(3), 4)]];
        assert!(whole.iter().any(|whole| found == whole), "{first}, {second}: {found:?}");
    }
}

/// Nothing that a server had marked is forgotten, and where servers did not mark nothing is trusted.
#[test]
fn marks_stay_with_a_node_and_are_unknown_in_the_first_layout() {
    for (layout, expected) in [(1, None), (2, Some(5))] {
        let store = Arc::new(Store::create_as(layout).expect("memory"));
        let take = || KeptNodes::take(&store, &mut LeftDescriptors::none()).expect("is whole");
        let kept = |word| KeptNode { node: node(2), file: None, words: [word; 8] };
        let (nodes, _) = take();
        let place = nodes.keep(&kept(1)).expect("there is room");
        let marks = || take().1.next().expect("it is there").expect("is whole").marks;
        assert_eq!(marks(), expected.map(|_| 0), "{layout}");
        nodes.mark(&place, 4);
        nodes.mark(&place, 1);
        assert_eq!(marks(), expected, "{layout}");
        let place = nodes.replace(&place, &kept(2)).expect("there is room");
        assert_eq!(marks(), expected, "{layout}: it is the same node");
        // Another one at this place.
        nodes.let_go(place);
        nodes.keep(&kept(3)).expect("there is room");
        assert_eq!(marks(), expected.map(|_| 0), "{layout}");
    }
}

/// The counters of queue 1 of the next server.
fn counters(store: &Store) -> Arc<QueueCounters> {
    let copy = store.as_fd().try_clone_to_owned().expect("a duplicate");
    let store = Arc::new(Store::open(copy).expect("is whole"));
    Counters::kept(KeptCounters::take(&store)).add_queue(1)
}

#[test]
fn counters_go_on_under_the_next_server() {
    let store = store();
    let first = counters(&store);
    first.requests[15].add(5);
    first.finished.add(3);
    first.read(Flow::Relay, 4096);
    first.latencies.end(Latencies::start(Some(Opcode::Read), 1).expect("the first one is timed"));
    let next = counters(&store);
    assert_eq!(
        (next.index, next.requests[15].read(), next.read_bytes[Flow::Relay as usize].read()),
        (1, 5, 4096)
    );
    assert_eq!(next.finished.read(), 5, "the two that were at work come again, as others");
    let timed = Latencies::by_operation(std::iter::once(&next.latencies));
    assert_eq!(timed["READ"].timed, 1);
    next.requests[15].bump();
    assert_eq!(first.requests[15].read(), 6, "they are the same");
}

#[test]
fn counters_of_another_shape_begin_anew() {
    let store = store();
    counters(&store).requests[15].add(5);
    store.put(COUNTERS.start, 7);
    assert_eq!(counters(&store).requests[15].read(), 0);
    counters(&store).requests[15].add(2);
    assert_eq!(counters(&store).requests[15].read(), 2);
}

#[test]
fn queues_without_room_for_their_counters_have_their_own() {
    let store = store();
    let kept = KeptCounters::take(&store).expect("there is room");
    let places: Vec<usize> = (0..2048).take_while(|queue| kept.place(*queue).is_some()).collect();
    assert!(places.len() >= 256, "{}", places.len());
    assert!(kept.place(usize::MAX).is_none());
    let counters = Counters::kept(Some(kept));
    let queue = counters.add_queue(places.len());
    queue.requests[1].bump();
    assert_eq!(queue.requests[1].read(), 1);
}

/// A mount that another release began: it keeps its layout, so that this release goes on with it and that one after it.
#[test]
fn the_layout_before_is_read_and_kept() {
    let old = Arc::new(Store::create_as(1).expect("memory"));
    work(&old).expect("is whole");
    let All { files, nodes, .. } = look(&old).expect("this release reads it");
    assert_eq!((files.len(), nodes.len()), (1, 1));
    let copy = old.as_fd().try_clone_to_owned().expect("a duplicate");
    let next = Arc::new(Store::open(copy).expect("is whole"));
    assert!(KeptCounters::take(&next).is_none());
    let queue = counters(&old);
    queue.requests[15].bump();
    assert_eq!(queue.requests[15].read(), 1, "they are this server's own");
    assert_eq!(next.get(0), u64::from_be_bytes(*b"shuntfs\x01"));
    assert_eq!(store().get(0), u64::from_be_bytes([b's', b'h', b'u', b'n', b't', b'f', b's', STATE_VERSION]));
}

#[test]
fn the_layout_of_a_later_release_is_refused() {
    let store = store();
    store.put(0, u64::from_be_bytes([b's', b'h', b'u', b'n', b't', b'f', b's', STATE_VERSION + 1]));
    let copy = store.as_fd().try_clone_to_owned().expect("a duplicate");
    assert_eq!(Store::open(copy).err(), Some(StoreError::Layout));
    let longer = SharedWords::create(c"test", COUNTERS.end + 512).expect("memory");
    let copy = longer.as_fd().try_clone_to_owned().expect("a duplicate");
    assert_eq!(Store::open(copy).err(), Some(StoreError::Layout));
}
