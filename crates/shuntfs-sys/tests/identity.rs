//! Acting as a caller, as root: who owns what is made, what survives, and that the thread is itself again afterwards.

mod support;

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use rustix::thread::{CapabilitySet, CapabilitySets};
use shuntfs_sys::data::write_at;
use shuntfs_sys::open::open_to_append;
use shuntfs_sys::{
    Caller, OsError, Stat, as_caller, chmod, chown, mkdir_at, mknod_at, open_at, open_folder, open_path_at,
    prepare_thread, reopen, stat_at, stat_of, tmpfile_at, with_fsetid,
};
use support::{is_privileged, on_own_thread};
use tempfile::TempDir;

const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const SOMEBODY: Caller = Caller { uid: 1234, gid: 2345, group: None, umask: 0o027 };

fn folder() -> (TempDir, OwnedFd) {
    let folder = tempfile::tempdir().expect("a folder");
    let root = open_folder(folder.path()).expect("opens");
    (folder, root)
}

fn create(root: &OwnedFd, name: &CStr, mode: u32) -> Result<Stat, OsError> {
    open_at(root, name, O_RDWR | O_CREAT, mode).and_then(stat_of)
}

/// What the kernel says of the calling thread, without what changes by itself, and without the umask, which stays.
fn identity() -> String {
    status_lines(&["Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:"])
}

fn umask() -> u32 {
    let line = status_lines(&["Umask:"]);
    u32::from_str_radix(line.trim_start_matches("Umask:").trim(), 8).expect("an octal number")
}

fn status_lines(kept: &[&str]) -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("procfs is there");
    status.lines().filter(|line| kept.iter().any(|key| line.starts_with(key))).collect::<Vec<_>>().join("\n")
}

/// Has each call that makes something make it, all with 0777; gives the permissions of what was made.
fn modes_of_new(root: &OwnedFd, round: u32) -> Vec<u32> {
    let name = |what: &str| CString::new(format!("{what}{round}")).expect("no NUL");
    let mode_of = |what: &CStr| stat_at(root, what).expect("stat").mode & 0o7777;
    let (file, folder, node) = (name("file"), name("folder"), name("node"));
    let makes: [&dyn Fn() -> Result<u32, OsError>; 4] = [
        &|| open_at(root, &file, O_RDWR | O_CREAT, 0o777).map(|_| mode_of(&file)),
        &|| mkdir_at(root, &folder, 0o777).map(|()| mode_of(&folder)),
        &|| mknod_at(root, &node, 0o010_777, 0).map(|()| mode_of(&node)),
        &|| tmpfile_at(root, O_RDWR, 0o777).and_then(stat_of).map(|stat| stat.mode & 0o7777),
    ];
    // Each is the first after the round before, once.
    let first = round as usize % makes.len();
    (0..makes.len()).map(|at| makes[(first + at) % makes.len()]().expect("makes")).collect()
}

/// The umask of the last caller stays with the thread. It is in force for that caller alone: nobody else who is acted for, and nothing
/// that the server makes for itself, is met by it.
#[test]
fn the_umask_stays_and_meets_nobody_else() {
    on_own_thread(|| {
        let (_folder, root) = folder();
        prepare_thread().expect("prepares");
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let itself = |umask| Caller { uid, gid, group: None, umask };
        for round in (0..20).step_by(5) {
            let made = as_caller(&itself(0o077), || Ok(modes_of_new(&root, round)));
            assert_eq!(made, Ok(vec![0o700; 4]));
            assert_eq!(umask(), 0o077, "it is what the next creation of this caller needs");
            // Those that make nothing leave it.
            open_at(&root, c"file0", 0, 0).expect("opens");
            open_path_at(&root, c"file0").expect("opens");
            assert_eq!(umask(), 0o077);
            assert_eq!(modes_of_new(&root, round + 1), [0o777; 4], "the server's own");
            assert_eq!(umask(), 0);
            let made = as_caller(&itself(0o077), || {
                let inner = as_caller(&itself(0o022), || Ok(modes_of_new(&root, round + 2)));
                assert_eq!(inner, Ok(vec![0o755; 4]));
                Ok(modes_of_new(&root, round + 3))
            });
            assert_eq!(made, Ok(vec![0o700; 4]), "after one inside");
        }
        // Neither a panic nor an error leaves the thread acting for the caller.
        let panicked = catch_unwind(AssertUnwindSafe(|| -> Result<(), OsError> {
            as_caller(&itself(0o027), || resume_unwind(Box::new("without the hook's message")))
        }));
        assert!(panicked.is_err());
        assert_eq!(modes_of_new(&root, 27), [0o777; 4]);
        let failed = as_caller(&itself(0o027), || Err::<(), _>(OsError::IO));
        assert_eq!(failed, Err(OsError::IO));
        assert_eq!(modes_of_new(&root, 28), [0o777; 4]);
        assert_eq!(as_caller(&itself(0), || Ok(modes_of_new(&root, 29))), Ok(vec![0o777; 4]));
    });
}

