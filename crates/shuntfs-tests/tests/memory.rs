//! A million files walked: what the server keeps is bounded, and given back.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FileType, Mode, OFlags, mkdirat, mknodat, open};
use shuntfs_testkit::limit::{run_with_timeout, wait_until};
use shuntfs_testkit::lower::{LowerKind, LowerSpec};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::process::{descriptors, resident_bytes};
use shuntfs_testkit::{say, serial};

const FOLDERS: u32 = 100;
const FILES: u32 = 10_000;
const MIB: u64 = 1 << 20;

fn fill(root: &Path) -> Result<()> {
    let root = open(root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    for folder in 0..FOLDERS {
        let name = format!("folder{folder:03}");
        mkdirat(&root, name.as_str(), Mode::RWXU)?;
        let folder =
            rustix::fs::openat(&root, name.as_str(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        for file in 0..FILES {
            mknodat(&folder, format!("file{file:05}"), FileType::RegularFile, Mode::RUSR, 0)?;
        }
    }
    Ok(())
}

fn walk(root: &Path) -> Result<u32> {
    let mut found = 0;
    for folder in fs::read_dir(root)? {
        for file in fs::read_dir(folder?.path())? {
            let stat = rustix::fs::lstat(file?.path())?;
            found += u32::from(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        }
    }
    Ok(found)
}

/// How many nodes the server knows.
fn nodes(mount: &Mounted) -> Result<u64> {
    mount.status()?.0.pointer("/pool/nodes").and_then(serde_json::Value::as_u64).context("a number of nodes")
}

#[test]
fn a_million_files() -> Result<()> {
    let _serial = serial();
    let Some(lower) = LowerSpec::new(LowerKind::Tmpfs).size(4 << 30).make()? else { return Ok(()) };
    let source = lower.folder("source")?;
    fill(&source)?;
    let spec = MountSpec::new(&source, Transport::Device, Flow::Passthrough).limit(280);
    let Some(mut mount) = Mounted::start(&spec)? else { return Ok(()) };
    let fresh = resident_bytes(mount.pid())?;
    let (root, begun) = (mount.path().to_owned(), Instant::now());
    let found = run_with_timeout(Duration::from_secs(200), "walk", move || walk(&root))??;
    ensure!(found == FOLDERS * FILES, "{found} files found");
    let (full, open) = (resident_bytes(mount.pid())?, descriptors(mount.pid())?);
    say(&format!(
        "{found} files in {:.1} s: {} nodes, {} MiB resident ({} MiB before), {open} descriptors",
        begun.elapsed().as_secs_f64(),
        nodes(&mount)?,
        full / MIB,
        fresh / MIB
    ));
    ensure!(full < 256 * MIB, "{} MiB resident after a walk", full / MIB);
    ensure!(open < 20_000, "{open} descriptors after a walk");
    rustix::fs::sync();
    let forgotten = wait_until(Duration::from_secs(30), || {
        // Writing it is allowed to root, which the lower file system needed already.
        fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
            && resident_bytes(mount.pid()).is_ok_and(|now| now < fresh + (full - fresh) / 4 + 8 * MIB)
            // The kernel tells what it forgot a batch at a time.
            && nodes(&mount).is_ok_and(|nodes| nodes < 1000)
    });
    let (after, nodes) = (resident_bytes(mount.pid())?, nodes(&mount)?);
    say(&format!("{} MiB resident and {nodes} nodes after the caches were dropped", after / MIB));
    ensure!(nodes < 1000, "{nodes} nodes after the caches were dropped");
    ensure!(forgotten, "{} MiB resident after the caches were dropped, {} before", after / MIB, full / MIB);
    let status = mount.unmount()?;
    ensure!(status.success(), "the server ended with {status}");
    Ok(())
}
