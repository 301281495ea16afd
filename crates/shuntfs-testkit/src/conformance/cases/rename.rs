//! rename, with and without flags.

use rustix::fs::{OFlags, RenameFlags, renameat, renameat_with, symlinkat};
use rustix::io::pwrite;

use crate::conformance::{Case, Ctx, Outcome, ctx};

pub(super) const CASES: &[Case] = &[
    Case::new("rename/files", files),
    Case::new("rename/folders", folders),
    Case::new("rename/noreplace", noreplace),
    Case::new("rename/exchange", exchange),
    Case::new("rename/whiteout", whiteout),
    Case::new("rename/open-files", open_files),
    Case::new("rename/hard-links", hard_links),
];

fn files(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("a", b"a")?;
    cx.make("b", b"b")?;
    cx.make_folder("d", 0o755)?;
    let before = cx.statx("a")?.stx_ino;
    seen.see("to a new name", renameat(cx.dir(), "a", cx.dir(), "c"));
    seen.see("same inode", cx.statx("c")?.stx_ino == before);
    seen.see("old name", cx.look("a"));
    seen.see("over a file", renameat(cx.dir(), "c", cx.dir(), "b"));
    seen.see("content", cx.read("b"));
    seen.see("into a folder", renameat(cx.dir(), "b", cx.dir(), "d/b"));
    seen.see("over a folder", renameat(cx.dir(), "d/b", cx.dir(), "d"));
    seen.see("missing", renameat(cx.dir(), "a", cx.dir(), "z"));
    seen.see("to itself", renameat(cx.dir(), "d/b", cx.dir(), "d/b"));
    symlinkat("d/b", cx.dir(), "s")?;
    seen.see("a symlink", renameat(cx.dir(), "s", cx.dir(), "t"));
    seen.see("names", cx.names("."));
    seen.see("names in d", cx.names("d"));
    Ok(seen)
}

fn folders(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for name in ["a", "a/sub", "b", "full"] {
        cx.make_folder(name, 0o755)?;
    }
    cx.make("a/f", b"inside")?;
    cx.make("full/x", b"")?;
    cx.make("file", b"")?;
    seen.see("into itself", renameat(cx.dir(), "a", cx.dir(), "a/sub/a"));
    seen.see("over a file", renameat(cx.dir(), "a", cx.dir(), "file"));
    seen.see("over a full folder", renameat(cx.dir(), "a", cx.dir(), "full"));
    seen.see("over its own parent", renameat(cx.dir(), "a/sub", cx.dir(), "a"));
    seen.see("over an empty folder", renameat(cx.dir(), "a", cx.dir(), "b"));
    seen.see("what is inside", cx.read("b/f"));
    let held = cx.open("b/sub", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let parent = cx.statx(".")?.stx_ino;
    seen.see("to another parent", renameat(cx.dir(), "b/sub", cx.dir(), "sub"));
    let up = rustix::fs::statat(&held, "..", rustix::fs::AtFlags::empty())?;
    seen.see("dot dot", up.st_ino == parent);
    for name in [".", "b", "sub", "full"] {
        seen.see(format!("look {name}"), cx.look(name));
    }
    seen.see("dot", renameat(cx.dir(), ".", cx.dir(), "dot"));
    Ok(seen)
}

fn noreplace(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("a", b"a")?;
    cx.make("b", b"b")?;
    let flags = RenameFlags::NOREPLACE;
    seen.see("onto a file", renameat_with(cx.dir(), "a", cx.dir(), "b", flags));
    seen.see("onto nothing", renameat_with(cx.dir(), "a", cx.dir(), "c", flags));
    seen.see("b", cx.read("b"));
    seen.see("c", cx.read("c"));
    let both = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
    seen.see("both flags", renameat_with(cx.dir(), "b", cx.dir(), "c", both));
    Ok(seen)
}

fn exchange(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("a", b"a")?;
    cx.make("b", b"b")?;
    cx.make_folder("d", 0o755)?;
    cx.make("d/x", b"x")?;
    let flags = RenameFlags::EXCHANGE;
    seen.see("files", renameat_with(cx.dir(), "a", cx.dir(), "b", flags));
    seen.see("a", cx.read("a"));
    seen.see("b", cx.read("b"));
    seen.see("a file and a folder", renameat_with(cx.dir(), "a", cx.dir(), "d", flags));
    seen.see("the folder's new name", cx.names("a"));
    seen.see("the file's new name", cx.read("d"));
    seen.see("with nothing", renameat_with(cx.dir(), "b", cx.dir(), "n", flags));
    seen.see("across folders", renameat_with(cx.dir(), "b", cx.dir(), "a/x", flags));
    seen.see("a/x", cx.read("a/x"));
    seen.see("b after", cx.read("b"));
    seen.see("with its own child", renameat_with(cx.dir(), "a", cx.dir(), "a/x", flags));
    Ok(seen)
}

fn whiteout(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("a", b"a")?;
    seen.see("whiteout", renameat_with(cx.dir(), "a", cx.dir(), "b", RenameFlags::WHITEOUT));
    seen.see("what is left", cx.look("a"));
    seen.see("b", cx.read("b"));
    seen.see("names", cx.names("."));
    Ok(seen)
}

fn open_files(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let one = cx.make("one", b"one")?;
    let other = cx.make("other", b"other")?;
    seen.see("over an open file", renameat(cx.dir(), "one", cx.dir(), "other"));
    seen.see("write to the moved", pwrite(&one, b"ONE", 0));
    seen.see("write to the replaced", pwrite(&other, b"OTHER", 0));
    seen.see("by name", cx.read("other"));
    seen.see("replaced", ctx::describe_fd(&other));
    seen.see("its bytes", ctx::read_all(&other));
    seen.see("moved", ctx::describe_fd(&one));
    Ok(seen)
}

fn hard_links(cx: &Ctx) -> Outcome {
    use rustix::fs::{AtFlags, linkat};
    let mut seen = cx.observe();
    cx.make("a", b"x")?;
    linkat(cx.dir(), "a", cx.dir(), "b", AtFlags::empty())?;
    seen.see("onto itself by another name", renameat(cx.dir(), "a", cx.dir(), "b"));
    seen.see("names", cx.names("."));
    cx.make("c", b"c")?;
    seen.see("over one of two", renameat(cx.dir(), "c", cx.dir(), "b"));
    seen.see("the other", cx.look("a"));
    Ok(seen)
}
