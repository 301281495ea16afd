//! A sealed folder that is mounted by itself, and its mount made a branch of a pool (docs/pool.md, "A sealed branch"). What mounts needs
//! root and /dev/fuse.
//!
//! The adversary writes to the other branch, to the pool, and below the sealed folder, and wants somebody to read under a sealed name what
//! was not sealed.

mod common;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Room, SHUNT, can_mount, run};

const EIO: Option<i32> = Some(5);
const EROFS: Option<i32> = Some(30);

/// A pool of a sealed folder's mount and of a folder that anybody may write.
struct Pool {
    // Unmounted first.
    pool: Room,
    sealed: Room,
}

impl Pool {
    fn new() -> Self {
        let (sealed, pool) = (Room::new(), Room::new());
        for path in ["kept", "tampered", "taken", "folder/in"] {
            let at = sealed.src().join(path);
            fs::create_dir_all(at.parent().expect("has a folder")).expect("makes");
            fs::write(at, format!("sealed {path}")).expect("writes");
        }
        let key = sealed.path().join("key");
        run(Command::new(SHUNT).args(["key", "new"]).arg(&key)).ok();
        run(Command::new(SHUNT).arg("seal").arg(sealed.src()).arg("--key").arg(&key)).ok();
        let trust = key.with_extension("pub");
        let trust = trust.to_str().expect("is text");
        sealed.mount(&["--verify=required", "--trust", trust]);
        let branches = format!("{}=RO:{}", sealed.mnt().display(), pool.src().display());
        let args = ["mount", "--minfreespace", "0", "--cache", "none"];
        run(Command::new(SHUNT).args(args).arg(branches).arg(pool.mnt())).ok();
        Self { pool, sealed }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.pool.mnt().join(path)
    }

    /// Puts something else under a name, on the branch that is not sealed.
    fn plant(&self, path: &str) {
        let at = self.pool.src().join(path);
        fs::create_dir_all(at.parent().expect("has a folder")).expect("makes");
        fs::write(at, "planted").expect("writes");
    }
}

fn errno<T>(outcome: io::Result<T>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("reads")
}

#[test]
fn privileged_what_is_sealed_on_the_first_branch_is_not_shadowed() {
    if !can_mount() {
        return;
    }
    let pool = Pool::new();
    // Beside the pool.
    for path in ["kept", "tampered", "taken", "folder/in", "folder/more", "other"] {
        pool.plant(path);
    }
    for path in ["kept", "folder/in"] {
        assert_eq!(text(&pool.at(path)), format!("sealed {path}"));
    }
    for path in ["folder/more", "other"] {
        assert_eq!(text(&pool.at(path)), "planted", "what is not sealed is there, too");
    }
    // Through the pool.
    fs::write(pool.at("mine"), "mine").expect("the other branch takes it");
    assert_eq!(errno(fs::write(pool.at("kept"), "changed")), EROFS);
    assert_eq!(errno(fs::remove_file(pool.at("kept"))), EROFS);
    assert_eq!(errno(fs::rename(pool.at("kept"), pool.at("moved"))), EROFS);
    assert_eq!(errno(fs::rename(pool.at("mine"), pool.at("kept"))), EROFS);
    assert_eq!(errno(fs::rename(pool.at("folder"), pool.at("elsewhere"))), EROFS);
    assert_eq!(text(&pool.at("kept")), "sealed kept");
    // Below the sealed folder.
    fs::write(pool.sealed.src().join("tampered"), "change tampered").expect("writes");
    fs::remove_file(pool.sealed.src().join("taken")).expect("removes");
    for path in ["tampered", "taken"] {
        assert_eq!(errno(fs::read(pool.at(path))), EIO, "{path}: and not what was planted");
    }
    let mut names: Vec<_> = fs::read_dir(pool.pool.mnt())
        .expect("lists")
        .map(|entry| entry.expect("reads").file_name().into_string().expect("is text"))
        .collect();
    names.sort();
    // `hello` is in each room's folder.
    assert_eq!(names, ["folder", "hello", "kept", "mine", "other", "taken", "tampered"]);
    pool.pool.umount(&[]).ok();
    pool.sealed.umount(&[]).ok();
}
