//! The examples of delegation, mounted: a union that only chooses at create, reads served while writes are delegated, and
//! a file composed of ranges of others. Compared byte by byte, by read, by mmap and at odd ranges, with several readers at
//! once. Needs CAP_SYS_ADMIN and /dev/fuse.

mod common;

#[path = "../examples/concat.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod concat;
#[path = "../examples/shout.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod shout;
#[path = "../examples/union.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod union;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Mounted, on_each_transport};
use concat::Concat;
use shout::Shout;
use shuntfs::{MountOptions, Opcode};
use tempfile::TempDir;
use union::Union;

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from((index * 7 + index / 4096 + seed) % 251).expect("below 251")).collect()
}

/// What another process sees of a file through a mapping, compared by that process.
fn assert_mapped(path: &Path, expected: &[u8], private: bool) {
    let mut wanted = tempfile::NamedTempFile::new().expect("a file");
    wanted.write_all(expected).expect("writes");
    let script = "import mmap, sys\n\
        wanted = open(sys.argv[2], 'rb').read()\n\
        how = mmap.MAP_PRIVATE if sys.argv[3] == 'private' else mmap.MAP_SHARED\n\
        with open(sys.argv[1], 'rb') as f:\n\
        \x20   seen = mmap.mmap(f.fileno(), len(wanted), how, mmap.PROT_READ)\n\
        for at in list(range(len(wanted) // 4096, 0, -3)) + [0]:\n\
        \x20   assert seen[at * 4096:][:5000] == wanted[at * 4096:][:5000], at\n\
        assert seen[:] == wanted\n";
    let how = if private { "private" } else { "shared" };
    let args = [path.as_os_str(), wanted.path().as_os_str(), how.as_ref()];
    let status = Command::new("python3").args(["-c", script]).args(args).status().expect("python3 runs");
    assert!(status.success(), "{} mapped {how}", path.display());
}

/// Reads ranges of all sizes and offsets, in several threads at once.
fn assert_ranges(path: &Path, expected: &[u8]) {
    std::thread::scope(|scope| {
        for job in 0..4_usize {
            scope.spawn(move || {
                let file = File::open(path).expect("opens");
                let mut seen = vec![0; 300_000];
                for round in 0..80_usize {
                    let at = (job * 99_991 + round * 7919 * (1 + job)) % (expected.len() + 10);
                    let wanted = 1 + (round * round * 47 + job) % seen.len();
                    let count = file.read_at(&mut seen[..wanted], at as u64).expect("reads");
                    let rest = expected.get(at..).unwrap_or_default();
                    assert_eq!(count, wanted.min(rest.len()), "{wanted} at {at}");
                    assert!(seen[..count] == rest[..count], "{wanted} at {at}");
                }
            });
        }
    });
}

/// Lower files of awkward sizes, and what they are as one.
fn parts(dir: &TempDir) -> (Vec<PathBuf>, Vec<u8>) {
    let mut expected = Vec::new();
    let sizes = [0, 1, 4095, 4096, 4097, 1_048_577, 0, 65_536, 300_001];
    let paths = sizes.into_iter().enumerate().map(|(index, len)| {
        let path = dir.path().join(format!("part-{index}"));
        let bytes = pattern(len, index);
        fs::write(&path, &bytes).expect("writes");
        expected.extend_from_slice(format!("== {}, {len} bytes\n", path.display()).as_bytes());
        expected.extend_from_slice(&bytes);
        path
    });
    (paths.collect(), expected)
}

#[test]
fn concat_is_its_parts_behind_headers() {
    on_each_transport(|options| {
        let dir = tempfile::tempdir().expect("a folder");
        let (paths, expected) = parts(&dir);
        let mount = MountOptions { read_only: true, ..MountOptions::default() };
        let mounted = Mounted::with(Concat::new(&paths).expect("composes"), &mount, options);
        let all = mounted.join("all");
        assert_eq!(fs::metadata(&all).expect("is there").len(), expected.len() as u64);
        assert_ranges(&all, &expected);
        assert!(fs::read(&all).expect("reads") == expected);
        assert_mapped(&all, &expected, false);
        let status = mounted.session().status();
        assert_eq!((status.flows["ranges"], status.ops["READ"].errors), (6, 0));
        assert!(status.downgrades.is_empty(), "{:?}", status.downgrades);
        assert!(File::options().write(true).open(&all).is_err());
        mounted.end();
    });
}

/// Without the page cache each READ is as the caller's, at odd offsets and across headers.
#[test]
fn concat_answers_direct_reads() {
    on_each_transport(|options| {
        let dir = tempfile::tempdir().expect("a folder");
        let (paths, expected) = parts(&dir);
        let mounted = Mounted::new(Concat::new(&paths).expect("composes"), options);
        let script = "import mmap, os, sys\n\
            wanted = open(sys.argv[2], 'rb').read()\n\
            fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)\n\
            room = mmap.mmap(-1, 1 << 18)\n\
            for at in list(range(0, len(wanted) + 4096, 40960)):\n\
            \x20   count = os.preadv(fd, [room], at)\n\
            \x20   assert room[:count] == wanted[at:at + (1 << 18)], at\n";
        let mut wanted = tempfile::NamedTempFile::new().expect("a file");
        wanted.write_all(&expected).expect("writes");
        let args = [mounted.join("all"), wanted.path().to_owned()];
        let status = Command::new("python3").args(["-c", script]).args(args).status().expect("python3 runs");
        assert!(status.success());
        mounted.end();
    });
}

