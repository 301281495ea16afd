//! Bugs planted in a file system, or between it and the kernel: the fake finds each of them, and says what it is.

mod common;

#[path = "../../shuntfs/examples/passthrough.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod passthrough;

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Bug, Mem};
use shuntfs::{Errno, Filesystem, NodeId};
use shuntfs_fake::{Broken, Fake, O_RDONLY, O_RDWR, Rule, Settings};
use shuntfs_sys::{OsError, Peer};

/// Runs a test's calls on a file system and tells what was broken.
fn broken<F: Filesystem>(fs: F, calls: impl FnOnce(&Fake)) -> Broken {
    let fake = Fake::mount(fs).expect("mounts");
    calls(&fake);
    fake.finish().expect_err("a bug was planted")
}

/// That only this rule was broken, and that what is said of it has these words.
#[track_caller]
fn assert_found(broken: &Broken, rule: Rule, words: &[&str]) {
    assert!(broken.0.iter().all(|breach| breach.rule == rule), "{broken}");
    let said = broken.to_string();
    for word in words {
        assert!(said.contains(word), "{word:?} in {said}");
    }
}

#[test]
fn a_lookup_that_was_lost() {
    let found = broken(Mem::new(Bug::LosesLookups), |fake| {
        drop(fake.create("/file").unwrap());
        let node = fake.node("/file").unwrap();
        fake.give_back_one(node).unwrap();
        assert_eq!(fake.stat_node(node).err(), Some(Errno::STALE));
    });
    assert_found(&found, Rule::Held, &["GETATTR of node 2", "ESTALE", "1 lookups were not given back"]);
}

#[test]
fn a_stale_page() {
    let fs = Arc::new(Mem::new(Bug::None));
    let fake = Fake::mount_with(Arc::clone(&fs), &Settings::default()).unwrap();
    let file = fake.create("/file").unwrap();
    file.write_at(0, b"old bytes").unwrap();
    file.read_to_end().unwrap();
    fs.change_behind(file.node().unwrap(), b"old BYTES");
    assert_eq!(file.read_to_end().unwrap(), b"old bytes", "as a real kernel would");
    drop(file);
    let found = fake.finish().expect_err("nobody told the kernel");
    assert_found(&found, Rule::Pages, &["node 2 at byte 4", "9 cached bytes", "KEEP_CACHE"]);
}

#[test]
fn an_entry_that_holds_too_long() {
    let fs = Arc::new(Mem::new(Bug::None));
    let fake = Fake::mount_with(Arc::clone(&fs), &Settings::default()).unwrap();
    drop((fake.create("/one").unwrap(), fake.create("/two").unwrap()));
    fs.swap_behind("one", "two");
    assert_eq!(fake.node("/one").unwrap().get(), 2);
    let found = fake.finish().expect_err("nobody told the kernel");
    assert_found(&found, Rule::Names, &["\"one\" in node 1", "hold for 3600s", "node 2", "now says node 3"]);
}

#[test]
fn attributes_that_hold_too_long() {
    let fs = Arc::new(Mem::new(Bug::None));
    let fake = Fake::mount_with(Arc::clone(&fs), &Settings::default()).unwrap();
    drop(fake.create("/file").unwrap());
    let node = fake.node("/file").unwrap();
    fs.change_behind(node, b"twelve bytes");
    assert_eq!(fake.stat_node(node).unwrap().size, 0);
    let found = fake.finish().expect_err("nobody told the kernel");
    assert_found(&found, Rule::Attributes, &["of node 2", "size 0 is now 12"]);
}

#[test]
fn a_release_that_is_forgotten() {
    let settings = Settings { limit: Duration::from_secs(3), ..Settings::default() };
    let fake = Fake::mount_with(Arc::new(Mem::new(Bug::NeverReleases)), &settings).unwrap();
    drop(fake.create("/file").unwrap());
    let found = fake.finish().expect_err("RELEASE has no end");
    assert_found(&found, Rule::AnsweredOnce, &["RELEASE", "no answer after 3s", "was never answered"]);
}

#[test]
fn a_cookie_that_is_repeated() {
    let found = broken(Mem::new(Bug::ListsOneCookie), |fake| {
        drop((fake.create("/one").unwrap(), fake.create("/two").unwrap()));
        assert!(fake.list("/").is_ok());
    });
    assert_found(&found, Rule::Listing, &["\"two\"", "has cookie 2, which another record"]);
}

#[test]
fn a_listing_without_an_end() {
    let found = broken(Mem::new(Bug::ListsForEver), |fake| {
        drop((fake.create("/one").unwrap(), fake.create("/two").unwrap()));
        assert_eq!(fake.list("/").err(), Some(Errno::IO));
    });
    assert_found(&found, Rule::Listing, &["listed twice", "does not come to its end"]);
}

