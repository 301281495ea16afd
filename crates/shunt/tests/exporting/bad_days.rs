//! What must not be shown, and what must not be lost.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::common::{Ran, run, signal};
use crate::desk::{Desk, LoopDevice, on_path, tool};

const MIB: u64 = 1 << 20;
const TOOLS: &[&str] = &["qemu-img"];

#[track_caller]
fn refused(ran: Ran, words: &[&str], desk: &Desk) {
    let mut all = vec!["IMAGE cannot be shown"];
    all.extend(words);
    ran.fails(1, &all);
    assert!(!desk.at("disk").exists(), "nothing is left of it");
}

#[test]
fn privileged_what_an_image_needs_and_is_not_to_be_had_is_named() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    let export = |image: &str| desk.try_export("", image, "disk");
    refused(export("none.qcow2"), &["none.qcow2", "No such file"], &desk);
    refused(export("."), &["neither a file nor a block device"], &desk);
    desk.raw("base.raw", MIB);
    desk.qemu_img("create -q -f qcow2 -b base.raw -F raw top.qcow2").ok();
    fs::remove_file(desk.at("base.raw")).expect("removes");
    refused(export("top.qcow2"), &["base.raw", "No such file"], &desk);
    // Two that stand on each other.
    desk.qemu_img("create -q -f qcow2 a.qcow2 1M").ok();
    desk.qemu_img("create -q -f qcow2 -b a.qcow2 -F qcow2 b.qcow2").ok();
    desk.qemu_img("rebase -u -b b.qcow2 -F qcow2 a.qcow2").ok();
    refused(export("a.qcow2"), &["loops", "a.qcow2"], &desk);
    refused(desk.try_export("--writable", "a.qcow2", "disk"), &["loops"], &desk);
    desk.qemu_img("create -q -f qcow2 c.qcow2 1M").ok();
    desk.qemu_img("rebase -u -b nbd:localhost:10809 -F raw c.qcow2").ok();
    refused(export("c.qcow2"), &["nbd:localhost:10809"], &desk);
    desk.qemu_img("rebase -u -b x.vmdk -F vmdk c.qcow2").ok();
    refused(export("c.qcow2"), &["of format vmdk"], &desk);
}

#[test]
fn privileged_features_that_are_not_supported_are_named() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    for (options, words) in [
        ("extended_l2=on", "subclusters"),
        ("compression_type=zstd", "zlib"),
        ("data_file=data.raw", "external data file"),
    ] {
        if desk.qemu_img(&format!("create -q -f qcow2 -o {options} odd.qcow2 1M")).code != Some(0) {
            eprintln!("SKIPPED: this qemu-img does not make {options}");
            continue;
        }
        refused(desk.try_export("", "odd.qcow2", "disk"), &[words, "not supported"], &desk);
    }
    let secret = "create -q -f qcow2 --object secret,id=s,data=x -o encrypt.format=luks,encrypt.key-secret=s";
    if desk.qemu_img(&format!("{secret} odd.qcow2 1M")).code == Some(0) {
        refused(desk.try_export("", "odd.qcow2", "disk"), &["encryption"], &desk);
    }
    // Marked by hand: bits 0 and 1 of the incompatible features.
    desk.qemu_img("create -q -f qcow2 odd.qcow2 1M").ok();
    for (bit, words) in [(1, "not closed"), (2, "corrupt"), (64, "unknown features")] {
        let file = fs::File::options().write(true).open(desk.at("odd.qcow2")).expect("opens");
        file.write_all_at(&[bit], 79).expect("writes");
        let before = fs::read(desk.at("odd.qcow2")).expect("reads");
        refused(desk.try_export("--writable", "odd.qcow2", "disk"), &[words], &desk);
        assert!(fs::read(desk.at("odd.qcow2")).expect("reads") == before, "what is refused is not written");
    }
}

#[test]
fn privileged_a_raw_file_that_is_cut_off_below_gives_what_is_left() {
    let Some(desk) = Desk::new(&[]) else { return };
    let image = desk.raw("disk.raw", MIB);
    let export = desk.export("--flow served", "disk.raw", "disk");
    fs::File::options().write(true).open(&image).expect("opens").set_len(100_000).expect("cuts");
    let file = fs::File::open(export.file()).expect("opens");
    let mut read = vec![0; 200_000];
    let len = file.read_at(&mut read, 0).expect("no error, and no hang");
    assert!(len <= 131_072, "{len}");
    assert_eq!(file.read_at(&mut read, 500_000).expect("the end"), 0);
    drop(file);
    export.umount().ok();
}

