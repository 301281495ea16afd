//! What fits nowhere else: vectors, advice, watches, handles, working folders.

use std::io::{IoSlice, IoSliceMut};

use rustix::fs::{Advice, AtFlags, Mode, OFlags, fadvise, inotify, openat, renameat, unlinkat};
use rustix::io::{preadv, pwrite, pwritev};

use crate::conformance::{Case, Ctx, Outcome, ctx};
use crate::identity::Identity;

pub(super) const CASES: &[Case] = &[
    Case::new("misc/vectors", vectors),
    Case::new("misc/advice", advice),
    Case::new("misc/inotify", watches),
    Case::new("misc/working-folder", working_folder),
    Case::new("misc/stale-pages", stale_pages),
    Case::new("misc/concurrent-creates", concurrent),
    Case::new("misc/reads-and-writes", random),
];

fn vectors(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.create("f", 0o644)?;
    let pieces = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(&[b'2'; 5000]), IoSlice::new(b"three")];
    seen.see("write", pwritev(&fd, &pieces, 7));
    let (mut one, mut other) = ([0_u8; 10], [0_u8; 6000]);
    let found = preadv(&fd, &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)], 0);
    seen.see("read", found);
    seen.see("first", one);
    seen.see("second", other);
    Ok(seen)
}

fn advice(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &[b'a'; 100_000])?;
    for advice in [Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed, Advice::Normal] {
        seen.see(format!("{advice:?}"), fadvise(&fd, 0, None, advice));
        pwrite(&fd, b"b", 50)?;
        seen.see("content", ctx::read_all(&fd));
    }
    Ok(seen)
}

fn watches(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let watcher = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    let events = inotify::WatchFlags::CREATE
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::MODIFY
        | inotify::WatchFlags::MOVE
        | inotify::WatchFlags::CLOSE_WRITE;
    inotify::add_watch(&watcher, cx.path("."), events)?;
    let fd = cx.create("f", 0o644)?;
    pwrite(&fd, b"x", 0)?;
    drop(fd);
    renameat(cx.dir(), "f", cx.dir(), "g")?;
    unlinkat(cx.dir(), "g", AtFlags::empty())?;
    let mut room = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(&watcher, &mut room);
    let mut found = Vec::new();
    while let Ok(event) = reader.next() {
        let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
        found.push(format!("{:?} {}", event.events(), name.unwrap_or_default()));
    }
    seen.see("events", found);
    Ok(seen)
}

fn working_folder(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o755)?;
    cx.make_folder("d/e", 0o755)?;
    let answer = Identity::same().run(|| -> anyhow::Result<(String, String)> {
        rustix::process::fchdir(cx.open("d/e", OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        let before = rustix::process::getcwd(Vec::new())?.to_string_lossy().into_owned();
        renameat(cx.dir(), "d", cx.dir(), "moved")?;
        let after = rustix::process::getcwd(Vec::new())?.to_string_lossy().into_owned();
        let tail = |path: &str| path.rsplit('/').take(2).collect::<Vec<_>>().join("<");
        Ok((tail(&before), tail(&after)))
    })?;
    seen.see("before", answer.0);
    seen.see("after a rename", answer.1);
    let answer = Identity::same().run(|| -> rustix::io::Result<()> {
        rustix::process::fchdir(cx.open("moved/e", OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        unlinkat(cx.dir(), "moved/e", AtFlags::REMOVEDIR)?;
        rustix::process::getcwd(Vec::new()).map(drop)
    });
    seen.see("getcwd in what is gone", answer);
    Ok(seen)
}

/// Truncated and grown again: zeroes, never what was there before.
fn stale_pages(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &[b'o'; 20_000])?;
    let reader = cx.open("f", OFlags::RDONLY)?;
    seen.see("full", ctx::read_all(&reader));
    for (cut, grown) in [(5000, 20_000), (1, 4096), (0, 100)] {
        rustix::fs::ftruncate(&fd, cut)?;
        rustix::fs::ftruncate(&fd, grown)?;
        seen.see(format!("{cut} to {grown}"), ctx::read_all(&reader));
    }
    pwrite(&fd, b"far", 9000)?;
    seen.see("a far write", ctx::read_all(&reader));
    drop(openat(cx.dir(), "f", OFlags::WRONLY | OFlags::TRUNC, Mode::empty())?);
    pwrite(&fd, b"z", 300)?;
    seen.see("after O_TRUNC", ctx::read_all(&reader));
    Ok(seen)
}

fn concurrent(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let won: usize = std::thread::scope(|scope| {
        let create = || {
            let made = |index: &usize| openat(cx.dir(), format!("f{index}"), flags, Mode::from_raw_mode(0o644)).is_ok();
            (0..100).filter(made).count()
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(create)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum()
    });
    seen.see("each was made once", won);
    seen.see("names", cx.names("."));
    Ok(seen)
}

/// A fixed sequence of writes, truncates and reads, each read compared with a model in memory.
fn random(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.create("f", 0o644)?;
    let mut model: Vec<u8> = Vec::new();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap_or(0)
    };
    for step in 0..300_usize {
        let (at, len) = (draw(300_000), 1 + draw(20_000));
        match draw(4) {
            0 | 1 => {
                let bytes = vec![u8::try_from(step % 251).unwrap_or(0); len];
                pwrite(&fd, &bytes, at as u64)?;
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&bytes);
            }
            2 if step % 5 == 0 => {
                rustix::fs::ftruncate(&fd, at as u64)?;
                model.resize(at, 0);
            }
            _ => {
                let mut room = vec![0_u8; len];
                let found = rustix::io::pread(&fd, &mut room[..], at as u64)?;
                let expected = model.get(at..model.len().min(at + len)).unwrap_or_default();
                anyhow::ensure!(&room[..found] == expected, "step {step}: {len} bytes at {at} differ");
            }
        }
    }
    seen.see("at last", cx.read("f"));
    Ok(seen)
}
