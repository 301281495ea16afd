//! File systems without async, mounted: methods that block, and methods that take paths. Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere
//! it says so and passes.

mod common;

#[path = "../examples/commands.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod commands;
#[path = "../examples/mirror.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod mirror;

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use commands::Commands;
use common::{Mounted, on_each_transport};
use mirror::Mirror;
use shuntfs::{Blocking, Opcode, Paths};

const O_NONBLOCK: i32 = 0o4000;

fn commands(commands: &[(&str, &str)]) -> Blocking<Commands> {
    let owned = |(name, command): &(&str, &str)| ((*name).to_owned(), (*command).to_owned());
    Blocking::new(Commands::new(commands.iter().map(owned)))
}

#[test]
fn a_blocking_file_system_is_served() {
    on_each_transport(|options| {
        let mounted = Mounted::new(commands(&[("word", "echo word"), ("many", "seq 1 100000")]), options);
        assert_eq!(fs::read_to_string(mounted.join("word")).unwrap(), "word\n");
        let many: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
        assert_eq!(fs::read_to_string(mounted.join("many")).unwrap(), many);
        let names: Vec<_> =
            fs::read_dir(mounted.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["word", "many"]);
        assert_eq!(fs::metadata(mounted.join("nothing")).unwrap_err().kind(), ErrorKind::NotFound);
        let status = mounted.session().status();
        assert_eq!((status.requests(Opcode::Open), status.malformed, status.panics), (2, 0, 0));
        mounted.end();
    });
}

/// Each of more waiting methods than there are queues has a thread of its own, and the mount goes on.
#[test]
fn what_blocks_holds_up_nobody_else() {
    on_each_transport(|options| {
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("gate");
        let made = std::process::Command::new("mkfifo").arg(&gate).status();
        assert!(made.unwrap().success());
        let waits = format!("timeout 30 cat {}", gate.display());
        let mounted = Mounted::new(commands(&[("waits", &waits), ("word", "echo word")]), options);
        std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            for _ in 0..3 {
                let (path, tell) = (mounted.join("waits"), tell.clone());
                scope.spawn(move || tell.send(fs::read(path).unwrap()).unwrap());
            }
            while mounted.session().status().requests(Opcode::Open) < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            for _ in 0..20 {
                assert_eq!(fs::read_to_string(mounted.join("word")).unwrap(), "word\n");
            }
            assert!(told.try_recv().is_err(), "they still wait");
            // All three read the one pipe, and end with it; a command that has not opened it yet ends with the next one.
            let mut ended = 0;
            while ended < 3 {
                drop(File::options().write(true).custom_flags(O_NONBLOCK).open(&gate));
                match told.recv_timeout(Duration::from_millis(20)) {
                    Ok(text) => {
                        assert_eq!(text, b"");
                        ended += 1;
                    }
                    Err(error) => assert_eq!(error, mpsc::RecvTimeoutError::Timeout),
                }
            }
        });
        mounted.end();
    });
}

#[test]
fn paths_are_shown_written_and_moved() {
    on_each_transport(|options| {
        let source = tempfile::tempdir().unwrap();
        let mirror = Blocking::new(Paths::new(Mirror::new(source.path().to_owned())));
        let mounted = Mounted::new(mirror, options);
        let at = |name: &str| mounted.join(name);
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::write(at("a/b/c/file"), "deep").unwrap();
        // A folder takes with it what lies below, the kernel's nodes of it, and what is open there.
        let mut open = File::options().read(true).write(true).open(at("a/b/c/file")).unwrap();
        fs::rename(at("a/b"), at("moved")).unwrap();
        assert_eq!(fs::read_to_string(at("moved/c/file")).unwrap(), "deep");
        assert_eq!(fs::read_to_string(source.path().join("moved/c/file")).unwrap(), "deep");
        assert_eq!(fs::metadata(at("a/b")).unwrap_err().kind(), ErrorKind::NotFound);
        open.seek(SeekFrom::End(0)).unwrap();
        open.write_all(b"er").unwrap();
        fs::rename(at("moved/c/file"), at("file")).unwrap();
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "deeper");
        // A file without a name is there for as long as it is open.
        fs::remove_file(at("file")).unwrap();
        fs::write(at("file"), "another").unwrap();
        open.set_len(4).unwrap();
        assert_eq!(open.metadata().unwrap().len(), 4);
        let mut text = [0; 4];
        open.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"deep");
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "another");
        drop(open);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_007);
        let file = File::options().write(true).open(at("file")).unwrap();
        file.set_modified(time).unwrap();
        assert_eq!(fs::metadata(source.path().join("file")).unwrap().modified().unwrap(), time);
        fs::set_permissions(at("file"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(at("file")).unwrap().mode(), 0o100_640);
        symlink("file", at("link")).unwrap();
        assert_eq!(fs::read_link(at("link")).unwrap().to_str(), Some("file"));
        assert!(fs::remove_dir(at("moved")).is_err(), "not empty");
        fs::remove_dir_all(at("moved")).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(mounted.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "file", "link"]);
        file.sync_all().unwrap();
        drop(file);
        assert_eq!(mounted.session().status().panics, 0);
        mounted.end();
    });
}

#[test]
fn much_is_written_and_read_by_paths() {
    on_each_transport(|options| {
        let source = tempfile::tempdir().unwrap();
        let mirror = Blocking::new(Paths::new(Mirror::new(source.path().to_owned())));
        let mounted = Mounted::new(mirror, options);
        let bytes: Vec<u8> = (0..3_000_007_u32).map(|index| (index % 251) as u8).collect();
        std::thread::scope(|scope| {
            for job in 0..4 {
                let (path, bytes) = (mounted.join(&format!("file{job}")), &bytes);
                scope.spawn(move || {
                    fs::write(&path, bytes).unwrap();
                    let mut read = Vec::new();
                    File::open(&path).unwrap().read_to_end(&mut read).unwrap();
                    assert!(read == *bytes);
                });
            }
        });
        for job in 0..4 {
            assert!(fs::read(source.path().join(format!("file{job}"))).unwrap() == bytes);
        }
        mounted.end();
    });
}
