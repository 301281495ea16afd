//! Servers that are killed while the kernel copies WRITEs to them, each to memory that the server has not used before: no WRITE fails, and no byte is
//! wrong. Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere it says so and passes. `SHUNTFS_TEST_KILLS=1000` kills that many.

#[path = "../../shuntfs-keeper/tests/support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shuntfs_sys::spawn::{Push, push};
use shuntfs_testkit::seeded::Random;
use support::kept::Kept;
use support::{can_mount, wait_until};

const KILLS: u64 = 60;
const WRITERS: u8 = 3;
const LEN: usize = 1 << 20;
const LIVES: Duration = Duration::from_secs(600);

/// Writes one file until it is to stop, and checks whether it holds what was written last. How many WRITEs failed.
fn write(file: &File, (stop, writes): (&AtomicBool, &AtomicU64)) -> u64 {
    let (mut count, mut failed, mut bytes) = (0_u64, 0, vec![0; LEN]);
    while !stop.load(Ordering::Relaxed) {
        bytes.fill(u8::try_from(count % 251).expect("small"));
        if let Err(error) = file.write_all_at(&bytes, 0) {
            println!("a write failed: {error}");
            failed += 1;
            continue;
        }
        count += 1;
        writes.fetch_add(1, Ordering::Relaxed);
    }
    let mut found = vec![0; LEN];
    file.read_exact_at(&mut found, 0).expect("reads");
    assert!(failed > 0 || found == bytes, "not what was written");
    failed
}

fn threads_of(server: u32) -> usize {
    fs::read_dir(format!("/proc/{server}/task")).map_or(0, Iterator::count)
}

#[test]
fn privileged_no_write_fails() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a folder");
    let kills =
        std::env::var("SHUNTFS_TEST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    for kind in ["device", "cloned"] {
        let words = [source.path().to_str().expect("plain"), kind, "10000", "relay"];
        let Some(kept) = Kept::start_of("kept_pool", &words, LIVES, |_| ()) else { return };
        wait_until("a mount that is served", || fs::metadata(kept.path()).ok());
        let path = |writer| kept.path().join(format!("file-{writer}"));
        let files: Vec<File> = (0..WRITERS)
            .map(|writer| {
                File::options().read(true).write(true).create(true).truncate(true).open(path(writer))
            })
            .collect::<Result<_, _>>()
            .expect("opens");
        let (stop, writes, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for file in &files {
                scope.spawn(|| {
                    failed.fetch_add(write(file, (&stop, &writes)), Ordering::Relaxed);
                });
            }
            let (mut random, mut server) = (Random::new(kills), kept.next_server(None));
            wait_until("writes", || (writes.load(Ordering::Relaxed) > 20).then_some(()));
            let threads = threads_of(server);
            for _ in 0..kills {
                // The first request that a server reads is the one to memory that is new, so it is killed when its queues begin.
                let begins = || threads_of(server) + 1 >= threads;
                wait_until("queues", || begins().then_some(()));
                let pause = u64::try_from(random.below(4000)).expect("small");
                std::thread::sleep(Duration::from_micros(pause));
                push(server, Push::Die).expect("it is there");
                server = kept.next_server(Some(server));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let (writes, failed) = (writes.into_inner(), failed.into_inner());
        println!("{kind}: {kills} kills, {writes} writes, {failed} failed");
        assert!(writes > kills / 2 && failed == 0, "{kind}: {failed} of {writes} failed\n{}", kept.said());
    }
}
