//! Programs that people use, as scripts, and what is examined afterwards.

/// A program that works until it is told to end, and one that looks at what it left. Each is a script, whose words are a folder, a file that tells
/// it to end, and a folder that is not on the mount.
pub(crate) struct Storm {
    pub(crate) name: &'static str,
    /// Whether the program tells that it has begun, by the file `begun` in the last folder; no server is killed before.
    pub(crate) begins: bool,
    pub(crate) needs: &'static [&'static str],
    /// The flows that it works with, each for a part of the storm.
    pub(crate) flows: &'static [&'static str],
    pub(crate) work: &'static str,
    pub(crate) check: &'static str,
}

pub(crate) const GIT: Storm = Storm {
    name: "git",
    begins: false,
    needs: &["git"],
    flows: &["passthrough"],
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

pub(crate) const TAR: Storm = Storm {
    name: "tar",
    begins: false,
    needs: &["tar", "diff"],
    flows: &["passthrough"],
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

pub(crate) const SQLITE: Storm = Storm {
    name: "SQLite",
    begins: false,
    needs: &["python3"],
    flows: &["passthrough"],
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

/// A database server of an ordinary user, with a load of four clients, that is stopped and started again between two loads. The sums that
/// pgbench keeps in three tables and the history of all transactions must agree.
pub(crate) const POSTGRESQL: Storm = Storm {
    name: "PostgreSQL",
    begins: true,
    needs: &["setpriv", "initdb", "pgbench", "pg_amcheck"],
    flows: &["passthrough"],
    work: r#"
        as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        control() { as_user pg_ctl -s -w -t 100 -D "$1/data" "$2" -l "$3/socket/log" -o "-c listen_addresses='' -k $3/socket -c shared_buffers=32MB -c max_wal_size=64MB" -m "$4" > "$3/socket/control"; }
        trap 'if [ -f "$1/data/postmaster.pid" ]; then control "$1" stop "$3" immediate; fi' EXIT
        mkdir "$1/data" "$3/socket"
        chown 65534:65534 "$1/data" "$3/socket"
        chmod 700 "$1/data" "$3/socket"
        as_user initdb -D "$1/data" -U test -A trust --no-instructions --data-checksums > "$3/said"
        control "$1" start "$3" fast
        as_user pgbench -h "$3/socket" -U test -q -i -s 1 postgres > "$3/said" 2>&1
        touch "$3/begun"
        count=0
        while [ ! -e "$2" ]; do
            as_user pgbench -h "$3/socket" -U test -n -c 4 -j 2 -T 2 postgres > "$3/said" 2>&1 || { cat "$3/said" "$3/socket/log" >&2; exit 1; }
            done=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$3/said")
            count=$((count + done))
            control "$1" restart "$3" fast
        done
        control "$1" stop "$3" fast
        echo "$count" > "$3/count"
    "#,
    check: r#"
        as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        control() { as_user pg_ctl -s -w -t 100 -D "$1/data" "$2" -l "$3/socket/log" -o "-c listen_addresses='' -k $3/socket" -m fast > "$3/socket/control"; }
        trap 'if [ -f "$1/data/postmaster.pid" ]; then control "$1" stop "$3"; fi' EXIT
        as_user pg_checksums -c -D "$1/data" > "$3/said"
        control "$1" start "$3"
        ask() { as_user psql -h "$3/socket" -U test -qtA postgres -c "$4"; }
        for table in pgbench_accounts:abalance pgbench_tellers:tbalance pgbench_branches:bbalance; do
            test "$(ask "$1" "$2" "$3" "select (select sum(${table#*:}) from ${table%:*}) = (select sum(delta) from pgbench_history)")" = t
        done
        test "$(ask "$1" "$2" "$3" "select count(*) from pgbench_history")" = "$(cat "$3/count")"
        as_user pg_amcheck -h "$3/socket" -U test --install-missing --heapallindexed postgres
        control "$1" stop "$3"
        ! grep -E 'PANIC|could not (read|write|open|fsync|stat)|invalid page|was not properly shut down' "$3/socket/log"
    "#,
};

/// fsx on three files, with other seeds again and again. It compares what it reads itself; what it left is compared on the mount and below.
pub(crate) const FSX: Storm = Storm {
    name: "fsx",
    begins: false,
    needs: &["fsx", "sha256sum"],
    flows: &["passthrough", "relay", "served"],
    work: r#"
        cat > "$3/fsx.toml" << END
[weights]
close_open = 2
mapread = 5
mapwrite = 5
invalidate = 1
fsync = 1
punch_hole = 3
sendfile = 3
copy_file_range = 3
END
        work() {
            count=0
            while [ ! -e "$2" ]; do
                count=$((count + 1))
                fsx -f "$3/fsx.toml" -N 300 -S "$4$count" -P "$3" "$1/file$4" > "$3/said$4" 2>&1 || { cat "$3/said$4" >&2; exit 1; }
            done
            echo "$count" > "$3/count$4"
        }
        started=
        for seed in 1 2 3; do work "$1" "$2" "$3" "$seed" & started="$started $!"; done
        for one in $started; do wait "$one"; done
        echo "$(($(cat "$3/count1") + $(cat "$3/count2") + $(cat "$3/count3")))" > "$3/count"
    "#,
    check: r#"
        cd "$1"
        if [ -e "$3/sums" ]; then sha256sum --check --quiet --strict "$3/sums"; else sha256sum file1 file2 file3 > "$3/sums"; fi
        test "$(ls | wc -l)" = 3
    "#,
};
