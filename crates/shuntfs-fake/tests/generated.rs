//! Requests from numbers, and recorded ones: nothing breaks a rule, whatever comes.

mod common;
#[path = "../../../fuzz/fuzz_targets/entry/dispatch.rs"]
mod dispatch;
#[path = "../../shuntfs-wire/tests/golden/frames.rs"]
mod frames;
#[path = "../../shuntfs/examples/passthrough.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod passthrough;

use std::sync::Arc;

use common::{Bug, Mem};
use shuntfs::{Errno, Opcode, Transport, TransportKind};
use shuntfs_fake::{Fake, Settings};
use shuntfs_testkit::seeded::fuzz;
use shuntfs_wire::InHeader;
use zerocopy::FromBytes;

#[test]
fn a_file_system_in_memory_is_wandered_through() {
    for seed in 0..8 {
        let fs = Arc::new(Mem::new(Bug::None));
        let fake = Fake::mount_with(Arc::clone(&fs), &Settings::default()).unwrap();
        let succeeded = fake.wander(seed, 400).unwrap();
        assert!(succeeded > 50, "seed {seed}: only {succeeded} calls succeeded");
        fake.finish().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn a_folder_in_passthrough_is_wandered_through() {
    for seed in 100..104 {
        let lower = tempfile::tempdir().unwrap();
        let mirror = passthrough::Mirror::new(lower.path()).unwrap();
        let fake = Fake::mount(mirror).unwrap();
        let succeeded = fake.wander(seed, 300).unwrap();
        assert!(succeeded > 30, "seed {seed}: only {succeeded} calls succeeded");
        fake.finish().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn what_no_kernel_sends_is_answered() {
    for (kind, queues) in [(TransportKind::Device, 1), (TransportKind::Cloned, 3)] {
        let mut settings = Settings::default();
        settings.session.transport = Transport::Only(kind);
        settings.session.queues = Some(queues);
        for seed in 0..3 {
            let fake = Fake::mount_with(Arc::new(Mem::new(Bug::None)), &settings).unwrap();
            fake.mkdir("/a", 0o755).unwrap();
            drop(fake.create("/a/file").unwrap());
            fake.babble(seed, 500).unwrap();
            assert!(fake.stat("/").is_ok(), "it goes on");
            fake.finish().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        }
    }
}

/// What a real kernel sent, in the order of the operations' names, to a file system that knows nothing of it.
#[test]
fn recorded_requests_are_answered() {
    let fake = Fake::mount(Mem::new(Bug::None)).unwrap();
    let frames = frames::all();
    assert!(frames.len() > 80, "only {} frames", frames.len());
    let mut answered = 0;
    for (file, frame) in &frames {
        let header = InHeader::read_from_prefix(frame).unwrap().0;
        let pending = fake.replay(frame).unwrap().unwrap();
        if header.operation().is_some_and(Opcode::wants_reply) {
            answered += 1;
            let outcome = pending.wait();
            assert_ne!(outcome, Err(Errno::TIMEDOUT), "{file}");
            let malformed = fake.session().status().malformed;
            assert_eq!(malformed, 0, "{file} parses");
        }
    }
    assert!(answered > 70, "only {answered}");
    fake.end();
}

#[test]
fn any_bytes_through_dispatch() {
    let frames: Vec<Vec<u8>> = frames::all().into_iter().map(|(_, frame)| frame).collect();
    fuzz(dispatch::run, |random| {
        let mut bytes = Vec::new();
        for _ in 0..random.below(12) {
            let mut frame = frames[random.below(frames.len())].clone();
            for _ in 0..random.below(3) {
                let at = random.below(frame.len());
                frame[at] = random.byte();
            }
            if random.below(6) == 0 {
                frame.truncate(random.below(frame.len()));
            }
            bytes.extend_from_slice(&u16::try_from(frame.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(&frame);
        }
        bytes
    });
}
