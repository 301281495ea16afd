//! A seal on a mount whose servers are killed: what callers read is what was sealed, or an error, whatever happens to seal, keys and files meanwhile.
//! Needs root and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
#[expect(dead_code, reason = "the callers here are threads")]
mod callers;
mod kept;
#[path = "kept/sealed.rs"]
mod sealed;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Ends, SHUNT, apart, can_mount, eventually, room_of_nobody, run, servers_of, shunt, signal};
use kept::status;
use sealed::{BLOCK, EIO, LARGE, Sealed, block, errno, large, tamper, words};
use shuntfs_sys::data::forget_cached;

/// Of each kind of mount.
const KINDS: [&str; 2] = ["--verify=if-sealed", "--verify=required"];

#[test]
fn privileged_the_seal_in_force_survives_and_not_what_is_in_the_store() {
    if !can_mount() {
        return;
    }
    for kind in KINDS {
        let sealed = Sealed::start(&[kind]);
        let first = sealed.verify()["manifest"].clone();
        assert_eq!(sealed.read("hello"), Ok(b"hello there\n".to_vec()), "{kind}");
        // Somebody changes a file and seals it with a key of his own, puts that key into the file of the other one, and kills the server.
        fs::write(sealed.below("hello"), "evil there!\n").expect("writes");
        sealed.shell("cp -a src/.shunt earlier; rm -r src/.shunt");
        words(sealed.room(), &["src", "--key", "two"]).ok();
        sealed.shell("cp two.pub one.pub");
        sealed.kill();
        assert_eq!(sealed.read("hello"), Err(EIO), "{kind} {}", sealed.0.log());
        assert_eq!(
            sealed.read("large").err(),
            Some(EIO),
            "its tree is gone with the store, as without a kill"
        );
        assert_eq!(sealed.verify()["manifest"], first);
        assert_eq!(sealed.verify()["trusted"], true);
        // And asks for it to be read again: the key that is trusted is the one that was read at the mount.
        if kind == KINDS[0] {
            signal(sealed.0.keeper, "HUP");
            eventually("it is refused", || {
                sealed.verify()["error"].as_str().unwrap_or_default().contains("signed by")
            });
            assert_eq!(sealed.read("hello"), Err(EIO));
        }
        // No seal at all.
        sealed.shell("rm -r src/.shunt");
        sealed.kill();
        assert_eq!(sealed.read("hello"), Err(EIO));
        // Mended, it is read again by the seal that was in force all the time.
        sealed.shell("cp -a earlier src/.shunt");
        fs::write(sealed.below("hello"), "hello there\n").expect("writes");
        sealed.kill();
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(sealed.read("hello"), Ok(b"hello there\n".to_vec()), "{}", sealed.0.log());
        assert_eq!(sealed.verify()["manifest"], first);
        assert_eq!(sealed.verify()["signed_by"].as_array().map(Vec::len), Some(1));
        sealed.ends();
    }
}

#[test]
fn privileged_a_block_that_was_tampered_with_is_an_error_before_and_after() {
    if !can_mount() {
        return;
    }
    for kind in KINDS {
        let sealed = Sealed::start(&[kind]);
        let open = File::open(sealed.at("large")).expect("opens");
        let read = |number: usize| {
            forget_cached(&open).expect("a hint");
            let mut bytes = vec![0; BLOCK];
            open.read_exact_at(&mut bytes, (number * BLOCK) as u64).map(|()| bytes)
        };
        tamper(&sealed.below("large"), 5 * BLOCK as u64);
        assert_eq!(errno(read(5)), Some(EIO), "{kind}");
        sealed.kill();
        assert_eq!(errno(read(5)), Some(EIO), "{kind}");
        assert_eq!(read(200).expect("is good"), block(200));
        // While no server runs, one that the dead server had found good.
        tamper(&sealed.below("large"), 200 * BLOCK as u64 + 1);
        sealed.kill();
        assert_eq!(errno(read(200)), Some(EIO), "{kind}");
        assert_eq!(sealed.read("large").err(), Some(EIO));
        assert_eq!(read(100).expect("is good"), block(100));
        // Names, too.
        fs::remove_file(sealed.below("link")).expect("removes");
        std::os::unix::fs::symlink("hello", sealed.below("link")).expect("makes");
        sealed.kill();
        let link = fs::read_link(sealed.at("link"));
        match kind {
            // The manifest has it.
            "--verify=required" => assert_eq!(link.expect("is sealed"), PathBuf::from("large")),
            _ => assert_eq!(errno(link), Some(EIO)),
        }
        drop(open);
        sealed.ends();
    }
}

