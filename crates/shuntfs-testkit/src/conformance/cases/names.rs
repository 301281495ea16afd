//! Names with any bytes, of any length.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, statat, symlinkat, unlinkat};

use crate::conformance::{Case, Ctx, Outcome};

pub(super) const CASES: &[Case] =
    &[Case::new("names/bytes", bytes), Case::new("names/length", length), Case::new("names/dots", dots)];

const MODE: Mode = Mode::from_raw_mode(0o644);
const CREATE: OFlags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL);

fn bytes(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
        let name = [b'n', byte];
        let made = openat(cx.dir(), OsStr::from_bytes(&name), CREATE, MODE);
        if let Err(error) = made {
            seen.see(format!("byte {byte}"), rustix::io::Result::<()>::Err(error));
        }
    }
    seen.see("all", cx.names(".").map(|names| names.join(" ").into_bytes()));
    for name in [&b"\xff\xfe"[..], b" ", b"\n", b"-rf", b"a\\b", b"\xc3\x28", b"caf\xc3\xa9", b"cafe\xcc\x81", b"\x01"] {
        let name = OsStr::from_bytes(name);
        let label = name.as_bytes().escape_ascii().to_string();
        seen.see(format!("mkdir {label}"), mkdirat(cx.dir(), name, Mode::from_raw_mode(0o755)));
        seen.see("stat", statat(cx.dir(), name, AtFlags::empty()).map(|stat| stat.st_mode));
    }
    // Two writings of one word are two names.
    seen.see("case", openat(cx.dir(), "N", CREATE, MODE));
    seen.see("lower case", statat(cx.dir(), "n", AtFlags::empty()).map(|stat| stat.st_mode));
    seen.see("with NUL", openat(cx.dir(), "a\0b", CREATE, MODE));
    Ok(seen)
}

fn length(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for len in [254, 255, 256, 300, 1024, 1025, 4095, 4096] {
        let name = "x".repeat(len);
        seen.see(format!("create {len}"), openat(cx.dir(), name.as_str(), CREATE, MODE));
        seen.see("stat", statat(cx.dir(), name.as_str(), AtFlags::empty()).map(|stat| stat.st_mode));
        let folder = "d".repeat(len);
        seen.see("mkdir", mkdirat(cx.dir(), folder.as_str(), Mode::from_raw_mode(0o755)));
        seen.see("symlink", symlinkat("t", cx.dir(), "s".repeat(len)));
    }
    cx.make("short", b"")?;
    seen.see("rename to 256", renameat(cx.dir(), "short", cx.dir(), "y".repeat(256)));
    seen.see("rename to 255", renameat(cx.dir(), "short", cx.dir(), "y".repeat(255)));
    seen.see("names", cx.names(".").map(|names| names.iter().map(|name| name.len()).sum::<usize>()));
    seen.see("unlink 256", unlinkat(cx.dir(), "z".repeat(256), AtFlags::empty()));
    // Bytes of two each: 255 counts bytes, not letters.
    seen.see("255 bytes of umlauts", openat(cx.dir(), format!("{}x", "ü".repeat(127)), CREATE, MODE));
    seen.see("256 bytes of umlauts", openat(cx.dir(), "ü".repeat(128), CREATE, MODE));
    let deep = "dd/".repeat(30);
    let mut path = String::new();
    for _ in 0..30 {
        path.push_str("dd/");
        mkdirat(cx.dir(), path.as_str(), Mode::from_raw_mode(0o755))?;
    }
    seen.see("deep", openat(cx.dir(), format!("{deep}f"), CREATE, MODE));
    seen.see("path too long", openat(cx.dir(), format!("{}f", "./".repeat(2100)), CREATE, MODE));
    Ok(seen)
}

fn dots(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o755)?;
    for name in ["...", "..a", ".hidden", "d/...", "d/.fuse_hidden0001"] {
        seen.see(format!("create {name}"), openat(cx.dir(), name, CREATE, MODE));
    }
    seen.see("mkdir dot", mkdirat(cx.dir(), ".", MODE));
    seen.see("mkdir dot dot", mkdirat(cx.dir(), "d/..", MODE));
    seen.see("unlink dot", unlinkat(cx.dir(), ".", AtFlags::empty()));
    seen.see("rename to dot dot", renameat(cx.dir(), "...", cx.dir(), "d/.."));
    seen.see("empty", openat(cx.dir(), "", CREATE, MODE));
    let (parent, again) = (cx.statx(".")?.stx_ino, cx.statx("d/..")?.stx_ino);
    seen.see("dot dot is the parent", parent == again);
    seen.see("through a file", statat(cx.dir(), ".../..", AtFlags::empty()).map(|stat| stat.st_mode));
    seen.see("names", cx.names("."));
    Ok(seen)
}
