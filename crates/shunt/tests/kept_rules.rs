//! Rules on a mount whose servers are killed: what callers see is what the rules in force say, whatever happens to their file meanwhile. Needs root
//! and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
#[expect(dead_code, reason = "the callers here are threads")]
mod callers;
mod kept;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Room, SHUNT, can_mount, eventually, run, shunt, signal};
use kept::{Kept, status};
use shuntfs_testkit::identity::Identity;

const RULES: &str = "[[rule]]\npath = 'denied/**'\nuid = 65534\ndeny = 'EACCES'\n\
    [[rule]]\npath = 'hidden'\nuid = 65534\nhide = true\n\
    [[rule]]\npath = 'secret'\nuid = 65534\nredact = { regex = 'key=[0-9]+', within = 65536 }\n\
    [[rule]]\npath = 'log'\nappend_only = true\n";

const SECRET: &str = "name=ann key=1234 more";
const SHOWN: &str = "name=ann \0\0\0\0\0\0\0\0 more";

struct Ruled {
    kept: Kept,
    rules: PathBuf,
}

impl Ruled {
    fn start() -> Self {
        let room = Room::new();
        let (src, rules) = (room.src(), room.path().join("rules.toml"));
        fs::set_permissions(room.path(), fs::Permissions::from_mode(0o755)).expect("is ours");
        fs::create_dir(src.join("denied")).expect("makes");
        for (name, text) in [
            ("denied/f", "denied"),
            ("hidden", "hidden"),
            ("secret", SECRET),
            ("free", "free"),
            ("log", "a\n"),
        ] {
            fs::write(src.join(name), text).expect("writes");
        }
        fs::write(&rules, RULES).expect("writes");
        let flags = ["--rules", rules.to_str().expect("plain"), "-o", "allow_other"];
        let kept = Kept::in_room(room, &flags);
        Self { kept, rules }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.kept.room.mnt().join(name)
    }

    /// What somebody else sees is what the rules say, and root sees all.
    #[track_caller]
    fn is_ruled(&self) {
        let read = |name: &str| nobody(|| fs::read_to_string(self.at(name)));
        assert_eq!(refused(read("denied/f")), Some(io::ErrorKind::PermissionDenied), "{}", self.kept.log());
        assert_eq!(refused(read("hidden")), Some(io::ErrorKind::NotFound));
        assert_eq!(read("secret").expect("may"), SHOWN);
        assert_eq!(read("free").expect("may"), "free");
        assert_eq!(fs::read_to_string(self.at("secret")).expect("may"), SECRET);
        assert_eq!(fs::read_to_string(self.at("denied/f")).expect("may"), "denied");
    }

    /// Kills the server, and waits for the next one.
    fn kill(&self) {
        self.kept.kill();
        fs::metadata(self.kept.room.mnt()).expect("the next one answers");
    }

    fn ends(self) {
        self.kept.room.umount(&[]).ok();
        self.kept.is_gone();
    }
}

fn nobody<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    Identity::nobody().run(act)
}

fn refused<T>(outcome: io::Result<T>) -> Option<io::ErrorKind> {
    outcome.err().map(|error| error.kind())
}

#[test]
fn privileged_the_rules_in_force_survive_and_not_those_in_the_file() {
    if !can_mount() {
        return;
    }
    let ruled = Ruled::start();
    ruled.is_ruled();
    // Whoever edits the file while no server runs changes nothing.
    fs::write(&ruled.rules, "[[rule]\n").expect("writes");
    ruled.kill();
    ruled.is_ruled();
    fs::remove_file(&ruled.rules).expect("removes");
    ruled.kill();
    ruled.is_ruled();
    // The keeper passes SIGHUP on; what was read then is what the next server goes by.
    fs::write(&ruled.rules, format!("{RULES}[[rule]]\npath = 'free'\nuid = 65534\ndeny = 'EACCES'\n"))
        .expect("writes");
    signal(ruled.kept.keeper, "HUP");
    let free = || nobody(|| fs::read_to_string(ruled.at("free")));
    eventually("they are read again", || free().is_err());
    fs::write(&ruled.rules, "").expect("writes");
    ruled.kill();
    assert_eq!(refused(free()), Some(io::ErrorKind::PermissionDenied));
    assert_eq!(status(&ruled.kept.room)["rules"]["rules"], 5);
    // A file with a mistake is not taken, by this server or the next.
    fs::write(&ruled.rules, "nonsense\n").expect("writes");
    signal(ruled.kept.keeper, "HUP");
    eventually("it is told of", || ruled.kept.log().contains("the rules stay as they were"));
    ruled.kill();
    assert_eq!(refused(free()), Some(io::ErrorKind::PermissionDenied));
    ruled.ends();
}