#[test]
fn privileged_a_file_that_is_open_goes_on_with_its_tree() {
    if !can_mount() {
        return;
    }
    for kind in KINDS {
        let sealed = Sealed::start(&[kind, "--cache", "none"]);
        let files: Vec<File> = (0..3).map(|_| File::open(sealed.at("large")).expect("opens")).collect();
        let hello = File::open(sealed.at("hello")).expect("opens");
        // Another file takes its name, and what is open is removed.
        sealed.shell("cp src/hello other; mv other src/large; rm src/hello");
        for round in 0..3 {
            sealed.kill();
            for (number, file) in (7 * round..).zip(&files) {
                forget_cached(file).expect("a hint");
                let mut bytes = vec![0; BLOCK];
                file.read_exact_at(&mut bytes, (number * BLOCK) as u64).expect("is open");
                assert_eq!(bytes, block(number), "{kind} {}", sealed.0.log());
            }
            assert_eq!(fs::metadata(sealed.at("free")).is_ok(), kind == KINDS[0]);
            let mut bytes = [0; 12];
            hello.read_exact_at(&mut bytes, 0).expect("is open");
            assert_eq!(&bytes, b"hello there\n");
            assert_eq!(sealed.read("large").err(), Some(EIO), "{kind} {round}");
            assert_eq!(sealed.read("hello").err(), Some(EIO), "{kind} {round}");
        }
        drop((files, hello));
        sealed.ends();
    }
}

/// A seal that was taken while a server ran holds for the next one; what was open before it keeps its bytes, and every node gets what it is by now.
#[test]
fn privileged_another_seal_holds_for_the_next_server() {
    if !can_mount() {
        return;
    }
    let sealed = Sealed::start(&["--verify=if-sealed"]);
    let held = |name: &str| File::open(sealed.at(name)).expect("opens");
    let (open, free) = (held("large"), held("free"));
    assert_eq!(sealed.read("free"), Ok(b"free\n".to_vec()));
    fs::metadata(sealed.at("folder/inner")).expect("is there");
    sealed.shell("sleep 1.1; cp -a src/.shunt earlier");
    // Another inode, because the mount had the earlier one open.
    sealed
        .shell("cp src/large next; printf changed | dd of=next conv=notrunc status=none; mv next src/large");
    words(sealed.room(), &["src", "--key", "one"]).ok();
    let second = || sealed.verify()["manifest"].clone();
    let first = second();
    signal(sealed.0.keeper, "HUP");
    eventually("it is taken", || second() != first);
    // At once: names from before it were not looked up since.
    sealed.kill();
    assert_ne!(second(), first, "{}", sealed.0.log());
    let mut bytes = vec![0; BLOCK];
    open.read_exact_at(&mut bytes, 0).expect("is open");
    assert_eq!(bytes, block(0), "as it was opened");
    let now = sealed.read("large").expect("is sealed");
    assert_eq!((&now[..7], &now[7..LARGE]), (&b"changed"[..], &large()[7..]));
    assert_eq!(sealed.read("free"), Ok(b"free\n".to_vec()));
    assert_eq!(sealed.read("folder/inner"), Ok(b"inner\n".to_vec()));
    // It is sealed by now, and was not when it was looked up first.
    tamper(&sealed.below("free"), 1);
    assert_eq!(sealed.read("free"), Err(EIO));
    sealed.kill();
    assert_eq!(sealed.read("free"), Err(EIO));
    // The one before is older, for the next server, too.
    sealed.shell("rm -r src/.shunt; cp -a earlier src/.shunt");
    sealed.kill();
    assert_ne!(second(), first);
    signal(sealed.0.keeper, "HUP");
    eventually("it is refused", || {
        sealed.verify()["error"].as_str().unwrap_or_default().contains("rollback")
    });
    drop((open, free));
    sealed.ends();
}

