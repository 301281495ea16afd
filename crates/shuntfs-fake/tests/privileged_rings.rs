//! What the fake kernel says to a server on a ring is what Linux 7.3 says: the same deeds on both. Needs CAP_SYS_ADMIN and /dev/fuse.
//!
//! The commands and entries of the honest one are golden frames of `shuntfs-wire` (`golden/linux-7.3`):
//! `SHUNTFS_RECORD_RINGS=FOLDER` writes them anew.

#[path = "rings/on_fake.rs"]
mod on_fake;
#[path = "rings/server.rs"]
mod server;

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use on_fake::{Came, on_fake};
use server::{Deed, Rogue};
use shuntfs::Errno;
use shuntfs_sys::caps::{self, Cap};
use shuntfs_sys::mount::{MountRequest, mount_fuse, unmount};
use shuntfs_sys::{FuseDevice, OsError, open};

/// `None` where the kernel has no pools.
fn on_linux(deed: Deed) -> Option<Came> {
    let dir = tempfile::tempdir().expect("a folder to mount on");
    let device = FuseDevice::open().expect("a device");
    let target = open::open_target(dir.path()).expect("opens");
    let request = MountRequest::new("test".as_ref(), target.as_fd(), &device);
    mount_fuse(&request).expect("mounts");
    drop(target);
    // It ends after a time in any case, and the connection with it: nobody waits forever.
    let rogue = Rogue::start(device, deed);
    let (read, written) = use_file(&dir.path().join("file"));
    unmount(dir.path(), true).expect("unmounts");
    let seen = rogue.join().expect("the rogue itself does not panic");
    let has_pools = seen.frames.contains_key("ADD_QUEUE");
    has_pools.then_some(Came { read, written, seen })
}

fn use_file(path: &Path) -> (Result<Vec<u8>, Errno>, Result<usize, Errno>) {
    let errno = |error: io::Error| {
        Errno::from_lower(OsError::from_io_error(&error).unwrap_or(OsError::IO).raw_os_error())
    };
    let file = match fs::File::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) => {
            let errno = errno(error);
            return (Err(errno), Err(errno));
        }
    };
    let mut bytes = [0; 4];
    let read = file.read_at(&mut bytes, 0).map(|count| bytes[..count].to_vec());
    (read.map_err(errno), file.write_at(b"four", 0).map_err(errno))
}

/// Who was never answered is told so in one way or another.
fn settled<T>(outcome: Result<T, Errno>) -> Result<T, Option<Errno>> {
    let never = [OsError::TIMEDOUT, OsError::NOTCONN, OsError::CONNABORTED];
    let is_told = |errno: &Errno| !never.contains(&OsError::from_raw_os_error(errno.get().into()));
    outcome.map_err(|errno| Some(errno).filter(is_told))
}

/// Of what came of a deed, whether refusals, the READ and the WRITE must be the same on both.
fn alike(deed: Deed) -> [bool; 3] {
    match deed {
        // Linux takes such an entry, and finds out when it gives it a request with pages; the fake refuses it at once.
        Deed::PlaceTaken | Deed::PlaceBeyondTable => [false; 3],
        // A request is never answered, and what comes next depends on who gives up first.
        Deed::CommitsAnother | Deed::CommitsOnAnotherQueue | Deed::CommitsByAnotherEntry => {
            [true, true, false]
        }
        // The bytes come, or do not, while the answer is taken.
        Deed::CommitsBeforeMoved => [true, false, true],
        _ => [true; 3],
    }
}

#[test]
fn privileged_the_fake_says_what_linux_says() {
    if !caps::has_effective(Cap::SysAdmin) || !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: needs CAP_SYS_ADMIN and /dev/fuse");
        return;
    }
    let Some(honest) = on_linux(Deed::Nothing) else {
        println!("SKIPPED: the kernel has no pools for FUSE over io_uring (Linux 7.3 has)");
        return;
    };
    assert_eq!((&honest.read, &honest.written), (&Ok(b"llll".to_vec()), &Ok(4)));
    if let Some(folder) = std::env::var_os("SHUNTFS_RECORD_RINGS") {
        for (name, bytes) in &honest.seen.frames {
            fs::write(Path::new(&folder).join(format!("{name}.bin")), bytes).expect("written");
        }
    }
    for deed in Deed::ALL {
        let linux = on_linux(deed).expect("as before");
        let (fake, _) = on_fake(deed);
        println!("{deed:?}: {:?} {:?} {:?}", linux.seen.refusals, linux.read, linux.written);
        let [refusals, read, written] = alike(deed);
        if refusals {
            assert_eq!(fake.seen.refusals, linux.seen.refusals, "{deed:?}");
        } else {
            let is_refused = |came: &Came| came.seen.refusals.iter().any(|(what, _)| *what == "REGISTER");
            assert_eq!((is_refused(&linux), is_refused(&fake)), (false, true), "{deed:?}");
        }
        assert!(!read || settled(fake.read) == settled(linux.read), "{deed:?}");
        assert!(!written || settled(fake.written) == settled(linux.written), "{deed:?}");
    }
}
