//! A file system on a loop device over an export, in use while servers are killed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use shuntfs_testkit::seeded::Random;

use crate::callers::{Callers, Seen, is_caller, is_to_stop};
use crate::common::{eventually, run};
use crate::desk::{Desk, LoopDevice, tool};
use crate::kept::{Kept, is_sound, kills, log, seed};

/// A file system on a loop device over an export; it does not outlive this.
struct Guest {
    mnt: PathBuf,
    device: Option<LoopDevice>,
}

impl Guest {
    /// `None` where there is no loop device.
    fn mount(desk: &Desk, file: &Path) -> Option<Self> {
        let device = LoopDevice::over(file)?;
        run(tool("mkfs.ext4").args(["-q", "-F", &device.0])).ok();
        let mnt = desk.at("mnt");
        fs::create_dir_all(&mnt).expect("makes");
        run(tool("mount").args(["-o", "discard", &device.0]).arg(&mnt)).ok();
        Some(Self { mnt, device: Some(device) })
    }

    /// Unmounts, and has the file system checked.
    #[track_caller]
    fn ends_sound(mut self) {
        run(tool("umount").arg(&self.mnt)).ok();
        let device = self.device.take().expect("has one");
        let ran = run(tool("e2fsck").args(["-f", "-n", &device.0]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = tool("umount").arg("-l").arg(&self.mnt).stderr(Stdio::null()).status();
    }
}

/// Writes files, has them made durable, reads them past the cache, and removes them.
pub(crate) fn use_files(folder: &Path) -> Seen {
    let (mut seen, own) = (Seen::default(), std::process::id());
    for number in 0_u64.. {
        if is_to_stop() {
            return seen;
        }
        let path = folder.join(format!("{own}-{}", number % 8));
        let bytes = vec![
            u8::try_from(number % 251).expect("small");
            4096 * (1 + usize::try_from(number % 90).expect("small"))
        ];
        let Some(file) = seen.call("open(O_CREAT)", || {
            File::options().read(true).write(true).create(true).truncate(true).open(&path)
        }) else {
            continue;
        };
        seen.call("write", || file.write_all_at(&bytes, 0));
        seen.call("fsync", || file.sync_all());
        seen.call("fadvise", || Ok(shuntfs_sys::data::forget_cached(&file)?));
        if seen.call("read", || fs::read(&path)).is_some_and(|read| read != bytes) {
            seen.wrong += 1;
        }
        if number % 3 == 0 {
            seen.call("unlink", || fs::remove_file(&path));
        }
    }
    seen
}

const GUEST: &str = "guest::privileged_a_file_system_in_use_does_not_notice_that_servers_are_killed";

#[test]
fn privileged_a_file_system_in_use_does_not_notice_that_servers_are_killed() {
    if let Some(folder) = is_caller() {
        return use_files(&folder).say();
    }
    let Some(desk) = Desk::new(&NEEDED) else { return };
    let mut random = Random::new(seed());
    for (flags, image) in [
        ("--writable", "disk.qcow2"),
        ("--writable", "disk.raw"),
        ("--writable --growable --format raw", "grow.raw"),
    ] {
        in_use(&desk, (flags, image), GUEST, |kept| {
            for replaced in 1..=kills() {
                std::thread::sleep(Duration::from_millis(50 + random.below(450) as u64));
                kept.kill();
                assert_eq!(kept.replaced(), replaced, "{}", log(&desk));
            }
        });
    }
}

/// What [`in_use`] needs.
pub(crate) const NEEDED: [&str; 4] = ["qemu-img", "mkfs.ext4", "e2fsck", "losetup"];

/// Has callers, which are this program's `test`, use a file system on an export, while something is done with that, which they must not
/// notice.
pub(crate) fn in_use(desk: &Desk, (flags, image): (&str, &str), test: &str, disturb: impl FnOnce(&Kept<'_>)) {
    let format = image.rsplit('.').next().expect("has an ending");
    desk.qemu_img(&format!("create -q -f {format} {image} 256M")).ok();
    let kept = Kept::start(desk, flags, image);
    let Some(guest) = Guest::mount(desk, kept.export.file()) else {
        kept.umount(desk, image);
        return;
    };
    let callers = Callers::start(2, test, &guest.mnt);
    disturb(&kept);
    std::thread::sleep(Duration::from_millis(100));
    let seen = callers.stop();
    println!("{image} {flags}: {seen:?}");
    assert!(seen.calls > 20, "{seen:?}");
    assert_eq!((seen.failed, seen.wrong), (0, 0), "{image}: {seen:?}");
    guest.ends_sound();
    let of_export = || run(tool("losetup").arg("-j").arg(kept.export.file()));
    eventually("the loop device is given back", || of_export().out.is_empty());
    kept.umount(desk, image);
    if format == "qcow2" {
        is_sound(desk, image);
    }
}
