//! Who owns the folder below puts something else where something was sealed, while it is mounted with `--verify=if-sealed`.
//!
//! Every block of a sealed file is checked as it is read. What was not checked is what its name leads to: a symlink was
//! followed, a hard link to another sealed file showed that one, a file that was cut at a block's end just ended there, and
//! what was removed was said never to have been. The owner may do that at any time. The cache of names is off, so that each
//! look goes below; but for the last test, in which the kernel keeps what it was told of a folder while that was not sealed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, mkfifoat, openat, renameat_with};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::mounted::shunt;
use shuntfs_testkit::program::call;

use crate::stage::{Ground, OWNER, Stage, folder, on_each_transport, put};

const EIO: Option<i32> = Some(5);
const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

fn contents(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(20_000).collect()
}

fn furnish(source: &Path, beside: &Path) -> Result<Vec<OsString>> {
    let mut words = furnish_cached(source, beside)?;
    words.extend(["--cache", "none"].map(OsString::from));
    Ok(words)
}

fn furnish_cached(source: &Path, beside: &Path) -> Result<Vec<OsString>> {
    folder(&source.join("d"), OWNER, 0o755)?;
    folder(&source.join("g"), OWNER, 0o755)?;
    for name in ["a", "b", "d/inside", "g/inside"] {
        put(&source.join(name), &contents(name), OWNER, 0o644)?;
    }
    symlink("a", source.join("link"))?;
    let store = beside.join("store");
    shunt(&[&"seal", &source, &"--store", &store])?.ok("shunt seal")?;
    put(&beside.join("evil"), &contents("evil"), OWNER, 0o644)?;
    folder(&beside.join("evil folder"), OWNER, 0o755)?;
    put(&beside.join("evil folder/inside"), &contents("evil"), OWNER, 0o644)?;
    let store = store.into_os_string();
    let words = ["--verify=if-sealed", "--seal-store"].map(OsString::from);
    Ok(words.into_iter().chain([store]).collect())
}

/// Tampers, looks at what must be refused, and puts everything back. Before and after, all is as it was sealed.
fn refused(
    stage: &Stage,
    what: &str,
    tamper: impl FnOnce(&Path) -> Result<()>,
    look: impl Fn(&Path) -> io::Result<()>,
) -> Result<()> {
    let names = ["a", "b", "d/inside", "g/inside"];
    let is_whole =
        || names.iter().all(|name| fs::read(stage.at(name)).is_ok_and(|read| read == contents(name)));
    ensure!(is_whole(), "before {what}");
    let kept = stage.beside.join("kept");
    call("cp", &[&"-a", &stage.source, &kept], LIMIT)?;
    tamper(&stage.source).context(what.to_owned())?;
    let seen = look(stage.mount.path()).map_err(|error| error.raw_os_error());
    ensure!(seen == Err(EIO), "{what}: {seen:?}");
    for name in ["a", "b", "d", "g", "link"] {
        let path = stage.source.join(name);
        drop(fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)));
        fs::rename(kept.join(name), path)?;
    }
    fs::remove_dir_all(kept)?;
    // What was found bad is examined again a second later.
    ensure!(wait_until(LIMIT, is_whole), "after {what}");
    Ok(())
}

fn reads(name: &'static str) -> impl Fn(&Path) -> io::Result<()> {
    move |mount| fs::read(mount.join(name)).map(drop)
}

fn instead(name: &str, put: impl FnOnce(PathBuf) -> io::Result<()>) -> impl FnOnce(&Path) -> Result<()> {
    move |source| {
        let path = source.join(name);
        fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path))?;
        Ok(put(path)?)
    }
}