#[test]
fn privileged_another_program_goes_on_by_the_seal_in_force() {
    if !can_mount() {
        return;
    }
    for kind in KINDS {
        let sealed = Sealed::start(&[kind]);
        let open = File::open(sealed.at("large")).expect("opens");
        let first = sealed.verify()["manifest"].clone();
        fs::write(sealed.below("hello"), "evil there!\n").expect("writes");
        sealed.shell("cp -a src/.shunt earlier");
        words(sealed.room(), &["src", "--key", "two"]).ok();
        sealed.shell("cp two.pub one.pub");
        let program = sealed.room().path().join("program");
        run(Command::new("cp").arg(SHUNT).arg(&program)).ok();
        let mnt = sealed.room().mnt();
        let upgrade = ["upgrade".as_ref(), mnt.as_os_str(), "--binary".as_ref(), program.as_os_str()];
        for round in 0..2 {
            shunt(upgrade).ok();
            assert_eq!(sealed.verify()["manifest"], first, "{kind} {round}");
            assert_eq!(sealed.read("hello"), Err(EIO), "{kind} {round} {}", sealed.0.log());
            let mut bytes = vec![0; BLOCK];
            open.read_exact_at(&mut bytes, (50 + round) * BLOCK as u64).expect("is open");
            assert_eq!(bytes, block(50 + usize::try_from(round).expect("small")));
            sealed.kill();
        }
        if kind == KINDS[0] {
            signal(sealed.0.keeper, "HUP");
            eventually("the other key is refused", || {
                sealed.verify()["error"].as_str().unwrap_or_default().contains("signed by")
            });
        }
        drop(open);
        sealed.ends();
    }
}

/// Twenty kills under readers, with the bytes compared: four a mount, because the fifth within a minute is the last.
#[test]
fn privileged_readers_do_not_notice_that_servers_are_killed() {
    if !can_mount() {
        return;
    }
    let mounts = [
        (KINDS[0], "device"),
        (KINDS[0], "cloned"),
        (KINDS[1], "device"),
        (KINDS[1], "cloned"),
        (KINDS[0], "cloned"),
    ];
    let (mut kills, rounds) = (0, AtomicU64::new(0));
    for (kind, transport) in mounts {
        let sealed = Sealed::start(&[kind, "--transport", transport]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (sealed, stop, rounds) = (&sealed, &stop, &rounds);
            let _ends = Ends(stop);
            scope.spawn(move || {
                let open = File::open(sealed.at("large")).expect("opens");
                while !stop.load(Ordering::SeqCst) {
                    // Past the pages that the kernel keeps, by names and by what is open.
                    forget_cached(&open).expect("a hint");
                    let mut bytes = vec![0; LARGE];
                    open.read_exact_at(&mut bytes, 0).expect("is open");
                    assert!(bytes == large(), "{}", sealed.0.log());
                    let named = File::open(sealed.at("large")).expect("opens");
                    forget_cached(&named).expect("a hint");
                    let mut bytes = vec![0; 9 * BLOCK];
                    named.read_exact_at(&mut bytes, 100 * BLOCK as u64).expect("is open");
                    assert!(bytes == large()[100 * BLOCK..109 * BLOCK]);
                    rounds.fetch_add(1, Ordering::SeqCst);
                }
            });
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(fs::read(sealed.at("hello")).expect("opens"), b"hello there\n");
                    assert_eq!(fs::read(sealed.at("folder/inner")).expect("opens"), b"inner\n");
                    assert_eq!(fs::read_link(sealed.at("link")).expect("is there"), PathBuf::from("large"));
                    rounds.fetch_add(1, Ordering::SeqCst);
                }
            });
            for _ in 0..4 {
                std::thread::sleep(Duration::from_millis(250));
                sealed.0.kill();
                kills += 1;
            }
            std::thread::sleep(Duration::from_millis(300));
        });
        assert_eq!(status(sealed.room())["takeover"]["replaced"], 4);
        sealed.ends();
    }
    println!("{kills} kills, {rounds:?} rounds");
    assert!(kills == 20 && rounds.load(Ordering::SeqCst) > 100, "{rounds:?}");
}

