//! O_DIRECT: what is aligned works, and is seen by who reads through pages.

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{pread, pwrite};

use crate::conformance::{Case, Ctx, Outcome, ctx};

pub(super) const CASES: &[Case] =
    &[Case::new("direct/aligned", aligned), Case::new("direct/mixed", mixed), Case::new("direct/append", append)];

const BLOCK: usize = 4096;

/// Bytes at an address that every file system takes.
struct Aligned {
    room: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize, fill: u8) -> Self {
        let mut room = vec![0; len + BLOCK];
        let start = room.as_ptr().align_offset(BLOCK);
        room[start..start + len].fill(fill);
        Self { room, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + self.len]
    }
}

fn aligned(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT;
    let fd = openat(cx.dir(), "f", flags, Mode::from_raw_mode(0o644));
    seen.see("open", fd.as_ref().map(drop).map_err(|error| *error));
    let Ok(fd) = fd else { return Ok(seen) };
    for (at, len) in [(0, BLOCK), (16 * BLOCK, 64 * BLOCK), (4 * BLOCK, BLOCK)] {
        let mut block = Aligned::new(len, b'd');
        seen.see(format!("write {len} at {at}"), pwrite(&fd, block.bytes(), at as u64));
    }
    let mut block = Aligned::new(80 * BLOCK, 0);
    seen.see("read", pread(&fd, block.bytes(), 0));
    seen.see("bytes", &block.bytes()[..]);
    seen.see("at the end", pread(&fd, block.bytes(), 80 * BLOCK as u64));
    seen.see("over the end", pread(&fd, block.bytes(), 79 * BLOCK as u64));
    seen.see("by pages", cx.read("f"));
    seen.see("below", std::fs::read(cx.lower("f")));
    Ok(seen)
}

fn mixed(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let pages = cx.make("f", &[b'p'; 8 * BLOCK])?;
    let direct = cx.open("f", OFlags::RDWR | OFlags::DIRECT)?;
    let mut block = Aligned::new(BLOCK, 0);
    seen.see("pages read by direct", pread(&direct, block.bytes(), 0));
    seen.see("bytes", &block.bytes()[..]);
    seen.see("cached", ctx::read_all(&pages));
    let mut other = Aligned::new(BLOCK, b'D');
    seen.see("written by direct", pwrite(&direct, other.bytes(), BLOCK as u64));
    seen.see("seen by pages", ctx::read_all(&pages));
    pwrite(&pages, b"small", 10)?;
    seen.see("read again", pread(&direct, block.bytes(), 0));
    seen.see("seen by direct", &block.bytes()[..]);
    Ok(seen)
}

fn append(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", &[b'a'; BLOCK])?;
    let fd = cx.open("f", OFlags::WRONLY | OFlags::DIRECT | OFlags::APPEND)?;
    for _ in 0..3 {
        let mut block = Aligned::new(BLOCK, b'b');
        seen.see("append", rustix::io::write(&fd, block.bytes()));
    }
    seen.see("content", cx.read("f"));
    Ok(seen)
}