#[test]
fn what_a_sealed_name_leads_to_is_what_was_sealed_or_nothing() -> Result<()> {
    on_each_transport(&Ground::default(), furnish, |stage| {
        let beside = &stage.beside;
        let to_evil = |path| symlink(beside.join("evil"), path);
        refused(stage, "a symlink for a file", instead("a", to_evil), reads("a"))?;
        refused(stage, "a symlink to a sealed file", instead("a", |path| symlink("b", path)), reads("a"))?;
        refused(stage, "a folder for a file", instead("a", fs::create_dir), reads("a"))?;
        let pipe = |path| Ok(mkfifoat(CWD, path, Mode::from_raw_mode(0o666))?);
        refused(stage, "a pipe for a file", instead("a", pipe), |mount| {
            fs::symlink_metadata(mount.join("a")).map(drop)
        })?;
        let linked = |path| fs::hard_link(stage.source.join("b"), path);
        let reads_both =
            |mount: &Path| fs::read(mount.join("b")).and_then(|_| fs::read(mount.join("a")).map(drop));
        refused(stage, "a hard link to another sealed file", instead("a", linked), reads_both)?;
        refused(stage, "nothing", instead("a", |_| Ok(())), |mount| File::open(mount.join("a")).map(drop))?;
        let folder = |path| symlink(beside.join("evil folder"), path);
        refused(stage, "a symlink for a folder", instead("d", folder), reads("d/inside"))?;
        let folder = |path| symlink("g", path);
        refused(stage, "a symlink to a sealed folder", instead("d", folder), reads("d/inside"))?;
        let folder = |path| fs::rename(beside.join("evil folder"), path);
        refused(stage, "another folder", instead("d", folder), reads("d/inside"))?;
        let exchange = |one: &str, other: &str, source: &Path| -> Result<()> {
            let (one, other) = (source.join(one), source.join(other));
            Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
        };
        refused(stage, "two files swapped", |source| exchange("a", "b", source), reads("b"))?;
        refused(stage, "two folders swapped", |source| exchange("d", "g", source), reads("g/inside"))?;
        let moved = |source: &Path| Ok(fs::rename(source.join("a"), source.join("moved"))?);
        refused(stage, "a file that was moved away", moved, reads("a"))?;
        fs::remove_file(stage.source.join("moved"))?;
        let cut = |source: &Path| Ok(File::options().write(true).open(source.join("a"))?.set_len(8192)?);
        refused(stage, "a file that was cut where a block ends", cut, reads("a"))?;
        let redirected = instead("link", |path| symlink("b", path));
        refused(stage, "a symlink that leads elsewhere", redirected, |mount| {
            fs::read_link(mount.join("link")).map(drop)
        })?;
        ensure!(fs::read(stage.at("link"))? == contents("a"));
        ensure!(stage.mount.log().contains("NAME REPLACED: it does not lead to what was sealed"));
        Ok(())
    })
}

/// What is mounted over a part of the sealed folder has other contents under the same names.
#[test]
fn what_is_mounted_over_it_is_checked_as_well() -> Result<()> {
    on_each_transport(&Ground::default(), furnish, |stage| {
        for (over, with, name) in [("a", "evil", "a"), ("d", "evil folder", "d/inside")] {
            let over = stage.source.join(over);
            call("mount", &[&"--bind", &stage.beside.join(with), &over], LIMIT)?;
            let seen = fs::read(stage.at(name)).map_err(|error| error.raw_os_error());
            // What the mount has met stays in use for as long as it serves.
            call("umount", &[&"-l", &over], LIMIT)?;
            ensure!(seen == Err(EIO), "{name}: {seen:?}");
            let is_whole = || fs::read(stage.at(name)).is_ok_and(|read| read == contents(name));
            ensure!(wait_until(LIMIT, is_whole), "{name} when it is bare again");
        }
        Ok(())
    })
}

/// What the kernel was told of a folder, a symlink and a file while they were not sealed does not hold by sealed names.
#[test]
fn what_the_kernel_keeps_of_an_unsealed_name_does_not_hold_for_a_sealed_one() -> Result<()> {
    on_each_transport(&Ground::default(), furnish_cached, |stage| {
        let (source, evil) = (&stage.source, contents("evil"));
        folder(&source.join("u"), OWNER, 0o755)?;
        folder(&source.join("gone"), OWNER, 0o755)?;
        for name in ["u/inside", "file"] {
            put(&source.join(name), &evil, OWNER, 0o644)?;
        }
        symlink("file", source.join("elsewhere"))?;
        // Now the kernel has names, a target, pages, and that there is nothing.
        ensure!(fs::read(stage.at("u/inside"))? == evil && fs::read(stage.at("file"))? == evil);
        ensure!(fs::read_link(stage.at("elsewhere"))? == Path::new("file"));
        let absent = |name: &str| fs::metadata(stage.at(name)).is_err_and(|e| e.raw_os_error() == Some(2));
        ensure!(absent("gone/inside"));
        let held = File::open(stage.at("u"))?;
        for (name, with) in [("d", "u"), ("g", "gone"), ("link", "elsewhere"), ("a", "file")] {
            fs::rename(source.join(name), source.join(format!("{name} as sealed")))?;
            fs::rename(source.join(with), source.join(name))?;
        }
        let code = |error: io::Error| error.raw_os_error();
        for name in ["d/inside", "g/inside", "a"] {
            let seen = fs::read(stage.at(name)).map_err(code);
            ensure!(seen == Err(EIO), "{name}: {:?}", seen.map(|read| read == evil));
        }
        let seen = fs::read_link(stage.at("link")).map_err(code);
        ensure!(seen == Err(EIO), "link: {seen:?}");
        // Whoever has the folder open goes on with what was not sealed, and others still do not.
        drop(openat(&held, "inside", OFlags::RDONLY, Mode::empty()));
        let seen = fs::read(stage.at("d/inside")).map_err(code);
        ensure!(seen == Err(EIO), "d/inside, again: {:?}", seen.map(|read| read == evil));
        ensure!(fs::read(stage.at("b"))? == contents("b"), "what is as it was sealed");
        Ok(())
    })
}
