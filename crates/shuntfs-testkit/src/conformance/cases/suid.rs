//! What clears the set-user-id and set-group-id bits.

use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, XattrFlags, chownat, fallocate, ftruncate, getxattr, openat, setxattr,
};
use rustix::io::{pwrite, write};

use crate::conformance::{Case, Ctx, Outcome};
use crate::identity::Identity;
use crate::raw::Mapping;

pub(super) const CASES: &[Case] = &[
    Case::new("suid/write", by_write),
    Case::new("suid/append", by_append),
    Case::new("suid/truncate", by_truncate),
    Case::new("suid/open-truncate", by_open),
    Case::new("suid/fallocate", by_fallocate),
    Case::new("suid/copy", by_copy),
    Case::new("suid/chown", by_chown),
    Case::new("suid/root", by_root),
    Case::new("suid/capability", capability),
    Case::new("suid/chmod-setgid", chmod_setgid),
    Case::new("suid/mapping", by_mapping),
];

const MODES: [u32; 4] = [0o6777, 0o4755, 0o2777, 0o2767];

/// Makes a file that everybody may write, with the given bits.
fn prepare(cx: &Ctx, name: &str, mode: u32) -> anyhow::Result<()> {
    cx.make(name, b"program")?;
    cx.chown(name, 4000, 5000)?;
    cx.chmod(name, mode | 0o022)?;
    Ok(())
}

/// Lets an unprivileged user open a file and do something with it.
fn each(cx: &Ctx, act: impl Fn(&std::os::fd::OwnedFd) -> rustix::io::Result<()> + Sync) -> Outcome {
    let mut seen = cx.observe();
    for mode in MODES {
        let name = format!("f{mode:o}");
        prepare(cx, &name, mode)?;
        seen.see(format!("before {mode:o}"), cx.mode(&name));
        let done = Identity::nobody().run(|| act(&cx.open(&name, OFlags::RDWR)?));
        seen.see("done", done);
        seen.see("after", cx.mode(&name));
        seen.see("below", std::fs::metadata(cx.lower(&name)).map(|meta| mode_text(&meta)));
        // Once more: a file system that remembers "nothing to strip" must notice that there is again.
        cx.chmod(&name, mode | 0o022)?;
        seen.see("set again", cx.mode(&name));
        let done = Identity::nobody().run(|| act(&cx.open(&name, OFlags::RDWR)?));
        seen.see("done again", done);
        seen.see("after again", cx.mode(&name));
    }
    Ok(seen)
}

fn mode_text(meta: &std::fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("{:04o}", meta.mode() & 0o7777)
}

fn by_write(cx: &Ctx) -> Outcome {
    each(cx, |fd| pwrite(fd, b"changed", 0).map(drop))
}

fn by_append(cx: &Ctx) -> Outcome {
    each(cx, |fd| {
        rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0))?;
        write(fd, b"more").map(drop)
    })
}

fn by_truncate(cx: &Ctx) -> Outcome {
    each(cx, |fd| ftruncate(fd, 3))
}

fn by_fallocate(cx: &Ctx) -> Outcome {
    each(cx, |fd| fallocate(fd, FallocateFlags::empty(), 0, 70_000))
}

fn by_copy(cx: &Ctx) -> Outcome {
    let from = cx.make("from", b"copied")?;
    each(cx, |fd| {
        let (mut source, mut target) = (0, 0);
        rustix::fs::copy_file_range(&from, Some(&mut source), fd, Some(&mut target), 6).map(drop)
    })
}

fn by_mapping(cx: &Ctx) -> Outcome {
    use rustix::mm::ProtFlags;
    each(cx, |fd| {
        let map = Mapping::new(fd, 7, ProtFlags::READ | ProtFlags::WRITE, true)?;
        map.store(0, b"mapped");
        map.sync()
    })
}

fn by_open(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for mode in MODES {
        let name = format!("f{mode:o}");
        prepare(cx, &name, mode)?;
        seen.see("open", Identity::nobody().run(|| cx.open(&name, OFlags::WRONLY | OFlags::TRUNC)));
        seen.see(format!("after {mode:o}"), cx.look(&name));
    }
    Ok(seen)
}

fn by_chown(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for mode in MODES {
        let name = format!("f{mode:o}");
        prepare(cx, &name, mode)?;
        let owner = Identity::new(4000, 4000).groups(&[5000, 6000]);
        seen.see("to another group", owner.run(|| cx.chown(&name, 4000, 6000)));
        seen.see(format!("after {mode:o}"), cx.look(&name));
        cx.chmod(&name, mode)?;
        seen.see("by root", cx.chown(&name, 4001, 6000));
        seen.see("after root", cx.look(&name));
        cx.chmod(&name, mode)?;
        seen.see("nothing named", chownat(cx.dir(), name.as_str(), None, None, AtFlags::empty()));
        seen.see("after nothing", cx.look(&name));
    }
    cx.make_folder("d", 0o755)?;
    cx.chmod("d", 0o6755)?;
    seen.see("a folder", cx.chown("d", 4000, 5000));
    seen.see("keeps them", cx.look("d"));
    Ok(seen)
}

fn by_root(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for mode in MODES {
        let name = format!("f{mode:o}");
        prepare(cx, &name, mode)?;
        let fd = cx.open(&name, OFlags::RDWR)?;
        seen.see("truncate", ftruncate(&fd, 2));
        seen.see("after truncate", cx.mode(&name));
        seen.see("write", pwrite(&fd, b"root", 0));
        seen.see(format!("write {mode:o}"), cx.mode(&name));
        // What a write of root leaves is said above; the comparison of trees need not say it again.
        cx.chmod(&name, 0o644)?;
    }
    Ok(seen)
}

/// A file capability goes with every write, root's too.
fn capability(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    // Version 2, effective, CAP_NET_RAW.
    let value = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let name = "security.capability";
    cx.make("f", b"program")?;
    cx.chmod("f", 0o777)?;
    for who in [Identity::nobody(), Identity::same()] {
        seen.see("set", setxattr(cx.path("f"), name, &value, XattrFlags::empty()));
        seen.see("there", getxattr(cx.path("f"), name, &mut [0_u8; 64][..]));
        let wrote = who.run(|| pwrite(cx.open("f", OFlags::WRONLY)?, b"x", 0));
        seen.see("write", wrote);
        seen.see("gone", getxattr(cx.path("f"), name, &mut [0_u8; 64][..]));
    }
    seen.see("set once more", setxattr(cx.path("f"), name, &value, XattrFlags::empty()));
    seen.see("chown", cx.chown("f", 4000, 4000));
    seen.see("gone by chown", getxattr(cx.path("f"), name, &mut [0_u8; 64][..]));
    Ok(seen)
}

/// An owner who is not in the file's group cannot set setgid; one who is, can.
fn chmod_setgid(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    prepare(cx, "f", 0o755)?;
    let outside = Identity::new(4000, 4000);
    seen.see("outside", outside.run(|| cx.chmod("f", 0o2755)));
    seen.see("mode", cx.mode("f"));
    let inside = Identity::new(4000, 4000).groups(&[5000]);
    seen.see("inside", inside.run(|| cx.chmod("f", 0o2755)));
    seen.see("mode after", cx.mode("f"));
    cx.make_folder("d", 0o777)?;
    cx.chown("d", 0, 5000)?;
    cx.chmod("d", 0o2777)?;
    let flags = OFlags::RDWR | OFlags::CREATE;
    seen.see("create", outside.run(|| openat(cx.dir(), "d/x", flags, Mode::from_raw_mode(0o2775))));
    seen.see("in a setgid folder", cx.look("d/x"));
    Ok(seen)
}
