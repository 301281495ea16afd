//! Rules on a mount of one folder and of several branches whose servers are killed: what callers see is what the rules in force say, whatever happens to their
//! file meanwhile. Needs root and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
#[expect(dead_code, reason = "the callers here are threads")]
mod callers;
mod kept;
mod programs;
#[path = "kept/ruled.rs"]
mod ruled;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{SHUNT, can_mount, eventually, run, shunt, signal};
use kept::status;
use programs::{copy, program_of, upgrading};
use ruled::{RULES, Ruled, SECRET, SHOWN, nobody, refused};

#[test]
fn privileged_the_rules_in_force_survive_and_not_those_in_the_file() {
    if !can_mount() {
        return;
    }
    Ruled::each().for_each(the_rules_in_force_survive_and_not_those_in_the_file);
}

fn the_rules_in_force_survive_and_not_those_in_the_file(ruled: Ruled) {
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
    Ruled::each().for_each(what_is_open_goes_on_as_its_open_was_decided);
}

fn what_is_open_goes_on_as_its_open_was_decided(ruled: Ruled) {
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
        fs::write(ruled.below("secret"), "key=1234 name=ann more").expect("writes");
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
    assert_eq!(fs::read(ruled.below("log")).expect("is there"), b"a\nb\nb\nb\n");
    drop((secret, log, denied, gone));
    ruled.ends();
}

#[test]
fn privileged_another_program_goes_on_by_the_rules_in_force() {
    if !can_mount() {
        return;
    }
    Ruled::each().for_each(another_program_goes_on_by_the_rules_in_force);
}

