//! File systems that do nothing wrong: the fake finds nothing, and shows what they do.

mod common;

#[path = "../../shuntfs/examples/hello.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod hello;
#[path = "../../shuntfs/examples/passthrough.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod passthrough;

use std::sync::Arc;
use std::time::Duration;

use common::{Bug, Mem, TTL};
use shuntfs::{CacheHint, Errno, NodeId, Opcode, Transport, TransportKind};
use shuntfs_fake::{Fake, O_APPEND, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, Settings};
use shuntfs_sys::OsError;
use shuntfs_wire::FopenFlags;

/// On a device and on cloned ones, with one queue and with three.
fn on_each(run: impl Fn(&Settings)) {
    for (kind, queues) in [(TransportKind::Device, 1), (TransportKind::Device, 3), (TransportKind::Cloned, 3)]
    {
        let mut settings = Settings::default();
        settings.session.transport = Transport::Only(kind);
        settings.session.queues = Some(queues);
        run(&settings);
    }
}

#[test]
fn hello_says_hello() {
    let fake = Fake::mount(hello::Hello).unwrap();
    assert_eq!(fake.open("/hello", O_RDONLY).unwrap().read_to_end().unwrap(), b"Hello, world!\n");
    assert_eq!(fake.open("/hello", O_RDONLY).unwrap().read_to_end().unwrap(), b"Hello, world!\n");
    assert_eq!(fake.sent(Opcode::Open), 1, "ENOSYS is remembered");
    assert_eq!(fake.sent(Opcode::Release), 0);
    assert_eq!(fake.names("/").unwrap(), ["hello"]);
    assert_eq!(fake.stat("/hello").unwrap().size, 14);
    assert_eq!(fake.stat("/goodbye").err(), Some(Errno::NOENT));
    assert_eq!(fake.create("/new").err(), Some(Errno::OPNOTSUPP));
    let totals = fake.end();
    assert_eq!(totals.nodes, 1);
    let text = include_str!("../../shuntfs/examples/hello.rs");
    assert!(text.lines().count() < 80, "it is to be the smallest there is");
}

#[test]
fn names_come_go_and_move() {
    on_each(|settings| {
        let fs = Arc::new(Mem::new(Bug::None));
        let fake = Fake::mount_with(Arc::clone(&fs), settings).unwrap();
        fake.mkdir("/dir", 0o755).unwrap();
        let file = fake.create("/dir/file").unwrap();
        assert_eq!(fake.create("/dir/file").err(), Some(Errno::EXIST));
        fake.link("/dir/file", "/other").unwrap();
        assert_eq!(fake.stat("/other").unwrap().nlink, 2);
        fake.rename("/dir/file", "/dir/moved").unwrap();
        assert_eq!(fake.stat("/dir/file").err(), Some(Errno::NOENT));
        fake.symlink("../other", "/dir/link").unwrap();
        assert_eq!(fake.readlink("/dir/link").unwrap(), b"../other");
        assert_eq!(fake.stat("/dir/link").unwrap().ino, fake.stat("/other").unwrap().ino);
        assert_eq!(fake.names("/dir").unwrap(), ["link", "moved"]);
        assert_eq!(fake.rmdir("/dir").err(), Some(Errno::NOTEMPTY));
        for path in ["/dir/link", "/dir/moved", "/other"] {
            fake.unlink(path).unwrap();
        }
        fake.rmdir("/dir").unwrap();
        assert!(fake.names("/").unwrap().is_empty());
        file.write_at(0, b"nameless").unwrap();
        assert_eq!(file.read_to_end().unwrap(), b"nameless");
        assert_eq!(file.stat().unwrap().nlink, 0);
        assert_eq!(fs.node_count(), 4, "the file is open, and folder and link are not yet forgotten");
        drop(file);
        fake.end();
        assert_eq!(fs.node_count(), 1, "what has no name went with the kernel's counts");
    });
}

#[test]
fn a_loop_of_symlinks_ends() {
    let fake = Fake::mount(Mem::new(Bug::None)).unwrap();
    fake.symlink("b", "/a").unwrap();
    fake.symlink("a", "/b").unwrap();
    assert_eq!(fake.stat("/a").err(), Some(Errno::LOOP));
    fake.end();
}

