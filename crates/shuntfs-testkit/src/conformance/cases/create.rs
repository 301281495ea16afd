//! Making and removing names: create, mknod, mkdir, symlink, link, unlink, rmdir, O_TMPFILE.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, linkat, mkdirat, mknodat, openat, readlinkat, symlinkat, unlinkat,
};
use rustix::io::pwrite;

use crate::conformance::{Case, Ctx, Outcome, ctx};

pub(super) const CASES: &[Case] = &[
    Case::new("create/flags", flags),
    Case::new("create/exclusive", exclusive),
    Case::new("create/mkdir", mkdir),
    Case::new("create/symlink", symlink),
    Case::new("create/link", link),
    Case::new("create/unlink", unlink),
    Case::new("create/rmdir", rmdir),
    Case::new("create/tmpfile", tmpfile),
    Case::new("create/mknod", mknod),
    Case::new("create/truncate", truncate),
    Case::new("create/missing", missing),
];

const MODE: Mode = Mode::from_raw_mode(0o644);

fn flags(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for (name, mode) in [("plain", 0o644), ("private", 0o600), ("closed", 0o000), ("odd", 0o7531)] {
        seen.see(format!("create {name}"), cx.create(name, mode));
        seen.see(format!("look {name}"), cx.look(name));
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let fd = openat(cx.dir(), "write-only", flags, Mode::from_raw_mode(0o400))?;
    seen.see("write into what nobody may write", pwrite(&fd, b"content", 0));
    seen.see("its content", cx.read("write-only"));
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC;
    seen.see("create for reading", openat(cx.dir(), "read-only", flags, MODE));
    seen.see("names", cx.names("."));
    Ok(seen)
}

fn exclusive(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    seen.see("first", openat(cx.dir(), "one", flags, MODE));
    seen.see("second", openat(cx.dir(), "one", flags, MODE));
    symlinkat("nowhere", cx.dir(), "link")?;
    seen.see("through a dangling link", openat(cx.dir(), "link", flags, MODE));
    seen.see("without EXCL through it", openat(cx.dir(), "link", OFlags::RDWR | OFlags::CREATE, MODE));
    seen.see("made where it points", cx.look("nowhere"));
    seen.see("a folder", openat(cx.dir(), ".", OFlags::RDWR | OFlags::CREATE, MODE));
    seen.see("NOFOLLOW", cx.open("link", OFlags::RDONLY | OFlags::NOFOLLOW));
    seen.see("DIRECTORY", cx.open("one", OFlags::RDONLY | OFlags::DIRECTORY));
    Ok(seen)
}

fn mkdir(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    seen.see("first", mkdirat(cx.dir(), "d", Mode::from_raw_mode(0o755)));
    seen.see("again", mkdirat(cx.dir(), "d", Mode::from_raw_mode(0o755)));
    seen.see("inside", mkdirat(cx.dir(), "d/e", Mode::from_raw_mode(0o700)));
    seen.see("sticky", mkdirat(cx.dir(), "d/t", Mode::from_raw_mode(0o1777)));
    for name in [".", "d", "d/e", "d/t"] {
        seen.see(name, cx.look(name));
    }
    cx.make("f", b"")?;
    seen.see("below a file", mkdirat(cx.dir(), "f/d", MODE));
    seen.see("below nothing", mkdirat(cx.dir(), "n/d", MODE));
    Ok(seen)
}

fn symlink(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let long = "x".repeat(4095);
    for (name, target) in [("short", "t"), ("dotted", "../a//b/."), ("odd", "\u{1}\u{7f}ü "), ("long", &long)] {
        seen.see(format!("symlink {name}"), symlinkat(target, cx.dir(), name));
        seen.see(format!("readlink {name}"), readlinkat(cx.dir(), name, Vec::new()).map(|t| t.into_bytes()));
        seen.see(format!("look {name}"), cx.look(name));
    }
    seen.see("again", symlinkat("t", cx.dir(), "short"));
    seen.see("empty", symlinkat("", cx.dir(), "empty"));
    symlinkat("loop", cx.dir(), "loop")?;
    seen.see("open a loop", cx.open("loop", OFlags::RDONLY));
    cx.make("file", b"through")?;
    symlinkat("file", cx.dir(), "to-file")?;
    seen.see("read through", cx.read("to-file"));
    seen.see("readlink of a file", readlinkat(cx.dir(), "file", Vec::new()).map(|t| t.into_bytes()));
    Ok(seen)
}

fn link(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("one", b"shared")?;
    seen.see("link", linkat(cx.dir(), "one", cx.dir(), "two", AtFlags::empty()));
    seen.see("again", linkat(cx.dir(), "one", cx.dir(), "two", AtFlags::empty()));
    seen.see("same inode", cx.statx("one")?.stx_ino == cx.statx("two")?.stx_ino);
    pwrite(&fd, b"S", 0)?;
    seen.see("write by one, read by the other", cx.read("two"));
    seen.see("two", cx.look("two"));
    cx.chmod("two", 0o600)?;
    seen.see("one after chmod of two", cx.look("one"));
    seen.see("a folder", linkat(cx.dir(), ".", cx.dir(), "folder", AtFlags::empty()));
    symlinkat("one", cx.dir(), "soft")?;
    seen.see("a symlink itself", linkat(cx.dir(), "soft", cx.dir(), "soft2", AtFlags::empty()));
    seen.see("soft2", cx.look("soft2"));
    seen.see("followed", linkat(cx.dir(), "soft", cx.dir(), "three", AtFlags::SYMLINK_FOLLOW));
    unlinkat(cx.dir(), "one", AtFlags::empty())?;
    seen.see("two after unlink of one", cx.look("two"));
    seen.see("still readable", cx.read("three"));
    seen.see("a missing file", linkat(cx.dir(), "one", cx.dir(), "four", AtFlags::empty()));
    Ok(seen)
}

fn unlink(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    cx.make_folder("d", 0o755)?;
    seen.see("folder", unlinkat(cx.dir(), "d", AtFlags::empty()));
    seen.see("file", unlinkat(cx.dir(), "f", AtFlags::empty()));
    seen.see("again", unlinkat(cx.dir(), "f", AtFlags::empty()));
    seen.see("look", cx.look("f"));
    seen.see("open", cx.open("f", OFlags::RDONLY));
    cx.make("f", b"new")?;
    seen.see("made again", cx.read("f"));
    seen.see("below a file", unlinkat(cx.dir(), "f/x", AtFlags::empty()));
    Ok(seen)
}

fn rmdir(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o755)?;
    cx.make("d/f", b"")?;
    cx.make("f", b"")?;
    let held = cx.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    seen.see("not empty", unlinkat(cx.dir(), "d", AtFlags::REMOVEDIR));
    seen.see("a file", unlinkat(cx.dir(), "f", AtFlags::REMOVEDIR));
    unlinkat(cx.dir(), "d/f", AtFlags::empty())?;
    seen.see("empty", unlinkat(cx.dir(), "d", AtFlags::REMOVEDIR));
    seen.see("again", unlinkat(cx.dir(), "d", AtFlags::REMOVEDIR));
    seen.see("create in what is gone", openat(&held, "x", OFlags::RDWR | OFlags::CREATE, MODE));
    seen.see("mkdir in what is gone", mkdirat(&held, "x", MODE));
    seen.see("dot", unlinkat(cx.dir(), ".", AtFlags::REMOVEDIR));
    seen.see("links of the parent", cx.look("."));
    Ok(seen)
}

