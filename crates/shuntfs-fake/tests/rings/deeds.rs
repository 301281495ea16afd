//! A server that breaks the rules of a ring, one at a time: the fake finds each of them, and says what it is.

use crate::desk::has_rings;
use crate::on_fake::on_fake;
use crate::server::Deed;

#[test]
fn each_deed_is_found() {
    if !has_rings() {
        return;
    }
    for deed in [Deed::Nothing, Deed::NothingPinned] {
        let (honest, broken) = on_fake(deed);
        assert_eq!((&honest.read, &honest.written), (&Ok(b"llll".to_vec()), &Ok(4)));
        assert!(broken.is_none() && honest.seen.refusals.is_empty(), "{broken:?} {honest:?}");
    }
    let deeds = [
        (Deed::UnknownQueue, "there is no queue"),
        (Deed::UnknownFlags, "queue 0 was asked for with"),
        (Deed::QueueTwice, "queue 0 was asked for, and is there"),
        (Deed::ShortPool, "a pool of 8191 bytes for queue 0, with payloads of 8192"),
        (Deed::ReservedOfPool, "a pool of 16384 bytes for queue 0"),
        (Deed::PoolTwice, "which has an entry or a pool"),
        (Deed::PoolAfterEntry, "which has an entry or a pool"),
        (Deed::OneIovec, "an entry of queue 0 with 1 iovecs"),
        (Deed::ShortHeaders, "whose headers are too short"),
        (Deed::PayloadBesidePool, "which has a pool, with a payload"),
        (Deed::PlaceTaken, "with the place of another one"),
        (Deed::PlaceBeyondTable, "with a place beyond the table"),
        (Deed::QueueWithoutEntry, "queues [0] have no entry"),
        (Deed::UnknownCommand, "command 77 was never offered"),
        (Deed::PoolNotPinned, "which is not pinned in place"),
        (Deed::EntryWithoutPinned, "which does not name the pinned memory of its pool"),
        (Deed::PlaceOfPinned, "with the place of pinned memory"),
        (Deed::CommitsTwice, "which has no such request"),
        (Deed::CommitsWithoutPinned, "which does not name the pinned memory"),
        (Deed::CommitsAnother, "which has no such request"),
        (Deed::CommitsOnAnotherQueue, "a commit of request"),
        (Deed::CommitsByAnotherEntry, "was committed by another entry than its own"),
        (Deed::AnswersAnother, "has the answer to request"),
        (Deed::ReadsTooMuch, "an answer of 5 bytes to request"),
        (Deed::AnswersWithoutRoom, "an answer of 1 bytes to request"),
        (Deed::MovesAfterCommit, "is answered"),
        (Deed::CommitsBeforeMoved, "was answered with 1 operations on its pages"),
        (Deed::MovesTheOtherWay, "are for the other way"),
        (Deed::MovesTooFar, "has 4 bytes there"),
        (Deed::WritesTooMuch, "WRITE of 4 bytes to node 2 was answered with 5"),
    ];
    assert_eq!(deeds.len() + 2, Deed::ALL.len());
    for (deed, words) in deeds {
        let said = on_fake(deed).1.unwrap_or_else(|| panic!("{deed:?} was not found")).to_string();
        assert!(said.contains(words), "{deed:?}: {words:?} in {said}");
    }
}
