//! Disks of which a part is reserved for root (`mkfs.ext4 -m`). Policies go by what ordinary users may take. A server that is root may take what is
//! reserved, too, for the files that are there, as the kernel lets it.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use shuntfs_pool::{Cache, FlowWish, Pool, PoolOptions};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};
use shuntfs_testkit::mounted::shunt_binary;
use shuntfs_testkit::program::{call, have, wait_for};
use shuntfs_testkit::skipped;

use mounted::users::{ALICE, says};
use mounted::{Mounted, merge};

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const LEN: u64 = 64 * MIB;
/// A user that fusermount3 finds.
const NOBODY: u32 = 65_534;

/// A quarter is reserved. The second one has room for all that the first one has.
fn disks() -> Option<Vec<Lower>> {
    let disk = |len| LowerSpec::new(LowerKind::Ext4).size(len).reserved(25).make().unwrap();
    [LEN, 3 * LEN].map(disk).into_iter().collect()
}

/// What is free on a disk, and what of that is for everybody.
fn space(disk: &Lower) -> [u64; 2] {
    let below = rustix::fs::statvfs(disk.path()).unwrap();
    [below.f_bfree * below.f_frsize, below.f_bavail * below.f_frsize]
}

/// Writes until there is no room, or so much was written; how much.
fn fill(file: &File, most: u64) -> u64 {
    let piece = vec![b'x'; 64 << 10];
    let mut written = 0;
    while written < most {
        match file.write_at(&piece, written) {
            Ok(len) => written += len as u64,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(28), "{error}");
                break;
            }
        }
    }
    written
}

fn start(change: impl FnOnce(&mut PoolOptions)) -> Option<Mounted> {
    let disks = disks()?;
    for disk in &disks {
        let [free, available] = space(disk);
        assert!(free - available > LEN / 5, "a part is reserved: {free} {available}");
        fs::set_permissions(disk.path(), Permissions::from_mode(0o777)).unwrap();
    }
    let merge = Some(merge(&disks, "ff"));
    let mut options = PoolOptions { merge, cache: Cache::None, ..PoolOptions::new("disks") };
    change(&mut options);
    Mounted::new(Pool::open(&options).unwrap(), disks)
}

/// By a file system's own tables a little more may be taken than it says.
const SLACK: u64 = 2 * MIB;

/// What ordinary users may take is used up: a file of theirs goes on into what is reserved, by way of a server that is root, and is moved when that is used
/// up, too. In passthrough the kernel writes for the server, with what that may.
#[test]
fn a_server_that_is_root_goes_on_into_the_reserve() {
    for is_past in [false, true] {
        let change = |options: &mut PoolOptions| {
            if is_past {
                options.merge.as_mut().unwrap().passthrough_reserve = Some(0);
            } else {
                options.flow = FlowWish::Relay;
            }
        };
        let Some(mounted) = start(change) else { return };
        let [free, available] = space(&mounted.disks[0]);
        let write = |mib: u64| format!("dd if=/dev/zero of=file bs=1M count={mib} 2>&1 | grep -c 'No space'");
        mounted.expect(ALICE, &write((available + free) / 2 / MIB), "0");
        assert_eq!((mounted.on("file"), mounted.observer.facts().files_moved), (vec![0], 0), "{is_past}");
        let [_, available] = space(&mounted.disks[0]);
        assert_eq!(available, 0, "{is_past}: it is in the reserve");
        // Policies, and whoever asks, hear that there is nothing. What is said of a branch may be a second old.
        let second = space(&mounted.disks[1])[1];
        let is_told = wait_until(Duration::from_secs(5), || {
            let shown = rustix::fs::statvfs(mounted.top.path()).unwrap();
            (shown.f_bavail * shown.f_frsize).abs_diff(second) < SLACK
        });
        assert!(is_told, "{is_past}");
        let (on, moves) = (usize::from(!is_past), u64::from(!is_past));
        mounted.expect(ALICE, &write(free / MIB + 2), if is_past { "1" } else { "0" });
        assert_eq!((mounted.on("file"), mounted.observer.facts().files_moved), (vec![on], moves));
    }
}

/// A branch on which only the reserve is left takes nothing new where something must be left.
#[test]
fn a_branch_with_the_reserve_alone_is_full_for_policies() {
    let Some(mounted) = start(|options| options.merge.as_mut().unwrap().min_free = 4 * MIB) else { return };
    let filler = File::create(mounted.below(0, "filler")).unwrap();
    let [_, available] = space(&mounted.disks[0]);
    fill(&filler, available - MIB);
    let [free, available] = space(&mounted.disks[0]);
    assert!(free > LEN / 5 && available < 4 * MIB, "{free} {available}");
    // What is said of a branch may be a second old.
    std::thread::sleep(Duration::from_millis(1100));
    fs::write(mounted.at("new"), "x").unwrap();
    assert_eq!(mounted.on("new"), [1]);
}

/// A server of an ordinary user, which is ended with this.
struct Server {
    child: Child,
    at: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(Command::new("umount").arg("--lazy").arg(&self.at).status());
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// The same where an ordinary user serves the pool: no capability is in it.
#[test]
fn an_ordinary_users_server_moves_at_the_same_mark() {
    if !have(&["fusermount3", "setpriv"]) {
        return;
    }
    if fs::metadata("/dev/fuse").is_ok_and(|device| device.permissions().mode() & 0o6 != 0o6) {
        return skipped("ordinary users may not open /dev/fuse");
    }
    let Some(disks) = disks() else { return };
    let room = tempfile::tempdir().unwrap();
    let mnt = room.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    for folder in disks.iter().map(Lower::path).chain([room.path(), &*mnt]) {
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let program = room.path().join("shunt");
    fs::copy(shunt_binary().unwrap(), &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()]);
    command.arg(&program).args(["mount", "--foreground", "--create", "ff", "--minfreespace", "0"]);
    command.arg(format!("{}:{}", disks[0].path().display(), disks[1].path().display())).arg(&mnt);
    command.stdin(Stdio::null()).env("HOME", room.path());
    let log = File::create(room.path().join("log")).unwrap();
    let child = command.stderr(log.try_clone().unwrap()).stdout(log).spawn().unwrap();
    let mut server = Server { child, at: mnt.clone() };
    let is_there = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(mnt.to_str().unwrap());
    let is_mounted =
        wait_until(Duration::from_secs(20), || is_there() || server.child.try_wait().unwrap().is_some());
    assert!(is_mounted && is_there(), "{}", fs::read_to_string(room.path().join("log")).unwrap());
    let [free, available] = space(&disks[0]);
    // Nobody else gets in there.
    let script = |mib: u64| format!("cd mnt && dd if=/dev/zero of=file bs=1M count={mib} 2>&1 | grep copied");
    let said = says(room.path(), NOBODY, &script((available - SLACK) / MIB));
    let on = |disk: usize| disks[disk].path().join("file").exists();
    let first = [on(0), on(1)];
    let said_then = says(room.path(), NOBODY, &script(available / MIB + 4));
    let then = [on(0), on(1)];
    let left = space(&disks[0]);
    call("umount", &[&mnt], LIMIT).unwrap();
    assert!(wait_for(&mut server.child, LIMIT).unwrap().is_some());
    assert!(said.contains("copied") && said_then.contains("copied"), "{said} {said_then}");
    assert_eq!((first, then), ([true, false], [false, true]), "{free} {available} {left:?}");
}