/// By fusermount3, in a namespace of its own whose /dev/fuse is open to all: right bytes while servers are killed, and EIO for what was changed.
#[test]
fn privileged_an_ordinary_user_reads_what_was_sealed_while_servers_are_killed() {
    let script = r#"
        mount -t tmpfs none /dev; mknod -m 666 /dev/fuse c 10 229; mknod -m 666 /dev/null c 1 3
        cd /
        exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec "$4" sh "$2" "$3" "$5""#;
    // Bytes are read past the pages that the kernel keeps. A reader that reads something else ends, and so does the script.
    let user = r#"
        cd "$1"
        "$2" seal key new one > key.log
        "$2" seal src --key one > seal.log 2>&1
        echo free > src/free
        "$2" mount --takeover crash "$3" --trust one.pub -o log_file="$1/log" src mnt 2> said
        forget() { dd if="$1" iflag=nocache count=0 status=none; }
        block() { forget "mnt/$1"; dd if="mnt/$1" bs=4096 skip="$2" count=1 status=none 2> error; }
        replace() {
            kill -9 $("$2" status --json mnt | grep -o '"pid": *[0-9]*' | head -1 | tr -dc 0-9)
            until "$2" status mnt 2> said | grep -q "$1 replaced"; do sleep 0.05; done
        }
        exec 8< mnt/large 9< mnt/torn
        (
            rounds=0
            while [ ! -e stop ]; do
                forget mnt/large; cmp mnt/large good; cmp mnt/hello hello
                [ "$(readlink mnt/link)" = large ]
                rounds=$((rounds + 1))
            done
            echo $rounds > rounds
        ) &
        reader=$!
        for round in "1 server was" "2 servers were"; do sleep 0.5; replace "$round" "$2"; done
        printf x | dd of=src/torn bs=1 seek=20500 conv=notrunc status=none
        for round in "3 servers were" "4 servers were"; do
            sleep 0.5; replace "$round" "$2"
            if block torn 5 > part; then echo "a changed block was read"; exit 1; fi
            grep -q "Input/output error" error
            if forget mnt/torn && cat mnt/torn > part 2> error; then echo "a changed file was read"; exit 1; fi
            block torn 200 > part; dd if=good bs=4096 skip=200 count=1 status=none | cmp - part
        done
        sleep 0.5; touch stop; wait $reader
        cmp - good <&8
        if cat <&9 > part 2> error; then echo "an open changed file was read"; exit 1; fi
        grep -q "Input/output error" error
        exec 8<&- 9<&-
        [ "$(cat rounds)" -ge 10 ]
        ls mnt
        "$2" umount mnt
        ! grep -q " $1/mnt " /proc/self/mountinfo"#;
    for kind in KINDS {
        let Some(room) = room_of_nobody() else { return };
        for (path, bytes) in [("large", large()), ("torn", large()), ("../good", large())] {
            fs::write(room.src().join(path), bytes).expect("writes");
        }
        fs::copy(room.src().join("hello"), room.path().join("hello")).expect("copies");
        std::os::unix::fs::symlink("large", room.src().join("link")).expect("makes");
        run(Command::new("chown").args(["-hR", "65534:65534"]).arg(room.src())).ok();
        let mut command = apart(script);
        command.arg(room.path()).arg(room.path().join("shunt")).arg(user).arg(kind);
        let ran = run(command.env_remove("XDG_RUNTIME_DIR"));
        let log = fs::read_to_string(room.path().join("log")).unwrap_or_default();
        let free = if kind == KINDS[0] { "free\n" } else { "" };
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (Some(0), &*format!("{free}hello\nlarge\nlink\ntorn\n")),
            "{ran:?}\n{log}"
        );
        eventually("no process is left", || servers_of(&room.path()).is_empty());
    }
}
