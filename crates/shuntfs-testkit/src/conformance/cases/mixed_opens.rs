//! One file open in every mode at once: no open may fail because of another, and each sees the same bytes.

use rustix::fs::{AtFlags, Mode, OFlags, linkat, openat};
use rustix::io::{pread, pwrite};
use rustix::mm::ProtFlags;

use crate::conformance::{Case, Ctx, Outcome, ctx};
use crate::raw::Mapping;

pub(super) const CASES: &[Case] = &[
    Case::new("mixed-opens/all-modes", all_modes),
    Case::new("mixed-opens/pairs", pairs),
    Case::new("mixed-opens/created", created),
    Case::new("mixed-opens/partial-page", partial_page),
    Case::new("mixed-opens/mapping-and-reopen", mapping),
    Case::new("mixed-opens/hard-links", hard_links),
    Case::new("mixed-opens/threads", threads),
];

const MODES: [OFlags; 12] = [
    OFlags::RDONLY,
    OFlags::WRONLY,
    OFlags::RDWR,
    OFlags::WRONLY.union(OFlags::APPEND),
    OFlags::RDWR.union(OFlags::APPEND),
    OFlags::RDONLY.union(OFlags::DIRECT),
    OFlags::WRONLY.union(OFlags::DIRECT),
    OFlags::RDWR.union(OFlags::DIRECT),
    OFlags::RDWR.union(OFlags::SYNC),
    OFlags::WRONLY.union(OFlags::DSYNC),
    OFlags::RDONLY.union(OFlags::NOATIME),
    OFlags::RDONLY.union(OFlags::NONBLOCK),
];

fn all_modes(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", &[b'.'; 8192])?;
    let mut held = Vec::new();
    for round in 0..3 {
        for flags in MODES {
            match cx.open("f", flags) {
                Ok(fd) => held.push((flags, fd)),
                Err(error) => seen.see(format!("{flags:?} in round {round}"), rustix::io::Result::<()>::Err(error)),
            }
        }
    }
    seen.see("open", held.len());
    let writers = held.iter().filter(|(flags, _)| *flags == OFlags::WRONLY || *flags == OFlags::RDWR);
    for (index, (_, fd)) in writers.enumerate() {
        pwrite(fd, b"#", index as u64 * 100)?;
    }
    let mut views = Vec::new();
    for (_, fd) in held.iter().filter(|(flags, _)| *flags == OFlags::RDONLY || *flags == OFlags::RDWR) {
        views.push(ctx::read_all(fd)?);
    }
    views.dedup();
    seen.see("different views", views.len());
    seen.see("content", cx.read("f"));
    Ok(seen)
}

fn pairs(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", &[b'.'; 4096])?;
    let mut failed = 0;
    for first in MODES {
        for second in MODES {
            let one = cx.open("f", first);
            let other = cx.open("f", second);
            if one.is_err() || other.is_err() {
                failed += 1;
                seen.see(format!("{first:?} then {second:?}"), one.and(other));
            }
        }
    }
    seen.see("failed", failed);
    Ok(seen)
}

fn created(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for (index, flags) in MODES.into_iter().enumerate() {
        let name = format!("f{index}");
        let made = openat(cx.dir(), name.as_str(), flags | OFlags::CREATE | OFlags::EXCL, Mode::from_raw_mode(0o644));
        seen.see(format!("create {flags:?}"), made.as_ref().map(drop).map_err(|error| *error));
        for again in [OFlags::RDONLY, OFlags::RDWR, OFlags::WRONLY | OFlags::TRUNC] {
            if let Err(error) = cx.open(&name, again) {
                seen.see(format!("{again:?} beside it"), rustix::io::Result::<()>::Err(error));
            }
        }
    }
    Ok(seen)
}

/// A write-only open of a file whose pages are cached, with a write that covers no whole page.
fn partial_page(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", &[b'.'; 10_000])?;
    let reader = cx.open("f", OFlags::RDONLY)?;
    seen.see("cached", ctx::read_all(&reader));
    let writer = cx.open("f", OFlags::WRONLY)?;
    seen.see("in a page", pwrite(&writer, b"part", 5000));
    seen.see("over two pages", pwrite(&writer, b"border", 4093));
    seen.see("behind the end", pwrite(&writer, b"tail", 10_100));
    seen.see("by the reader", ctx::read_all(&reader));
    seen.see("by a fresh open", cx.read("f"));
    seen.see("below", std::fs::read(cx.lower("f")));
    cx.make("closed", b"0123456789")?;
    cx.chmod("closed", 0o200)?;
    let writer = cx.open("closed", OFlags::WRONLY)?;
    seen.see("into what cannot be read", pwrite(&writer, b"x", 5));
    seen.see("its bytes", cx.read("closed"));
    Ok(seen)
}

fn mapping(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &[b'.'; 4096])?;
    let map = Mapping::new(&fd, 4096, ProtFlags::READ | ProtFlags::WRITE, true)?;
    drop(fd);
    for flags in MODES {
        let fd = cx.open("f", flags);
        seen.see(format!("{flags:?}"), fd.as_ref().map(drop).map_err(|error| *error));
        map.store(0, b"s");
        drop(fd);
    }
    map.store(100, b"stored after");
    seen.see("read", cx.read("f"));
    let fd = cx.open("f", OFlags::RDWR)?;
    pwrite(&fd, b"written", 200)?;
    seen.see("loaded", map.load(198, 11));
    Ok(seen)
}

fn hard_links(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("a", &[b'.'; 100])?;
    linkat(cx.dir(), "a", cx.dir(), "b", AtFlags::empty())?;
    let (one, other) = (cx.open("a", OFlags::RDWR)?, cx.open("b", OFlags::RDWR)?);
    seen.see("a", pwrite(&one, b"by a", 0));
    let mut room = [0_u8; 8];
    pread(&other, &mut room, 0)?;
    seen.see("read by b", room);
    pwrite(&other, b"by b", 96)?;
    pwrite(&other, b"longer", 100)?;
    seen.see("size of a", ctx::describe_fd(&one));
    seen.see("a reads", ctx::read_all(&one));
    Ok(seen)
}

fn threads(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", &[b'.'; 4096])?;
    let failed: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6_usize)
            .map(|worker| {
                scope.spawn(move || {
                    let flags = |round: usize| MODES[(round + 2 * worker) % MODES.len()];
                    (0..60).filter(|round| cx.open("f", flags(*round)).is_err()).count()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(1000)).sum()
    });
    seen.see("failed opens", failed);
    seen.see("content", cx.read("f"));
    Ok(seen)
}
