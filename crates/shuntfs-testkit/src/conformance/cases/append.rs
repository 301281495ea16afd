//! O_APPEND: written once, in place, with several writers.

use rustix::fs::{OFlags, SeekFrom, ftruncate, seek};
use rustix::io::{pread, pwrite, write};

use crate::conformance::{Case, Ctx, Outcome};
use crate::helper::Helper;

pub(super) const CASES: &[Case] = &[
    Case::new("append/in-place", in_place),
    Case::new("append/two-descriptors", two_descriptors),
    Case::new("append/beside-others", beside_others),
    Case::new("append/processes", processes),
    Case::new("append/later", later),
];

const APPEND: OFlags = OFlags::WRONLY.union(OFlags::APPEND);

fn in_place(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"head\n")?;
    let fd = cx.open("f", APPEND)?;
    for line in ["one\n", "two\n", "three\n"] {
        seen.see(line, write(&fd, line.as_bytes()));
    }
    seen.see("position", seek(&fd, SeekFrom::Current(0)));
    seen.see("content", cx.read("f"));
    seen.see("pwrite appends, too", pwrite(&fd, b"pwrite\n", 0));
    seen.see("content after", cx.read("f"));
    seen.see("below", std::fs::read(cx.lower("f")));
    Ok(seen)
}

fn two_descriptors(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    let (one, other) = (cx.open("f", APPEND)?, cx.open("f", OFlags::RDWR | OFlags::APPEND)?);
    for _ in 0..50 {
        write(&one, b"one ")?;
        write(&other, b"other ")?;
    }
    seen.see("content", cx.read("f"));
    let mut head = [0_u8; 10];
    seen.see("read by an appender", pread(&other, &mut head, 0));
    seen.see("head", head);
    Ok(seen)
}

fn beside_others(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let plain = cx.make("f", b"0123456789")?;
    let append = cx.open("f", APPEND)?;
    pwrite(&plain, b"far", 5000)?;
    write(&append, b"end")?;
    seen.see("after a far write", cx.look("f"));
    ftruncate(&plain, 4)?;
    write(&append, b"tail")?;
    seen.see("after a truncate", cx.read("f"));
    pwrite(&plain, b"AB", 0)?;
    seen.see("after an overwrite", cx.read("f"));
    // More than one page at once, off its borders.
    write(&append, &[b'x'; 70_000])?;
    seen.see("after a large one", cx.read("f"));
    Ok(seen)
}

fn processes(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    let path = cx.path("f");
    let letters = ["a", "b", "c"];
    let helpers = letters
        .iter()
        .map(|letter| Helper::spawn(&[&"append", &path, letter, &"200"]))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for helper in helpers {
        seen.see("helper", helper.line()?);
        seen.see("ended", helper.finish()?);
    }
    let all = cx.read("f")?;
    seen.see("len", all.len());
    for letter in letters {
        let line = format!("{}\n", letter.repeat(99));
        let whole = all.split_inclusive(|byte| *byte == b'\n').filter(|found| *found == line.as_bytes()).count();
        seen.see(format!("whole lines of {letter}"), whole);
    }
    // The order of the lines is chance; what is left for the comparison of trees must not be.
    ftruncate(cx.open("f", OFlags::WRONLY)?, 0)?;
    Ok(seen)
}

fn later(cx: &Ctx) -> Outcome {
    use rustix::fs::{fcntl_getfl, fcntl_setfl};
    let mut seen = cx.observe();
    let fd = cx.make("f", b"0123456789")?;
    let flags = fcntl_getfl(&fd)?;
    fcntl_setfl(&fd, flags | OFlags::APPEND)?;
    seen.see("set by fcntl", pwrite(&fd, b"end", 0));
    seen.see("content", cx.read("f"));
    fcntl_setfl(&fd, flags)?;
    seen.see("cleared again", pwrite(&fd, b"start", 0));
    seen.see("content after", cx.read("f"));
    Ok(seen)
}
