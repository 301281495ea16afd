//! A mount on io_uring that goes on with another program while it is used: what callers see, that no process has a descriptor of a ring, which programs
//! give the place back, and how it ends when a server dies. Needs root, /dev/fuse, and FUSE over io_uring.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
mod programs;
#[path = "programs/rings.rs"]
mod rings;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use callers::{Callers, is_caller};
use common::{Room, SHUNT, can_mount, eventually, is_alive, shunt, wait};
use kept::{PAGE, settled_files, status};
use programs::{copy, impostor, program_of};
use rings::{has_no_ring, start, upgrade, upgrades, work};

const CALLERS: usize = 3;

#[test]
fn privileged_no_call_fails_while_the_program_is_replaced_on_io_uring() {
    if let Some(folder) = is_caller() {
        return work(&folder).say();
    }
    // In passthrough the kernel moves bytes; in the others each comes to the server.
    for flow in ["auto", "relay", "served"] {
        let Some(kept) = start(&["--flow", flow]) else { return };
        let programs = ["one", "other"].map(|name| copy(Path::new(SHUNT), &kept.room.path().join(name)));
        fs::write(kept.room.src().join("open"), [7; PAGE]).expect("writes");
        let open = File::options().read(true).write(true).open(kept.room.mnt().join("open")).expect("opens");
        has_no_ring(&kept);
        upgrade(&kept, &programs[0]).ok();
        let before = settled_files(kept.keeper);
        let test = "privileged_no_call_fails_while_the_program_is_replaced_on_io_uring";
        let callers = Callers::start(CALLERS, test, &kept.room.mnt());
        let mut longest = Duration::ZERO;
        for (count, program) in (2..=upgrades(20)).zip(programs.iter().cycle().skip(1)) {
            std::thread::sleep(Duration::from_millis(150));
            let start = Instant::now();
            let ran = upgrade(&kept, program).ok();
            longest = longest.max(start.elapsed());
            assert!(ran.out.contains("continues with") && ran.out.contains("keeper process"), "{ran:?}");
            let status = status(&kept.room);
            let of = |name: &str| status["takeover"][name].as_u64();
            assert_eq!((of("keeper"), of("replaced")), (Some(u64::from(kept.keeper)), Some(count)));
            assert_eq!(status["session"]["transport"]["kind"], "uring");
            assert_eq!([kept.keeper, kept.room.pid()].map(program_of), [program.clone(), program.clone()]);
            has_no_ring(&kept);
            let byte = u8::try_from(count % 256).expect("small");
            open.write_all_at(&[byte; PAGE], 0).expect("is open");
            let mut room = [0; PAGE];
            open.read_exact_at(&mut room, 0).expect("is open");
            assert_eq!(room, [byte; PAGE]);
        }
        let seen = callers.stop();
        println!("{flow}: {seen:?}; the longest upgrade took {longest:?}");
        assert_eq!(kept.room.read("hello"), "hello there\n");
        let after = settled_files(kept.keeper);
        let below = |files: &[PathBuf]| files.iter().filter(|file| file.starts_with(kept.room.src())).count();
        let beside = |files: &[PathBuf]| files.len() - below(files);
        assert!(beside(&after) <= beside(&before), "left over: {before:?}, and now {after:?}");
        assert!(below(&after) <= below(&before) + 2, "left over: {before:?}, and now {after:?}");
        drop(open);
        kept.was_unnoticed(&seen);
    }
}

/// A program that fails once it has taken the place of the one before, and before it has served, gives that one its place back.
#[test]
fn privileged_a_program_that_fails_late_gives_the_place_back_on_io_uring() {
    if let Some(folder) = is_caller() {
        return work(&folder).say();
    }
    let Some(kept) = start(&["--flow", "relay"]) else { return };
    let program = program_of(kept.keeper);
    let test = "privileged_a_program_that_fails_late_gives_the_place_back_on_io_uring";
    let callers = Callers::start(CALLERS, test, &kept.room.mnt());
    let ways = [
        ("exits", "a trial of the program failed (exit status: 7)", false),
        ("begins-not", "it does not want to", true),
        ("fails", "its server does not want to", true),
        ("dies", "its server ended before it was ready", true),
        ("late", "its server was not ready after 1s", true),
    ];
    for (way, words, is_replaced) in ways {
        let server = kept.room.pid();
        upgrade(&kept, &impostor(&kept.room.path(), way)).fails(1, &["was not upgraded", words]);
        assert!(is_alive(kept.keeper) && (kept.room.pid() != server) == is_replaced, "{way}: {}", kept.log());
        assert_eq!([kept.keeper, kept.room.pid()].map(program_of), [program.clone(), program.clone()]);
        has_no_ring(&kept);
    }
    let other = copy(Path::new(SHUNT), &kept.room.path().join("other"));
    upgrade(&kept, &other).ok();
    let seen = callers.stop();
    println!("{seen:?}");
    kept.was_unnoticed(&seen);
}

/// Callers get errors, nobody hangs, and nothing is left. Only where it is asked for: a defect here can leave processes that nothing ends.
#[test]
fn privileged_a_server_that_dies_ends_the_mount() {
    if std::env::var_os("SHUNTFS_TEST_RING_KILLS").is_none() {
        eprintln!("SKIPPED: SHUNTFS_TEST_RING_KILLS is not set");
        return;
    }
    for round in 0..10 {
        let Some(kept) = start(&["--flow", "relay"]) else { return };
        let mut callers: Vec<_> = (0..4)
            .map(|number| {
                let script =
                    "while stat \"$0/hello\" && cat \"$0/hello\" && echo $1 > \"$0/$1\"; do :; done; exit 9";
                let mut command = Command::new("sh");
                command.args(["-c", script]).arg(kept.room.mnt()).arg(number.to_string());
                command
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .stdin(Stdio::null())
                    .spawn()
                    .expect("starts")
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200 + 37 * round));
        if round % 2 == 1 {
            let program = copy(Path::new(SHUNT), &kept.room.path().join("other"));
            upgrade(&kept, &program).ok();
        }
        kept.kill();
        for caller in &mut callers {
            assert_eq!(wait(caller), Some(9), "round {round}: a caller was killed");
        }
        eventually("the keeper gives up", || !is_alive(kept.keeper));
        assert!(kept.log().contains("on io_uring only one that is replaced as planned"), "{}", kept.log());
        assert!(!kept.room.is_mounted());
        kept.is_gone();
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let cases: [(&[&str], &str); 3] = [
        (&["--takeover", "crash", "--transport", "uring"], "--takeover upgrade"),
        (&["--takeover", "upgrade", "--transport", "cloned"], "--takeover crash"),
        (&["--takeover", "upgrade", "--replace-hung", "30s"], "does not tell the keeper"),
    ];
    for (flags, words) in cases {
        let mut command = vec!["mount".as_ref()];
        command.extend(flags.iter().map(|flag| std::ffi::OsStr::new(*flag)));
        let (src, mnt) = (room.src(), room.mnt());
        command.extend([src.as_os_str(), mnt.as_os_str()]);
        let ran = shunt(command);
        assert!(ran.code != Some(0) && ran.err.contains(words), "{flags:?}: {ran:?}");
        assert!(!room.is_mounted());
    }
}
