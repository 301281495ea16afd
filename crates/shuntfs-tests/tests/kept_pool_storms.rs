//! Programs that people use, on a pool whose servers are killed at random moments under them: git, tar and SQLite. None of their calls fails, and
//! what they leave is whole, on the mount and below. Needs CAP_SYS_ADMIN, /dev/fuse and the programs; elsewhere it says so and passes.
//!
//! `SHUNTFS_TEST_KILLS=100` kills that many servers for each program and transport.

#[path = "../../shuntfs-keeper/tests/support/mod.rs"]
mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shuntfs_sys::spawn::{Push, push};
use shuntfs_testkit::program::have;
use support::kept::{Kept, with_state};
use support::{can_mount, is_mounted, wait_until};

const KILLS: u64 = 12;
/// How long a mount may live, and a program that is told to end may take.
const LIVES: Duration = Duration::from_secs(1200);
const END: Duration = Duration::from_secs(120);

/// A program that works until it is told to end, and one that looks at what it left. Each is a script, whose words are a folder, a file that tells
/// it to end, and a folder that is not on the mount.
struct Storm {
    needs: &'static [&'static str],
    work: &'static str,
    check: &'static str,
}

const GIT: Storm = Storm {
    needs: &["git"],
    work: r#"
        export HOME="$3" GIT_CONFIG_NOSYSTEM=1
        git config --global user.name nobody
        git config --global user.email nobody@example.org
        git config --global init.defaultBranch main
        git config --global core.fsync all
        mkdir -p "$1/repo" && cd "$1/repo" && git init -q
        count=0
        while [ ! -e "$2" ]; do
            count=$((count + 1))
            mkdir -p "folder$((count % 7))"
            seq "$count" "$((count + 500))" > "folder$((count % 7))/file$count"
            git add -A
            git commit -qm "$count"
            if [ $((count % 5)) = 0 ]; then
                git checkout -qb "branch$count" HEAD~1
                seq "$count" > "branch$count"
                git add -A
                git commit -qm "branch $count"
                git checkout -q main
                git merge -qm "merge $count" "branch$count"
            fi
            if [ $((count % 8)) = 0 ]; then git gc -q; fi
        done
        echo "$count" > "$3/count"
    "#,
    check: r#"
        export HOME="$3" GIT_CONFIG_NOSYSTEM=1
        cd "$1/repo"
        git fsck --strict --full --no-dangling
        test -z "$(git status --porcelain)"
        test "$(git log --no-merges --format=%s | grep -c '^[0-9]*$')" = "$(cat "$3/count")"
    "#,
};

const TAR: Storm = Storm {
    needs: &["tar", "diff"],
    work: r#"
        mkdir -p "$3/tree"
        for folder in 1 2 3 4 5 6 7 8; do
            mkdir "$3/tree/$folder"
            for file in 1 2 3 4 5 6 7 8 9; do
                seq "$folder$file" "$folder${file}00" > "$3/tree/$folder/file$file"
                ln -s "file$file" "$3/tree/$folder/link$file"
            done
            ln "$3/tree/$folder/file1" "$3/tree/$folder/same"
        done
        tar -cf "$3/tree.tar" -C "$3" tree
        count=0
        while [ ! -e "$2" ]; do
            count=$((count + 1))
            mkdir "$1/$count"
            tar -xf "$3/tree.tar" -C "$1/$count"
            diff -r --no-dereference "$3/tree" "$1/$count/tree"
            tar -cf "$1/$count.tar" -C "$1/$count" tree
            tar -df "$1/$count.tar" -C "$3"
            if [ "$count" -gt 2 ]; then
                old=$((count - 2))
                rm -r "$1/$old" "$1/$old.tar"
                test ! -e "$1/$old"
            fi
        done
        echo "$count" > "$3/count"
    "#,
    check: r#"
        count=$(cat "$3/count")
        diff -r --no-dereference "$3/tree" "$1/$count/tree"
        tar -df "$1/$count.tar" -C "$3"
        test "$(ls "$1" | wc -l)" -le 4
    "#,
};

