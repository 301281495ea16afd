//! Zero copy in a pool on a kernel that has it: Linux 7.3 with FUSE over io_uring. Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use shuntfs::{Flow, MountOptions, SessionOptions, Transport, TransportKind};
use shuntfs_pool::{Cache, FlowWish, Pool, PoolOptions};
use shuntfs_rules::{Nobody, Rules};
use shuntfs_testkit::identity::Identity;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::seeded::Random;
use shuntfs_testkit::skipped;

use mounted::{Mounted, disks, merge};

const BOB: u32 = 71_001;
const LEN: usize = (2 << 20) + 777;

/// `None` where there is no zero copy, and then the reason was said.
fn start(pool: Pool, disks: Vec<Lower>) -> Option<Mounted> {
    let how = MountOptions { allow_other: true, ..MountOptions::default() };
    let transport = Transport::Only(TransportKind::Uring);
    let mounted =
        Mounted::with(pool, disks, &how, &SessionOptions { transport, ..SessionOptions::default() })?;
    match mounted.session.status().transport.zero_copy_off {
        None => Some(mounted),
        Some(why) => {
            skipped(&format!("no zero copy: {why}"));
            mounted.end();
            None
        }
    }
}

fn moved(mounted: &Mounted, flow: Flow) -> [u64; 2] {
    let status = mounted.session.status();
    [status.read_flows, status.written_flows].map(|flows| flows.get(flow.name()).copied().unwrap_or(0))
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| u8::try_from(1 + random.below(255)).unwrap()).collect()
}

fn compare(file: &File, shown: &[u8], offset: usize, len: usize) {
    let mut seen = vec![0xee; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut seen[done..], (offset + done) as u64).unwrap() {
            0 => break,
            more => done += more,
        }
    }
    let wanted = &shown[offset.min(shown.len())..(offset + len).min(shown.len())];
    assert!(&seen[..done] == wanted, "{len} bytes at {offset}: {done} came, {} are there", wanted.len());
}

fn open_as(uid: u32, path: &Path) -> File {
    Identity::new(uid, uid).run(|| File::open(path)).unwrap()
}

#[test]
fn what_a_redacted_file_does_not_hide_moves() {
    let Some(disks) = disks(LowerKind::Tmpfs, &[64]) else { return };
    let hidden = [10_000..10_100, 65_536..69_632, 1_000_000..1_000_001, LEN - 100..LEN];
    let text = format!(
        "[[rule]]\npath = 'file'\nuid = {BOB}\n\
         redact = {{ ranges = [[10000, 10100], [65536, 69632], [1000000, 1000001], [{}]] }}\n",
        LEN - 100
    );
    let rules = Rules::parse(&text, "rules", None, &Nobody).unwrap();
    let whole = bytes(1, LEN);
    fs::write(disks[0].path().join("file"), &whole).unwrap();
    let options = PoolOptions { flow: FlowWish::Relay, ..PoolOptions::new(disks[0].path()) };
    let Some(mounted) = start(Pool::open_with_rules(&options, rules).unwrap(), disks) else { return };
    let mut shown = whole.clone();
    hidden.iter().for_each(|range| shown[range.clone()].fill(0));
    let path = mounted.at("file");
    let (bob, root) = (open_as(BOB, &path), File::open(&path).unwrap());
    let mut random = Random::new(2);
    for round in 0..60 {
        let (offset, len) = (random.below(LEN + 9000), 1 + random.below(300_000));
        compare(&bob, &shown, offset, len);
        compare(&root, &whole, offset, len);
        if round % 10 == 0 {
            // The next open drops the pages that the kernel has.
            drop(open_as(BOB, &path));
        }
    }
    compare(&bob, &shown, 0, LEN + 1);
    assert!(moved(&mounted, Flow::ZeroCopy)[0] > 0 && moved(&mounted, Flow::Ranges)[0] > 0);
    assert_eq!(moved(&mounted, Flow::Served)[0], 0);
    drop((bob, root));
    mounted.end();
}

#[test]
fn a_file_that_outgrows_its_branch_is_written_on_another_by_zero_copy() {
    let Some(disks) = disks(LowerKind::Tmpfs, &[8, 64]) else { return };
    let merge = Some(merge(&disks, "ff"));
    let options =
        PoolOptions { merge, cache: Cache::Second, flow: FlowWish::Relay, ..PoolOptions::new("disks") };
    let Some(mounted) = start(Pool::open(&options).unwrap(), disks) else { return };
    let path = mounted.at("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let wanted = bytes(3, 20 << 20);
    for (place, data) in wanted.chunks(700_001).enumerate() {
        file.write_all_at(data, (place * 700_001) as u64).unwrap();
    }
    file.sync_all().unwrap();
    assert_eq!((mounted.on("file"), mounted.observer.facts().files_moved), (vec![1], 1));
    assert!(fs::read(mounted.below(1, "file")).unwrap() == wanted);
    compare(&file, &wanted, 0, wanted.len());
    assert_eq!(moved(&mounted, Flow::ZeroCopy)[1], 20 << 20);
    drop(file);
    mounted.end();
}