#[test]
fn privileged_a_qcow2_file_that_is_cut_off_reads_as_zeroes_and_no_panic() {
    let Some(desk) = Desk::new(&["qemu-img", "qemu-io"]) else { return };
    desk.raw("disk.raw", MIB);
    desk.qemu_img("convert -f raw -O qcow2 disk.raw disk.qcow2").ok();
    let file = fs::File::options().write(true).open(desk.at("disk.qcow2")).expect("opens");
    let len = file.metadata().expect("there").len();
    file.set_len(len - 200_000).expect("cuts");
    let export = desk.export("", "disk.qcow2", "disk");
    let whole = fs::read(export.file()).expect("what is gone reads as zeroes, as in QEMU");
    assert_eq!(whole.len() as u64, MIB);
    desk.are_equal(("raw", "disk"), ("qcow2", "disk.qcow2"));
    assert_eq!(export.status()["session"]["panics"], 0);
    export.umount().ok();
}

/// A small file system, so that a disk can be full.
struct Small<'d> {
    desk: &'d Desk,
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = tool("umount").arg("-l").arg(self.desk.at("small")).status();
    }
}

#[test]
fn privileged_a_full_disk_is_an_error_and_the_image_stays_sound() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    let small = Small::new(&desk, "size=4m");
    desk.qemu_img("create -q -f qcow2 small/disk.qcow2 64M").ok();
    let export = desk.export("--writable", "small/disk.qcow2", "disk");
    let file = export.open();
    let mut written = 0;
    let error = loop {
        match file.write_at(&[7; 65536], written) {
            Ok(len) => written += len as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "after {written}: {error}");
    assert!(written >= 2 * MIB, "{written}");
    // What was written is there, before and after; there is no room for a page more, so metadata must have had its own.
    let mut read = [0; 65536];
    file.read_exact_at(&mut read, written - 65536).expect("reads");
    assert_eq!(read, [7; 65536]);
    drop(file);
    let ended = export.umount();
    let check = desk.qemu_img("check -f qcow2 small/disk.qcow2");
    // 3: leaked clusters, which are no corruption.
    assert!(matches!(check.code, Some(0 | 3)), "{check:?} after {ended:?}");
    drop(small);
}

impl<'d> Small<'d> {
    fn new(desk: &'d Desk, size: &str) -> Self {
        fs::create_dir(desk.at("small")).expect("makes");
        run(tool("mount").args(["-t", "tmpfs", "-o", size, "none"]).arg(desk.at("small"))).ok();
        Self { desk }
    }
}

/// A device whose file has no room: what was written is in the page cache, and the disk below cannot take it. Whoever takes the
/// export away hears of it.
#[test]
fn privileged_an_error_of_the_disk_at_the_end_is_said() {
    let Some(desk) = Desk::new(&["losetup"]) else { return };
    let _small = Small::new(&desk, "size=4m");
    let sparse = desk.at("small/disk.raw");
    fs::File::create_new(&sparse).and_then(|file| file.set_len(64 * MIB)).expect("sparse");
    let Some(device) = LoopDevice::over(&sparse) else { return };
    let fill = || {
        let file = fs::File::options().write(true).open(desk.at("disk")).expect("opens");
        for at in (0..16 * MIB).step_by(1 << 20) {
            file.write_all_at(&[7; 1 << 20], at).expect("the page cache takes it");
        }
    };
    let is_told = |text: &str| text.contains("No space left") || text.contains("Input/output error");
    let lost = "disk is unmounted, and what was written last is lost";
    // A qcow2 image first: its tables are read again, which a disk that lost some would not like.
    if on_path("qemu-img") {
        desk.qemu_img(&format!("create -q -f qcow2 {} 48M", device.0)).ok();
        let export = desk.export("--writable --format qcow2", &device.0, "disk");
        fill();
        let said = export.umount().fails(1, &[lost]);
        assert!(is_told(&said.err), "{said:?}");
    }
    let export = desk.export("--writable --format raw", &device.0, "disk");
    fill();
    let said = export.umount().fails(1, &[lost]);
    assert!(is_told(&said.err), "{said:?}");
    // And without anybody who asks: the server's own last words, and its exit code.
    let mut server = desk.export_in_foreground("--writable --format raw", &device.0, "disk");
    fill();
    signal(server.id(), "TERM");
    assert_eq!(server.ends(), Some(1), "{}", server.log());
    assert!(is_told(&server.log()), "{}", server.log());
}

