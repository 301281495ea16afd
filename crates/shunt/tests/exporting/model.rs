//! Random work on an export beside the same work in memory; at the end, QEMU and we agree on every byte.

use std::fs;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};

use crate::desk::{Desk, Export};

const LEN: usize = 6 << 20;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("small")
    }
}

fn work(export: &Export<'_>, model: &mut [u8], seed: u64) {
    let file = export.open();
    let mut random = Random(seed);
    for step in 0..400 {
        let len = 1 + random.below(if step % 5 == 0 { 300_000 } else { 9000 });
        let offset = random.below(LEN - len);
        let place = offset..offset + len;
        let (at, size) = (offset as u64, len as u64);
        match random.below(10) {
            0..5 => {
                let byte = u8::try_from(1 + random.below(250)).expect("small");
                file.write_all_at(&vec![byte; len], at).expect("writes");
                model[place].fill(byte);
            }
            5 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, punch, at, size).expect("punches");
                model[place].fill(0);
            }
            6 => match fallocate(&file, FallocateFlags::ZERO_RANGE, at, size) {
                Ok(()) => model[place].fill(0),
                Err(error) => assert_eq!(error, rustix::io::Errno::OPNOTSUPP, "seed {seed} step {step}"),
            },
            7 if step % 3 == 0 => file.sync_data().expect("is durable"),
            _ => {
                let mut read = vec![0; len];
                file.read_exact_at(&mut read, at).expect("reads");
                assert!(read == model[place], "seed {seed} step {step}: {len} bytes at {offset}");
            }
        }
    }
}

fn transports() -> &'static [&'static str] {
    let uring = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if uring.is_ok_and(|on| on.trim() == "Y") {
        &["device", "cloned", "uring"]
    } else {
        &["device", "cloned"]
    }
}

#[test]
fn privileged_random_work_on_qcow2_is_what_it_is_in_memory() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    for (seed, transport) in transports().iter().enumerate() {
        let seed = seed as u64 + 1;
        desk.raw("base.raw", LEN as u64);
        desk.qemu_img("create -q -f qcow2 -b base.raw -F raw -o cluster_size=4096 disk.qcow2").ok();
        let mut model = fs::read(desk.at("base.raw")).expect("reads");
        let flags = format!("--writable --transport {transport}");
        for part in 0..2 {
            let export = desk.export(&flags, "disk.qcow2", "disk");
            work(&export, &mut model, seed * 10 + part);
            export.umount().ok();
            desk.is_sound("disk.qcow2");
        }
        desk.qemu_img("convert -f qcow2 -O raw disk.qcow2 whole.raw").ok();
        assert!(fs::read(desk.at("whole.raw")).expect("reads") == model, "{transport}");
        for name in ["disk.qcow2", "base.raw", "whole.raw"] {
            fs::remove_file(desk.at(name)).expect("removes");
        }
    }
}

#[test]
fn privileged_random_work_on_raw_is_what_it_is_in_memory() {
    let Some(desk) = Desk::new(&[]) else { return };
    for transport in transports() {
        for flow in ["auto", "relay", "served"] {
            desk.raw("disk.raw", LEN as u64);
            let mut model = fs::read(desk.at("disk.raw")).expect("reads");
            let export =
                desk.export(&format!("--writable --transport {transport} --flow {flow}"), "disk.raw", "disk");
            work(&export, &mut model, 5);
            export.umount().ok();
            assert!(fs::read(desk.at("disk.raw")).expect("reads") == model, "{transport} {flow}");
            fs::remove_file(desk.at("disk.raw")).expect("removes");
        }
    }
}

/// Writers beside each other in the same clusters, none of which has a place yet.
#[test]
fn privileged_writers_beside_each_other_lose_nothing() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    for transport in transports() {
        desk.qemu_img("create -q -f qcow2 disk.qcow2 16M").ok();
        let export =
            desk.export(&format!("--writable --transport {transport} --queues 2"), "disk.qcow2", "disk");
        std::thread::scope(|scope| {
            for writer in 0_u8..8 {
                let file = export.open();
                scope.spawn(move || {
                    for block in 0..500_u64 {
                        let at = (block * 8 + u64::from(writer)) * 4096;
                        file.write_all_at(&[writer + 1; 4096], at).expect("writes");
                        if block % 100 == 50 {
                            file.sync_data().expect("is durable");
                        }
                    }
                });
            }
        });
        export.umount().ok();
        desk.is_sound("disk.qcow2");
        desk.qemu_img("convert -f qcow2 -O raw disk.qcow2 whole.raw").ok();
        let whole = fs::read(desk.at("whole.raw")).expect("reads");
        for (block, bytes) in whole.chunks(4096).take(4000).enumerate() {
            let writer = u8::try_from(block % 8 + 1).expect("small");
            assert!(bytes.iter().all(|byte| *byte == writer), "{transport}: block {block}");
        }
        for name in ["disk.qcow2", "whole.raw"] {
            fs::remove_file(desk.at(name)).expect("removes");
        }
    }
}
