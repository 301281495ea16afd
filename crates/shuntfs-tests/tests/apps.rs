//! Real programs on mounts, on each transport with default flow, and their results compared with the bare folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::program::{find, have, script};
use shuntfs_testkit::serial;
use shuntfs_testkit::tree::{Look, compare};

const LIMIT: Duration = Duration::from_secs(120);

/// What an application gets: the mount, the source below it, and room on the bare file system.
struct Stage {
    mount: Mounted,
    source: PathBuf,
    bare: PathBuf,
    _lower: Lower,
}

impl Stage {
    fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Ends the mount and says whether the server ended well.
    fn end(mut self) -> Result<()> {
        let status = self.mount.unmount()?;
        ensure!(status.success(), "the server ended with {status}:\n{}", self.mount.log());
        Ok(())
    }
}

/// Runs `act` on a mount, with a file system of its own, unless a program is missing.
fn on(transport: Transport, programs: &[&str], act: fn(&Stage) -> Result<()>) -> Result<()> {
    let _serial = serial();
    if !have(programs) {
        return Ok(());
    }
    let Some(lower) = Lower::make(LowerKind::Ext4)? else { return Ok(()) };
    let (source, bare) = (lower.folder("source")?, lower.folder("bare")?);
    let spec = MountSpec::new(&source, transport, Flow::Passthrough).limit(240);
    let Some(mount) = Mounted::start(&spec)? else { return Ok(()) };
    let stage = Stage { mount, source, bare, _lower: lower };
    act(&stage)?;
    stage.end()
}

/// A repository is made, cloned, packed and checked; what is checked out is the same as below and as outside.
fn git(stage: &Stage) -> Result<()> {
    let make = "
        export HOME=$PWD GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
        git init -q -b main origin && cd origin
        for round in 1 2 3 4 5; do
            mkdir -p d$round/e
            for file in $(seq 1 40); do seq $round $((round * file + 50)) > d$round/e/f$file; done
            ln -sf e/f1 d$round/link; chmod +x d$round/e/f2
            git add -A && git commit -q -m round$round
        done
        git checkout -q -b side HEAD~2 && git mv d1 moved && git commit -q -m side
        git checkout -q main && git merge -q --no-edit side";
    script(&stage.bare, make, LIMIT)?;
    let origin = stage.bare.join("origin");
    let work = format!(
        "export HOME=$PWD
        git clone -q {} clone && cd clone
        git gc -q --aggressive && git fsck --strict
        git checkout -q HEAD~1 && git checkout -q main && test -z \"$(git status --porcelain)\"
        git clone -q --no-hardlinks . ../second && cd ../second && git fsck --strict",
        origin.display()
    );
    script(stage.path(), &work, LIMIT)?;
    fs::remove_dir_all(stage.path().join("clone/.git"))?;
    fs::rename(origin.join(".git"), stage.bare.join("git"))?;
    let found =
        compare(&origin, &stage.path().join("clone"), Look { owners: true, times: false, xattrs: true })?;
    ensure!(found.is_empty(), "the clone differs: {found:#?}");
    Ok(())
}

/// A generated program of many files, built with several jobs, rebuilt without work, and run.
fn make(stage: &Stage) -> Result<()> {
    let text = r#"
        mkdir src && cd src
        { echo 'int main(void) { long sum = 0;'; for i in $(seq 1 40); do echo "sum += part$i($i);"; done
          echo 'return sum == 21320 ? 0 : 1; }'; } > body
        { for i in $(seq 1 40); do echo "long part$i(long);"; done; } > parts.h
        { echo '#include "parts.h"'; cat body; } > main.c && rm body
        for i in $(seq 1 40); do
            printf '#include "parts.h"\nlong part%s(long x) { return x * (x - 1); }\n' $i > part$i.c; done
        printf 'OBJS := $(patsubst %%.c,%%.o,$(wildcard *.c))\nprogram: $(OBJS)\n\t$(CC) -o $@ $^\n%%.o: %%.c parts.h\n\t$(CC) -O1 -c -o $@ $<\n' > Makefile
        make -s -j4 && ./program
        make -q
        sleep 0.02; touch part7.c
        test "$(make -n | grep -c ' -c ')" = 1
        make -s -j4 && ./program && make -q"#;
    script(stage.path(), text, LIMIT)?;
    let found = compare(&stage.path().join("src"), &stage.source.join("src"), Look::ALL)?;
    ensure!(found.is_empty(), "what was built differs below: {found:#?}");
    Ok(())
}

