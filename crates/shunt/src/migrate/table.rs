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

const AS_MANY: Fate = NotNeeded("as many as the machine wants");
const NO_NUMBER: Fate =
    Different("a number is needed: `threads=N`, or leave it out, for as many as the machine wants");

/// Every option of mergerfs.
pub static OPTIONS: &[Row] = &[
    // Which branches.
    always(&["branches", "srcmounts"], Different("the branches are SRC: `shunt mount BRANCHES MNT`")),
    always(&["mountpoint", "mount"], Different("the mount point is MNT: `shunt mount BRANCHES MNT`")),
    always(
        &["config"],
        Different("options are words of `-o`: `shunt migrate mergerfs` writes out what such a file has"),
    ),
    row(&["branches-mount-timeout"], [(Zero, DEFAULT), (Above, Ours("branches_wait={}"))]),
    off_by_default(
        &["branches-mount-timeout-fail"],
        NotNeeded("a disk that is not there after `branches_wait=SECONDS` is an error"),
    ),
    off_by_default(
        &["lazy-umount-mountpoint"],
        Missing("a mount point in use is refused; `shunt umount --lazy MNT` before"),
    ),
    // Where things go.
    always(&["minfreespace"], Same(None)),
    row(
        &["category.create"],
        [
            (Is(&["erofs"]), Missing("branches of mode `NC` (`/a=NC:/b=NC`) take nothing new")),
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
                    "it picks which copies are removed and moved; mode, owner, times and length are changed of the one that is shown",
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
            (Is(&["erofs"]), Missing("branches of mode `NC` (`/a=NC:/b=NC`) take nothing new")),
            (Always, Same(None)),
        ],
    ),
    row(
        &["func.rename", "func.unlink"],
        [
            (Is(&["erofs"]), Missing("branches of mode `RO` (`/a=RO:/b=RO`) are not changed")),
            (Always, Same(Some("for files; folders go and move on all branches"))),
        ],
    ),
    row(
        &["func.getattr"],
        [
            (Is(&["erofs"]), Missing("leave it out: nothing would be found")),
            (Always, Same(Some("what is shown is opened and read, too"))),
        ],
    ),
    row(
        &["func.access", "func.getxattr", "func.listxattr", "func.open", "func.readlink"],
        [
            (PolicyOf(Category::Search), NotNeeded("what is shown is opened and read")),
            (
                Always,
                Missing(
                    "what is shown is opened and read; leave it out, or `func.getattr=`, which says what is shown",
                ),
            ),
        ],
    ),
    row(
        &["func.chmod", "func.chown", "func.removexattr", "func.setxattr", "func.truncate", "func.utimens"],
        [
            (PolicyOf(Category::Action), NotNeeded("what its category has")),
            (Always, Missing("what is shown is changed, and a folder on all branches; leave it out")),
        ],
    ),
    row(
        &["func.link"],
        [
            (PolicyOf(Category::Action), NotNeeded("what its category has")),
            (Always, Missing("what is shown gets another name; leave it out")),
        ],
    ),
    row(
        &["func.rmdir"],
        [
            (PolicyOf(Category::Action), NotNeeded("what its category has")),
            (Always, Missing("a folder goes on all branches or on none; leave it out")),
        ],
    ),
    default_is(
        &["func.readdir"],
        &["seq"],
        NotNeeded("while one disk has to be waited for, the others are read, too"),
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
                    "rename and link keep to folders that are there, as the create policy does; take one without `ep` or `msp`",
                ),
            ),
            (On, NotNeeded("with this create policy rename and link make the folders that they need")),
        ],
    ),
    default_is(
        &["rename-exdev"],
        &["passthrough"],
        Missing(
            "the caller gets EXDEV, and `mv` copies; leave it out, or take a create policy without `ep` or `msp`",
        ),
    ),
    default_is(
        &["link-exdev"],
        &["passthrough"],
        Missing("the caller gets EXDEV; leave it out, or take a create policy without `ep` or `msp`"),
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
        Missing("`df` shows the space of branches that take nothing new, too; leave it out"),
    ),
    row(
        &["cache.statfs"],
        [
            (Zero, Different("a branch is asked for its space once a second at most; leave it out")),
            (Above, NotNeeded("a branch is asked for its space once a second at most")),
        ],
    ),
    always(&["cache.open"], NotNeeded("it does nothing in mergerfs 2.42")),
    // What files and names look like.
    always(
        &["inodecalc"],
        Same(Some(
            "the numbers are others than mergerfs's; without it they go by `devino-hash`, in mergerfs by `hybrid-hash`",
        )),
    ),
    always(&["use-ino"], NotNeeded("always so")),
    default_is(&["follow-symlinks"], &["never"], Missing("symlinks are shown as such; leave it out")),
    off_by_default(&["symlinkify"], Missing("files stay files; leave it out: passthrough is what it is for")),
    always(&["symlinkify-timeout"], NotNeeded("it says nothing without `symlinkify`")),
    default_is(
        &["xattr"],
        &["passthrough"],
        Different(
            "leave it out; `xattrs=off` is for mounts that let nobody else in, because ACLs go with it",
        ),
    ),
    on_by_default(
        &["security-capability"],
        Different("capabilities of programs have effect; leave it out, or `nosuid`, and they have none"),
    ),
    row(
        &["posix-acl"],
        [
            (On, NotNeeded("always so where a branch's file system has ACLs")),
            (Off, Different("ACLs of the branches hold; leave it out")),
        ],
    ),
    off_by_default(
        &["allow-idmap"],
        Missing("the mount cannot be mapped to other users (`X-mount.idmap`); leave it out"),
    ),
    always(&["fsname"], Same(None)),
    always(&["subtype"], NotNeeded("mergerfs calls itself `mergerfs` whatever it says")),
    // Who gets in.
    always(&["allow_other"], Same(None)),
    on_by_default(
        &["kernel-permissions-check"],
        Different("the kernel checks permissions; `permissions=none` is for mounts that let nobody else in"),
    ),
    always(&["default_permissions"], DEFAULT),
    always(&["uid", "gid", "umask"], Different("files keep their owner and mode; leave it out")),
    always(
        &["gid-cache.expire-timeout", "gid-cache.remove-timeout"],
        NotNeeded("groups are the caller's at each request"),
    ),
    // How bytes flow.
    row(
        &["passthrough.io"],
        [
            (Is(&["rw"]), NotNeeded("the default, where the kernel has it")),
            (Is(&["off"]), Ours("flow=relay")),
            (
                Always,
                Different(
                    "passthrough is for reads and writes or for neither; leave it out, or `flow=relay`",
                ),
            ),
        ],
    ),
    always(&["passthrough.max-stack-depth"], NotNeeded("taken from what the branches are")),
    row(
        &["cache.files"],
        [(
            Is(&["off", "partial", "full", "auto-full", "per-process", "libfuse"]),
            NotNeeded(
                "mmap always works; passthrough keeps pages below alone, and others go when the file changes or is opened again",
            ),
        )],
    ),
    always(&["cache.files.process-names"], NotNeeded("it says nothing without `cache.files=per-process`")),
    always(&["direct-io", "kernel-cache", "auto-cache"], NotNeeded("as with `cache.files`")),
    on_by_default(&["direct-io-allow-mmap"], Different("mmap always works; leave it out")),
    always(
        &["dropcacheonclose"],
        NotNeeded("it is for pages that are kept twice, and passthrough keeps them once"),
    ),
    off_by_default(
        &["cache.writeback"],
        Different("writes are not gathered; leave it out: passthrough writes straight to the branch's cache"),
    ),
    on_by_default(
        &["parallel-direct-writes"],
        Different("direct writers of one file write at once; leave it out"),
    ),
    off_by_default(
        &["nullrw"],
        Different("bytes are always read and written; leave it out, and `shunt bench` measures"),
    ),
    on_by_default(&["async-read"], Different("reads of one file may be under way at once; leave it out")),
    always(&["sync-read"], Different("reads of one file may be under way at once; leave it out")),
    row(
        &["readahead"],
        [
            (Zero, DEFAULT),
            (
                Above,
                Different(
                    "`max_readahead=BYTES` is for the mount; under passthrough that of the disk counts: `blockdev --setra`",
                ),
            ),
        ],
    ),
    default_is(
        &["fuse-msg-size"],
        &["256", "1M", "1024K"],
        Different("requests have 1 MiB; leave it out, or `max_read=BYTES` for less"),
    ),
    default_is(
        &["flush-on-close"],
        &["never"],
        Missing(
            "a close tells nothing to the branch, so no error of a network file system; leave it out, fsync does",
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
        Different("`handles`, where each branch is a whole file system, and without `inodecalc=`"),
    ),
    row(
        &["never-forget-nodes", "remember-nodes", "noforget", "remember"],
        [
            (Off, DEFAULT),
            (
                Always,
                Different(
                    "nodes are forgotten when the kernel forgets them; with `handles` those of NFS hold all the same",
                ),
            ),
        ],
    ),
    always(&["nogc"], NotNeeded("memory is freed as nodes are forgotten")),
    on_by_default(
        &["handle-killpriv", "handle-killpriv-v2"],
        Different("a write always takes set-uid bits away; leave it out"),
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
                    "names and attributes are remembered for one second; leave it out, or `cache=default` where branches change through the mount alone",
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
                    "that a name is not there is not remembered; leave it out, or `cache=default` where branches change through the mount alone",
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
                    "they are not remembered; leave it out, or `cache=default` where branches change through the mount alone",
                ),
            ),
        ],
    ),
    always(&["negative-entry"], NotNeeded("it does nothing in mergerfs 2.42")),
    row(
        &["readdirplus"],
        [
            (
                On,
                NotNeeded("the kernel asks for attributes with the names of a folder where they are wanted"),
            ),
            (
                Off,
                NotNeeded(
                    "the kernel asks for attributes with the names of a folder only where they are wanted",
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
        Different("who takes a request serves it: `threads=N`, or leave it out"),
    ),
    always(
        &["process-thread-queue-depth"],
        NotNeeded("requests wait in the kernel; `queue_depth=N` is for how many one thread holds"),
    ),
    always(&["pin-threads"], Different("shunt decides where its threads run; leave it out, or `taskset`")),
    row(
        &["scheduling-priority"],
        [
            (Zero, DEFAULT),
            (
                Always,
                Missing(
                    "the server has the priority of who starts it: `nice`, or `Nice=` in a unit; leave it out",
                ),
            ),
        ],
    ),
    off_by_default(
        &["proxy-ioprio"],
        Missing("under passthrough the caller's own priority holds, otherwise the server's; leave it out"),
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
    off_by_default(&["debug"], Different("`log=trace,log_file=FILE` says each request")),
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
        NotNeeded("the kernel moves bytes wherever it can"),
    ),
    always(&["nolazytime"], NotNeeded("the lower file system keeps times in its own way")),
    always(&["nostrictatime"], NotNeeded("the lower file system keeps times of access in its own way")),
];
