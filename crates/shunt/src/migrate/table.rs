//! All options of mergerfs, from 2.33 to 2.42, and what each is here.
//!
//! # Source
//! The maps of `src/config.cpp` and the options of the FUSE library in mergerfs's repository, of each release from 2.33.5 to 2.42.0.

use shuntfs_pool::policy::Category;

use super::fate::{CASES_MAX, Case, Fate, Row, When};
use Fate::{Different, Missing, NotNeeded, Ours, Same};
use When::{Above, Always, Is, Off, On, OnAndPathsAreKept, PolicyOf, Zero};

/// Names that all mean the same.
type Names = &'static [&'static str];

const DEFAULT: Fate = NotNeeded("the default");

const fn row<const N: usize>(names: Names, cases: [Case; N]) -> Row {
    let mut all = [None; CASES_MAX];
    let mut place = 0;
    while place < N {
        all[place] = Some(cases[place]);
        place += 1;
    }
    Row { names, cases: all }
}

const fn always(names: Names, fate: Fate) -> Row {
    row(names, [(Always, fate)])
}

const fn off_by_default(names: Names, on: Fate) -> Row {
    row(names, [(Off, DEFAULT), (On, on)])
}

const fn on_by_default(names: Names, off: Fate) -> Row {
    row(names, [(On, DEFAULT), (Off, off)])
}

const fn default_is(names: Names, words: &'static [&'static str], other: Fate) -> Row {
    row(names, [(Is(words), DEFAULT), (Always, other)])
}

const AS_MANY: Fate = NotNeeded("chosen to suit the machine");
const NO_NUMBER: Fate = Different("a number is needed: `threads=N`; leave it out for the default");

