//! What a READ by zero copy costs the server and the kernel, where the kernel has it (Linux 7.3).

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use shuntfs_testkit::mounted::{Flow, Transport};
use shuntfs_testkit::{say, skipped};

use crate::probes::Probes;
use crate::stage::Stage;

const READS: u64 = 64;
const LEN: usize = 1 << 20;

/// One `io_uring_enter` for each READ and no other call, no worker of the kernel's beside the queue, and no page pinned but the caller's own.
#[test]
fn a_read_of_a_mebibyte_costs_one_enter() -> Result<()> {
    let Some(stage) = Stage::make(Transport::Uring, Flow::Delegated)? else { return Ok(()) };
    if let Some(why) = stage.mount.status()?.0["session"]["transport"]["zero_copy_off"].as_str() {
        skipped(&format!("no zero copy: {why}"));
        return stage.end();
    }
    let direct = OFlags::DIRECT.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(direct).open(stage.path("file"))?;
    let mut room = vec![0; LEN + 4096];
    let start = room.as_ptr().align_offset(4096);
    let mut read = |count: u64| -> Result<()> {
        for _ in 0..count {
            ensure!(file.read_at(&mut room[start..start + LEN], 0)? == LEN, "a short read");
        }
        Ok(())
    };
    read(1)?;
    let (mut calls, mut pins) = (None, 0);
    let before = moved(&stage)?;
    let seen = stage.requests(|| {
        calls = stage.calls(|| {
            let before = pinned()?;
            read(READS)?;
            pins = pinned()? - before;
            Ok(())
        })?;
        Ok(())
    })?;
    ensure!(seen.get("READ") == Some(&READS) && seen.len() == 1, "{READS} reads sent {seen:?}");
    let moved = moved(&stage)? - before;
    ensure!(moved == READS * LEN as u64, "{moved} bytes went by zero copy");
    // The caller's pages are pinned for its direct I/O; the kernel batches the count of others.
    let pages = LEN as u64 / 4096;
    say(&format!("{READS} reads: {pins} pages pinned, {calls:?}"));
    ensure!(pins <= READS * pages + pages, "{READS} reads pinned {pins} pages");
    if let Some(calls) = calls {
        let enters = calls.get("io_uring_enter").copied().unwrap_or(0);
        // The first few after a pause each set a timer, by which requests that take too long are found, and stop it.
        let timers = calls.get("timerfd_settime").copied().unwrap_or(0);
        // A system call only in user-mode Linux.
        let clocks = calls.get("clock_gettime").copied().unwrap_or(0);
        let others: u64 = calls.values().sum::<u64>() - enters - timers - clocks;
        ensure!(timers <= 40, "{READS} reads set {timers} timers: {calls:?}");
        ensure!((READS..READS + 8).contains(&enters), "{READS} reads made {calls:?}");
        ensure!(others < 8, "{READS} reads made {calls:?}");
    }
    drop(file);
    stage.end()
}

/// The kernel copies no page between the caller and the server, where it copies each one for a relayed READ. `fuse_copy_do` (fs/fuse/dev.c)
/// is what copies a piece of a page or of an answer.
#[test]
fn a_read_copies_no_page_to_or_from_the_server() -> Result<()> {
    let mut copies = Vec::new();
    for args in [&[][..], &["--zero-copy", "off"]] {
        let Some(stage) = Stage::make_with(Transport::Uring, Flow::Delegated, args)? else { return Ok(()) };
        if let Some(why) = stage.mount.status()?.0["session"]["transport"]["zero_copy_off"].as_str()
            && args.is_empty()
        {
            skipped(&format!("no zero copy: {why}"));
            return stage.end();
        }
        for (how, flags) in [("direct", OFlags::DIRECT), ("paged", OFlags::empty())] {
            let flags = flags.bits().cast_signed();
            let file = OpenOptions::new().read(true).custom_flags(flags).open(stage.path("file"))?;
            let mut room = vec![0; LEN + 4096];
            let start = room.as_ptr().align_offset(4096);
            let Some(probes) = Probes::set(&["fuse_copy_do"])? else { return stage.end() };
            let before = moved(&stage)?;
            for _ in 0..READS {
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
                ensure!(file.read_at(&mut room[start..start + LEN], 0)? == LEN, "a short read");
            }
            let moved = moved(&stage)? - before;
            let hits = probes.hits()?["fuse_copy_do"];
            say(&format!(
                "{READS} {how} reads of 1 MiB, {args:?}: {moved} bytes by zero copy, {hits} copies"
            ));
            copies.push((moved, hits));
        }
        stage.end()?;
    }
    let bytes = READS * LEN as u64;
    ensure!(copies[2..].iter().all(|(moved, hits)| *moved == 0 && *hits >= READS), "relay: {copies:?}");
    ensure!(
        copies[..2].iter().all(|(moved, hits)| *moved >= bytes && *hits < READS / 4),
        "zero copy: {copies:?}"
    );
    Ok(())
}

/// Bytes that were read by zero copy.
fn moved(stage: &Stage) -> Result<u64> {
    Ok(stage.mount.status()?.0["session"]["read_flows"]["zero_copy"].as_u64().unwrap_or(0))
}

/// Pages that were pinned since the machine started, by anybody.
fn pinned() -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let count = text.lines().find_map(|line| line.strip_prefix("nr_foll_pin_acquired "));
    count.context("no count of pinned pages")?.parse().context("a count")
}