/// SQLite with its write-ahead log (shared memory by a mapping) and memory-mapped reads, two writers at once.
fn sqlite(stage: &Stage) -> Result<()> {
    let text = r#"
        db() { sqlite3 -cmd '.timeout 20000' -cmd 'PRAGMA mmap_size=16777216' base.db "$@" > /dev/null; }
        db 'PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, who TEXT, v BLOB)'
        writer() { for n in $(seq 1 40); do db "INSERT INTO t(who, v) VALUES('$1', randomblob(3000))"; done; }
        writer a & first=$!
        writer b & second=$!
        for n in $(seq 1 10); do db 'SELECT count(*), sum(length(v)) FROM t'; done
        wait $first; wait $second
        test "$(sqlite3 base.db 'SELECT count(*) FROM t')" = 80
        test "$(sqlite3 base.db 'PRAGMA integrity_check')" = ok
        db 'UPDATE t SET v = randomblob(5000) WHERE id % 2; DELETE FROM t WHERE id % 5 = 0; VACUUM'
        db 'PRAGMA wal_checkpoint(TRUNCATE)'
        test "$(sqlite3 base.db 'PRAGMA integrity_check')" = ok"#;
    script(stage.path(), text, LIMIT)?;
    let below =
        script(&stage.source, "sqlite3 base.db 'PRAGMA integrity_check; SELECT count(*) FROM t'", LIMIT)?;
    ensure!(below == "ok\n64\n", "below the mount: {below}");
    Ok(())
}

/// A tree with everything that archives carry.
const TREE: &str = r#"
    mkdir -p tree/a/b tree/empty && cd tree
    seq 1 20000 > a/numbers; : > a/nothing; head -c 300000 /dev/urandom > a/b/random
    truncate -s 3M a/sparse; printf mark | dd of=a/sparse bs=1 seek=1500000 conv=notrunc status=none
    ln a/numbers a/hard; ln -s numbers a/soft; ln -s /nowhere a/b/dangling; mkfifo a/pipe; mknod a/null c 1 3
    printf x > "$(printf 'a/odd\nname \001\377')"
    chmod 4755 a/numbers; chmod 2770 a/b; chmod 1777 empty; chown 4000:5000 a/b a/b/random; chown -h 1:2 a/soft
    setfattr -n user.note -v value a/numbers; setfattr -n trusted.t -v 1 a/b
    setfacl -m u:4000:rwx,g:5000:r a/nothing; setfacl -d -m u:4000:rwx a/b
    # Older than a second: rsync takes a time of the same second for the same.
    find . -depth -exec touch -h -d '2010-11-12 13:14:15.161718192' {} ';'
    touch -d '2001-02-03 04:05:06.123456789' a/numbers a/nothing; touch -h -d '1999-01-01' a/soft; touch -d '1969-12-31' a/b
"#;