#[test]
fn privileged_what_is_open_goes_on_as_its_open_was_decided() {
    if !can_mount() {
        return;
    }
    let ruled = Ruled::start();
    let secret = nobody(|| File::open(ruled.at("secret"))).expect("may");
    let log = OpenOptions::new().append(true).open(ruled.at("log")).expect("may");
    let denied = File::open(ruled.at("denied/f")).expect("root may");
    fs::create_dir(ruled.at("elsewhere")).expect("makes");
    fs::rename(ruled.at("denied"), ruled.at("elsewhere/denied")).expect("root may");
    fs::rename(ruled.at("elsewhere/denied"), ruled.at("denied")).expect("root may");
    fs::write(ruled.at("denied/gone"), "gone").expect("root may");
    let gone = File::open(ruled.at("denied/gone")).expect("root may");
    fs::remove_file(ruled.at("denied/gone")).expect("root may");
    for round in 0..3 {
        // The secret moves to where none was: what was open shows what it showed.
        fs::write(ruled.kept.room.src().join("secret"), "key=1234 name=ann more").expect("writes");
        ruled.kill();
        let mut room = [0; SECRET.len()];
        secret.read_exact_at(&mut room, 0).expect("is open");
        assert_eq!(room, SHOWN.as_bytes(), "{round}");
        io::Write::write_all(&mut &log, b"b\n").expect("may grow");
        assert_eq!(refused(log.set_len(0)), Some(io::ErrorKind::PermissionDenied));
        assert_eq!(io::read_to_string(&denied).expect("is open").len(), if round == 0 { 6 } else { 0 });
        // Opened anew, it is judged by the name that it had.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&gone));
        assert!(nobody(|| File::open(&path)).is_err());
        assert_eq!(refused(nobody(|| fs::read(ruled.at("denied/f")))), Some(io::ErrorKind::PermissionDenied));
    }
    // It may share pages with the copy before, so it comes last.
    let fresh = nobody(|| fs::read(ruled.at("secret"))).expect("may");
    assert_eq!(fresh, b"\0\0\0\0\0\0\0\0 name=ann more");
    assert_eq!(fs::read(ruled.kept.room.src().join("log")).expect("is there"), b"a\nb\nb\nb\n");
    drop((secret, log, denied, gone));
    ruled.ends();
}

#[test]
fn privileged_another_program_goes_on_by_the_rules_in_force() {
    if !can_mount() {
        return;
    }
    let ruled = Ruled::start();
    let secret = nobody(|| File::open(ruled.at("secret"))).expect("may");
    fs::write(&ruled.rules, "").expect("writes");
    let program = ruled.kept.room.path().join("program");
    run(Command::new("cp").arg(SHUNT).arg(&program)).ok();
    let mnt = ruled.kept.room.mnt();
    let words = ["upgrade".as_ref(), mnt.as_os_str(), "--binary".as_ref(), program.as_os_str()];
    shunt(words).ok();
    ruled.is_ruled();
    let mut room = [0; SECRET.len()];
    secret.read_exact_at(&mut room, 0).expect("is open");
    assert_eq!(room, SHOWN.as_bytes());
    ruled.kill();
    ruled.is_ruled();
    drop(secret);
    ruled.ends();
}

/// Kills of a storm. In full by hand: `KILLS=100`. A fifth server that dies within a minute is the last, so kills have to be apart.
fn kills() -> (u64, Duration) {
    let kills = std::env::var("KILLS").ok().and_then(|kills| kills.parse().ok());
    kills.map_or((4, Duration::from_millis(300)), |kills| (kills, Duration::from_secs(16)))
}

#[test]
fn privileged_two_users_see_what_they_may_while_servers_are_killed() {
    if !can_mount() {
        return;
    }
    let ruled = Ruled::start();
    let (stop, rounds) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    let until = |rounds: &AtomicU64, look: &dyn Fn()| {
        while !stop.load(Ordering::SeqCst) {
            look();
            rounds.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let (ruled, until, rounds) = (&ruled, &until, &rounds);
        scope.spawn(move || {
            nobody(|| {
                until(&rounds[0], &|| {
                    let read = |name: &str| fs::read_to_string(ruled.at(name));
                    assert_eq!(refused(read("denied/f")), Some(io::ErrorKind::PermissionDenied));
                    assert_eq!(refused(read("hidden")), Some(io::ErrorKind::NotFound));
                    assert_eq!(read("secret").expect("may"), SHOWN);
                    assert_eq!(read("free").expect("may"), "free");
                });
            });
        });
        scope.spawn(move || {
            let moved = ruled.at("denied/moved");
            until(&rounds[1], &|| {
                assert_eq!(fs::read_to_string(ruled.at("secret")).expect("may"), SECRET);
                fs::write(ruled.at("mine"), "mine").expect("may");
                fs::rename(ruled.at("mine"), &moved).expect("may");
                assert_eq!(refused(nobody_reads(&moved)), Some(io::ErrorKind::PermissionDenied));
                fs::remove_file(&moved).expect("may");
            });
        });
        let (count, pause) = kills();
        for _ in 0..count {
            std::thread::sleep(pause);
            ruled.kept.kill();
        }
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::SeqCst);
    });
    println!("{} kills, {:?} rounds", kills().0, rounds);
    assert!(rounds.iter().all(|rounds| rounds.load(Ordering::SeqCst) > 10), "{rounds:?}");
    ruled.is_ruled();
    ruled.ends();
}

fn nobody_reads(path: &Path) -> io::Result<Vec<u8>> {
    nobody(|| fs::read(path))
}
