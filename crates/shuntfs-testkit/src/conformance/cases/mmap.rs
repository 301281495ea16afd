//! Mappings: shared, private, executable, and their ends.

use rustix::fs::{OFlags, ftruncate};
use rustix::io::{pread, pwrite};
use rustix::mm::ProtFlags;

use crate::conformance::{Case, Ctx, Outcome, Seen};
use crate::helper::Helper;
use crate::raw::Mapping;

pub(super) const CASES: &[Case] = &[
    Case::new("mmap/shared", shared),
    Case::new("mmap/private", private),
    Case::new("mmap/after-close", after_close),
    Case::new("mmap/two", two),
    Case::new("mmap/executable", executable),
    Case::new("mmap/refused", refused),
    Case::new("mmap/beyond-end", beyond_end),
    Case::new("mmap/large", large),
];

const PAGE: usize = 4096;
const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn shared(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &[b'.'; 2 * PAGE])?;
    let map = Mapping::new(&fd, 2 * PAGE, BOTH, true)?;
    seen.see("as written", map.load(PAGE - 2, 4));
    map.store(PAGE - 1, b"XYZ");
    let mut room = [0_u8; 5];
    seen.see("read", pread(&fd, &mut room, 4094));
    seen.see("a store is read", room);
    pwrite(&fd, b"written", 100)?;
    seen.see("a write is loaded", map.load(99, 9));
    seen.see("msync", map.sync());
    seen.see("by a fresh open", cx.read("f"));
    seen.see("below", std::fs::read(cx.lower("f")));
    drop(map);
    Ok(seen)
}

fn private(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &[b'.'; PAGE])?;
    let map = Mapping::new(&fd, PAGE, BOTH, false)?;
    map.store(0, b"mine");
    seen.see("the file", cx.read("f"));
    seen.see("the mapping", map.load(0, 6));
    let reader = cx.open("f", OFlags::RDONLY)?;
    let map = Mapping::new(&reader, PAGE, BOTH, false)?;
    map.store(1, b"also mine");
    seen.see("through a reader", map.load(0, 12));
    seen.see("the file again", cx.read("f"));
    Ok(seen)
}

fn after_close(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &[b'.'; PAGE])?;
    let map = Mapping::new(&fd, PAGE, BOTH, true)?;
    drop(fd);
    map.store(10, b"after close");
    seen.see("loaded", map.load(8, 15));
    seen.see("msync", map.sync());
    seen.see("by a fresh open", cx.read("f"));
    let fd = cx.open("f", OFlags::RDWR)?;
    pwrite(&fd, b"seen?", 0)?;
    seen.see("a later write is loaded", map.load(0, 8));
    rustix::fs::unlinkat(cx.dir(), "f", rustix::fs::AtFlags::empty())?;
    map.store(0, b"gone");
    seen.see("after unlink", map.load(0, 8));
    Ok(seen)
}

fn two(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &[0; PAGE])?;
    let reader = cx.open("f", OFlags::RDONLY)?;
    let writing = Mapping::new(&fd, PAGE, BOTH, true)?;
    let reading = Mapping::new(&reader, PAGE, ProtFlags::READ, true)?;
    writing.store(7, b"shared");
    seen.see("the other mapping", reading.load(6, 8));
    Ok(seen)
}

fn executable(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let program = std::fs::read("/bin/true")?;
    cx.make("true", &program)?;
    cx.chmod("true", 0o755)?;
    seen.see("run", std::process::Command::new(cx.path("true")).status().map(|status| status.code()));
    seen.see("run again", std::process::Command::new(cx.path("true")).status().map(|status| status.code()));
    let sleep = std::fs::read("/bin/sleep")?;
    cx.make("sleep", &sleep)?;
    cx.chmod("sleep", 0o755)?;
    let mut child = std::process::Command::new(cx.path("sleep")).arg("30").spawn()?;
    seen.see("write while it runs", cx.open("sleep", OFlags::WRONLY));
    seen.see("read while it runs", cx.open("sleep", OFlags::RDONLY));
    child.kill()?;
    child.wait()?;
    let held = cx.open("true", OFlags::WRONLY)?;
    seen.see("run while written", std::process::Command::new(cx.path("true")).status().map(|s| s.code()));
    drop(held);
    cx.chmod("true", 0o644)?;
    seen.see("run without x", std::process::Command::new(cx.path("true")).status().map(|s| s.code()));
    let fd = cx.open("sleep", OFlags::RDONLY)?;
    let map = Mapping::new(&fd, PAGE, ProtFlags::READ | ProtFlags::EXEC, false)?;
    seen.see("mapped for execution", map.load(0, 4));
    Ok(seen)
}

fn refused(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", &[0; PAGE])?;
    let mapped = |fd, protection, shared| Mapping::new(fd, PAGE, protection, shared).map(drop).seen();
    let writer = cx.open("f", OFlags::WRONLY)?;
    seen.see("write-only", mapped(&writer, ProtFlags::READ, true));
    let reader = cx.open("f", OFlags::RDONLY)?;
    seen.see("stores by a reader", mapped(&reader, BOTH, true));
    let folder = cx.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    seen.see("a folder", mapped(&folder, ProtFlags::READ, true));
    Ok(seen)
}

fn beyond_end(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"short")?;
    let helper = Helper::spawn(&[&"fault", &cx.path("f")])?;
    seen.see("tail of the last page", helper.line()?);
    seen.see("a page further", helper.finish()?);
    ftruncate(&fd, 3 * 4096)?;
    let map = Mapping::new(&fd, 3 * PAGE, BOTH, true)?;
    map.store(2 * PAGE, b"far");
    ftruncate(&fd, 4096)?;
    ftruncate(&fd, 3 * 4096)?;
    seen.see("cut and grown", map.load(2 * PAGE, 4));
    Ok(seen)
}

fn large(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let len = 3 * 1024 * 1024 + 17;
    let content: Vec<u8> = (0..len).map(|at| u8::try_from((at / 7) % 251).unwrap_or(0)).collect();
    cx.make("f", &content)?;
    let fd = cx.open("f", OFlags::RDWR)?;
    let map = Mapping::new(&fd, len, BOTH, true)?;
    seen.see("whole", map.load(0, len));
    for page in (0..len - 8).step_by(64 * 1024) {
        map.store(page, b"dirty!");
    }
    drop(map);
    seen.see("after stores", cx.read("f"));
    Ok(seen)
}