fn archives(stage: &Stage) -> Result<()> {
    script(&stage.bare, TREE, LIMIT)?;
    let tree = stage.bare.join("tree");
    let text = format!(
        "rsync -aHAXS --numeric-ids {from}/ by-rsync/
        rsync -aHAXS --numeric-ids --checksum --delete {from}/ by-rsync/
        mkdir by-tar back
        tar --xattrs --xattrs-include='*' --acls --selinux -C {from} -cf - . | tar --xattrs --xattrs-include='*' --acls -C by-tar -xpf -
        tar --xattrs --xattrs-include='*' --acls -C by-tar -cSf archive.tar .
        tar --xattrs --xattrs-include='*' --acls -C back -xpf archive.tar
        rsync -aHAXS --numeric-ids by-rsync/ {bare}/out/",
        from = tree.display(),
        bare = stage.bare.display()
    );
    script(stage.path(), &text, LIMIT)?;
    for copy in ["by-rsync", "by-tar", "back"] {
        for root in [stage.path(), &stage.source] {
            let found = compare(&tree, &root.join(copy), Look::ALL)?;
            ensure!(found.is_empty(), "{copy} in {}: {found:#?}", root.display());
        }
    }
    let found = compare(&tree, &stage.bare.join("out"), Look::ALL)?;
    ensure!(found.is_empty(), "copied out: {found:#?}");
    Ok(())
}

/// A database of an ordinary user: filled, killed while it works, recovered and checked.
fn postgres(stage: &Stage) -> Result<()> {
    let initdb = find("initdb").context("was looked for")?;
    let bin = initdb.parent().context("it is in a folder")?.display();
    let text = format!(
        r#"export PATH={bin}:$PATH
        mkdir data socket && chown 65534:65534 data socket && chmod 700 data
        as_user() {{ setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }}
        start() {{ as_user pg_ctl -s -w -t 60 -D data -l socket/log -o "-c listen_addresses='' -k $PWD/socket -c shared_buffers=32MB -c max_wal_size=64MB" start > /dev/null; }}
        ask() {{ as_user psql -h $PWD/socket -U test -qtA postgres -c "$1"; }}
        end() {{ if [ -f data/postmaster.pid ]; then as_user pg_ctl -s -D data -m immediate stop || true; fi; }}
        trap end EXIT
        as_user initdb -D data -U test -A trust --no-instructions --data-checksums > /dev/null
        start
        as_user pgbench -h $PWD/socket -U test -q -i -s 1 postgres 2> /dev/null
        as_user pgbench -h $PWD/socket -U test -n -c 4 -j 2 -t 100 postgres > /dev/null 2>&1
        before=$(ask 'select count(*) from pgbench_history')
        test "$before" = 400
        as_user pgbench -h $PWD/socket -U test -n -c 4 -j 2 -T 20 postgres > /dev/null 2>&1 &
        load=$!
        sleep 1.5
        pid=$(head -1 data/postmaster.pid)
        kill -9 $pid
        wait $load || true
        # What the killed one left running goes within moments; until then it refuses to start beside it.
        n=0; until start 2> /dev/null; do n=$((n + 1)); test $n -lt 40; sleep 0.25; done
        after=$(ask 'select count(*) from pgbench_history')
        test "$after" -ge "$before"
        balance=$(ask 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)')
        test "$balance" = t
        as_user pg_ctl -s -w -D data -m fast stop
        as_user pg_checksums -c -D data > /dev/null"#
    );
    script(stage.path(), &text, LIMIT).map(drop)
}

macro_rules! on_each_transport {
    ($($name:ident: $act:ident needs $programs:expr;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn device() -> Result<()> {
                on(Transport::Device, &$programs, $act)
            }

            #[test]
            fn cloned() -> Result<()> {
                on(Transport::Cloned, &$programs, $act)
            }

            #[test]
            fn uring() -> Result<()> {
                on(Transport::Uring, &$programs, $act)
            }
        })*
    };
}

on_each_transport! {
    git_clone_gc_fsck: git needs ["git"];
    c_build: make needs ["make", "cc"];
    sqlite_wal: sqlite needs ["sqlite3"];
    rsync_and_tar: archives needs ["rsync", "tar", "setfacl", "setfattr"];
    postgresql: postgres needs ["setpriv", "initdb", "pgbench", "pg_ctl", "psql"];
}
