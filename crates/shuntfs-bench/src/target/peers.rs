//! Other programs that show a folder, where they are on the PATH. They are run and never linked.

use super::ours::{uring_off, wants_uring};
use super::{Mounting, Target};
use crate::machine;
use crate::process;
use crate::report::Kind;

/// Returns the peers on the PATH, each with the options that serve it best.
pub(crate) fn peers() -> Vec<Target> {
    let libfuse = ["passthrough_hp", "--foreground", "--nopassthrough"];
    let mergerfs = mergerfs_options();
    known(&[
        ("passthrough_hp", &[&libfuse[..], &["{SRC}", "{MNT}"]].concat()),
        ("passthrough_hp-uring", &[&libfuse[..], &["-o", "io_uring", "{SRC}", "{MNT}"]].concat()),
        ("passthrough_hp-passthrough", &["passthrough_hp", "--foreground", "{SRC}", "{MNT}"]),
        ("mergerfs", &["mergerfs", "-f", "-o", mergerfs, "{SRC}", "{MNT}"]),
        ("bindfs", &["bindfs", "-f", "{SRC}", "{MNT}"]),
        // What is shown is its upper folder, so that what is written arrives in {SRC} as it does for everybody.
        (
            "fuse-overlayfs",
            &["fuse-overlayfs", "-f", "-o", "lowerdir={EMPTY},upperdir={SRC},workdir={WORK}", "{MNT}"],
        ),
    ])
}

/// Returns the peers that show several folders as one.
pub(crate) fn peers_of_branches() -> Vec<Target> {
    known(&[("mergerfs", &["mergerfs", "-f", "-o", mergerfs_options(), "{BRANCHES}", "{MNT}"])])
}

/// Returns the peers that can be told to remember nothing.
pub(crate) fn peers_uncached() -> Vec<Target> {
    let libfuse = ["passthrough_hp", "--foreground", "--nopassthrough", "--nocache"];
    let mergerfs = "minfreespace=0,cache.attr=0,cache.entry=0,cache.files=off";
    known(&[
        ("passthrough_hp", &[&libfuse[..], &["{SRC}", "{MNT}"]].concat()),
        ("passthrough_hp-uring", &[&libfuse[..], &["-o", "io_uring", "{SRC}", "{MNT}"]].concat()),
        ("mergerfs", &["mergerfs", "-f", "-o", mergerfs, "{SRC}", "{MNT}"]),
        ("bindfs", &["bindfs", "-f", "-o", "attr_timeout=0,entry_timeout=0", "{SRC}", "{MNT}"]),
    ])
}

/// Returns the peers as they serve every byte themselves, and as they pass files through where they have that.
pub(crate) fn peers_of_calls() -> Vec<Target> {
    let libfuse = ["passthrough_hp", "--foreground"];
    let with = |more: &[&'static str]| [&libfuse[..], more, &["{SRC}", "{MNT}"]].concat();
    let uring = ["-o", "io_uring"];
    let mergerfs = |options| vec!["mergerfs", "-f", "-o", options, "{SRC}", "{MNT}"];
    [
        ("passthrough_hp", with(&["--nopassthrough"]), Some(with(&[]))),
        ("passthrough_hp-uring", with(&["--nopassthrough", uring[0], uring[1]]), Some(with(&uring))),
        ("mergerfs", mergerfs("minfreespace=0,cache.files=auto-full"), Some(mergerfs(mergerfs_options()))),
        ("bindfs", vec!["bindfs", "-f", "{SRC}", "{MNT}"], None),
        ("bindfs-single", vec!["bindfs", "-f", "-s", "{SRC}", "{MNT}"], None),
    ]
    .iter()
    .flat_map(|(name, serving, passing)| {
        let mut targets = known(&[(name, serving)]);
        for target in &mut targets {
            target.passing = passing.as_ref().map(|words| Target::peer(name, words).mounting);
        }
        targets
    })
    .collect()
}

/// Returns the programs that show one file: qemu's storage daemon, on the large file and on nothing.
pub(crate) fn storage_daemons() -> Vec<Target> {
    const PROGRAM: &str = "qemu-storage-daemon";
    if !process::on_path(PROGRAM) {
        return Vec::new();
    }
    let target = |name: &str, device: &str, mounting: fn(Vec<String>) -> Mounting| {
        let export = "type=fuse,id=export,node-name=disk,mountpoint={MNT},writable=on";
        let words = [PROGRAM, "--blockdev", device, "--export", export];
        let words = words.iter().map(|&word| word.to_owned()).collect();
        let mut target = Target::peer(name, &[]);
        target.mounting = mounting(words);
        target
    };
    let file = "file,node-name=disk,filename={SRC}/large.0,cache.direct=on,aio=io_uring";
    let null = "null-co,node-name=disk,size=1099511627776,read-zeroes=on";
    // The peer is compared with ours on the file; without contents both show what the transport costs.
    let without_contents = Target { kind: Kind::Floor, ..target("qemu-null", null, Mounting::OwnFileServer) };
    vec![target("qemu", file, Mounting::FileServer), without_contents]
}

fn known(known: &[(&str, &[&str])]) -> Vec<Target> {
    let found = known.iter().filter(|(_, words)| process::on_path(words[0]));
    let mut targets: Vec<Target> = found.map(|(name, words)| Target::peer(name, words)).collect();
    for target in &mut targets {
        if target.mounting.words().is_some_and(wants_uring) {
            target.missing = uring_off();
        }
    }
    targets
}

/// Without its reserve, which is larger than our whole file system, and with passthrough where it has that.
fn mergerfs_options() -> &'static str {
    /// The first release with passthrough.
    const PASSTHROUGH_SINCE: (u32, u32) = (2, 41);
    if !process::on_path("mergerfs") {
        return "";
    }
    match machine::two_numbers(&machine::version("mergerfs")) {
        Some(version) if version < PASSTHROUGH_SINCE => "minfreespace=0,cache.files=auto-full",
        // A build that does not know its version is newer, or fails to mount: a peer is never quietly measured slower.
        _ => "minfreespace=0,cache.files=auto-full,passthrough.io=rw",
    }
}