fn another_program_goes_on_by_the_rules_in_force(ruled: Ruled) {
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

/// Rules that came into force under a program whose servers then die too often are those that the program before goes by.
#[test]
fn privileged_the_program_before_goes_by_the_rules_in_force() {
    if !can_mount() {
        return;
    }
    Ruled::each().for_each(the_program_before_goes_by_the_rules_in_force);
}

fn the_program_before_goes_by_the_rules_in_force(ruled: Ruled) {
    let keeper = ruled.kept.keeper;
    let program = program_of(keeper);
    let secret = nobody(|| File::open(ruled.at("secret"))).expect("may");
    fs::write(ruled.at("late"), "late").expect("writes");
    let other = copy(Path::new(SHUNT), &ruled.kept.room.path().join("program"));
    run(&mut upgrading(&ruled.kept.room.mnt(), &other)).ok();
    let is_hidden = || refused(nobody(|| fs::read(ruled.at("late")))) == Some(io::ErrorKind::NotFound);
    assert!(!is_hidden());
    ruled.reread(&format!("{RULES}[[rule]]\npath = 'late'\nuid = 65534\nhide = true\n"));
    eventually("the rules are in force", is_hidden);
    fs::write(&ruled.rules, "").expect("writes");
    for _ in 0..5 {
        assert_eq!(program_of(keeper), other);
        ruled.kill();
    }
    assert_eq!(program_of(keeper), program, "{}", ruled.kept.log());
    assert!(is_hidden());
    ruled.is_ruled();
    let mut room = [0; SECRET.len()];
    secret.read_exact_at(&mut room, 0).expect("is open");
    assert_eq!(room, SHOWN.as_bytes());
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
    Ruled::each().for_each(two_users_see_what_they_may_while_servers_are_killed);
}

fn two_users_see_what_they_may_while_servers_are_killed(ruled: Ruled) {
    let (count, pause) = kills();
    let rounds = ruled.is_seen_by_two(|| {
        for _ in 0..count {
            std::thread::sleep(pause);
            ruled.kept.kill();
        }
    });
    println!("{count} kills, {rounds:?} rounds");
    ruled.is_ruled();
    ruled.ends();
}

/// Branches come and go between two kills, and so do rules. The branch that a rule names may be one that is no more: the next server goes on without it, as
/// the one before it did.
#[test]
fn privileged_branches_and_rules_change_between_kills() {
    if !can_mount() {
        return;
    }
    for kind in ["device", "cloned"] {
        let places = |branch: &Path| format!("[[rule]]\npath = 'placed*'\nplace = '{}'\n", branch.display());
        let ruled = Ruled::start("a:b", kind, RULES);
        let branch = |name: &str| ruled.kept.room.path().join(name);
        let change = |how: &str, name: &str| {
            let (mnt, path) = (ruled.kept.room.mnt(), branch(name));
            shunt(["branches".as_ref(), how.as_ref(), mnt.as_os_str(), path.as_os_str()]).ok();
        };
        let denied = |name: &str| refused(nobody(|| fs::read(ruled.at(name))));
        fs::create_dir_all(branch("c/denied")).expect("makes");
        fs::write(branch("c/denied/of-c"), "denied").expect("writes");
        fs::write(branch("c/of-c"), "of c").expect("writes");
        change("add", "c");
        let of_c = nobody(|| File::open(ruled.at("of-c"))).expect("may");
        ruled.kill();
        ruled.is_ruled();
        assert_eq!(denied("denied/of-c"), Some(io::ErrorKind::PermissionDenied), "{}", ruled.kept.log());
        assert_eq!(io::read_to_string(&of_c).expect("is open"), "of c");
        // A file in a folder that another branch had alone is denied, too.
        fs::create_dir(ruled.at("plain")).expect("makes");
        fs::write(ruled.at("plain/f"), "f").expect("writes");
        fs::rename(ruled.at("plain"), ruled.at("denied/plain")).expect("root may");
        ruled.kill();
        assert_eq!(denied("denied/plain/f"), Some(io::ErrorKind::PermissionDenied));
        ruled.reread(&format!(
            "{RULES}[[rule]]\npath = 'of-c'\nuid = 65534\nhide = true\n{}",
            places(&branch("b"))
        ));
        eventually("they are read again", || denied("of-c") == Some(io::ErrorKind::NotFound));
        fs::write(ruled.at("placed1"), "placed").expect("root may");
        assert!(branch("b/placed1").exists());
        change("remove", "b");
        ruled.kill();
        assert_eq!(denied("of-c"), Some(io::ErrorKind::NotFound), "{}", ruled.kept.log());
        assert_eq!(denied("denied/of-c"), Some(io::ErrorKind::PermissionDenied));
        assert_eq!(denied("secret"), Some(io::ErrorKind::NotFound), "it was on the branch that is gone");
        let error = fs::write(ruled.at("placed2"), "placed").expect_err("its branch is gone");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "as before the kill");
        // Rules that name a branch that is none are not taken, and no server goes on with them.
        ruled.reread(&places(&branch("b")));
        eventually("it is told of", || ruled.kept.log().contains("the rules stay as they were"));
        change("add", "b");
        ruled.kill();
        assert_eq!(denied("of-c"), Some(io::ErrorKind::NotFound));
        assert_eq!(nobody(|| fs::read_to_string(ruled.at("secret"))).expect("may"), SHOWN);
        drop(of_c);
        ruled.ends();
    }
}

/// Under rules that only place, the names of files are not noted. So a mount that began with them takes no others, over any number of servers; and one that
/// began with others takes them again, whatever the rules of the moment are when its server is killed.
#[test]
fn privileged_rules_that_only_place_are_followed_by_what_they_were() {
    if !can_mount() {
        return;
    }
    let only_places = "[[rule]]\npath = 'placed*'\nplace = 'mfs'\n";
    let ruled = Ruled::start("a:b", "cloned", only_places);
    ruled.kill();
    ruled.reread(RULES);
    eventually("it is told of", || ruled.kept.log().contains("the rules stay as they were"));
    ruled.kill();
    assert_eq!(status(&ruled.kept.room)["rules"]["rules"], 1);
    assert_eq!(nobody(|| fs::read_to_string(ruled.at("denied/f"))).expect("may"), "denied");
    ruled.ends();
    let ruled = Ruled::start("a:b", "cloned", RULES);
    ruled.is_ruled();
    ruled.reread(only_places);
    eventually("they are read again", || nobody(|| fs::read(ruled.at("denied/f"))).is_ok());
    fs::rename(ruled.at("free"), ruled.at("denied/free")).expect("may");
    ruled.kill();
    assert_eq!(nobody(|| fs::read_to_string(ruled.at("denied/free"))).expect("may"), "free");
    ruled.reread(RULES);
    eventually("they are read again", || nobody(|| fs::read(ruled.at("denied/f"))).is_err());
    assert!(nobody(|| fs::read(ruled.at("denied/free"))).is_err());
    ruled.ends();
}
