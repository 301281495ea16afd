//! A lower file that keeps its readers and writers waiting holds up nobody else, and does not outlive the connection.
//! Needs CAP_SYS_ADMIN and /dev/fuse.
//!
//! The slow lower file is a pipe: it gives its bytes when the test says so.

mod common;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use common::fixture::Fixture;
use common::on_each_transport;
use common::wishes::splice;
use shuntfs::{Backing, CacheHint, Delegation, LowerFile, Opcode, SessionOptions};

/// One queue, which whatever holds it would hold up for all.
fn one_queue(options: &SessionOptions) -> SessionOptions {
    SessionOptions { queues: Some(1), ..options.clone() }
}

fn slow(end: impl Into<OwnedFd>) -> Delegation {
    Delegation::Splice(Backing::File(Arc::new(LowerFile::new(end.into()).that_can_block())))
}

/// Waits until one more request of this kind has reached the server, and a moment longer.
fn arrived(fixture: &Fixture, opcode: Opcode, before: u64) {
    for _ in 0..2000 {
        if fixture.mounted.session().status().requests(opcode) > before {
            std::thread::sleep(Duration::from_millis(20));
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the request does not arrive");
}

#[test]
fn a_slow_lower_file_delays_no_other() {
    on_each_transport(|options| {
        let fixture = Fixture::new(&[b'q'; 200_000], &one_queue(options));
        let count = |opcode| fixture.mounted.session().status().requests(opcode);
        let (mut out, mut into) = std::io::pipe().expect("a pipe");
        let reader = fixture.open(slow(out.try_clone().expect("dup")), CacheHint::Direct);
        let writer = fixture.open(slow(into.try_clone().expect("dup")), CacheHint::Direct);
        let quick = fixture.open(splice(), CacheHint::Direct);
        let others_go_on = || {
            let mut room = vec![0; 100_000];
            for round in 0..50 {
                quick.write_all_at(b"quick", round * 100).expect("writes");
                quick.read_exact_at(&mut room, round * 100).expect("reads");
                assert_eq!(&room[..5], b"quick");
            }
        };
        for len in [4096, 128 << 10] {
            let before = count(Opcode::Read);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let mut room = vec![0; len];
                    reader.read_at(&mut room, 0).map(|count| room[..count].to_vec())
                });
                arrived(&fixture, Opcode::Read, before);
                others_go_on();
                assert!(!waits.is_finished(), "there is nothing to read yet");
                into.write_all(b"late").expect("the pipe takes it");
                assert_eq!(waits.join().expect("no panic").expect("reads"), b"late");
            });
        }
        // As much as a pipe holds, so that whatever comes next waits.
        into.write_all(&[b'.'; 1 << 16]).expect("the pipe takes it");
        let before = count(Opcode::Write);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| writer.write_at(&[b'w'; 4096], 0));
            arrived(&fixture, Opcode::Write, before);
            others_go_on();
            assert!(!waits.is_finished(), "there is no room yet");
            let mut all = vec![0; (1 << 16) + 4096];
            out.read_exact(&mut all).expect("the pipe gives it");
            assert!(all[1 << 16..].iter().all(|byte| *byte == b'w'));
            assert_eq!(waits.join().expect("no panic").expect("writes"), 4096);
        });
        drop((reader, writer, quick));
        fixture.settle();
        fixture.mounted.end();
    });
}

/// An operation below that nobody waits for any more must not keep the server: it is ended with the connection.
#[test]
fn a_slow_lower_file_does_not_outlive_the_connection() {
    on_each_transport(|options| {
        let fixture = Fixture::new(&[b'q'; 200_000], &one_queue(options));
        let (out, into) = std::io::pipe().expect("a pipe");
        let file = fixture.open(slow(out), CacheHint::Direct);
        std::thread::scope(|scope| {
            let waits: Vec<_> =
                (0..3).map(|_| scope.spawn(|| file.read_at(&mut [0; 4096], 0).is_err())).collect();
            arrived(&fixture, Opcode::Read, 2);
            fixture.mounted.session().abort().expect("aborts");
            for waits in waits {
                assert!(waits.join().expect("no panic"), "the connection is gone");
            }
        });
        fixture.mounted.session().wait();
        drop(into);
    });
}
