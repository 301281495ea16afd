//! Trust stores, and the names and serials of seals.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use shuntfs_seal::{
    Allowed, Issue, Manifest, Report, SealError, SealOptions, Store, StoreError, TreeName, Trust, TrustStore,
    seal_tree,
};
use shuntfs_verity::sign::KeyPair;

use common::{Watch, options, plant};

/// A tree, a trust store, and the keys in it.
struct Room {
    dir: tempfile::TempDir,
    keys: Vec<KeyPair>,
}

impl Room {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keys: Vec<KeyPair> = (0..2).map(|_| KeyPair::generate().unwrap()).collect();
        let room = Self { dir, keys };
        plant(&room.tree());
        fs::create_dir(room.store()).unwrap();
        fs::set_permissions(room.store(), Permissions::from_mode(0o755)).unwrap();
        for (at, key) in room.keys.iter().enumerate() {
            room.put(&format!("{at}.pub"), &key.public().to_pem());
        }
        room
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("photos")
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("trust")
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.store().join(name), text).unwrap();
        fs::set_permissions(self.store().join(name), Permissions::from_mode(0o644)).unwrap();
    }

    fn seen(&self) -> String {
        fs::read_to_string(self.store().join("seen")).unwrap()
    }

    fn seal_by(&self, key: usize) -> Report {
        self.seal(SealOptions { ..options(&[&self.keys[key]]) }).unwrap()
    }

    fn seal(&self, options: SealOptions<'_>) -> Result<Report, SealError> {
        seal_tree(&self.tree(), &options, &Watch::quiet())
    }

    fn trust(&self) -> Result<Trust, StoreError> {
        Trust::store(TrustStore::open(&self.store())?, SystemTime::now())
    }

    fn open(&self) -> Result<Manifest, StoreError> {
        Manifest::open(&Store::open(&Store::beside(&self.tree()))?, &self.trust()?)
    }

    /// What an attacker keeps, to put it back later.
    fn keep(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut all = Vec::new();
        let mut folders = vec![Store::beside(&self.tree())];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path)
                } else {
                    all.push((path.clone(), fs::read(&path).unwrap()))
                }
            }
        }
        all
    }

    fn put_back(&self, kept: &[(PathBuf, Vec<u8>)]) {
        fs::remove_dir_all(Store::beside(&self.tree())).unwrap();
        for (path, bytes) in kept {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
}

fn serial(report: &Report) -> u64 {
    report.issue.serial
}

#[test]
fn an_older_seal_is_refused_until_the_administrator_forgets() {
    let room = Room::new();
    let first = room.seal_by(0);
    let kept = room.keep();
    room.open().map(drop).unwrap();
    room.open().map(drop).unwrap();
    fs::write(room.tree().join("new"), "new").unwrap();
    let second = room.seal_by(0);
    assert!(serial(&second) > serial(&first));
    room.open().map(drop).unwrap();
    room.put_back(&kept);
    let error = room.open().unwrap_err();
    assert!(matches!(error, StoreError::Rollback { .. }), "{error}");
    let (old, new) = (serial(&first), serial(&second));
    assert!(error.to_string().contains(&format!("has serial {old} of tree `photos`, and serial {new}")));
    // The refusal changed nothing.
    assert!(room.seen().contains(&format!(" {new} ")));
    let tree: TreeName = "photos".parse().unwrap();
    assert_eq!(TrustStore::open(&room.store()).unwrap().forget(&tree).unwrap(), 1);
    assert_eq!(TrustStore::open(&room.store()).unwrap().forget(&tree).unwrap(), 0);
    room.open().map(drop).unwrap();
    assert!(room.seen().contains(&format!(" {old} ")));
}

/// The last seal by one key does not stay good when the next ones are by another.
#[test]
fn a_change_of_keys_opens_no_way_back() {
    let room = Room::new();
    room.seal_by(0);
    let kept = room.keep();
    fs::write(room.tree().join("new"), "new").unwrap();
    room.seal_by(1);
    room.open().map(drop).unwrap();
    room.put_back(&kept);
    assert!(matches!(room.open(), Err(StoreError::Rollback { .. })));
    // Nor when that key has expired since, and the old one not.
    let text = room.keys[1].public().to_pem();
    room.put("1.pub", &format!("expires = 2024-01-01\n{text}"));
    assert!(matches!(room.open(), Err(StoreError::Rollback { .. })));
    // What a key has said that is trusted no more does not count: else a stolen one could forbid all seals forever.
    fs::remove_file(room.store().join("1.pub")).unwrap();
    room.open().map(drop).unwrap();
}

/// What is not known to be good leaves no trace: anybody can write any serial.
#[test]
fn only_a_verified_seal_is_recorded() {
    let room = Room::new();
    let stranger = KeyPair::generate().unwrap();
    room.seal(options(&[&stranger])).unwrap();
    assert!(matches!(room.open(), Err(StoreError::Untrusted { .. })));
    let allowed = Allowed { unsigned: true, ..Allowed::default() };
    room.seal(SealOptions { allowed, ..options(&[]) }).unwrap();
    assert!(matches!(room.open(), Err(StoreError::Unsigned(_))));
    let report = room.seal_by(0);
    // The manifest's only block, or its first one.
    let manifest = report.store.join("manifests").join(report.digest.to_hex());
    let good = fs::read(&manifest).unwrap();
    fs::write(&manifest, vec![0; good.len()]).unwrap();
    assert!(matches!(room.open(), Err(StoreError::Manifest { .. })));
    assert!(!room.store().join("seen").exists());
    fs::write(&manifest, good).unwrap();
    room.open().map(drop).unwrap();
    assert_eq!(room.seen().lines().count(), 3);
}

#[test]
fn a_store_asks_for_as_many_keys_as_it_says() {
    let room = Room::new();
    room.put("config", "# both\nthreshold = 2\n");
    room.seal_by(0);
    let error = room.open().unwrap_err().to_string();
    assert!(error.contains("1 of 2"), "{error}");
    room.seal(options(&[&room.keys[0], &room.keys[1]])).unwrap();
    room.open().map(drop).unwrap();
    assert_eq!(room.seen().lines().count(), 4);
    // One key under two names is one key.
    room.put("1.pub", &room.keys[0].public().to_pem());
    let error = room.open().unwrap_err().to_string();
    assert!(error.contains("2 different keys are needed, and 1 is trusted"), "{error}");
    room.put("config", "threshold = two\n");
    let error = room.open().unwrap_err().to_string();
    assert!(error.contains("config: line 1"), "{error}");
}

#[test]
fn a_store_that_is_not_what_it_must_be_is_refused() {
    let room = Room::new();
    room.seal_by(0);
    room.open().map(drop).unwrap();
    let seen = room.seen();
    let refused = |what: &str| {
        let error = room.open().unwrap_err();
        assert!(matches!(error, StoreError::TrustStore { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    for (text, what) in [
        ("", "seen: line 1"),
        (&seen[..seen.len() - 2], "seen: line 3"),
        (&seen.replace("photos ", "photos  "), "seen: line 2"),
        (&seen.replace("end 1\n", ""), "it was cut off"),
    ] {
        room.put("seen", text);
        refused(what);
    }
    room.put("seen", &seen);
    room.open().map(drop).unwrap();
    for (name, text, what) in [
        ("x.pub", "nothing", "x.pub: not an ed25519 public key"),
        ("x.pub", &room.keys[0].to_pem(), "x.pub: this is a private key"),
        ("x.pub", &room.keys[0].public().to_pem().repeat(2), "x.pub: it holds more than one key"),
    ] {
        room.put(name, text);
        refused(what);
    }
    fs::remove_file(room.store().join("x.pub")).unwrap();
    symlink("0.pub", room.store().join("x.pub")).unwrap();
    refused("x.pub: it is a symlink");
    fs::remove_file(room.store().join("x.pub")).unwrap();
    // A list that nobody could have made.
    fs::write(room.store().join("seen"), vec![b'x'; (4 << 20) + 1]).unwrap();
    refused("more than 4194304 bytes");
    room.put("seen", &seen);
    for (path, mode) in
        [(room.store(), 0o777), (room.store().join("0.pub"), 0o666), (room.store().join("seen"), 0o664)]
    {
        let before = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        refused("others can write it");
        fs::set_permissions(&path, before).unwrap();
    }
    room.open().map(drop).unwrap();
    for name in ["0.pub", "1.pub"] {
        fs::remove_file(room.store().join(name)).unwrap();
    }
    refused("none is trusted");
    fs::remove_dir_all(room.store()).unwrap();
    assert!(matches!(room.open(), Err(StoreError::NoTrustStore(_))));
}

/// A FIFO instead of any of its files is refused, and nobody waits.
#[test]
fn nothing_in_a_store_makes_anybody_wait() {
    let room = Room::new();
    room.seal_by(0);
    let folder = shuntfs_sys::open_folder(&room.store()).unwrap();
    for name in [c"config", c"seen", c"x.pub"] {
        shuntfs_sys::mknod_at(&folder, name, 0o010_644, 0).unwrap();
        let error = room.open().unwrap_err().to_string();
        assert!(error.contains("it is a FIFO"), "{error}");
        shuntfs_sys::unlink_at(&folder, name).unwrap();
    }
    for name in [c"lock", c"seen.new"] {
        shuntfs_sys::mknod_at(&folder, name, 0o010_600, 0).unwrap();
        room.open().map(drop).unwrap_err();
        shuntfs_sys::unlink_at(&folder, name).unwrap();
    }
    room.open().map(drop).unwrap();
    // Left by one that was killed.
    fs::write(room.store().join("seen.new"), "x".repeat(9999)).unwrap();
    fs::write(room.tree().join("new"), "new").unwrap();
    room.seal_by(0);
    room.open().map(drop).unwrap();
    assert_eq!(room.seen().lines().count(), 3);
}

/// Many that look at once lose nothing of what each has seen.
#[test]
fn what_many_see_at_once_is_all_recorded() {
    let room = Room::new();
    let trees: Vec<PathBuf> = (0..8).map(|at| room.dir.path().join(format!("tree{at}"))).collect();
    for tree in &trees {
        plant(tree);
        seal_tree(tree, &options(&[&room.keys[0]]), &Watch::quiet()).unwrap();
    }
    std::thread::scope(|scope| {
        for tree in &trees {
            let trust = room.trust().unwrap();
            scope.spawn(move || {
                Manifest::open(&Store::open(&Store::beside(tree)).unwrap(), &trust).map(drop).unwrap()
            });
        }
    });
    assert_eq!(TrustStore::open(&room.store()).unwrap().serials().unwrap().len(), 8);
}

/// Who cannot write the store is told what that means; an older seal is refused anyway.
#[test]
fn privileged_a_read_only_store_still_refuses_what_is_older() {
    use shuntfs_testkit::lower::{Lower, LowerKind};
    let Some(lower) = Lower::make(LowerKind::Ext4).unwrap() else { return };
    let room = Room::new();
    let first = room.seal_by(0);
    let kept = room.keep();
    let store = lower.folder("trust").unwrap();
    for entry in fs::read_dir(room.store()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, store.join(path.file_name().unwrap())).unwrap();
    }
    let open = || -> Result<Manifest, StoreError> {
        let trust = Trust::store(TrustStore::open(&store)?, SystemTime::now())?;
        Manifest::open(&Store::open(&Store::beside(&room.tree()))?, &trust)
    };
    assert_eq!(open().unwrap().note(), None);
    let remount = |how: &str| {
        let mut command = std::process::Command::new("mount");
        assert!(command.args(["-o", how]).arg(lower.path()).status().unwrap().success());
    };
    remount("remount,ro");
    assert_eq!(open().unwrap().note(), None, "there was nothing to record");
    fs::write(room.tree().join("new"), "new").unwrap();
    room.seal_by(0);
    let note = open().unwrap().note().unwrap().to_owned();
    assert!(note.contains("Read-only file system") && note.contains("is not recorded"), "{note}");
    remount("remount,rw");
    assert_eq!(open().unwrap().note(), None);
    remount("remount,ro");
    room.put_back(&kept);
    let error = open().unwrap_err();
    assert!(matches!(error, StoreError::Rollback { serial, .. } if serial == first.issue.serial), "{error}");
    remount("remount,rw");
    // A full disk is no reason to go on: whoever fills it would decide what is remembered.
    std::thread::sleep(Duration::from_secs(2));
    room.seal_by(0);
    fs::remove_file(store.join("lock")).unwrap();
    let fill = store.join("fill");
    let mut file = fs::File::create(&fill).unwrap();
    while std::io::Write::write(&mut file, &[0; 1 << 16]).is_ok() {}
    while std::io::Write::write(&mut file, &[0; 1]).is_ok() {}
    let error = open().unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    drop(file);
    fs::remove_file(fill).unwrap();
    assert_eq!(open().unwrap().note(), None);
}

#[test]
fn a_lock_that_is_held_is_not_waited_for_for_ever() {
    let room = Room::new();
    room.seal_by(0);
    room.open().map(drop).unwrap();
    fs::write(room.tree().join("new"), "new").unwrap();
    room.seal_by(0);
    let lock = fs::File::open(room.store().join("lock")).unwrap();
    shuntfs_sys::flock(&lock, shuntfs_sys::FlockOp::Exclusive, false).unwrap();
    let start = Instant::now();
    let error = room.open().unwrap_err().to_string();
    assert!(error.contains("somebody else") && start.elapsed() < Duration::from_secs(40), "{error}");
    drop(lock);
    room.open().map(drop).unwrap();
}

/// The name that is signed is the sealer's word: what lies in the store does not decide it.
#[test]
fn a_tree_is_not_sealed_under_the_name_of_another() {
    let room = Room::new();
    let music = room.dir.path().join("music");
    plant(&music);
    let sealed = seal_tree(&music, &options(&[&room.keys[0]]), &Watch::quiet()).unwrap();
    assert_eq!(sealed.issue.tree.as_str(), "music");
    // Somebody puts the good seal of the other tree there, and waits for this one to be sealed again.
    let copied =
        std::process::Command::new("cp").arg("-a").arg(Store::beside(&music)).arg(room.tree()).status();
    assert!(copied.unwrap().success());
    let error = room.seal(options(&[&room.keys[0]])).unwrap_err();
    assert!(
        matches!(&error, SealError::OtherName { here, folder } if here.as_str() == "music" && folder.as_str() == "photos"),
        "{error}"
    );
    let named = |tree: &str| SealOptions { tree: tree.parse().ok(), ..options(&[&room.keys[0]]) };
    assert_eq!(room.seal(named("photos")).unwrap().issue.tree.as_str(), "photos");
    // A copy of a whole sealed tree instead of another one passes for that tree nowhere where it is asked for.
    let trust = Trust::keys(vec![room.keys[0].public()]).with_tree("photos".parse().unwrap());
    let error = Manifest::open(&Store::open(&Store::beside(&music)).unwrap(), &trust).unwrap_err();
    assert!(matches!(error, StoreError::OtherTree { .. }), "{error}");
}

/// Serials rise by the seal before only where its signature is the sealer's own.
#[test]
fn a_made_up_serial_is_not_counted_on_from() {
    let room = Room::new();
    let first = room.seal_by(0);
    let seal = || Store::open(&Store::beside(&room.tree())).unwrap().seal().unwrap();
    let forge = |serial: u64| {
        let issue = Issue { serial, ..seal().issue().unwrap().clone() };
        let forged = shuntfs_seal::Seal::new(*seal().descriptor(), Some(issue), &[]);
        fs::write(Store::beside(&room.tree()).join("seal"), forged.to_bytes()).unwrap();
    };
    forge(u64::MAX);
    let second = room.seal_by(0);
    assert!(serial(&second) >= serial(&first) && serial(&second) < serial(&first) + 1000);
    forge(u64::MAX);
    let third = room.seal(options(&[])).unwrap();
    assert!(serial(&third) < serial(&first) + 1000);
    // The clock was set back: what was signed before is counted on from.
    let ahead = serial(&third) + 1_000_000;
    let issue = Issue { serial: ahead, ..seal().issue().unwrap().clone() };
    let signed = shuntfs_seal::Seal::new(*seal().descriptor(), Some(issue), &[&room.keys[0]]);
    fs::write(Store::beside(&room.tree()).join("seal"), signed.to_bytes()).unwrap();
    assert_eq!(serial(&room.seal_by(0)), ahead + 1);
}
