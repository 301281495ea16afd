//! mergerfs's own tests, as they are, on mounts of ours. They are not here: `SHUNTFS_MERGERFS_TESTS` names the folder `tests` of its
//! repository, from the release 2.42 on.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::program::{call, have, run};
use shuntfs_testkit::{say, serial, skipped};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");
/// One of them hashes 10 GiB.
const LIMIT: Duration = Duration::from_secs(600);

/// What each of its tests ends with that cannot be done here or that says something of the machine.
const SKIPPED: i32 = 77;

/// What a test is about that does not pass, and why (docs/from-mergerfs.md, How it is tested).
const DIFFERENT: &[(&str, &str)] = &[("TEST_cfg_xattr_modes", "the setting `xattr`, which is not to be had")];

/// A copy of the tests, with what they take for mergerfs beside them. Mounts that one of them leaves go with it. One of them copies 10 GiB where a file
/// system cannot share blocks.
struct Tests(Lower);

impl Tests {
    /// `None` where there is no such file system, and then the reason was said.
    fn of(tests: &Path) -> Option<Self> {
        let top = Lower::make(LowerKind::Xfs).expect("makes")?;
        for folder in ["tests", "build", "tmp"] {
            fs::create_dir(top.path().join(folder)).expect("makes");
        }
        for entry in fs::read_dir(tests).expect("lists").map(|entry| entry.expect("lists")) {
            if entry.file_type().expect("is known").is_file() {
                fs::copy(entry.path(), top.path().join("tests").join(entry.file_name())).expect("copies");
            }
        }
        // `mergerfs BRANCHES MNT -o OPTIONS`
        let program = top.path().join("build/mergerfs");
        let script = format!(
            "#!/bin/sh\nexec '{SHUNT}' mount \"$1\" \"$2\" -o \"subtype=mergerfs,minfreespace=0,$4\"\n"
        );
        fs::write(&program, script).expect("writes");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("sets");
        Some(Self(top))
    }

    fn tests(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.path().join("tests")).expect("lists");
        let mut tests: Vec<PathBuf> = entries.map(|entry| entry.expect("lists").path()).collect();
        tests.retain(|path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"TEST_"))
        });
        tests.sort();
        tests
    }

    fn unmount_all(&self) {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let is_inside = |point: &&str| Path::new(point).starts_with(self.0.path().join("tests"));
        for point in points.filter(is_inside) {
            // It may have gone meanwhile.
            drop(call("umount", &[&"--lazy", &point], LIMIT));
        }
    }
}

impl Drop for Tests {
    fn drop(&mut self) {
        self.unmount_all();
    }
}

#[test]
fn privileged_the_tests_of_mergerfs_pass_unmodified() {
    let Some(tests) = std::env::var_os("SHUNTFS_MERGERFS_TESTS").map(PathBuf::from) else {
        skipped("SHUNTFS_MERGERFS_TESTS does not name a folder of mergerfs's tests");
        return;
    };
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        skipped("needs root and /dev/fuse");
        return;
    }
    if !have(&["python3", "fusermount3"]) {
        return;
    }
    let _serial = serial();
    let Some(copy) = Tests::of(&tests) else { return };
    let (mut passed, mut skips, mut failed) = (0, BTreeMap::new(), BTreeMap::new());
    for test in copy.tests() {
        let name = test.file_name().expect("has a name").to_string_lossy().into_owned();
        let ran = run(Command::new("python3").arg(&test).env("TMPDIR", copy.0.path().join("tmp")), LIMIT);
        copy.unmount_all();
        match ran {
            Ok(ran) if ran.status.success() => passed += 1,
            Ok(ran) if ran.status.code() == Some(SKIPPED) => drop(skips.insert(name, ran.stdout)),
            Ok(ran) => drop(failed.insert(name, ran.stdout + &ran.stderr)),
            Err(error) => drop(failed.insert(name, error.to_string())),
        }
    }
    say(&format!("mergerfs's tests: {passed} pass, these do not run here: {skips:#?}"));
    assert!(passed > 0, "there are none in {}", tests.display());
    failed.retain(|name, _| !DIFFERENT.iter().any(|(known, _)| known == name));
    assert!(failed.is_empty(), "{failed:#?}");
}
