//! Folders: thousands of names, cookies, change while reading.

use std::collections::BTreeSet;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, mkdirat, mknodat, seek, symlinkat, unlinkat};

use crate::conformance::{Case, Ctx, Outcome};

pub(super) const CASES: &[Case] = &[
    Case::new("readdir/kinds", kinds),
    Case::new("readdir/thousands", thousands),
    Case::new("readdir/cookies", cookies),
    Case::new("readdir/change", change),
    Case::new("readdir/rewind", rewind),
    Case::new("readdir/removed", removed),
];

fn fill(cx: &Ctx, folder: &str, count: usize) -> anyhow::Result<()> {
    cx.make_folder(folder, 0o755)?;
    let fd = cx.open(folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
    for index in 0..count {
        mknodat(&fd, name(index), FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?;
    }
    Ok(())
}

fn name(index: usize) -> String {
    format!("a-name-of-some-length-{index:05}")
}

fn empty(cx: &Ctx, folder: &str) -> anyhow::Result<()> {
    let fd = cx.open(folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            unlinkat(&fd, entry.file_name(), AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Reads at most `count` names onward; says whether a name came twice.
fn onward(dir: &mut Dir, count: usize, into: &mut BTreeSet<String>) -> rustix::io::Result<usize> {
    let mut twice = 0;
    for entry in dir.by_ref().take(count) {
        if !into.insert(entry?.file_name().to_string_lossy().into_owned()) {
            twice += 1;
        }
    }
    Ok(twice)
}

fn kinds(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("file", b"")?;
    cx.make_folder("folder", 0o755)?;
    symlinkat("x", cx.dir(), "link")?;
    mknodat(cx.dir(), "pipe", FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
    let mut found = Vec::new();
    for entry in Dir::read_from(cx.dir())? {
        let entry = entry?;
        found.push(format!("{} {:?}", entry.file_name().to_string_lossy(), entry.file_type()));
    }
    found.sort();
    seen.see("entries", found);
    seen.see("an empty one", cx.names("folder"));
    seen.see("a file", cx.names("file"));
    Ok(seen)
}

fn thousands(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    fill(cx, "d", 3000)?;
    let names = cx.names("d")?;
    seen.see("count", names.len());
    let whole = names.iter().collect::<BTreeSet<_>>().len();
    seen.see("different", whole);
    seen.see("last", names.last().cloned());
    let walked = (0..3000).filter(|index| cx.statx(&format!("d/{}", name(*index))).is_ok()).count();
    seen.see("each can be looked at", walked);
    empty(cx, "d")?;
    seen.see("after removing all", cx.names("d"));
    Ok(seen)
}

/// The cookie of each entry leads to the entry after it.
fn cookies(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    fill(cx, "d", 600)?;
    let fd = cx.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut all = Vec::new();
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        all.push((entry.file_name().to_owned(), entry.offset()));
    }
    seen.see("entries", all.len());
    let mut wrong = 0;
    for index in (0..all.len() - 1).step_by(37).rev() {
        let cookie = u64::from_ne_bytes(all[index].1.to_ne_bytes());
        seek(&fd, SeekFrom::Start(cookie))?;
        let next = next_name(&fd)?;
        wrong += usize::from(next.as_deref() != Some(&all[index + 1].0));
    }
    seen.see("wrong answers", wrong);
    let last = u64::from_ne_bytes(all[all.len() - 1].1.to_ne_bytes());
    seek(&fd, SeekFrom::Start(last))?;
    seen.see("behind the last", next_name(&fd)?.is_none());
    empty(cx, "d")?;
    Ok(seen)
}

/// The name at the descriptor's own position, not at the start as [`Dir`] would.
fn next_name(fd: &std::os::fd::OwnedFd) -> rustix::io::Result<Option<std::ffi::CString>> {
    let mut room = Vec::with_capacity(4096);
    let mut raw = rustix::fs::RawDir::new(fd, room.spare_capacity_mut());
    match raw.next() {
        None => Ok(None),
        Some(entry) => Ok(Some(entry?.file_name().to_owned())),
    }
}

/// Names that were there all the time come exactly once, whatever happens around them.
fn change(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    fill(cx, "d", 1000)?;
    let fd = cx.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut dir = Dir::read_from(&fd)?;
    let mut found = BTreeSet::new();
    let mut twice = onward(&mut dir, 50, &mut found)?;
    for index in (0..1000).step_by(3) {
        unlinkat(&fd, name(index), AtFlags::empty())?;
    }
    for index in 1000..1300 {
        mknodat(&fd, name(index), FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?;
    }
    twice += onward(&mut dir, usize::MAX, &mut found)?;
    seen.see("twice", twice);
    let kept = (0..1000).filter(|index| index % 3 != 0);
    seen.see("lost", kept.filter(|index| !found.contains(&name(*index))).count());
    dir.rewind();
    let mut again = BTreeSet::new();
    seen.see("twice after rewind", onward(&mut dir, usize::MAX, &mut again)?);
    seen.see("names after rewind", again.len());
    empty(cx, "d")?;
    Ok(seen)
}

fn rewind(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o755)?;
    let fd = cx.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut dir = Dir::read_from(&fd)?;
    let mut found = BTreeSet::new();
    onward(&mut dir, usize::MAX, &mut found)?;
    seen.see("empty", found.len());
    mkdirat(&fd, "new", Mode::from_raw_mode(0o755))?;
    dir.rewind();
    found.clear();
    onward(&mut dir, usize::MAX, &mut found)?;
    seen.see("with one", found.into_iter().collect::<Vec<_>>());
    unlinkat(&fd, "new", AtFlags::REMOVEDIR)?;
    seen.see("by a fresh open", cx.names("d"));
    Ok(seen)
}

fn removed(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o755)?;
    let fd = cx.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    unlinkat(cx.dir(), "d", AtFlags::REMOVEDIR)?;
    let mut room = Vec::with_capacity(4096);
    let mut raw = rustix::fs::RawDir::new(&fd, room.spare_capacity_mut());
    let first = raw.next().map(|entry| entry.map(|entry| entry.file_name().to_bytes().to_vec()));
    seen.see("what a removed folder lists", first.map(|entry| entry.map(drop)).is_some_and(|entry| entry.is_ok()));
    seen.see("look inside", rustix::fs::statat(&fd, "x", AtFlags::empty()).map(drop));
    Ok(seen)
}
