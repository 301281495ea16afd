//! The three examples, mounted. Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere it says so and passes.

mod common;

#[path = "../examples/hello.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod hello;
#[path = "../examples/null.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod null;
#[path = "../examples/passthrough.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod passthrough;

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::process::Command;

use common::{Mounted, can_mount, on_each_transport, options};
use hello::Hello;
use null::Null;
use passthrough::Mirror;
use shuntfs::{MountOptions, Opcode, TransportKind};

#[test]
fn hello_says_hello() {
    on_each_transport(|options| {
        let mount = MountOptions { source: "hello".into(), read_only: true, ..MountOptions::default() };
        let mounted = Mounted::with(Hello, &mount, options);
        assert_eq!(fs::read_to_string(mounted.join("hello")).unwrap(), "Hello, world!\n");
        assert_eq!(fs::read(mounted.join("hello")).unwrap().len(), 14);
        let names: Vec<_> =
            fs::read_dir(mounted.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["hello"]);
        let missing = fs::metadata(mounted.join("goodbye")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let found = fs::metadata(mounted.join("hello")).unwrap();
        assert_eq!((found.ino(), found.mode(), found.len()), (2, 0o100_444, 14));
        assert!(File::create(mounted.join("new")).is_err());
        let status = mounted.session().status();
        assert_eq!(status.requests(Opcode::Open), 1, "the kernel remembers that opens are not answered");
        assert_eq!(status.ops["OPEN"].errors, 1);
        assert_eq!(status.requests(Opcode::Read), 1, "the text stays in the page cache");
        assert_eq!((status.malformed, status.panics), (0, 0));
        mounted.end();
    });
}

#[test]
fn null_swallows_and_gives_zeroes() {
    on_each_transport(|options| {
        let mounted = Mounted::new(Null, options);
        let mut file = File::options().read(true).write(true).open(mounted.join("null")).unwrap();
        let mut bytes = vec![0xff; 3 << 20];
        file.write_all(&bytes).unwrap();
        file.seek(SeekFrom::Start(12_345)).unwrap();
        file.read_exact(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        assert_eq!(file.read_at(&mut bytes, (1 << 40) - 5).unwrap(), 5);
        assert_eq!(file.read_at(&mut bytes, 1 << 40).unwrap(), 0);
        drop(file);
        let status = mounted.session().status();
        assert!(status.written_bytes == 3 << 20, "{}", status.written_bytes);
        assert!(status.requests(Opcode::Write) >= 3 && status.requests(Opcode::Read) >= 3);
        assert_eq!(status.flows["served"], 1);
        mounted.end();
    });
}

#[test]
fn null_serves_several_at_once() {
    on_each_transport(|options| {
        let mounted = Mounted::new(Null, options);
        std::thread::scope(|scope| {
            for job in 0..4_u64 {
                let path = mounted.join("null");
                scope.spawn(move || {
                    let file = File::options().read(true).write(true).open(path).unwrap();
                    let mut bytes = vec![1; 70_000];
                    for round in 0..200 {
                        let at = job << 30 | round << 17;
                        file.write_all_at(&bytes, at).unwrap();
                        file.read_exact_at(&mut bytes, at).unwrap();
                        assert!(bytes.iter().all(|byte| *byte == 0));
                        bytes.fill(1);
                    }
                });
            }
        });
        let status = mounted.session().status();
        assert_eq!(status.written_bytes, 4 * 200 * 70_000);
        mounted.end();
    });
}

#[test]
fn passthrough_moves_no_byte_through_us() {
    on_each_transport(|options| {
        let source = tempfile::tempdir().unwrap();
        fs::write(source.path().join("there"), b"from below").unwrap();
        let mounted = Mounted::new(Mirror::new(source.path()).unwrap(), options);
        assert_eq!(fs::read(mounted.join("there")).unwrap(), b"from below");
        let big = vec![7; 5 << 20];
        fs::write(mounted.join("new"), &big).unwrap();
        assert_eq!(fs::read(source.path().join("new")).unwrap(), big);
        assert_eq!(fs::read(mounted.join("new")).unwrap(), big);
        let status = mounted.session().status();
        assert_eq!(status.flows["passthrough"], 3, "{status:?}");
        assert_eq!((status.requests(Opcode::Read), status.requests(Opcode::Write)), (0, 0));
        assert_eq!(status.requests(Opcode::Flush), 0, "NOFLUSH");
        assert!(status.downgrades.is_empty(), "{:?}", status.downgrades);
        mounted.end();
    });
}

#[test]
fn passthrough_keeps_one_registration_a_file() {
    on_each_transport(|options| {
        let source = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(source.path().join(name), name).unwrap();
        }
        let options = shuntfs::SessionOptions { backing_ids_kept: 2, ..options.clone() };
        let mounted = Mounted::new(Mirror::new(source.path()).unwrap(), &options);
        for name in ["a", "b", "c", "c", "c", "b"] {
            assert_eq!(fs::read_to_string(mounted.join(name)).unwrap(), name);
        }
        let kept = wait_for(|| {
            let status = mounted.session().status();
            (status.nodes_open == 0).then_some(status.backing_ids_kept)
        });
        assert_eq!(kept, 2, "the oldest went");
        fs::remove_file(mounted.join("b")).unwrap();
        wait_for(|| (mounted.session().status().backing_ids_kept == 1).then_some(()));
        mounted.end();
    });
}

/// RELEASE and FORGET come in the background.
fn wait_for<T>(mut probe: impl FnMut() -> Option<T>) -> T {
    for _ in 0..500 {
        if let Some(value) = probe() {
            return value;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it never came to be");
}

#[test]
fn passthrough_shows_the_folder() {
    on_each_transport(|options| {
        let source = tempfile::tempdir().unwrap();
        let mounted = Mounted::new(Mirror::new(source.path()).unwrap(), options);
        let at = |name: &str| mounted.join(name);
        fs::create_dir(at("d")).unwrap();
        for index in 0..300 {
            fs::write(at(&format!("d/{index}")), index.to_string()).unwrap();
        }
        let mut seen: Vec<u32> = fs::read_dir(at("d"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..300).collect::<Vec<_>>());
        fs::rename(at("d/0"), at("moved")).unwrap();
        symlink("moved", at("link")).unwrap();
        assert_eq!(fs::read_to_string(at("link")).unwrap(), "0");
        assert_eq!(fs::read_link(at("link")).unwrap().to_str(), Some("moved"));
        fs::set_permissions(at("moved"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(source.path().join("moved")).unwrap().mode(), 0o100_640);
        let appended = File::options().append(true).mode(0o600).create(true).open(at("log"));
        let mut appended = appended.unwrap();
        appended.write_all(b"one ").unwrap();
        File::options().append(true).open(at("log")).unwrap().write_all(b"two ").unwrap();
        appended.write_all(b"three").unwrap();
        appended.sync_all().unwrap();
        assert_eq!(fs::read_to_string(at("log")).unwrap(), "one two three");
        appended.set_len(3).unwrap();
        drop(appended);
        assert_eq!(fs::read_to_string(source.path().join("log")).unwrap(), "one");
        let open = File::open(at("log")).unwrap();
        fs::remove_file(at("log")).unwrap();
        assert_eq!(open.metadata().unwrap().len(), 3, "unlinked and still open");
        drop(open);
        assert!(fs::remove_dir(at("d")).is_err());
        fs::remove_dir_all(at("d")).unwrap();
        assert_eq!(fs::read_dir(source.path()).unwrap().count(), 2);
        assert_eq!(mounted.session().status().panics, 0);
        mounted.end();
    });
}

#[test]
fn passthrough_turned_off_is_relayed_or_spliced() {
    on_each_transport(|options| {
        let source = tempfile::tempdir().unwrap();
        let options = shuntfs::SessionOptions { passthrough: false, ..options.clone() };
        let mounted = Mounted::new(Mirror::new(source.path()).unwrap(), &options);
        let bytes: Vec<u8> = (0..2_000_003_u32).map(|index| (index % 251) as u8).collect();
        fs::write(mounted.join("f"), &bytes).unwrap();
        assert!(fs::read(mounted.join("f")).unwrap() == bytes);
        assert!(fs::read(source.path().join("f")).unwrap() == bytes);
        let status = mounted.session().status();
        let flow = common::fixture::moved(mounted.session()).name();
        assert_eq!(status.flows[flow], 2, "{status:?}");
        assert_eq!(status.downgrades["turned_off"], 2);
        assert_eq!(status.flows["passthrough"], 0);
        mounted.end();
    });
}

/// `readahead(2)` and `posix_fadvise(2)` read through FUSE's own page cache even of a passthrough file.
#[test]
fn readahead_of_a_passthrough_file_is_answered() {
    on_each_transport(|options| {
        let source = tempfile::tempdir().unwrap();
        fs::write(source.path().join("f"), vec![5; 300_000]).unwrap();
        let mounted = Mounted::new(Mirror::new(source.path()).unwrap(), options);
        let script = "import os, sys\nfd = os.open(sys.argv[1], os.O_RDONLY)\n\
                      os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)\n\
                      assert os.read(fd, 300000) == bytes([5]) * 300000\n";
        let status = Command::new("python3").args(["-c", script]).arg(mounted.join("f")).status();
        assert!(status.expect("python3 runs").success());
        let status = mounted.session().status();
        assert!(status.requests(Opcode::Read) > 0);
        assert_eq!(status.ops["READ"].errors, 0);
        mounted.end();
    });
}

#[test]
fn the_transport_is_the_one_that_was_asked_for() {
    if !can_mount() {
        return;
    }
    for kind in [TransportKind::Device, TransportKind::Cloned] {
        let mounted = Mounted::new(Hello, &options(kind));
        assert_eq!(mounted.session().status().transport.kind, kind.to_string());
        let written = serde_json::to_string(&mounted.session().status()).unwrap();
        let read: shuntfs::Status = serde_json::from_str(&written).unwrap();
        assert_eq!(read.negotiated, mounted.session().negotiated());
        mounted.end();
    }
}