const SQLITE: Storm = Storm {
    needs: &["python3"],
    work: r#"
        exec python3 -c '
import os, sqlite3, sys
folder, end, out = sys.argv[1:4]
bases = []
for mode in ("delete", "wal"):
    base = sqlite3.connect(os.path.join(folder, mode), isolation_level=None, timeout=60)
    assert base.execute("PRAGMA journal_mode=" + mode).fetchone()[0] == mode
    base.execute("PRAGMA synchronous=FULL")
    base.execute("CREATE TABLE accounts (number INTEGER PRIMARY KEY, amount INTEGER, note BLOB)")
    base.execute("CREATE INDEX amounts ON accounts (amount)")
    base.execute("BEGIN")
    base.executemany("INSERT INTO accounts VALUES (?, 100, ?)", [(n, bytes([n % 251]) * 300) for n in range(500)])
    base.execute("COMMIT")
    bases.append(base)
count = 0
while not os.path.exists(end):
    for base in bases:
        count += 1
        a, b = count % 500, count * 7 % 500
        base.execute("BEGIN IMMEDIATE")
        base.execute("UPDATE accounts SET amount = amount - 1, note = ? WHERE number = ?", (bytes([count % 251]) * 900, a))
        base.execute("UPDATE accounts SET amount = amount + 1 WHERE number = ?", (b,))
        base.execute("ROLLBACK" if count % 9 == 0 else "COMMIT")
        if count % 50 == 0:
            assert base.execute("SELECT sum(amount), count(*) FROM accounts").fetchone() == (50000, 500)
        if count % 400 == 0:
            base.execute("VACUUM")
for base in bases:
    base.close()
open(os.path.join(out, "count"), "w").write(str(count))
' "$@"
    "#,
    check: r#"
        exec python3 -c '
import os, sqlite3, sys
for mode in ("delete", "wal"):
    base = sqlite3.connect(os.path.join(sys.argv[1], mode))
    assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert base.execute("SELECT sum(amount), count(*) FROM accounts").fetchone() == (50000, 500)
' "$@"
    "#,
};

fn start(script: &str, words: [&Path; 3]) -> Child {
    let mut command = Command::new("sh");
    command.args(["-euc", script, "sh"]).args(words).stdin(Stdio::null()).current_dir("/");
    command.spawn().expect("starts")
}

/// Ends well, in time.
fn ends_well(child: &mut Child, what: &str) {
    let end = Instant::now() + END;
    loop {
        match child.try_wait().expect("is a child") {
            Some(status) => return assert!(status.success(), "{what}: {status}"),
            None if Instant::now() > end => {
                let _gone = child.kill();
                panic!("{what} does not end");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn kills() -> u64 {
    std::env::var("SHUNTFS_TEST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS)
}

fn rages(name: &str, storm: &Storm) {
    if !can_mount() || !have(storm.needs) {
        return;
    }
    for kind in ["device", "cloned"] {
        let (source, out) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let path = source.path().to_str().expect("plain").to_owned();
        let Some(mut kept) = Kept::start_of(with_state(), &[&path, kind, "100000"], LIVES, |_| ()) else {
            return;
        };
        fs::create_dir(source.path().join("work")).expect("makes");
        let work = kept.path().join("work");
        wait_until("a mount that is served", || fs::metadata(&work).ok());
        let (stop, keeper) = (out.path().join("stop"), kept.keeper.id());
        let mut child = start(storm.work, [&work, &stop, out.path()]);
        let (mut random, mut longest) = (u64::from(std::process::id()), Duration::ZERO);
        let mut server = kept.next_server(None);
        for kill in 0..kills() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(Duration::from_millis(50 + (random >> 33) % 450));
            let ended = child.try_wait().expect("is a child");
            assert!(ended.is_none(), "{name} on {kind} ended before kill {kill}: {ended:?}");
            push(server, Push::Die).expect("it is there");
            let killed = Instant::now();
            fs::metadata(kept.path().join(format!("none{kill}"))).expect_err("there is none");
            longest = longest.max(killed.elapsed());
            server = kept.next_server(Some(server));
        }
        fs::File::create(&stop).and_then(|mut file| file.write_all(b"stop")).expect("writes");
        ends_well(&mut child, &format!("{name} on {kind}"));
        let count = fs::read_to_string(out.path().join("count")).expect("it has told");
        assert!(count.trim() != "0", "{name} on {kind} has done nothing");
        println!(
            "{name} on {kind}: {} kills, {} rounds, the longest pause of a stat {longest:?}",
            kills(),
            count.trim()
        );
        let checked = format!("the check of {name} on {kind}");
        ends_well(&mut start(storm.check, [&work, &stop, out.path()]), &checked);
        push(keeper, Push::End).expect("it is there");
        assert!(kept.ended().success(), "{}", kept.said());
        assert!(!is_mounted(kept.path()));
        // And below, once nobody serves.
        ends_well(&mut start(storm.check, [&source.path().join("work"), &stop, out.path()]), &checked);
    }
}

#[test]
fn privileged_git_is_whole_over_kills() {
    rages("git", &GIT);
}

#[test]
fn privileged_tar_is_whole_over_kills() {
    rages("tar", &TAR);
}

#[test]
fn privileged_sqlite_is_whole_over_kills() {
    rages("SQLite", &SQLITE);
}
