//! copy_file_range, sendfile, splice and reflinks.

use rustix::fs::{OFlags, copy_file_range, fstat, ioctl_ficlone, sendfile};
use rustix::io::pwrite;

use crate::conformance::{Case, Ctx, Limit, Outcome, ctx};
use crate::raw::shares_extents;

pub(super) const CASES: &[Case] = &[
    Case::new("copy/ranges", ranges),
    Case::new("copy/errors", errors),
    Case::new("copy/sharing", sharing),
    Case::new("copy/sendfile", send),
    Case::new("copy/cached", cached),
    Case::limited("copy/clone", clone, &[Limit::always("clone", "EOPNOTSUPP", CLONE)]),
];

const CLONE: &str = "fs/fuse has no remap_file_range: FICLONE never reaches a server";

fn content(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at / 13).to_le_bytes()[0]).collect()
}

fn ranges(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let from = cx.make("from", &content(300_000))?;
    let to = cx.make("to", b"")?;
    let (mut source, mut target) = (0, 0);
    seen.see("all", copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 300_000));
    seen.see("source", source);
    seen.see("target", target);
    seen.see("equal", cx.read("from")? == cx.read("to")?);
    let (mut source, mut target) = (1000, 7);
    seen.see("a part", copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 5000));
    seen.see("content", cx.read("to"));
    let (mut source, mut target) = (299_000, 400_000);
    seen.see("over the end", copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 5000));
    seen.see("size", cx.look("to"));
    let mut source = 300_000;
    seen.see("at the end", copy_file_range(&from, Some(&mut source), &to, None, 10));
    let (mut source, mut target) = (0, 200_000);
    seen.see("inside one file", copy_file_range(&to, Some(&mut source), &to, Some(&mut target), 4096));
    seen.see("after", cx.read("to"));
    Ok(seen)
}

fn errors(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let from = cx.make("from", &content(10_000))?;
    let to = cx.make("to", b"")?;
    let (mut source, mut target) = (0, 100);
    seen.see("overlapping", copy_file_range(&from, Some(&mut source), &from, Some(&mut target), 5000));
    let reader = cx.open("to", OFlags::RDONLY)?;
    seen.see("to a reader", copy_file_range(&from, None, &reader, None, 10));
    let writer = cx.open("from", OFlags::WRONLY)?;
    seen.see("from a writer", copy_file_range(&writer, None, &to, None, 10));
    let append = cx.open("to", OFlags::WRONLY | OFlags::APPEND)?;
    seen.see("to an appender", copy_file_range(&from, None, &append, None, 10));
    let folder = cx.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    seen.see("from a folder", copy_file_range(&folder, None, &to, None, 10));
    Ok(seen)
}

/// On XFS and Btrfs a copy shares its blocks; on the other lower file systems this says how it is there.
fn sharing(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let len = 1 << 20;
    let from = cx.make("from", &content(1 << 20))?;
    rustix::fs::fsync(&from)?;
    let to = cx.make("to", b"")?;
    let (mut source, mut target) = (0, 0);
    let copied = copy_file_range(&from, Some(&mut source), &to, Some(&mut target), len);
    seen.see("copied", copied);
    rustix::fs::fsync(&to)?;
    seen.see("equal", cx.read("from")? == cx.read("to")?);
    // FUSE answers no FIEMAP, so the lower file is asked.
    let below = std::fs::File::open(cx.lower("to"))?;
    seen.see("shares blocks", shares_extents(&below));
    Ok(seen)
}

fn send(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let from = cx.make("from", &content(100_000))?;
    let to = cx.make("to", b"")?;
    let mut offset = 10;
    let mut left: usize = 99_990;
    while left > 0 {
        let sent = sendfile(&to, &from, Some(&mut offset), left)?;
        anyhow::ensure!(sent > 0, "sendfile stopped");
        left -= sent;
    }
    seen.see("offset", offset);
    seen.see("content", cx.read("to"));
    seen.see("size", fstat(&to)?.st_size);
    Ok(seen)
}

/// What a copy done below replaces must not be seen in a page that was read before.
fn cached(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let from = cx.make("from", &content(20_000))?;
    let to = cx.make("to", &vec![b'o'; 20_000])?;
    let reader = cx.open("to", OFlags::RDONLY)?;
    seen.see("before", ctx::read_all(&reader));
    pwrite(&from, b"fresh", 4096)?;
    let (mut source, mut target) = (4096, 8192);
    seen.see("copied", copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 4096));
    seen.see("by the reader", ctx::read_all(&reader));
    seen.see("by a fresh open", cx.read("to"));
    seen.see("look", cx.look("to"));
    Ok(seen)
}

fn clone(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let from = cx.make("from", &content(65_536))?;
    let to = cx.make("to", b"")?;
    seen.see("clone", ioctl_ficlone(&to, &from));
    rustix::fs::unlinkat(cx.dir(), "to", rustix::fs::AtFlags::empty())?;
    Ok(seen)
}
