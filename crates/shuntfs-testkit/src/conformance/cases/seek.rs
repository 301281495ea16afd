//! lseek, holes, and the far end of files.

use rustix::fs::{OFlags, SeekFrom, ftruncate, seek};
use rustix::io::{pread, pwrite, read, write};

use crate::conformance::{Case, Ctx, Outcome};

pub(super) const CASES: &[Case] = &[
    Case::new("seek/holes", holes),
    Case::new("seek/positions", positions),
    Case::new("seek/sparse", sparse),
    Case::new("seek/limit", limit),
    Case::new("seek/read-edges", read_edges),
];

const MIB: u64 = 1 << 20;

fn holes(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.create("f", 0o644)?;
    pwrite(&fd, &[1; 65536], 0)?;
    pwrite(&fd, &[2; 65536], 4 * MIB)?;
    ftruncate(&fd, 8 * MIB)?;
    rustix::fs::fsync(&fd)?;
    for at in [0, 65536, MIB, 4 * MIB, 4 * MIB + 70_000, 8 * MIB - 1, 8 * MIB, 9 * MIB] {
        seen.see(format!("data from {at}"), seek(&fd, SeekFrom::Data(at)));
        seen.see(format!("hole from {at}"), seek(&fd, SeekFrom::Hole(at)));
    }
    let empty = cx.create("empty", 0o644)?;
    seen.see("data in nothing", seek(&empty, SeekFrom::Data(0)));
    seen.see("hole in nothing", seek(&empty, SeekFrom::Hole(0)));
    Ok(seen)
}

fn positions(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"0123456789")?;
    seen.see("set", seek(&fd, SeekFrom::Start(4)));
    let mut room = [0_u8; 3];
    seen.see("read", read(&fd, &mut room));
    seen.see("room", room);
    seen.see("current", seek(&fd, SeekFrom::Current(-1)));
    seen.see("write", write(&fd, b"XY"));
    seen.see("before the start", seek(&fd, SeekFrom::Current(-100)));
    seen.see("beyond the end", seek(&fd, SeekFrom::End(100)));
    seen.see("write there", write(&fd, b"!"));
    seen.see("content", cx.read("f"));
    let other = cx.open("f", OFlags::RDWR)?;
    ftruncate(&other, 3)?;
    seen.see("end after another's truncate", seek(&fd, SeekFrom::End(0)));
    pwrite(&other, b"grown", 20)?;
    seen.see("end after another's write", seek(&fd, SeekFrom::End(0)));
    Ok(seen)
}

fn sparse(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.create("f", 0o644)?;
    let far = 3_u64 << 40;
    seen.see("write at 3 TiB", pwrite(&fd, b"far", far));
    seen.see("size", cx.look("f"));
    seen.see("few blocks", cx.statx("f")?.stx_blocks < 10_000);
    let mut room = [9_u8; 6];
    seen.see("read around", pread(&fd, &mut room, far - 3));
    seen.see("room", room);
    seen.see("read in the middle", pread(&fd, &mut room, 1 << 40));
    seen.see("middle", room);
    // Nobody reads three tebibytes of zeroes for the comparison of trees.
    ftruncate(&fd, 10)?;
    seen.see("cut", cx.read("f"));
    Ok(seen)
}

/// The largest size is the lower file system's own: ext4 ends at 16 TiB, XFS at 8 EiB.
fn limit(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.create("f", 0o644)?;
    for shift in [40, 43, 44, 45, 50, 55, 60, 62] {
        seen.see(format!("truncate to 1 << {shift}"), ftruncate(&fd, 1 << shift));
        ftruncate(&fd, 0)?;
    }
    seen.see("truncate to the last byte", ftruncate(&fd, i64::MAX.unsigned_abs()));
    ftruncate(&fd, 0)?;
    for shift in [43, 44, 62] {
        let far: u64 = 1 << shift;
        seen.see(format!("write at 1 << {shift}"), pwrite(&fd, b"x", far));
        seen.see(format!("write before 1 << {shift}"), pwrite(&fd, b"x", far - 8192));
        ftruncate(&fd, 0)?;
    }
    Ok(seen)
}

fn read_edges(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let content: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let fd = cx.make("f", &content)?;
    let mut room = vec![0_u8; 300_000];
    for (at, len) in [(0, 1), (4095, 2), (131_071, 70_000), (199_999, 10), (200_000, 1), (1 << 40, 10), (5, 0)] {
        let found = pread(&fd, &mut room[..len], at);
        seen.see(format!("{len} at {at}"), found);
        seen.see("bytes", &room[..found.unwrap_or(0)]);
    }
    seen.see("a write of nothing", pwrite(&fd, b"", 5));
    let folder = cx.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    seen.see("read a folder", read(&folder, &mut room[..10]));
    seen.see("write-only", read(cx.open("f", OFlags::WRONLY)?, &mut room[..10]));
    seen.see("read-only", write(cx.open("f", OFlags::RDONLY)?, b"x"));
    Ok(seen)
}