/// What `O_CREAT` is to [`open_at`], `O_TMPFILE` is, too.
#[test]
fn a_nameless_file_by_open_meets_no_umask_of_others() {
    on_own_thread(|| {
        let (_folder, root) = folder();
        let identity = prepare_thread().expect("prepares");
        let itself = Caller { uid: identity.uid, gid: identity.gid, group: None, umask: 0o077 };
        as_caller(&itself, || Ok(())).expect("acts");
        let flags = O_RDWR | rustix::fs::OFlags::TMPFILE.bits();
        let made = open_at(&root, c".", flags, 0o777).and_then(stat_of).expect("makes");
        assert_eq!(made.mode & 0o7777, 0o777);
        as_caller(&itself, || Ok(())).expect("acts");
        let target = root_path(&root).join("appended");
        let made = open_to_append(&target, 0o666).and_then(stat_of).expect("makes");
        assert_eq!(made.mode & 0o7777, 0o666);
    });
}

fn root_path(root: &OwnedFd) -> std::path::PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd())).expect("procfs is there")
}

#[test]
fn what_is_made_is_the_callers_as_root() {
    if !is_privileged("identity") {
        return;
    }
    let outside = identity();
    on_own_thread(|| {
        let (_folder, root) = folder();
        let prepared = prepare_thread().expect("prepares");
        assert!(prepared.switches_ids && prepared.keeps_capabilities && prepared.is_restrained);
        assert_eq!(prepare_thread(), Ok(prepared));
        let before = identity();
        assert_eq!(umask(), 0);
        // The folder is root's alone: permission was the kernel's to check on the mount.
        let made = as_caller(&SOMEBODY, || create(&root, c"file", 0o666)).expect("creates");
        assert_eq!((made.uid, made.gid, made.mode & 0o7777), (1234, 2345, 0o640));
        as_caller(&SOMEBODY, || mkdir_at(&root, c"folder", 0o777)).expect("creates");
        let made = stat_at(&root, c"folder").expect("stat");
        assert_eq!((made.uid, made.gid, made.mode & 0o7777), (1234, 2345, 0o750));
        assert_eq!(identity(), before);
        let made = create(&root, c"own", 0o666).expect("creates");
        assert_eq!((made.uid, made.gid, made.mode & 0o7777), (0, 0, 0o666));

        let inner = Caller { uid: 9, gid: 8, group: Some(7), umask: 0 };
        let (inside, after) = as_caller(&SOMEBODY, || {
            let held = (identity(), umask());
            let inside = as_caller(&inner, || Ok(identity()));
            assert_eq!((identity(), umask()), held);
            Ok((inside?, create(&root, c"nested", 0o666)))
        })
        .expect("acts");
        assert!(
            inside.contains("\t9\n") && inside.contains("\t8\n") && inside.contains("Groups:\t7"),
            "{inside}"
        );
        assert_eq!(after.map(|stat| (stat.uid, stat.gid)), Ok((1234, 2345)));
        // An id that means "leave it" to the kernel is nobody's, so nothing is done for it.
        for nobody in [
            Caller { uid: u32::MAX, ..SOMEBODY },
            Caller { gid: u32::MAX, ..SOMEBODY },
            Caller { group: Some(u32::MAX), ..SOMEBODY },
        ] {
            let made = as_caller(&nobody, || create(&root, c"nobody", 0o666));
            assert_eq!(made.err(), Some(OsError::OVERFLOW));
            assert_eq!(stat_at(&root, c"nobody").err(), Some(OsError::NOENT));
        }
        assert_eq!(identity(), before);
    });
    assert_eq!(identity(), outside, "another thread changed");
}

#[test]
fn a_panic_gives_the_identity_back_as_root() {
    if !is_privileged("identity after a panic") {
        return;
    }
    on_own_thread(|| {
        prepare_thread().expect("prepares");
        let before = identity();
        let caller = Caller { group: Some(77), ..SOMEBODY };
        let panicked = catch_unwind(AssertUnwindSafe(|| -> Result<(), OsError> {
            as_caller(&caller, || with_fsetid(|| resume_unwind(Box::new("without the hook's message"))))
        }));
        assert!(panicked.is_err());
        assert_eq!(identity(), before);
    });
}

#[test]
fn groups_decide_about_sgid_as_root() {
    if !is_privileged("sgid") {
        return;
    }
    on_own_thread(|| {
        let (_folder, root) = folder();
        prepare_thread().expect("prepares");
        mkdir_at(&root, c"shared", 0o777).expect("creates");
        let shared = open_path_at(&root, c"shared").expect("O_PATH");
        chown(&shared, None, Some(500)).expect("chown");
        with_fsetid(|| chmod(&shared, 0o2777)).expect("chmod");
        let caller = Caller { umask: 0, ..SOMEBODY };
        let stranger = as_caller(&caller, || create(&shared, c"by-stranger", 0o2775)).expect("creates");
        assert_eq!((stranger.gid, stranger.mode & 0o7777), (500, 0o775));
        let member = Caller { group: Some(500), ..caller };
        let member = as_caller(&member, || create(&shared, c"by-member", 0o2775)).expect("creates");
        assert_eq!((member.gid, member.mode & 0o7777), (500, 0o2775));
        as_caller(&caller, || mkdir_at(&shared, c"inner", 0o755)).expect("creates");
        let inner = stat_at(&shared, c"inner").expect("stat");
        assert_eq!((inner.uid, inner.gid, inner.mode & 0o7777), (1234, 500, 0o2755));
    });
}