/// A regression: the last close has the tables of the image written, which takes a while, and the end of the mount overtook it. The
/// disk's error was told to what was given up then, and the server's end was a good one.
#[test]
fn privileged_an_error_of_the_disk_is_said_to_who_unmounts_at_once() {
    let Some(desk) = Desk::new(&["losetup", "qemu-img"]) else { return };
    let _small = Small::new(&desk, "size=4m");
    let sparse = desk.at("small/disk.raw");
    fs::File::create_new(&sparse).and_then(|file| file.set_len(64 * MIB)).expect("sparse");
    let Some(device) = LoopDevice::over(&sparse) else { return };
    for transport in ["device", "auto"] {
        for round in 0..4 {
            desk.qemu_img(&format!("create -q -f qcow2 {} 48M", device.0)).ok();
            let flags = format!("--writable --format qcow2 --transport {transport}");
            let mut server = desk.export_in_foreground(&flags, &device.0, "disk");
            let file = fs::File::options().write(true).open(desk.at("disk")).expect("opens");
            for at in (0..16 * MIB).step_by(1 << 20) {
                file.write_all_at(&[7; 1 << 20], at).expect("the page cache takes it");
            }
            drop(file);
            rustix::mount::unmount(desk.at("disk"), UnmountFlags::empty()).expect("nobody has it open");
            assert_eq!(server.ends(), Some(1), "{transport}, round {round}: {}", server.log());
            assert!(server.log().contains("what was written last"), "{}", server.log());
        }
    }
}

/// The tables of a qcow2 image are written last: into room that they got when they were made, or a disk that is full by then
/// would lose what it had taken.
#[test]
fn privileged_a_disk_that_is_full_at_the_end_loses_nothing() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    let _small = Small::new(&desk, "size=8m");
    desk.qemu_img("create -q -f qcow2 small/disk.qcow2 8G").ok();
    let export = desk.export("--writable", "small/disk.qcow2", "disk");
    let file = export.open();
    // Far from each other, so that each needs a table of its own.
    for at in (0..8 << 30).step_by(1 << 30) {
        file.write_all_at(&[7; 65536], at).expect("there is room");
    }
    let filler = fs::File::create_new(desk.at("small/filler")).expect("makes");
    let full = (0..8 * MIB).step_by(4096).find_map(|at| filler.write_all_at(&[0; 4096], at).err());
    assert_eq!(full.and_then(|error| error.raw_os_error()), Some(Errno::NOSPC.raw_os_error()));
    drop(file);
    let said = export.umount().ok().out;
    assert!(said.contains("all that was written is on the disk"), "{said}");
    desk.is_sound("small/disk.qcow2");
    let export = desk.export("", "small/disk.qcow2", "disk");
    let file = fs::File::open(export.file()).expect("opens");
    let mut read = [0; 65536];
    for at in (0..8 << 30).step_by(1 << 30) {
        file.read_exact_at(&mut read, at).expect("reads");
        assert_eq!(read, [7; 65536], "at {at}");
    }
    drop(file);
    export.umount().ok();
}