#[test]
fn a_listing_with_other_inodes() {
    let found = broken(Mem::new(Bug::ListsOtherInodes), |fake| {
        drop(fake.create("/one").unwrap());
        fake.drop_caches();
        assert!(fake.list("/").is_ok());
        assert!(fake.stat("/one").is_ok());
    });
    assert_found(&found, Rule::Attributes, &["of node 2", "ino 1002 is now 2"]);
}

#[test]
fn a_link_that_is_another_node() {
    let found = broken(Mem::new(Bug::LinksApart), |fake| {
        drop(fake.create("/one").unwrap());
        fake.link("/one", "/two").unwrap();
    });
    assert_found(&found, Rule::Identity, &["LINK of node 2 was answered with node 3"]);
}

#[test]
fn a_cut_that_does_not_cut() {
    let found = broken(Mem::new(Bug::KeepsSize), |fake| {
        let file = fake.create("/file").unwrap();
        file.write_at(0, &[1; 100]).unwrap();
        fake.truncate("/file", 10).unwrap();
    });
    assert_found(&found, Rule::Attributes, &["node 2 was cut to 10 bytes, and has 100"]);
}

#[test]
fn a_node_that_changes_its_type() {
    let settings = Settings { doubts: false, ..Settings::default() };
    let fake = Fake::mount_with(Arc::new(Mem::new(Bug::ChangesType)), &settings).unwrap();
    let file = fake.create("/file").unwrap();
    file.write_at(0, b"so that attributes are asked for").unwrap();
    assert_eq!(file.stat().err(), Some(Errno::IO));
    drop(file);
    let found = fake.finish().expect_err("a file became a folder");
    assert_found(&found, Rule::Identity, &["node 2 has type 100000", "mode 40755"]);
}

#[test]
fn a_value_of_another_length() {
    let found = broken(Mem::new(Bug::GrowsXattrs), |fake| {
        drop(fake.create("/file").unwrap());
        fake.set_xattr("/file", "user.x", b"value", 0).unwrap();
        assert_eq!(fake.get_xattr("/file", "user.x").unwrap(), b"valu");
    });
    assert_found(&found, Rule::Attributes, &["GETXATTR of node 2 was said to have 5 bytes, and has 4"]);
}

#[test]
fn a_panic() {
    let found = broken(Mem::new(Bug::Panics), |fake| {
        assert_eq!(fake.stat("/panic").err(), Some(Errno::IO));
    });
    assert_found(&found, Rule::Panics, &["1 operations panicked"]);
}

/// Bugs that the library does not let a file system have, put between the two.
struct Spoiler {
    kernel: Arc<dyn Peer>,
    seen: AtomicUsize,
    spoil: Spoil,
}

/// What happens to an answer: it goes on as it is, or as these, one after the other. The number counts answers of this
/// length.
type Spoil = fn(&dyn Peer, usize, &[u8]) -> Option<Vec<Vec<u8>>>;

impl std::fmt::Debug for Spoiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spoiler")
    }
}