#[test]
fn writes_strip_set_ids_as_root() {
    if !is_privileged("set-ids") {
        return;
    }
    on_own_thread(|| {
        let (_folder, root) = folder();
        let before = identity();
        let file = open_at(&root, c"file", O_RDWR | O_CREAT, 0o755).expect("creates");
        chmod(&file, 0o6755).expect("chmod");
        write_at(&file, b"as root with everything", 0).expect("writes");
        assert_eq!(stat_of(&file).expect("stat").mode & 0o7777, 0o6755);
        prepare_thread().expect("prepares");
        assert_ne!(identity(), before);
        with_fsetid(|| write_at(&file, b"still", 0)).expect("writes");
        assert_eq!(stat_of(&file).expect("stat").mode & 0o7777, 0o6755);
        write_at(&file, b"restrained", 0).expect("writes");
        assert_eq!(stat_of(&file).expect("stat").mode & 0o7777, 0o755);

        chown(&file, None, Some(500)).expect("chown");
        chmod(&file, 0o2755).expect("chmod");
        assert_eq!(stat_of(&file).expect("stat").mode & 0o7777, 0o755, "not a member, no CAP_FSETID");
        with_fsetid(|| chmod(&file, 0o2755)).expect("chmod");
        assert_eq!(stat_of(&file).expect("stat").mode & 0o7777, 0o2755);
    });
}

#[test]
fn reopening_works_as_somebody_else_as_root() {
    if !is_privileged("reopening") {
        return;
    }
    on_own_thread(|| {
        let (_folder, root) = folder();
        create(&root, c"file", 0o600).expect("creates");
        let held = open_path_at(&root, c"file").expect("O_PATH");
        prepare_thread().expect("prepares");
        as_caller(&SOMEBODY, || reopen(&held, O_RDWR)).expect("the kernel has checked before");
    });
}

fn drop_effective(unwanted: CapabilitySet) {
    let held = rustix::thread::capabilities(None).expect("capget");
    let (effective, permitted) = (held.effective - unwanted, held.permitted - unwanted);
    rustix::thread::set_capabilities(None, CapabilitySets { effective, permitted, ..held }).expect("capset");
}

#[test]
fn without_privileges_a_thread_acts_for_itself_alone_as_root() {
    if !is_privileged("identity without privileges") {
        return;
    }
    on_own_thread(|| {
        let (_folder, root) = folder();
        drop_effective(CapabilitySet::all());
        let prepared = prepare_thread().expect("prepares");
        assert!(!prepared.switches_ids && !prepared.keeps_capabilities);
        let before = identity();
        // What somebody else asked for would become the server's: with its set-user-id bit a way to be the server.
        let made = as_caller(&SOMEBODY, || create(&root, c"file", 0o4777));
        assert_eq!(made.err(), Some(OsError::PERM));
        assert_eq!(stat_at(&root, c"file").err(), Some(OsError::NOENT));
        let itself = Caller { uid: 0, gid: 0, ..SOMEBODY };
        let made = as_caller(&itself, || create(&root, c"file", 0o666)).expect("creates");
        assert_eq!((made.uid, made.gid, made.mode & 0o7777), (0, 0, 0o640));
        with_fsetid(|| create(&root, c"other", 0o666)).expect("creates");
        assert_eq!(identity(), before);
    });
}

#[test]
fn without_one_of_the_rights_a_thread_acts_for_itself_alone_as_root() {
    if !is_privileged("identity without CAP_SETGID") {
        return;
    }
    on_own_thread(|| {
        let (_folder, root) = folder();
        drop_effective(CapabilitySet::SETGID);
        let prepared = prepare_thread().expect("prepares");
        assert!(!prepared.switches_ids);
        assert_eq!(as_caller(&SOMEBODY, || create(&root, c"file", 0o666)).err(), Some(OsError::PERM));
    });
}

/// Without CAP_SETPCAP the kernel takes file capabilities on leaving root and gives every permitted one back on the
/// return; CAP_FSETID must not come back with them.
#[test]
fn without_setpcap_the_thread_stays_restrained_as_root() {
    if !is_privileged("identity without CAP_SETPCAP") {
        return;
    }
    on_own_thread(|| {
        let (_folder, root) = folder();
        drop_effective(CapabilitySet::SETPCAP);
        let prepared = prepare_thread().expect("prepares");
        assert!(prepared.switches_ids && !prepared.keeps_capabilities && prepared.is_restrained);
        let before = identity();
        // Somebody has no rights in root's folder, and here the lower file system checks that again.
        let refused = as_caller(&SOMEBODY, || create(&root, c"file", 0o666));
        assert_eq!(refused.err(), Some(OsError::ACCESS));
        assert_eq!(identity(), before);
    });
}
