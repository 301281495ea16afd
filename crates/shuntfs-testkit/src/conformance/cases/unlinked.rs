//! Files without a name that are still open.

use rustix::fs::{AtFlags, OFlags, XattrFlags, fchmod, fchown, fgetxattr, fsetxattr, fsync, ftruncate, unlinkat};
use rustix::io::{pread, pwrite};

use crate::conformance::{Case, Ctx, Outcome, ctx};

pub(super) const CASES: &[Case] = &[
    Case::new("unlinked/everything-works", everything),
    Case::new("unlinked/name-used-again", again),
    Case::new("unlinked/folder", folder),
    Case::new("unlinked/reopen", reopen),
];

fn everything(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"0123456789")?;
    let reader = cx.open("f", OFlags::RDONLY)?;
    unlinkat(cx.dir(), "f", AtFlags::empty())?;
    seen.see("look by name", cx.look("f"));
    seen.see("fstat", ctx::describe_fd(&fd));
    seen.see("write", pwrite(&fd, b"after", 20));
    seen.see("read", ctx::read_all(&reader));
    seen.see("truncate", ftruncate(&fd, 7));
    seen.see("chmod", fchmod(&fd, rustix::fs::Mode::from_raw_mode(0o4711)));
    seen.see("chown", fchown(&fd, Some(rustix::fs::Uid::from_raw(4000)), None));
    seen.see("xattr", fsetxattr(&fd, "user.a", b"v", XattrFlags::empty()));
    seen.see("xattr read", fgetxattr(&reader, "user.a", &mut [0_u8; 8][..]));
    seen.see("fsync", fsync(&fd));
    seen.see("fstat after", ctx::describe_fd(&reader));
    seen.see("names", cx.names("."));
    Ok(seen)
}

fn again(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let mut held = Vec::new();
    for round in 0..20_u8 {
        let fd = cx.make("f", &[b'a' + round; 5])?;
        unlinkat(cx.dir(), "f", AtFlags::empty())?;
        held.push(fd);
    }
    let last = cx.make("f", b"last")?;
    let mut right = 0;
    for (round, fd) in (0_u8..).zip(&held) {
        let mut room = [0_u8; 5];
        right += usize::from(pread(fd, &mut room, 0) == Ok(5) && room == [b'a' + round; 5]);
    }
    seen.see("each has its own bytes", right);
    seen.see("the named one", ctx::read_all(&last));
    seen.see("links of the first", ctx::describe_fd(&held[0]));
    Ok(seen)
}

fn folder(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o755)?;
    let fd = cx.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    unlinkat(cx.dir(), "d", AtFlags::REMOVEDIR)?;
    seen.see("fstat", ctx::describe_fd(&fd));
    seen.see("chmod", fchmod(&fd, rustix::fs::Mode::from_raw_mode(0o700)));
    seen.see("fstat after", ctx::describe_fd(&fd));
    cx.make_folder("d", 0o711)?;
    seen.see("a new one", cx.look("d"));
    Ok(seen)
}

/// Through /proc a file without a name can be opened again.
fn reopen(cx: &Ctx) -> Outcome {
    use std::os::fd::AsRawFd;
    let mut seen = cx.observe();
    let fd = cx.make("f", b"still here")?;
    unlinkat(cx.dir(), "f", AtFlags::empty())?;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let second = rustix::fs::open(path, OFlags::RDWR, rustix::fs::Mode::empty());
    seen.see("reopen", second.as_ref().map(drop).map_err(|error| *error));
    let second = second?;
    drop(fd);
    seen.see("write", pwrite(&second, b"STILL", 0));
    seen.see("content", ctx::read_all(&second));
    Ok(seen)
}