impl Peer for Spoiler {
    fn write(&self, message: &[IoSlice<'_>]) -> Result<usize, OsError> {
        let bytes: Vec<u8> = message.iter().flat_map(|piece| piece.iter().copied()).collect();
        let count = self.seen.load(Ordering::Relaxed);
        let Some(spoiled) = (self.spoil)(&*self.kernel, count, &bytes) else {
            return self.kernel.write(&[IoSlice::new(&bytes)]);
        };
        self.seen.fetch_add(1, Ordering::Relaxed);
        let mut outcome = Ok(bytes.len());
        for answer in spoiled {
            outcome = self.kernel.write(&[IoSlice::new(&answer)]);
        }
        outcome.map(|_| bytes.len())
    }

    fn backing_open(&self, lower: BorrowedFd<'_>) -> Result<u32, OsError> {
        self.kernel.backing_open(lower)
    }

    fn backing_close(&self, id: u32) -> Result<(), OsError> {
        self.kernel.backing_close(id)
    }
}

fn spoiled<F: Filesystem>(fs: F, spoil: Spoil, calls: impl FnOnce(&Fake)) -> Broken {
    let through = |kernel| Arc::new(Spoiler { kernel, seen: AtomicUsize::new(0), spoil }) as Arc<dyn Peer>;
    let fake = Fake::mount_through(Arc::new(fs), &Settings::default(), through).expect("mounts");
    calls(&fake);
    fake.finish().expect_err("a bug was planted")
}

/// Lengths with the header: of LOOKUP's answer and of OPEN's.
const ENTRY: usize = 16 + 128;
const OPEN: usize = 16 + 16;

/// A lower folder with one file, as seen through the library.
fn mirror() -> (tempfile::TempDir, passthrough::Mirror) {
    let lower = tempfile::tempdir().expect("a folder");
    std::fs::write(lower.path().join("file"), "bytes").expect("a file");
    let mirror = passthrough::Mirror::new(lower.path()).expect("it opens");
    (lower, mirror)
}

#[test]
fn a_double_answer() {
    let twice: Spoil = |_, _, answer| (answer.len() == ENTRY).then(|| vec![answer.to_vec(), answer.to_vec()]);
    let found = spoiled(Mem::new(Bug::None), twice, |fake| {
        fake.mkdir("/dir", 0o755).unwrap();
    });
    assert_found(&found, Rule::AnsweredOnce, &["MKDIR (request", "was answered twice"]);
}

#[test]
fn an_answer_that_is_too_long() {
    let longer: Spoil = |_, _, answer| {
        (answer.len() == ENTRY).then(|| {
            let mut answer = [answer, &[0; 8]].concat();
            let len = u32::try_from(answer.len()).unwrap();
            answer[..4].copy_from_slice(&len.to_ne_bytes());
            vec![answer]
        })
    };
    let found = spoiled(Mem::new(Bug::None), longer, |fake| {
        assert_eq!(fake.mkdir("/dir", 0o755).err(), Some(Errno::IO));
    });
    assert_found(&found, Rule::Shape, &["answered with 136 bytes, and may be with Exactly(128)", "gets EIO"]);
}

#[test]
fn an_errno_that_is_none() {
    let positive: Spoil = |_, count, answer| {
        (count == 0 && answer.len() == ENTRY).then(|| {
            let mut error = answer[..16].to_vec();
            error[..8].copy_from_slice(&[16_u32.to_ne_bytes(), 2_i32.to_ne_bytes()].concat());
            vec![error]
        })
    };
    let found = spoiled(Mem::new(Bug::None), positive, |fake| {
        assert_eq!(
            fake.mkdir("/dir", 0o755).err(),
            Some(Errno::IO),
            "the library says EIO after the refusal"
        );
    });
    assert_found(&found, Rule::Shape, &["with the error 2, which is none"]);
}

#[test]
fn a_wrong_generation() {
    let other: Spoil = |_, count, answer| {
        (answer.len() == ENTRY).then(|| {
            let mut answer = answer.to_vec();
            answer[24] = u8::try_from(count).unwrap();
            vec![answer]
        })
    };
    let found = spoiled(Mem::new(Bug::None), other, |fake| {
        fake.mkdir("/dir", 0o755).unwrap();
        fake.stat("/dir").unwrap();
    });
    assert_found(
        &found,
        Rule::Identity,
        &["node 2 of generation", "the kernel holds it", "open files of it get EIO"],
    );
}

#[test]
fn a_wrong_io_mode() {
    let cached: Spoil = |_, count, answer| {
        (answer.len() == OPEN).then(|| {
            let mut answer = answer.to_vec();
            // The second open of a file that is in passthrough is answered without.
            answer[24] &= if count == 1 { !128 } else { 255 };
            vec![answer]
        })
    };
    let (_lower, mirror) = mirror();
    let found = spoiled(mirror, cached, |fake| {
        let file = fake.open("/file", O_RDWR).unwrap();
        assert_eq!(fake.open("/file", O_RDONLY).err(), Some(Errno::IO));
        assert_eq!(file.read_to_end().unwrap(), b"bytes", "the first one goes on");
    });
    assert_found(
        &found,
        Rule::IoMode,
        &["open 1 times in passthrough to backing id 1", "answered without", "iomode.c"],
    );
}

#[test]
fn a_backing_id_that_is_used_after_its_close() {
    let closed: Spoil = |kernel, _, answer| {
        (answer.len() == OPEN).then(|| {
            let id = u32::from_ne_bytes(answer[28..].try_into().unwrap());
            kernel.backing_close(id).unwrap();
            vec![answer.to_vec()]
        })
    };
    let (_lower, mirror) = mirror();
    let found = spoiled(mirror, closed, |fake| {
        assert_eq!(fake.open("/file", O_RDWR).err(), Some(Errno::IO));
    });
    assert_found(
        &found,
        Rule::BackingId,
        &["backing id 1, which was closed", "is closed once more", "OPEN of node"],
    );
}

#[test]
fn flags_that_cannot_stand_together() {
    let kept: Spoil = |_, _, answer| {
        (answer.len() == OPEN).then(|| {
            let mut answer = answer.to_vec();
            answer[24] |= 2;
            vec![answer]
        })
    };
    let (_lower, mirror) = mirror();
    let found = spoiled(mirror, kept, |fake| {
        assert_eq!(fake.open("/file", O_RDWR).err(), Some(Errno::IO));
    });
    assert_found(&found, Rule::IoMode, &["KEEP_CACHE", "PASSTHROUGH", "cannot stand together"]);
}

#[test]
fn a_node_of_the_root() {
    let root: Spoil = |_, _, answer| {
        (answer.len() == ENTRY).then(|| {
            let mut answer = answer.to_vec();
            answer[16..24].copy_from_slice(&NodeId::ROOT.get().to_ne_bytes());
            vec![answer]
        })
    };
    let found = spoiled(Mem::new(Bug::None), root, |fake| {
        assert_eq!(fake.mkdir("/dir", 0o755).err(), Some(Errno::IO));
    });
    assert_found(&found, Rule::Identity, &["the root's node"]);
}