fn tmpfile(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = openat(cx.dir(), ".", OFlags::RDWR | OFlags::TMPFILE, Mode::from_raw_mode(0o640));
    seen.see("tmpfile", fd.as_ref().map(drop).map_err(|error| *error));
    let fd = fd?;
    seen.see("write", pwrite(&fd, b"nameless", 0));
    seen.see("looks", ctx::describe_fd(&fd));
    seen.see("names", cx.names("."));
    seen.see("linkat", linkat(&fd, "", cx.dir(), "named", AtFlags::EMPTY_PATH));
    seen.see("named", cx.look("named"));
    seen.see("content", cx.read("named"));
    seen.see("again by proc", link_by_proc(&fd, cx, "second"));
    seen.see("second", cx.look("second"));
    seen.see("write after", pwrite(&fd, b"NAME", 0));
    seen.see("seen by name", cx.read("second"));
    let fd = openat(cx.dir(), ".", OFlags::WRONLY | OFlags::TMPFILE | OFlags::EXCL, MODE)?;
    seen.see("excl forbids linkat", linkat(&fd, "", cx.dir(), "never", AtFlags::EMPTY_PATH));
    seen.see("read-only", openat(cx.dir(), ".", OFlags::RDONLY | OFlags::TMPFILE, MODE));
    Ok(seen)
}

fn link_by_proc(fd: &std::os::fd::OwnedFd, cx: &Ctx, name: &str) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    linkat(CWD, path, cx.dir(), name, AtFlags::SYMLINK_FOLLOW)
}

fn mknod(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    seen.see("regular", mknodat(cx.dir(), "regular", FileType::RegularFile, MODE, 0));
    seen.see("regular again", mknodat(cx.dir(), "regular", FileType::RegularFile, MODE, 0));
    seen.see("looks", cx.look("regular"));
    let fd = cx.open("regular", OFlags::RDWR)?;
    seen.see("write", pwrite(&fd, b"x", 0));
    seen.see("a folder", mknodat(cx.dir(), "folder", FileType::Directory, MODE, 0));
    Ok(seen)
}

fn truncate(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let held = cx.make("f", b"0123456789")?;
    seen.see("O_TRUNC", cx.open("f", OFlags::WRONLY | OFlags::TRUNC));
    seen.see("size", cx.look("f"));
    pwrite(&held, b"again", 3)?;
    seen.see("content", cx.read("f"));
    seen.see("O_TRUNC for reading", cx.open("f", OFlags::RDONLY | OFlags::TRUNC));
    seen.see("size after", cx.look("f"));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    pwrite(&held, b"more", 0)?;
    seen.see("create and truncate", openat(cx.dir(), "f", flags, Mode::from_raw_mode(0o600)));
    seen.see("mode is kept", cx.look("f"));
    Ok(seen)
}

fn missing(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for round in 0..2 {
        seen.see(format!("look {round}"), cx.look("nothing"));
        seen.see(format!("open {round}"), cx.open("nothing", OFlags::RDONLY));
    }
    seen.see("made", cx.make("nothing", b"there").is_ok());
    seen.see("found", cx.read("nothing"));
    seen.see("slash after a file", cx.open("nothing/", OFlags::RDONLY));
    seen.see("create with a slash", openat(cx.dir(), "new/", OFlags::RDWR | OFlags::CREATE, MODE));
    Ok(seen)
}