/// A server that is killed loses what was not made durable, and nothing else; clusters may leak.
#[test]
fn privileged_a_kill_in_the_middle_of_writes_leaks_at_most() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    for round in 0_u64..4 {
        desk.qemu_img("create -q -f qcow2 -o cluster_size=4096 disk.qcow2 64M").ok();
        let export = desk.export("--writable", "disk.qcow2", "disk");
        let durable = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for writer in 0..4_u64 {
                let (file, durable) = (export.open(), &durable);
                scope.spawn(move || {
                    for block in 0..100_000_u64 {
                        // Ever further away, so that tables come and go.
                        let at = (block * 37 * 4 + writer) % 16384 * 4096;
                        if file.write_all_at(&[u8::try_from(writer + 1).expect("small"); 4096], at).is_err() {
                            return;
                        }
                        if writer == 0 && block == 200 && file.sync_data().is_ok() {
                            durable.store(block, Ordering::SeqCst);
                        }
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(150 + round * 130));
            export.kill();
        });
        let check = desk.qemu_img("check -f qcow2 disk.qcow2");
        assert!(matches!(check.code, Some(0 | 3)), "round {round}: {check:?}");
        if durable.load(Ordering::SeqCst) > 0 {
            desk.qemu_img("convert -f qcow2 -O raw disk.qcow2 whole.raw").ok();
            let whole = fs::read(desk.at("whole.raw")).expect("reads");
            for block in 0..=200_usize {
                let at = block * 37 * 4 % 16384 * 4096;
                assert!(
                    whole[at..at + 4096].iter().all(|byte| *byte == 1),
                    "round {round}: block {block} is lost"
                );
            }
            fs::remove_file(desk.at("whole.raw")).expect("removes");
        }
        fs::remove_file(desk.at("disk.qcow2")).expect("removes");
    }
}

/// A regression: a disk whose server was killed was unmounted without a word, and its empty file stayed.
#[test]
fn privileged_a_killed_server_is_said_to_have_lost_what_was_not_durable() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 64M").ok();
    for flags in ["", "--lazy", "--force"] {
        let export = desk.export("--writable", "disk.qcow2", "disk");
        export.open().write_all_at(&[7; 4096], 0).expect("writes");
        let pid = export.pid();
        signal(pid, "KILL");
        crate::common::eventually("the server is gone", || !crate::common::is_alive(pid));
        let disk = desk.at("disk");
        let words = ["umount", flags].into_iter().filter(|word| !word.is_empty()).map(std::ffi::OsStr::new);
        let said = crate::common::shunt(words.chain([disk.as_os_str()]));
        said.fails(1, &["disk is unmounted", "its server had ended before it", "may be lost", "by fsync"]);
        let kept = !crate::desk::is_mounted(&disk) && disk.exists();
        // Not every file system keeps what says whose file it is.
        assert!(!kept || fs::metadata(&disk).expect("is there").len() == 0);
        if kept {
            fs::remove_file(&disk).expect("removes");
        }
        let check = desk.qemu_img("check -f qcow2 disk.qcow2");
        assert!(matches!(check.code, Some(0 | 3)), "{check:?}");
    }
}

/// The threads of a killed server go one after the other: its socket takes callers for as long, and then drops them.
#[test]
fn privileged_a_server_that_ends_while_it_is_asked_has_ended() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 64M").ok();
    let export = desk.export("--writable", "disk.qcow2", "disk");
    let (pid, disk) = (export.pid(), desk.at("disk"));
    let socket = format!("/run/shunt/{}", export.status()["session"]["connection"]);
    signal(pid, "KILL");
    crate::common::eventually("the server is gone", || !crate::common::is_alive(pid));
    fs::remove_file(&socket).expect("was left");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("binds");
    let said = std::thread::scope(|scope| {
        let asked = scope.spawn(|| crate::common::shunt(["umount".as_ref(), disk.as_os_str()]));
        while !asked.is_finished() {
            listener.set_nonblocking(true).expect("is a socket");
            drop(listener.accept());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        asked.join().expect("does not panic")
    });
    let _gone_already = fs::remove_file(&socket);
    said.fails(1, &["disk is unmounted", "its server had ended before it", "may be lost"]);
}

#[test]
fn privileged_an_ordinary_user_exports_what_is_theirs() {
    let Some(desk) = Desk::new(&["fusermount3", "setpriv"]) else { return };
    let image = desk.raw("disk.raw", MIB);
    let program = desk.at("shunt");
    run(Command::new("cp").arg(crate::common::SHUNT).arg(&program)).ok();
    for path in [desk.path(), image, program.clone()] {
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).expect("is root's to give");
    }
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        run(command.args(words).env_remove("XDG_RUNTIME_DIR").current_dir(desk.path()))
    };
    as_nobody(&["export", "--writable", "--transport", "device", "disk.raw", "disk"]).ok();
    let status = as_nobody(&["status", "disk"]).ok().out;
    assert!(status.contains("raw, 1048576 bytes, writable"), "{status}");
    as_nobody(&["umount", "disk"]).ok();
    assert!(!desk.at("disk").exists());
}
