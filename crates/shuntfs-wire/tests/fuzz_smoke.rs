//! The fuzz targets for a short while, without libFuzzer: recorded requests with mistakes put in, and any bytes.
//! How long, and which seeds: `shuntfs_testkit::seeded`.

#[path = "../../../fuzz/fuzz_targets/entry/dirent.rs"]
mod dirent;
#[path = "golden/frames.rs"]
mod frames;
#[path = "../../../fuzz/fuzz_targets/entry/request.rs"]
mod request;

use std::panic::catch_unwind;

use shuntfs_testkit::seeded::{Random, fuzz};
use shuntfs_wire::Opcode;

#[test]
fn recorded_requests_with_mistakes() {
    let frames: Vec<Vec<u8>> = frames::all().into_iter().map(|(_, bytes)| bytes).collect();
    fuzz(request::run, |random| {
        let mut frame = frames[random.below(frames.len())].clone();
        for _ in 0..=random.below(4) {
            spoil(&mut frame, random, &frames);
        }
        frame
    });
}

#[test]
fn requests_of_any_bytes() {
    fuzz(request::run, |random| {
        let mut frame = random.bytes(300);
        // An operation that exists, most of the time, or little more than its number would ever be read.
        if frame.len() >= 40 && random.below(8) != 0 {
            let opcode = Opcode::ALL[random.below(Opcode::ALL.len())];
            frame[4..8].copy_from_slice(&opcode.number().to_ne_bytes());
            frame[36..40].fill(0);
        }
        frame
    });
}

#[test]
fn listings_of_any_bytes() {
    fuzz(dirent::run, |random| {
        let room = u16::try_from(random.below(9000)).unwrap();
        [&room.to_le_bytes(), random.bytes(4000).as_slice()].concat()
    });
}

#[test]
fn recorded_requests_hold_as_they_are() {
    for (file, frame) in frames::all() {
        assert!(catch_unwind(|| request::run(&frame)).is_ok(), "{file}");
    }
}

/// One mistake.
fn spoil(frame: &mut Vec<u8>, random: &mut Random, others: &[Vec<u8>]) {
    let at = random.below(frame.len());
    match random.below(8) {
        0 => frame.truncate(at),
        1 => frame.insert(at, random.byte()),
        2 if !frame.is_empty() => frame[at] ^= 1 << random.below(8),
        3 if !frame.is_empty() => frame[at] = [0, 1, b'/', b'.', 0x7f, 0x80, 0xff][random.below(7)],
        // A length or a count, or what is taken for one.
        4 if frame.len() >= 4 => {
            let at = random.below(frame.len() / 4) * 4;
            let number = [0, 1, 8, 0x7fff_ffff, 0x8000_0000, u32::MAX][random.below(6)];
            frame[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
        // Where the extensions' length stands.
        5 if frame.len() >= 40 => frame[36] = random.byte() & 0x1f,
        6 => frame.extend_from_slice(&random.bytes(40)),
        _ => {
            let other = &others[random.below(others.len())];
            frame.truncate(at);
            frame.extend_from_slice(&other[random.below(other.len())..]);
        }
    }
}