/// Every option of mergerfs.
pub static OPTIONS: &[Row] = &[
    // Which branches.
    always(&["branches", "srcmounts"], Different("the branches are SRC: `shunt mount BRANCHES MNT`")),
    always(&["mountpoint", "mount"], Different("the mount point is MNT: `shunt mount BRANCHES MNT`")),
    always(
        &["config"],
        Different("options are given with `-o`: `shunt migrate mergerfs` expands such a file"),
    ),
    row(&["branches-mount-timeout"], [(Zero, DEFAULT), (Above, Ours("branches_wait={}"))]),
    off_by_default(
        &["branches-mount-timeout-fail"],
        NotNeeded("a disk that is still missing after `branches_wait=SECONDS` is an error"),
    ),
    off_by_default(
        &["lazy-umount-mountpoint"],
        Missing("a mount point in use is refused; run `shunt umount --lazy MNT` first"),
    ),
    // Where things go.
    always(&["minfreespace"], Same(None)),
    row(
        &["category.create"],
        [
            (Is(&["erofs"]), Missing("branches of mode `NC` (`/a=NC:/b=NC`) accept nothing new")),
            (Always, Same(None)),
        ],
    ),
    row(
        &["category.action"],
        [
            (Is(&["erofs"]), Missing("branches of mode `RO` (`/a=RO:/b=RO`) are not changed")),
            (
                Always,
                Same(Some(
                    "it picks which copies are removed and moved; mode, owner, times and length are changed on the visible copy",
                )),
            ),
        ],
    ),
    row(
        &["category.search"],
        [(Is(&["erofs"]), Missing("leave it out: nothing would be found")), (Always, Same(None))],
    ),
    row(
        &["func.create", "func.mkdir", "func.mknod", "func.symlink"],
        [
            (Is(&["erofs"]), Missing("branches of mode `NC` (`/a=NC:/b=NC`) accept nothing new")),
            (Always, Same(None)),
        ],
    ),
    row(
        &["func.rename", "func.unlink"],
        [
            (Is(&["erofs"]), Missing("branches of mode `RO` (`/a=RO:/b=RO`) are not changed")),
            (Always, Same(Some("for files; folders are removed and renamed on all branches"))),
        ],
    ),
    row(
        &["func.getattr"],
        [
            (Is(&["erofs"]), Missing("leave it out: nothing would be found")),
            (Always, Same(Some("the visible copy is also opened and read"))),
        ],
    ),
    row(
        &["func.access", "func.getxattr", "func.listxattr", "func.open", "func.readlink"],
        [
            (PolicyOf(Category::Search), NotNeeded("the visible copy is opened and read")),
            (
                Always,
                Missing(
                    "the visible copy is opened and read; leave it out, or use `func.getattr=`, which picks the visible copy",
                ),
            ),
        ],
    ),
    row(
        &["func.chmod", "func.chown", "func.removexattr", "func.setxattr", "func.truncate", "func.utimens"],
        [
            (PolicyOf(Category::Action), NotNeeded("the category's policy")),
            (Always, Missing("the visible copy is changed, and a folder on all branches; leave it out")),
        ],
    ),
    row(
        &["func.link"],
        [
            (PolicyOf(Category::Action), NotNeeded("the category's policy")),
            (Always, Missing("the visible copy gets another name; leave it out")),
        ],
    ),
    row(
        &["func.rmdir"],
        [
            (PolicyOf(Category::Action), NotNeeded("the category's policy")),
            (Always, Missing("a folder is removed on all branches or on none; leave it out")),
        ],
    ),
    default_is(
        &["func.readdir"],
        &["seq"],
        NotNeeded("while one disk is waited for, the others are read, too"),
    ),
    row(
        &["moveonenospc"],
        [
            (Is(&["erofs"]), Missing("no file would be moved: `moveonenospc=false`")),
            (Off, Same(None)),
            (Always, Same(Some("files in passthrough are not moved: see `passthrough_reserve=`"))),
        ],
    ),
    row(
        &["ignorepponrename"],
        [
            (Off, DEFAULT),
            (
                OnAndPathsAreKept,
                Missing(
                    "rename and link use only existing folders, as the create policy does; use one without `ep` or `msp`",
                ),
            ),
            (On, NotNeeded("with this create policy rename and link create the folders that they need")),
        ],
    ),
    default_is(
        &["rename-exdev"],
        &["passthrough"],
        Missing(
            "the caller gets EXDEV, and `mv` copies; leave it out, or use a create policy without `ep` or `msp`",
        ),
    ),
    default_is(
        &["link-exdev"],
        &["passthrough"],
        Missing("the caller gets EXDEV; leave it out, or use a create policy without `ep` or `msp`"),
    ),
    off_by_default(
        &["link-cow"],
        Missing("a write to a file with several links changes all of them; leave it out"),
    ),
    row(
        &["statfs"],
        [
            (Is(&["base"]), DEFAULT),
            (Is(&["full"]), Missing("`df` shows the sum of all branches for every folder; leave it out")),
        ],
    ),
    default_is(
        &["statfs-ignore"],
        &["none"],
        Missing("`df` shows the space of branches that accept nothing new, too; leave it out"),
    ),
    row(
        &["cache.statfs"],
        [
            (Zero, Different("a branch's space is queried at most once a second; leave it out")),
            (Above, NotNeeded("a branch's space is queried at most once a second")),
        ],
    ),
    always(&["cache.open"], NotNeeded("it does nothing in mergerfs 2.42")),
    // What files and names look like.
    always(
        &["inodecalc"],
        Same(Some(
            "the numbers differ from mergerfs's; the default is `devino-hash`, in mergerfs `hybrid-hash`",
        )),
    ),
    always(&["use-ino"], NotNeeded("always on")),
    default_is(&["follow-symlinks"], &["never"], Missing("symlinks stay symlinks; leave it out")),
    off_by_default(
        &["symlinkify"],
        Missing("files stay files; leave it out: passthrough serves its purpose"),
    ),
    always(&["symlinkify-timeout"], NotNeeded("it has no effect without `symlinkify`")),
    default_is(
        &["xattr"],
        &["passthrough"],
        Different(
            "leave it out; `xattrs=off` is for mounts without other users, because it also disables ACLs",
        ),
    ),
    on_by_default(
        &["security-capability"],
        Different("capabilities of programs have effect; leave it out, or use `nosuid` to disable them"),
    ),
    row(
        &["posix-acl"],
        [
            (On, NotNeeded("always on if a branch's file system has ACLs")),
            (Off, Different("ACLs of the branches apply; leave it out")),
        ],
    ),
    off_by_default(
        &["allow-idmap"],
        Missing("the mount cannot be mapped to other users (`X-mount.idmap`); leave it out"),
    ),
    always(&["fsname"], Same(None)),
    always(&["subtype"], NotNeeded("mergerfs calls itself `mergerfs` regardless of it")),
    // Who gets in.
    always(&["allow_other"], Same(None)),
    on_by_default(
        &["kernel-permissions-check"],
        Different("the kernel checks permissions; `permissions=none` is for mounts without other users"),
    ),
    always(&["default_permissions"], DEFAULT),
    always(&["uid", "gid", "umask"], Different("files keep their owner and mode; leave it out")),
    always(
        &["gid-cache.expire-timeout", "gid-cache.remove-timeout"],
        NotNeeded("the caller's groups are read at each request"),
    ),
    // How bytes flow.
    row(
        &["passthrough.io"],
        [
            (Is(&["rw"]), NotNeeded("the default, if the kernel supports it")),
            (Is(&["off"]), Ours("flow=relay")),
            (
                Always,
                Different(
                    "passthrough applies to both reads and writes or to neither; leave it out, or use `flow=relay`",
                ),
            ),
        ],
    ),
    always(&["passthrough.max-stack-depth"], NotNeeded("determined from the branches")),
    row(
        &["cache.files"],
        [(
            Is(&["off", "partial", "full", "auto-full", "per-process", "libfuse"]),
            NotNeeded(
                "mmap always works; passthrough caches only the lower pages, and others are dropped when the file changes or is reopened",
            ),
        )],
    ),
    always(&["cache.files.process-names"], NotNeeded("it has no effect without `cache.files=per-process`")),
    always(&["direct-io", "kernel-cache", "auto-cache"], NotNeeded("as with `cache.files`")),
    on_by_default(&["direct-io-allow-mmap"], Different("mmap always works; leave it out")),
    always(
        &["dropcacheonclose"],
        NotNeeded("it avoids caching pages twice, and passthrough caches them once"),
    ),
    off_by_default(
        &["cache.writeback"],
        Different("writes are not combined; leave it out: passthrough writes straight to the branch's cache"),
    ),
    on_by_default(
        &["parallel-direct-writes"],
        Different("direct writers of one file write in parallel; leave it out"),
    ),
    off_by_default(
        &["nullrw"],
        Different("bytes are always read and written; leave it out; `shunt bench` measures"),
    ),
    on_by_default(&["async-read"], Different("reads of one file may run in parallel; leave it out")),
    always(&["sync-read"], Different("reads of one file may run in parallel; leave it out")),
    row(
        &["readahead"],
        [
            (Zero, DEFAULT),
            (
                Above,
                Different(
                    "`max_readahead=BYTES` sets it for the mount; in passthrough the disk's setting counts: `blockdev --setra`",
                ),
            ),
        ],
    ),
    default_is(
        &["fuse-msg-size"],
        &["256", "1M", "1024K"],
        Different("requests have 1 MiB; leave it out, or use `max_read=BYTES` for less"),
    ),
    default_is(
        &["flush-on-close"],
        &["never"],
        Missing(
            "a close does not reach the branch, so it reports no error of a network file system; leave it out; fsync does report it",
        ),
    ),
    default_is(
        &["nfsopenhack"],
        &["off"],
        Missing(
            "a read-only file cannot be opened for writing by NFS, as on other file systems; leave it out",
        ),
    ),
    off_by_default(
        &["export-support"],
        Different("use `handles`, if each branch is a whole file system, and without `inodecalc=`"),
    ),
    row(
        &["never-forget-nodes", "remember-nodes", "noforget", "remember"],
        [
            (Off, DEFAULT),
            (
                Always,
                Different(
                    "nodes are forgotten when the kernel forgets them; with `handles`, NFS handles stay valid anyway",
                ),
            ),
        ],
    ),
    always(&["nogc"], NotNeeded("memory is freed as nodes are forgotten")),
    on_by_default(
        &["handle-killpriv", "handle-killpriv-v2"],
        Different("a write always clears set-uid bits; leave it out"),
    ),
    // What is remembered.
    row(
        &["cache.attr", "cache.entry", "attr-timeout", "entry-timeout"],
        [
            (Zero, Ours("cache=none")),
            (Is(&["1"]), DEFAULT),
            (
                Above,
                Different(
                    "names and attributes are cached for one second; leave it out, or use `cache=default` if branches change only through the mount",
                ),
            ),
        ],
    ),
    row(
        &["cache.negative-entry"],
        [
            (Zero, DEFAULT),
            (
                Above,
                Different(
                    "missing names are not cached; leave it out, or use `cache=default` if branches change only through the mount",
                ),
            ),
        ],
    ),
    row(
        &["cache.readdir", "cache.symlinks"],
        [
            (Off, DEFAULT),
            (
                On,
                Different(
                    "they are not cached; leave it out, or use `cache=default` if branches change only through the mount",
                ),
            ),
        ],
    ),
    always(&["negative-entry"], NotNeeded("it does nothing in mergerfs 2.42")),
    row(
        &["readdirplus"],
        [
            (On, NotNeeded("the kernel requests attributes with the names of a folder when they are needed")),
            (
                Off,
                NotNeeded(
                    "the kernel requests attributes with the names of a folder only when they are needed",
                ),
            ),
        ],
    ),
    // How requests are served.
    row(&["threads"], [(Zero, AS_MANY), (Is(&["-1"]), AS_MANY), (Above, Same(None)), (Always, NO_NUMBER)]),
    row(
        &["read-thread-count"],
        [(Zero, AS_MANY), (Is(&["-1"]), AS_MANY), (Above, Ours("threads={}")), (Always, NO_NUMBER)],
    ),
    default_is(
        &["process-thread-count"],
        &["-1"],
        Different("the thread that receives a request serves it: use `threads=N`, or leave it out"),
    ),
    always(
        &["process-thread-queue-depth"],
        NotNeeded("requests wait in the kernel; `queue_depth=N` sets how many one thread serves at once"),
    ),
    always(
        &["pin-threads"],
        Different("shunt decides where its threads run; leave it out, or use `taskset`"),
    ),
    row(
        &["scheduling-priority"],
        [
            (Zero, DEFAULT),
            (
                Always,
                Missing("the server inherits its priority: use `nice`, or `Nice=` in a unit; leave it out"),
            ),
        ],
    ),
    off_by_default(
        &["proxy-ioprio"],
        Missing("in passthrough the caller's own priority applies, otherwise the server's; leave it out"),
    ),
    always(
        &["max-background", "congestion-threshold"],
        Different("shunt decides how many requests wait; leave it out"),
    ),
    always(
        &["no-remote-lock", "no-remote-flock", "no-remote-posix-lock"],
        NotNeeded("`locks=kernel` is the default"),
    ),
    // What is said.
    off_by_default(&["debug"], Different("`log=trace,log_file=FILE` logs each request")),
    always(&["log.file"], Different("`log_file=FILE`, and `log=trace` for each request")),
    off_by_default(&["log.metrics"], Different("leave it out; `shunt status MNT` counts requests")),
    // What has done nothing for long.
    always(
        &["atomic-o-trunc", "big-writes", "hard-remove", "nonempty", "defaults"],
        NotNeeded("it does nothing in mergerfs 2.42"),
    ),
    always(
        &[
            "splice-move",
            "splice-read",
            "splice-write",
            "no-splice-move",
            "no-splice-read",
            "no-splice-write",
        ],
        NotNeeded("the kernel moves the bytes whenever possible"),
    ),
    always(&["nolazytime"], NotNeeded("the lower file system handles times in its own way")),
    always(&["nostrictatime"], NotNeeded("the lower file system handles atime in its own way")),
];