#[test]
fn bytes_flow_through_the_page_cache_and_past_it() {
    for cache in [CacheHint::Keep, CacheHint::Drop, CacheHint::Direct] {
        on_each(|settings| {
            let mut fs = Mem::new(Bug::None);
            fs.cache = cache;
            let fake = Fake::mount_with(Arc::new(fs), settings).unwrap();
            let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
            let file = fake.create("/file").unwrap();
            assert_eq!(file.write_at(0, &bytes), Ok(bytes.len()));
            assert_eq!(file.read_to_end().unwrap(), bytes);
            assert_eq!(file.read_at(299_990, 100).unwrap(), bytes[299_990..]);
            assert_eq!(file.write_at(4090, b"across a page"), Ok(13));
            assert_eq!(file.read_at(4085, 20).unwrap()[5..18], *b"across a page");
            fake.truncate("/file", 5000).unwrap();
            assert_eq!(file.read_to_end().unwrap().len(), 5000);
            fake.truncate("/file", 6000).unwrap();
            assert_eq!(file.read_at(4990, 2000).unwrap().len(), 1010);
            drop(file);
            let more = fake.open("/file", O_WRONLY | O_APPEND).unwrap();
            assert_eq!(more.write_at(0, b"end"), Ok(3));
            assert_eq!(more.read_at(0, 1), Err(Errno::BADF));
            drop(more);
            assert_eq!(fake.open("/file", O_RDONLY).unwrap().read_at(6000, 9).unwrap(), b"end");
            assert_eq!(fake.open("/file", O_RDWR | O_TRUNC).unwrap().read_to_end().unwrap(), b"");
            fake.end();
        });
    }
}

#[test]
fn what_the_caches_hold_is_not_asked_for() {
    let settings = Settings { doubts: false, ..Settings::default() };
    let fake = Fake::mount_with(Arc::new(Mem::new(Bug::None)), &settings).unwrap();
    fake.create("/file").unwrap().write_at(0, &[7; 100]).unwrap();
    let read = || fake.open("/file", O_RDONLY).unwrap().read_to_end().unwrap();
    assert_eq!(read(), [7; 100]);
    let asked = [Opcode::Lookup, Opcode::Getattr, Opcode::Read].map(|opcode| fake.sent(opcode));
    assert_eq!(read(), [7; 100]);
    assert_eq!([Opcode::Lookup, Opcode::Getattr, Opcode::Read].map(|opcode| fake.sent(opcode)), asked);
    fake.pass(TTL + Duration::from_nanos(1));
    assert_eq!(read(), [7; 100]);
    assert_eq!(fake.sent(Opcode::Lookup), asked[0] + 1, "the name does not hold any more");
    fake.end();
}

#[test]
fn a_listing_comes_in_pieces() {
    let fs = Arc::new(Mem::new(Bug::None));
    let fake = Fake::mount_with(Arc::clone(&fs), &Settings::default()).unwrap();
    for number in 0..50 {
        drop(fake.create(&format!("/file-{number:02}")).unwrap());
    }
    fake.drop_caches();
    let records = fake.list_in_room("/", 600).unwrap();
    assert_eq!(records.len(), 50);
    assert!(fake.sent(Opcode::Readdirplus) > 15);
    assert_eq!(fake.lookups(NodeId::new(records[3].ino).unwrap()), 1, "a record counts as a lookup");
    assert_eq!(fake.end().nodes, 50);
}

#[test]
fn attributes_beside_names() {
    let fake = Fake::mount(Mem::new(Bug::None)).unwrap();
    drop(fake.create("/file").unwrap());
    assert_eq!(fake.chmod("/file", 0o600).unwrap().mode & 0o7777, 0o600);
    fake.set_xattr("/file", "user.one", b"first", 0).unwrap();
    fake.set_xattr("/file", "user.two", b"", 0).unwrap();
    assert_eq!(fake.get_xattr("/file", "user.one").unwrap(), b"first");
    assert_eq!(fake.list_xattr("/file").unwrap(), ["user.one", "user.two"]);
    fake.remove_xattr("/file", "user.two").unwrap();
    assert_eq!(fake.get_xattr("/file", "user.two"), Err(Errno::NODATA));
    assert_eq!(fake.statfs().unwrap().namelen, 255);
    fake.end();
}

