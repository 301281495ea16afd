//! A mount under rules of one folder or of two branches, and what two users must see of it.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shuntfs_testkit::identity::Identity;

use crate::common::{Ends, Room, SHUNT, run, signal};
use crate::kept::Kept;

pub(crate) const RULES: &str = "[[rule]]\npath = 'denied/**'\nuid = 65534\ndeny = 'EACCES'\n\
    [[rule]]\npath = 'hidden'\nuid = 65534\nhide = true\n\
    [[rule]]\npath = 'secret'\nuid = 65534\nredact = { regex = 'key=[0-9]+', within = 65536 }\n\
    [[rule]]\npath = 'log'\nappend_only = true\n";

pub(crate) const SECRET: &str = "name=ann key=1234 more";
pub(crate) const SHOWN: &str = "name=ann \0\0\0\0\0\0\0\0 more";

/// A mount under rules.
pub(crate) struct Ruled {
    pub(crate) kept: Kept,
    pub(crate) rules: PathBuf,
    /// What is shown: one folder, or two.
    below: Vec<PathBuf>,
}

impl Ruled {
    /// A folder, and two branches on each transport, one after the other.
    pub(crate) fn each() -> impl Iterator<Item = Self> {
        [("src", "auto"), ("a:b", "device"), ("a:b", "cloned")].into_iter().map(|(below, kind)| {
            println!("{below} on {kind}");
            Self::start(below, kind, RULES)
        })
    }

    pub(crate) fn start(below: &str, kind: &str, text: &str) -> Self {
        let room = Room::new();
        let rules = room.path().join("rules.toml");
        fs::set_permissions(room.path(), fs::Permissions::from_mode(0o755)).expect("is ours");
        let below: Vec<PathBuf> = below.split(':').map(|name| room.path().join(name)).collect();
        below.iter().for_each(|folder| fs::create_dir_all(folder.join("denied")).expect("makes"));
        let files = [
            ("denied/f", "denied"),
            ("secret", SECRET),
            ("hidden", "hidden"),
            ("free", "free"),
            ("log", "a\n"),
        ];
        for (index, (name, text)) in files.into_iter().enumerate() {
            fs::write(below[index % below.len()].join(name), text).expect("writes");
        }
        fs::write(&rules, text).expect("writes");
        let (log, list) = (room.path().join("log"), below.iter().map(|path| path.to_str().expect("plain")));
        let log = format!("log_file={}", log.display());
        let takeover = if kind == "uring" { "upgrade" } else { "crash" };
        let mut mount = Command::new(SHUNT);
        mount.args(["mount", "--takeover", takeover, "-o", &log, "-o", "allow_other", "--transport", kind]);
        if below.len() > 1 {
            mount.args(["-o", "minfreespace=0"]);
        }
        run(mount.arg("--rules").arg(&rules).arg(list.collect::<Vec<_>>().join(":")).arg(room.mnt())).ok();
        Self { kept: Kept::of(room), rules, below }
    }

    /// A file below, on the branch that has it.
    pub(crate) fn below(&self, name: &str) -> PathBuf {
        let mut all = self.below.iter().map(|folder| folder.join(name));
        all.find(|path| path.exists()).expect("one has it")
    }

    /// Other rules, and their being read.
    pub(crate) fn reread(&self, text: &str) {
        fs::write(&self.rules, text).expect("writes");
        signal(self.kept.keeper, "HUP");
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.kept.room.mnt().join(name)
    }

    /// What somebody else sees is what the rules say, and root sees all.
    #[track_caller]
    pub(crate) fn is_ruled(&self) {
        let read = |name: &str| nobody(|| fs::read_to_string(self.at(name)));
        assert_eq!(refused(read("denied/f")), Some(io::ErrorKind::PermissionDenied), "{}", self.kept.log());
        assert_eq!(refused(read("hidden")), Some(io::ErrorKind::NotFound));
        assert_eq!(read("secret").expect("may"), SHOWN);
        assert_eq!(read("free").expect("may"), "free");
        assert_eq!(fs::read_to_string(self.at("secret")).expect("may"), SECRET);
        assert_eq!(fs::read_to_string(self.at("denied/f")).expect("may"), "denied");
    }

    /// Kills the server, and waits for the next one.
    pub(crate) fn kill(&self) {
        self.kept.kill();
        fs::metadata(self.kept.room.mnt()).expect("the next one answers");
    }

    /// What nobody and root see is right at each moment of this, and both look more than ten times. How often each has.
    pub(crate) fn is_seen_by_two(&self, meanwhile: impl FnOnce()) -> [u64; 2] {
        let (stop, rounds) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
        let until = |rounds: &AtomicU64, look: &dyn Fn()| {
            while !stop.load(Ordering::SeqCst) {
                look();
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            let (until, rounds) = (&until, &rounds);
            let _ends = Ends(&stop);
            scope.spawn(move || {
                nobody(|| {
                    until(&rounds[0], &|| {
                        let read = |name: &str| fs::read_to_string(self.at(name));
                        assert_eq!(refused(read("denied/f")), Some(io::ErrorKind::PermissionDenied));
                        assert_eq!(refused(read("hidden")), Some(io::ErrorKind::NotFound));
                        assert_eq!(read("secret").expect("may"), SHOWN);
                        assert_eq!(read("free").expect("may"), "free");
                    });
                });
            });
            scope.spawn(move || {
                let moved = self.at("denied/moved");
                until(&rounds[1], &|| {
                    assert_eq!(fs::read_to_string(self.at("secret")).expect("may"), SECRET);
                    fs::write(self.at("mine"), "mine").expect("may");
                    fs::rename(self.at("mine"), &moved).expect("may");
                    assert_eq!(refused(nobody(|| fs::read(&moved))), Some(io::ErrorKind::PermissionDenied));
                    fs::remove_file(&moved).expect("may");
                });
            });
            meanwhile();
            std::thread::sleep(Duration::from_millis(300));
        });
        let rounds = rounds.map(AtomicU64::into_inner);
        assert!(rounds.iter().all(|rounds| *rounds > 10), "{rounds:?}");
        rounds
    }

    pub(crate) fn ends(self) {
        self.kept.room.umount(&[]).ok();
        self.kept.is_gone();
    }
}

pub(crate) fn nobody<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    Identity::nobody().run(act)
}

pub(crate) fn refused<T>(outcome: io::Result<T>) -> Option<io::ErrorKind> {
    outcome.err().map(|error| error.kind())
}
