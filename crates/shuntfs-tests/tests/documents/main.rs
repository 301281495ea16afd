//! The command blocks of the documents run, as a reader types them: each page in a temporary home, on the real kernel.
//!
//! A block that begins with ` ```sh ` runs. ` ```sh,norun ` marks one that cannot: it installs something, takes very
//! long, or needs what a test machine lacks. Each page below has its number of both, so that a block that is marked is
//! noticed. A ` ```text ` block has lines that the commands before it print; a line may be a part of what is printed.

mod ground;
mod page;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use shuntfs_testkit::program::have;
use shuntfs_testkit::skipped;

use crate::ground::Ground;
use crate::page::Page;

/// A page, how many of its blocks run, and how many are marked.
const PAGES: &[(&str, usize, usize)] = &[
    ("docs/quickstart.md", 2, 1),
    ("docs/mount-a-folder.md", 4, 0),
    ("docs/pool-disks.md", 3, 0),
    ("docs/hide-places.md", 4, 1),
    ("docs/seal-a-release.md", 5, 0),
    ("docs/export-a-disk.md", 3, 0),
    ("docs/write-a-file-system.md", 1, 0),
];

/// Its blocks are apart from each other, so that each runs by itself.
const README: (&str, usize, usize) = ("README.md", 4, 3);

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn page((name, runs, marked): (&str, usize, usize)) -> Result<Page> {
    let text = fs::read_to_string(root().join(name)).with_context(|| name.to_owned())?;
    let page = Page::parse(&text).with_context(|| name.to_owned())?;
    let found = (page.blocks.len(), page.marked);
    ensure!(found == (runs, marked), "{name}: {found:?} blocks run and are marked, not {:?}", (runs, marked));
    Ok(page)
}

#[test]
fn the_blocks_of_each_page_run() -> Result<()> {
    let can = rustix::process::geteuid().is_root() && have(&["unshare", "qemu-img", "mkfs.ext4", "mountpoint"]);
    if !can || !PathBuf::from("/dev/fuse").exists() {
        skipped("the commands of the documents need root and /dev/fuse");
        return Ok(());
    }
    for entry in PAGES {
        let page = page(*entry)?;
        Ground::new()?.run(&page.blocks).with_context(|| entry.0.to_owned())?;
    }
    for block in page(README)?.blocks {
        let script = block.script.clone();
        Ground::new()?.run(&[block]).with_context(|| format!("README.md, the block\n{script}"))?;
    }
    Ok(())
}

#[test]
fn the_file_system_of_the_page_is_the_example() -> Result<()> {
    let text = fs::read_to_string(root().join("docs/write-a-file-system.md"))?;
    let example = fs::read_to_string(root().join("crates/shuntfs/examples/hello.rs"))?;
    ensure!(text.contains(&format!("```rust\n{example}```\n")), "docs/write-a-file-system.md has another hello.rs");
    Ok(())
}

/// A runner that runs nothing would pass every page.
#[test]
fn a_block_that_fails_or_prints_something_else_is_noticed() -> Result<()> {
    if !rustix::process::geteuid().is_root() || !have(&["unshare"]) {
        return Ok(());
    }
    let run = |text: &str| Ground::new()?.run(&Page::parse(text)?.blocks);
    run("```sh\necho one; echo two three\n```\n```text\none\nthree\n```\n")?;
    for text in [
        "```sh\nfalse\necho after\n```\n",
        "```sh\nno-such-program-anywhere\n```\n",
        "```sh\necho one\n```\n```text\ntwo\n```\n",
        "```sh\necho one\necho two\n```\n```text\ntwo\none\n```\n",
        "```sh\nmkdir -p ~/photos/x\nshunt mount ~/photos ~/nowhere\n```\n",
    ] {
        ensure!(run(text).is_err(), "this passed:\n{text}");
    }
    Ok(())
}
