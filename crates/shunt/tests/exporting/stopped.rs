//! An export of an image on another FUSE server, which is stopped in the middle of READs: whoever aborts the export's connection is not kept
//! waiting, its callers are told, and what comes late, when the lower server goes on, comes to nobody else's memory.
//!
//! FUSE ignores `IOCB_NOWAIT` (`fuse_file_read_iter`, Linux 7.3), and counts as always ready. A ring that read such a file by itself held its
//! lock in the meantime, which the abort needs for the ring's commands: it hung for as long as the lower server did.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;
use shuntfs_testkit::fusectl::Connection;
use shuntfs_testkit::mounted::Transport;
use shuntfs_testkit::seeded::Random;

use crate::common::{SHUNT, eventually, is_alive, signal};
use crate::cut::{LEN, MIB, Words, has_zero_copy};
use crate::desk::{Desk, is_mounted, tool};

const CALLERS: u32 = 6;

/// A mount whose server may be stopped, and never stays so.
struct Lower {
    server: Child,
    at: PathBuf,
}

impl Lower {
    /// Each read of a file is a request: nothing is cached.
    fn mount(desk: &Desk, from: &str, at: &str) -> Self {
        fs::create_dir(desk.at(at)).expect("makes");
        let mut command = Command::new(SHUNT);
        // A stopped server of a ring keeps even umount(8) waiting.
        command.args([
            "mount",
            "--foreground",
            "--cache",
            "none",
            "--transport",
            "device",
            "--flow",
            "served",
        ]);
        command.arg(desk.at(from)).arg(desk.at(at));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let lower = Self { server: command.spawn().expect("starts"), at: desk.at(at) };
        eventually("the lower file system is mounted", || is_mounted(&lower.at));
        lower
    }

    fn stops(&self) {
        signal(self.server.id(), "STOP");
    }

    fn goes_on(&self) {
        signal(self.server.id(), "CONT");
    }
}

impl Drop for Lower {
    fn drop(&mut self) {
        // With its server the connection ends, and whoever waits gets an error.
        _ = self.server.kill();
        _ = self.server.wait();
        _ = tool("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
    }
}

/// Reads until there is an error. Returns the memory, which is the caller's own from then on, and what it was to be filled from.
fn read_until_told(file: &File, seed: u32, reads: &AtomicU64) -> (Words, usize) {
    let (mut random, mut words) = (Random::new(u64::from(seed)), Words::new());
    loop {
        let at = random.below((LEN - MIB) / 4096) * 4096;
        words.fill();
        let read = file.read_at(words.bytes(), at as u64);
        if read.is_err() {
            words.fill();
            return (words, at);
        }
        words.holds(at);
        reads.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn privileged_a_lower_server_that_is_stopped_keeps_nobody_who_aborts() {
    let Some(desk) = Desk::new(&[]) else { return };
    let _is_said = Transport::Uring.is_available();
    fs::create_dir(desk.at("low")).expect("makes");
    let (image, mut words) = (File::create(desk.at("low/disk.raw")).expect("makes"), Words::new());
    for at in (0..LEN).step_by(MIB) {
        words.mark(at, 1);
        image.write_all_at(words.bytes(), at as u64).expect("writes");
    }
    let lower = Lower::mount(&desk, "low", "lower");
    let export = desk.export("--zero-copy on --flow relay --format raw", "lower/disk.raw", "disk");
    let (pid, is_late) = (export.pid(), has_zero_copy(&export));
    let connection = Connection::of(export.file()).expect("a table").expect("is mounted");
    let direct = i32::try_from(OFlags::DIRECT.bits()).expect("small");
    let file = File::options().read(true).custom_flags(direct).open(export.file()).expect("opens");
    let reads = AtomicU64::new(0);
    let mut told = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|seed| {
                let (file, reads) = (&file, &reads);
                scope.spawn(move || read_until_told(file, seed, reads))
            })
            .collect();
        eventually("reads go on", || reads.load(Ordering::Relaxed) > 20);
        lower.stops();
        eventually("all callers wait", || {
            connection.waiting().is_ok_and(|count| count >= u64::from(CALLERS))
        });
        let abort = scope.spawn(move || connection.abort());
        let was_told = wait_for(|| abort.is_finished() && callers.iter().all(|caller| caller.is_finished()));
        // Whatever came of it, nobody is left waiting.
        if !was_told {
            lower.goes_on();
        }
        abort.join().expect("no panic").expect("aborts");
        let told: Vec<_> = callers.into_iter().map(|caller| caller.join().expect("no panic")).collect();
        assert!(was_told, "the abort waits for the lower server");
        told
    });
    for (words, _) in &mut told {
        words.is_left_alone(None);
    }
    lower.goes_on();
    eventually("the server ends", || !is_alive(pid));
    for (words, at) in &mut told {
        words.is_left_alone(is_late.then_some(*at));
    }
    drop(file);
    _ = tool("umount").arg("-l").arg(export.file()).stderr(Stdio::null()).status();
}

/// Whether something comes true in time.
fn wait_for(is_so: impl Fn() -> bool) -> bool {
    (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        is_so()
    })
}
