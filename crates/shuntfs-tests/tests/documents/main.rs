//! The command blocks of the documents run, as a reader types them: each page in a temporary home, on the real kernel.
//!
//! A block that begins with ` ```sh ` runs. ` ```sh,norun ` marks one that cannot: it installs something, takes very
//! long, or needs what a test machine lacks. Each page below has its number of both, so that a block that is marked is
//! noticed. A ` ```text ` block has lines that the commands before it print; a line may be a part of what is printed.

mod ground;
mod page;
mod places;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use shuntfs_testkit::program::have;
use shuntfs_testkit::skipped;

use crate::ground::{Ground, Place};
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
    ("docs/containers.md", 2, 1),
];

/// Its blocks are apart from each other, so that each runs by itself.
const README: (&str, usize, usize) = ("README.md", 4, 4);

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn page(name: &str) -> Result<Page> {
    let text = fs::read_to_string(root().join(name)).with_context(|| name.to_owned())?;
    Page::parse(&text).with_context(|| name.to_owned())
}

fn can_run() -> bool {
    let programs = ["unshare", "setpriv", "qemu-img", "mkfs.ext4", "mountpoint", "fusermount3"];
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        skipped("the commands of the documents need root and /dev/fuse");
    }
    can && have(&programs)
}

#[test]
fn no_block_was_marked_or_added_unnoticed() -> Result<()> {
    for (name, runs, marked) in PAGES.iter().chain([&README]) {
        let page = page(name)?;
        let found = (page.blocks.len(), page.marked);
        ensure!(
            found == (*runs, *marked),
            "{name}: {found:?} blocks run and are marked, not {:?}",
            (runs, marked)
        );
    }
    Ok(())
}

#[test]
fn the_blocks_of_each_page_run() -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    for (name, ..) in PAGES {
        Ground::new(Place::Machine)?.run(&page(name)?.blocks).with_context(|| (*name).to_owned())?;
    }
    Ok(())
}

#[test]
fn the_blocks_of_the_readme_run_in_each_place() -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    for place in [Place::Machine, Place::Bare, Place::Container, Place::User] {
        for block in page(README.0)?.blocks {
            // A loop device is for root of the machine.
            let needs_root = block.script.contains("-o loop");
            if needs_root && !matches!(place, Place::Machine | Place::Bare) {
                continue;
            }
            let what = format!("README.md, {place:?}, the block\n{}", block.script);
            Ground::new(place)?.run(&[block]).context(what)?;
        }
    }
    Ok(())
}

#[test]
fn the_file_system_of_the_page_is_the_example() -> Result<()> {
    let text = fs::read_to_string(root().join("docs/write-a-file-system.md"))?;
    let example = fs::read_to_string(root().join("crates/shuntfs/examples/hello.rs"))?;
    ensure!(
        text.contains(&format!("```rust\n{example}```\n")),
        "docs/write-a-file-system.md has another hello.rs"
    );
    Ok(())
}

/// A runner that runs nothing would pass every page.
#[test]
fn a_block_that_fails_or_prints_something_else_is_noticed() -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    let run = |text: &str| Ground::new(Place::Machine)?.run(&Page::parse(text)?.blocks);
    run("```sh\necho one; echo two three\n```\n```text\none\nthree\n```\n")?;
    for text in [
        "```sh\nfalse\necho after\n```\n",
        "```sh\nno-such-program-anywhere\n```\n",
        "```sh\necho one\n```\n```text\ntwo\n```\n",
        "```sh\necho one\necho two\n```\n```text\ntwo\none\n```\n",
        "```sh\nshunt mount ~/photos ~/nowhere\n```\n",
    ] {
        ensure!(run(text).is_err(), "this passed:\n{text}");
    }
    ensure!(Page::parse("```sh,sometimes\ntrue\n```\n").is_err(), "an unknown mark passed");
    ensure!(Page::parse("```text\nnobody\n```\n").is_err(), "output of nothing passed");
    Ok(())
}