/// A part that shrinks after it was composed ends a reply; the server goes on.
#[test]
fn concat_survives_a_part_that_shrinks() {
    on_each_transport(|options| {
        let dir = tempfile::tempdir().expect("a folder");
        let (paths, expected) = parts(&dir);
        let mounted = Mounted::new(Concat::new(&paths).expect("composes"), options);
        let file = File::open(mounted.join("all")).expect("opens");
        File::options().write(true).open(&paths[5]).and_then(|part| part.set_len(10)).expect("cuts");
        let mut seen = vec![0; expected.len()];
        let count = file.read_at(&mut seen, 0).expect("reads what is there");
        assert!(count < expected.len() && seen[..count] == expected[..count], "{count}");
        assert_eq!(mounted.session().status().panics, 0);
        drop(file);
        mounted.end();
    });
}

#[test]
fn concat_refuses_what_cannot_be_composed() {
    let dir = tempfile::tempdir().expect("a folder");
    assert!(Concat::new(&[dir.path().join("missing")]).is_err());
    let huge = dir.path().join("huge");
    File::create(&huge).and_then(|file| file.set_len(1 << 42)).expect("a sparse file");
    let many = vec![huge; 1 << 10];
    let one = Concat::new(&many).map(drop);
    assert!(one.is_ok(), "4 PiB are composed: {one:?}");
}

#[test]
fn shout_serves_reads_and_delegates_writes() {
    on_each_transport(|options| {
        let dir = tempfile::tempdir().expect("a folder");
        let lower = dir.path().join("lower");
        let bytes: Vec<u8> = (0..700_001_u32).map(|index| b'a' + (index % 26) as u8).collect();
        fs::write(&lower, &bytes).expect("writes");
        let mounted = Mounted::new(Shout::new(lower.clone()), options);
        let path = mounted.join("file");
        assert_ranges(&path, &bytes.to_ascii_uppercase());
        let mut appended = File::options().append(true).open(&path).expect("opens");
        appended.write_all(b"said softly").expect("appends");
        let file = File::options().read(true).write(true).open(&path).expect("opens");
        let part = pattern(200_003, 9);
        file.write_all_at(&part, 4097).expect("writes");
        let mut expected = [&bytes[..], b"said softly"].concat();
        expected[4097..][..part.len()].copy_from_slice(&part);
        assert!(fs::read(&lower).expect("reads") == expected, "what was written is what is below");
        assert!(fs::read(&path).expect("reads") == expected.to_ascii_uppercase(), "and is read in capitals");
        assert_mapped(&path, &expected.to_ascii_uppercase(), true);
        let status = mounted.session().status();
        let flow = if status.transport.kind == "uring" { "relay" } else { "splice" };
        assert!(status.flows["served"] >= 7 && status.write_flows[flow] >= 7, "{status:?}");
        drop((appended, file));
        fs::write(&path, b"cut").expect("truncates");
        assert_eq!(fs::read(&lower).expect("reads"), b"cut");
        mounted.end();
    });
}

fn by_extension(name: &[u8], _: &[u64]) -> usize {
    usize::from(name.ends_with(b".log"))
}

#[test]
fn union_chooses_at_create_and_then_gets_out_of_the_way() {
    on_each_transport(|options| {
        let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        fs::write(one.path().join("both"), b"from one").expect("writes");
        fs::write(two.path().join("both"), b"from two").expect("writes");
        fs::write(two.path().join("only two"), b"second").expect("writes");
        let branches = [one.path().to_owned(), two.path().to_owned()];
        let mounted = Mounted::new(Union::new(&branches, by_extension).expect("opens"), options);
        assert_eq!(fs::read(mounted.join("both")).expect("reads"), b"from one");
        assert_eq!(fs::read(mounted.join("only two")).expect("reads"), b"second");
        let bytes = pattern(2_000_003, 1);
        for name in ["new", "new.log"] {
            fs::write(mounted.join(name), &bytes).expect("creates");
            assert_ranges(&mounted.join(name), &bytes);
            assert_mapped(&mounted.join(name), &bytes, false);
        }
        assert!(fs::read(one.path().join("new")).expect("is there") == bytes);
        assert!(fs::read(two.path().join("new.log")).expect("is there") == bytes);
        assert!(!two.path().join("new").exists() && !one.path().join("new.log").exists());
        let names: BTreeSet<_> = fs::read_dir(mounted.path())
            .expect("lists")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
            .collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["both", "new", "new.log", "only two"]);
        let status = mounted.session().status();
        assert_eq!((status.requests(Opcode::Read), status.requests(Opcode::Write)), (0, 0));
        assert!(status.flows["passthrough"] >= 14 && status.downgrades.is_empty(), "{status:?}");
        fs::remove_file(mounted.join("both")).expect("removes");
        wait_until_read(&mounted.join("both"), b"from two");
        assert!(File::create_new(mounted.join("only two")).is_err(), "it is there already");
        mounted.end();
    });
}

/// The kernel may believe for a second that the name is gone.
fn wait_until_read(path: &Path, expected: &[u8]) {
    for _ in 0..500 {
        if fs::read(path).is_ok_and(|bytes| bytes == expected) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} never showed the other branch's file", path.display());
}

#[test]
fn union_without_passthrough_moves_the_bytes() {
    on_each_transport(|options| {
        let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let branches = [one.path().to_owned(), two.path().to_owned()];
        let options = shuntfs::SessionOptions { passthrough: false, ..options.clone() };
        let mounted = Mounted::new(Union::new(&branches, Union::most_room).expect("opens"), &options);
        let bytes = pattern(1_500_001, 2);
        fs::write(mounted.join("f"), &bytes).expect("creates");
        assert_ranges(&mounted.join("f"), &bytes);
        assert!(fs::read(one.path().join("f")).expect("equal room: the first") == bytes);
        assert_eq!(mounted.session().status().flows["passthrough"], 0);
        mounted.end();
    });
}
