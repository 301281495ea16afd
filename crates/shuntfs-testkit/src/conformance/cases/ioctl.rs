//! File attributes by ioctl.

use rustix::fs::{IFlags, OFlags, ioctl_getflags, ioctl_setflags, unlinkat};
use rustix::io::{pwrite, write};

use crate::conformance::{Case, Ctx, Outcome};
use crate::identity::Identity;
use crate::raw::{fsxattr, set_fsxattr, unknown_ioctl};

pub(super) const CASES: &[Case] = &[
    Case::new("ioctl/flags", flags),
    Case::new("ioctl/immutable", immutable),
    Case::new("ioctl/append-only", append_only),
    Case::new("ioctl/fsxattr", extended),
    Case::new("ioctl/unknown", unknown),
];

/// The flags that are the user's own and not the file system's layout.
const OURS: IFlags = IFlags::from_bits_truncate(
    IFlags::NODUMP.bits() | IFlags::NOATIME.bits() | IFlags::IMMUTABLE.bits() | IFlags::APPEND.bits(),
);

fn get(fd: &std::os::fd::OwnedFd) -> rustix::io::Result<String> {
    ioctl_getflags(fd).map(|flags| format!("{:?}", flags & OURS))
}

fn flags(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"")?;
    seen.see("get", get(&fd));
    let Ok(before) = ioctl_getflags(&fd) else { return Ok(seen) };
    seen.see("set", ioctl_setflags(&fd, before | IFlags::NODUMP | IFlags::NOATIME));
    seen.see("get after", get(&fd));
    let reader = cx.open("f", OFlags::RDONLY)?;
    seen.see("by a reader", get(&reader));
    seen.see("clear", ioctl_setflags(&reader, before));
    seen.see("get at last", get(&fd));
    let folder = cx.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    seen.see("a folder", get(&folder));
    cx.chmod("f", 0o666)?;
    let by_other = Identity::nobody().run(|| ioctl_setflags(cx.open("f", OFlags::RDWR)?, before | IFlags::NODUMP));
    seen.see("by another", by_other);
    Ok(seen)
}

fn immutable(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"fixed")?;
    let Ok(before) = ioctl_getflags(&fd) else { return Ok(seen) };
    let set = ioctl_setflags(&fd, before | IFlags::IMMUTABLE);
    seen.see("set", set);
    if set.is_err() {
        return Ok(seen);
    }
    seen.see("get", get(&fd));
    seen.see("open to write", cx.open("f", OFlags::WRONLY));
    seen.see("unlink", unlinkat(cx.dir(), "f", rustix::fs::AtFlags::empty()));
    seen.see("chmod", cx.chmod("f", 0o600));
    seen.see("read", cx.read("f"));
    seen.see("clear", ioctl_setflags(&fd, before));
    seen.see("write again", pwrite(&fd, b"F", 0));
    seen.see("unlink again", unlinkat(cx.dir(), "f", rustix::fs::AtFlags::empty()));
    Ok(seen)
}

fn append_only(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"log\n")?;
    let Ok(before) = ioctl_getflags(&fd) else { return Ok(seen) };
    let set = ioctl_setflags(&fd, before | IFlags::APPEND);
    seen.see("set", set);
    if set.is_err() {
        return Ok(seen);
    }
    seen.see("open to write", cx.open("f", OFlags::WRONLY));
    seen.see("open to truncate", cx.open("f", OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC));
    let append = cx.open("f", OFlags::WRONLY | OFlags::APPEND);
    seen.see("open to append", append.as_ref().map(drop).map_err(|error| *error));
    if let Ok(append) = append {
        seen.see("append", write(&append, b"line\n"));
    }
    seen.see("clear", ioctl_setflags(&fd, before));
    seen.see("content", cx.read("f"));
    Ok(seen)
}

fn extended(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"x")?;
    let found = fsxattr(&fd);
    seen.see("get", found.map(|attributes| format!("{:x} {}", attributes.xflags, attributes.projid)));
    let Ok(mut attributes) = found else { return Ok(seen) };
    // FS_XFLAG_NODUMP
    attributes.xflags |= 0x80;
    seen.see("set", set_fsxattr(&fd, &attributes));
    seen.see("get after", fsxattr(&fd).map(|attributes| format!("{:x}", attributes.xflags)));
    seen.see("as the other ioctl says", get(&fd));
    attributes.xflags &= !0x80;
    seen.see("clear", set_fsxattr(&fd, &attributes));
    seen.see("by a reader", fsxattr(cx.open("f", OFlags::RDONLY)?).map(|found| found.xflags));
    seen.see("a folder", fsxattr(cx.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?).map(|found| found.xflags));
    Ok(seen)
}

fn unknown(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"12345")?;
    // Twice: an answer that the kernel remembers wrongly shows the second time.
    for _ in 0..2 {
        seen.see("unknown", unknown_ioctl(&fd));
        seen.see("flags after", get(&fd));
    }
    seen.see("on a folder", unknown_ioctl(cx.dir()));
    seen.see("bytes to read", rustix::io::ioctl_fionread(&fd));
    Ok(seen)
}
