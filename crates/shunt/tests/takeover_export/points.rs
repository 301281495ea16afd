//! A server is killed at each system call of one request.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};

use crate::common::eventually;
use crate::desk::Desk;
use crate::followed::Followed;
use crate::kept::{KILLS, Kept, difference, disk_of, is_sound, log};
use crate::{MIB, PUNCH, ZERO};

/// One operation on a disk of 64 MiB with clusters of 4 KiB, at its own place for each time that a server is killed.
struct Operation {
    name: &'static str,
    flags: &'static str,
    make: &'static str,
    /// Bytes between two places.
    apart: u64,
    prepare: fn(&File, u64) -> io::Result<()>,
    call: fn(&File, u64) -> io::Result<()>,
    /// What the disk has then.
    leaves: fn(&mut Vec<u8>, usize),
}

const EMPTY: &str = "create -q -f qcow2 -o cluster_size=4096 disk.qcow2 64M";
const ON_BASE: &str = "create -q -f qcow2 -b base.raw -F raw -o cluster_size=4096 disk.qcow2";
/// A table of the second kind leads to 32 KiB, and a block of counts to 128 KiB.
const TINY: &str = "create -q -f qcow2 -o cluster_size=512 disk.qcow2 64M";

fn fill(disk: &mut [u8], at: usize, len: usize, byte: u8) {
    disk[at..at + len].fill(byte);
}

const OPERATIONS: [Operation; 7] = [
    Operation {
        name: "a write to new clusters",
        flags: "--writable",
        make: EMPTY,
        apart: 24 << 10,
        prepare: |_, _| Ok(()),
        call: |disk, at| disk.write_all_at(&[7; 10_000], at + 1000),
        leaves: |disk, at| fill(disk, at + 1000, 10_000, 7),
    },
    Operation {
        name: "a write that takes a new table",
        flags: "--writable",
        make: TINY,
        apart: 32 << 10,
        prepare: |_, _| Ok(()),
        call: |disk, at| disk.write_all_at(&[8; 5000], at + 20_000),
        leaves: |disk, at| fill(disk, at + 20_000, 5000, 8),
    },
    Operation {
        name: "a write to a cluster of the backing file, and an fsync",
        flags: "--writable",
        make: ON_BASE,
        apart: 16 << 10,
        prepare: |_, _| Ok(()),
        call: |disk, at| disk.write_all_at(&[9; 700], at + 5000).and_then(|()| disk.sync_data()),
        leaves: |disk, at| fill(disk, at + 5000, 700, 9),
    },
    Operation {
        name: "a discard",
        flags: "--writable",
        make: ON_BASE,
        apart: 64 << 10,
        prepare: |disk, at| disk.write_all_at(&vec![3; 40_000], at),
        call: |disk, at| Ok(fallocate(disk, PUNCH, at + 300, 50_000)?),
        leaves: |disk, at| {
            fill(disk, at, 300, 3);
            fill(disk, at + 300, 50_000, 0);
        },
    },
    Operation {
        name: "zeroes",
        flags: "--writable",
        make: ON_BASE,
        apart: 64 << 10,
        prepare: |disk, at| disk.write_all_at(&vec![4; 20_000], at),
        call: |disk, at| Ok(fallocate(disk, ZERO, at + 5000, 30_000)?),
        leaves: |disk, at| {
            fill(disk, at, 5000, 4);
            fill(disk, at + 5000, 30_000, 0);
        },
    },
    Operation {
        name: "growth by a write",
        flags: "--writable --growable",
        make: EMPTY,
        apart: 0,
        prepare: |_, _| Ok(()),
        call: |disk, _| disk.write_all_at(&[5; 9216], disk.metadata()?.len()),
        leaves: |disk, _| disk.resize(disk.len() + 9216, 5),
    },
    Operation {
        name: "growth by an allocation",
        flags: "--writable",
        make: EMPTY,
        apart: 0,
        prepare: |_, _| Ok(()),
        call: |disk, _| {
            let len = disk.metadata()?.len();
            Ok(fallocate(disk, FallocateFlags::empty(), len, 20_480)?)
        },
        leaves: |disk, _| disk.resize(disk.len() + 20_480, 0),
    },
];

/// Kills the server at a stop of the operation; whether the operation got so far.
fn at_point(desk: &Desk, kept: &Kept<'_>, operation: &Operation, (point, at): (usize, u64)) -> bool {
    let file = kept.export.open();
    (operation.prepare)(&file, at).expect("is prepared");
    let server = kept.pid();
    let mut followed = Followed::begin(server);
    followed.settle();
    let (call, caller) = (operation.call, file.try_clone().expect("a descriptor"));
    let calls = std::thread::spawn(move || call(&caller, at));
    let seen = followed.go_on(point, || calls.is_finished());
    let is_killed = seen >= point && !calls.is_finished();
    // Where it is done, too, because nobody follows the next one.
    followed.kill();
    let outcome = calls.join().expect("no panic");
    assert!(outcome.is_ok(), "{}, killed at stop {point}: {outcome:?}\n{}", operation.name, log(desk));
    eventually("the next server", || kept.pid() != server);
    is_killed
}

/// `SHUNTFS_POINTS_STRIDE=1` is all; odd, so that it is before calls and after them.
fn stride() -> usize {
    std::env::var("SHUNTFS_POINTS_STRIDE").map_or(7, |text| text.parse().expect("a number"))
}

#[test]
fn privileged_a_server_may_be_killed_at_every_system_call() {
    const POINTS_MAX: usize = 400;
    let mut kills = 0;
    for operation in &OPERATIONS {
        // One desk for each, because a desk has a time limit.
        let Some(desk) = Desk::new(&["qemu-img"]) else { return };
        desk.raw("base.raw", 64 * MIB);
        desk.qemu_img(operation.make).ok();
        let mut model = disk_of(&desk, "disk.qcow2");
        let (mut points, mut count, mut is_over) = ((1..).step_by(stride()), 0_u64, false);
        while !is_over {
            let kept = Kept::start(&desk, operation.flags, "disk.qcow2");
            for _ in 0..KILLS {
                let (point, at) = (points.next().expect("has no end"), count * operation.apart);
                is_over = !at_point(&desk, &kept, operation, (point, at)) || point > POINTS_MAX;
                (operation.leaves)(&mut model, usize::try_from(at).expect("small"));
                count += 1;
                let whole = fs::read(kept.export.file()).expect("reads");
                assert_eq!(
                    difference(&whole, &model),
                    None,
                    "{}, killed at stop {point}, written at {at}",
                    operation.name
                );
                if is_over {
                    break;
                }
            }
            kept.umount(&desk, "disk.qcow2");
            is_sound(&desk, "disk.qcow2");
            assert!(disk_of(&desk, "disk.qcow2") == model, "{}", operation.name);
        }
        println!("{}: killed at {} points", operation.name, count - 1);
        assert!(count > 2 && count < POINTS_MAX as u64, "{}: {count} points", operation.name);
        kills += count - 1;
    }
    println!("{kills} kills");
}