#[test]
fn a_file_passes_through_to_its_lower_file() {
    on_each(|settings| {
        let lower = tempfile::tempdir().unwrap();
        std::fs::write(lower.path().join("file"), "below").unwrap();
        let fake =
            Fake::mount_with(Arc::new(passthrough::Mirror::new(lower.path()).unwrap()), settings).unwrap();
        let file = fake.open("/file", O_RDWR).unwrap();
        assert!(file.answered().unwrap().contains(FopenFlags::PASSTHROUGH));
        assert_eq!(file.read_to_end().unwrap(), b"below");
        assert_eq!(file.write_at(5, b" and above"), Ok(10));
        let again = fake.open("/file", O_RDONLY).unwrap();
        assert_eq!(again.read_to_end().unwrap(), b"below and above");
        assert_eq!((fake.sent(Opcode::Read), fake.sent(Opcode::Write)), (0, 0));
        assert_eq!(std::fs::read(lower.path().join("file")).unwrap(), b"below and above");
        drop((file, again));
        assert_eq!(fake.end().backing_ids, 0, "the id went with the node");
    });
}

/// What an ordinary user's server does: the kernel refuses to register files, and READ and WRITE come.
#[test]
fn a_file_that_cannot_pass_through_is_moved_by_the_library() {
    on_each(|settings| {
        let lower = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..500_000_u32).map(|at| (at % 253) as u8).collect();
        std::fs::write(lower.path().join("file"), &bytes).unwrap();
        let fake =
            Fake::mount_with(Arc::new(passthrough::Mirror::new(lower.path()).unwrap()), settings).unwrap();
        fake.refuse_backing(Some(OsError::PERM));
        let file = fake.open("/file", O_RDWR).unwrap();
        assert!(!file.answered().unwrap().contains(FopenFlags::PASSTHROUGH));
        assert_eq!(file.read_to_end().unwrap(), bytes);
        assert!(fake.session().status().spliced_reads > 0, "long READs go through a pipe");
        assert_eq!(file.write_at(0, b"changed"), Ok(7));
        assert_eq!(file.read_at(0, 9).unwrap(), [b"changed", &bytes[7..9]].concat());
        drop(file);
        fake.end();
    });
}

#[test]
fn one_lookup_of_two_is_given_back() {
    let fake = Fake::mount(Mem::new(Bug::None)).unwrap();
    drop(fake.create("/file").unwrap());
    let node = fake.node("/file").unwrap();
    assert_eq!(fake.lookups(node), 2, "CREATE, and the lookup in doubt");
    fake.give_back_one(node).unwrap();
    assert_eq!(fake.give_back_one(node), Err(Errno::NOENT));
    assert!(fake.stat_node(node).is_ok());
    fake.end();
}

#[test]
fn the_kernel_is_told_of_changes() {
    let fs = Arc::new(Mem::new(Bug::None));
    let fake = Fake::mount_with(Arc::clone(&fs), &Settings::default()).unwrap();
    drop(fake.create("/one").unwrap());
    drop(fake.create("/two").unwrap());
    let file = fake.open("/one", O_RDWR).unwrap();
    file.write_at(0, b"old").unwrap();
    assert_eq!(file.read_to_end().unwrap(), b"old");
    let node = file.node().unwrap();
    let notifier = fake.session().notifier();
    fs.change_behind(node, b"new one");
    notifier.data(node, 0, 0).unwrap();
    assert_eq!(file.read_to_end().unwrap(), b"new one");
    fs.swap_behind("one", "two");
    notifier.new_epoch().unwrap();
    assert_ne!(fake.node("/one").unwrap(), node);
    fs.swap_behind("one", "two");
    for name in [c"one", c"two"] {
        notifier.entry(NodeId::ROOT, shuntfs::Name::new(name).unwrap()).unwrap();
    }
    assert_eq!(fake.node("/one").unwrap(), node);
    let unknown = NodeId::new(77).unwrap();
    assert_eq!(notifier.attributes(unknown), Err(shuntfs::NotifyError::Unknown));
    drop(file);
    fake.end();
}
