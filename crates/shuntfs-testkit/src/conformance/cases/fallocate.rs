//! fallocate in every mode.

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};

use crate::conformance::{Case, Ctx, Limit, Outcome, ctx};

pub(super) const CASES: &[Case] = &[
    Case::new("fallocate/grow", grow),
    Case::new("fallocate/keep-size", keep_size),
    Case::new("fallocate/punch", punch),
    Case::new("fallocate/zero", zero),
    Case::new("fallocate/errors", errors),
    Case::limited(
        "fallocate/shift",
        shift,
        &[
            Limit::always("collapse", "EOPNOTSUPP", SHIFT),
            Limit::always("insert", "EOPNOTSUPP", SHIFT),
            Limit::always("unshare", "EOPNOTSUPP", SHIFT),
        ],
    ),
];

const SHIFT: &str = "fs/fuse/file.c, fuse_file_fallocate: only KEEP_SIZE, PUNCH_HOLE and ZERO_RANGE reach a server";

/// A multiple of every block size that the lower file systems use.
const BLOCK: u64 = 65536;

fn content() -> Vec<u8> {
    vec![b'd'; 4 * 65536]
}

fn grow(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"head")?;
    seen.see("grow", fallocate(&fd, FallocateFlags::empty(), 0, BLOCK));
    seen.see("size", cx.look("f"));
    seen.see("blocks", cx.statx("f")?.stx_blocks >= BLOCK / 512);
    seen.see("inside", fallocate(&fd, FallocateFlags::empty(), 10, 20));
    seen.see("far", fallocate(&fd, FallocateFlags::empty(), 10 * BLOCK, BLOCK));
    seen.see("size after", cx.look("f"));
    seen.see("end", seek(&fd, SeekFrom::End(0)));
    seen.see("content", cx.read("f"));
    Ok(seen)
}

fn keep_size(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"head")?;
    seen.see("keep", fallocate(&fd, FallocateFlags::KEEP_SIZE, 0, 4 * BLOCK));
    seen.see("size", cx.look("f"));
    seen.see("blocks", cx.statx("f")?.stx_blocks >= 4 * BLOCK / 512);
    seen.see("content", cx.read("f"));
    Ok(seen)
}

fn punch(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &content())?;
    let reader = cx.open("f", OFlags::RDONLY)?;
    seen.see("cached", ctx::read_all(&reader));
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    seen.see("punch", fallocate(&fd, flags, BLOCK, BLOCK));
    seen.see("off the borders", fallocate(&fd, flags, 3 * BLOCK + 5, 100));
    seen.see("content", ctx::read_all(&reader));
    seen.see("size", cx.look("f"));
    seen.see("hole", seek(&fd, SeekFrom::Hole(0)));
    seen.see("data", seek(&fd, SeekFrom::Data(BLOCK)));
    seen.see("beyond the end", fallocate(&fd, flags, 100 * BLOCK, BLOCK));
    seen.see("without keep", fallocate(&fd, FallocateFlags::PUNCH_HOLE, 0, BLOCK));
    Ok(seen)
}

fn zero(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &content())?;
    seen.see("zero", fallocate(&fd, FallocateFlags::ZERO_RANGE, BLOCK + 3, 1000));
    seen.see("content", cx.read("f"));
    seen.see("growing", fallocate(&fd, FallocateFlags::ZERO_RANGE, 4 * BLOCK, BLOCK));
    seen.see("size", cx.look("f"));
    let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    seen.see("keeping", fallocate(&fd, keep, 8 * BLOCK, BLOCK));
    seen.see("size kept", cx.look("f"));
    Ok(seen)
}

fn errors(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"x")?;
    let reader = cx.open("f", OFlags::RDONLY)?;
    seen.see("a reader", fallocate(&reader, FallocateFlags::empty(), 0, 10));
    let fd = cx.open("f", OFlags::RDWR)?;
    seen.see("nothing", fallocate(&fd, FallocateFlags::empty(), 0, 0));
    seen.see("too far", fallocate(&fd, FallocateFlags::empty(), 1 << 62, 1 << 61));
    let folder = cx.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    seen.see("a folder", fallocate(&folder, FallocateFlags::empty(), 0, 10));
    seen.see("size", cx.look("f"));
    Ok(seen)
}

fn shift(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for (label, flags) in [
        ("collapse", FallocateFlags::COLLAPSE_RANGE),
        ("insert", FallocateFlags::INSERT_RANGE),
        ("unshare", FallocateFlags::UNSHARE_RANGE),
    ] {
        let fd = cx.make("f", &content())?;
        seen.see(label, fallocate(&fd, flags, BLOCK, BLOCK));
        // What it did or did not do must not be left for the comparison of trees.
        rustix::fs::unlinkat(cx.dir(), "f", rustix::fs::AtFlags::empty())?;
    }
    Ok(seen)
}
