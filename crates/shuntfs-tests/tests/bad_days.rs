//! Bad input and bad days: each ends in a clear error for who asked, and the mount either goes on or goes away.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use shuntfs_testkit::helper::{self, Helper};
use shuntfs_testkit::identity::Identity;
use shuntfs_testkit::limit::{run_with_timeout, wait_until};
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::program::call;
use shuntfs_testkit::{Serial, serial};

const MOMENT: Duration = Duration::from_secs(10);

/// A mount of a folder of a lower file system of its own.
struct Stage {
    mount: Mounted,
    source: PathBuf,
    lower: Lower,
    _serial: Serial,
}

impl Stage {
    fn make(
        spec: &LowerSpec,
        more: impl FnOnce(MountSpec) -> MountSpec,
        way: (Transport, Flow),
    ) -> Result<Option<Self>> {
        let serial = serial();
        helper::set_program(env!("CARGO_BIN_EXE_testkit-helper"));
        let Some(lower) = spec.make()? else { return Ok(None) };
        let source = lower.folder("source")?;
        fs::create_dir(source.join("work"))?;
        let spec = more(MountSpec::new(&source, way.0, way.1));
        let Some(mount) = Mounted::start(&spec)? else { return Ok(None) };
        Ok(Some(Self { mount, source, lower, _serial: serial }))
    }

    fn plain(way: (Transport, Flow)) -> Result<Option<Self>> {
        Self::make(&LowerSpec::new(LowerKind::Ext4), |spec| spec, way)
    }

    fn work(&self) -> PathBuf {
        self.mount.path().join("work")
    }

    /// Does ordinary work, inside a time limit: the mount still answers.
    fn answers(&self) -> Result<()> {
        let file = self.work().join("answer");
        run_with_timeout(MOMENT, "ordinary work", move || -> Result<()> {
            fs::write(&file, "still here")?;
            ensure!(fs::read(&file)? == b"still here", "other bytes came back");
            fs::read_dir(file.parent().context("has a parent")?)?.count();
            Ok(fs::remove_file(&file)?)
        })?
    }

    fn end(mut self) -> Result<()> {
        let status = self.mount.unmount()?;
        ensure!(status.success(), "the server ended with {status}:\n{}", self.mount.log());
        Ok(())
    }
}

const WAYS: [(Transport, Flow); 4] = [
    (Transport::Device, Flow::Passthrough),
    (Transport::Cloned, Flow::Delegated),
    (Transport::Uring, Flow::Delegated),
    (Transport::Uring, Flow::Served),
];

const EACH: [(Transport, Flow); 3] = [
    (Transport::Device, Flow::Passthrough),
    (Transport::Cloned, Flow::Passthrough),
    (Transport::Uring, Flow::Passthrough),
];

fn code<T>(result: std::io::Result<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => shuntfs_testkit::conformance::errno_name(error.raw_os_error().unwrap_or(0)),
    }
}

/// A full lower file system: ENOSPC reaches the caller, and every byte that was accepted is there.
#[test]
fn a_full_lower_file_system() -> Result<()> {
    for way in WAYS {
        let Some(stage) = Stage::make(&LowerSpec::new(LowerKind::Ext4).size(24 << 20), |spec| spec, way)?
        else {
            continue;
        };
        let path = stage.work().join("large");
        let written = run_with_timeout(MOMENT * 3, "fill", move || -> Result<usize> {
            let mut file = File::create(&path)?;
            let mut written = 0_usize;
            let error = loop {
                let chunk = vec![u8::try_from(written / 65536 % 251)?; 65536];
                match file.write(&chunk) {
                    Ok(len) => written += len,
                    Err(error) => break error,
                }
                ensure!(written < 64 << 20, "it never gets full");
            };
            ensure!(error.kind() == ErrorKind::StorageFull, "not ENOSPC: {error}");
            file.sync_all()?;
            Ok(written)
        })??;
        for root in [stage.work(), stage.source.join("work")] {
            let found = fs::read(root.join("large"))?;
            ensure!(found.len() == written, "{way:?}: {written} bytes accepted, {} are there", found.len());
            let wrong = found.iter().enumerate().find(|(at, byte)| usize::from(**byte) != at / 65536 % 251);
            ensure!(wrong.is_none(), "{way:?}: a wrong byte at {wrong:?}");
        }
        fs::remove_file(stage.work().join("large"))?;
        stage.answers()?;
        stage.end()?;
    }
    Ok(())
}

/// What every change answers on a file system that cannot be written.
fn refusals(work: &Path) -> Vec<(&'static str, String)> {
    let truncate = || rustix::fs::open(work.join("f"), OFlags::TRUNC | OFlags::WRONLY, Mode::empty());
    vec![
        (
            "write",
            code(File::options().write(true).open(work.join("f")).and_then(|mut file| file.write(b"x"))),
        ),
        ("open to truncate", code(truncate().map_err(Into::into))),
        ("create", code(File::create(work.join("new")))),
        ("mkdir", code(fs::create_dir(work.join("d")))),
        ("unlink", code(fs::remove_file(work.join("f")))),
        ("rename", code(fs::rename(work.join("f"), work.join("g")))),
        ("link", code(fs::hard_link(work.join("f"), work.join("g")))),
        ("chmod", code(fs::set_permissions(work.join("f"), fs::Permissions::from_mode(0o600)))),
    ]
}

/// A lower file system that is read-only, or becomes so while it is mounted.
#[test]
fn a_read_only_lower_file_system() -> Result<()> {
    for way in WAYS {
        let _serial = serial();
        let Some(lower) = Lower::make(LowerKind::Ext4)? else { continue };
        let source = lower.folder("source")?;
        fs::write(source.join("f"), "content")?;
        lower.remount(true)?;
        let Some(mut mount) = Mounted::start(&MountSpec::new(&source, way.0, way.1))? else { continue };
        let other: Vec<_> = refusals(mount.path()).into_iter().filter(|(_, code)| code != "EROFS").collect();
        ensure!(other.is_empty(), "{way:?}: not EROFS: {other:?}");
        ensure!(fs::read(mount.path().join("f"))? == b"content", "{way:?}: it cannot be read");
        mount.unmount()?;
    }
    Ok(())
}

#[test]
fn a_lower_file_system_that_becomes_read_only() -> Result<()> {
    for way in WAYS {
        let Some(stage) = Stage::plain(way)? else { continue };
        let work = stage.work();
        fs::write(work.join("f"), "content")?;
        stage.lower.remount(true)?;
        // The kernel says EIO for every backing file that it cannot open; asking below before each open would cost the
        // system call that passthrough saves.
        let honest = |what: &str, code: &str| {
            code == "EROFS"
                || (way.1 == Flow::Passthrough
                    && ["write", "open to truncate"].contains(&what)
                    && code == "EIO")
        };
        let other: Vec<_> = refusals(&work).into_iter().filter(|(what, code)| !honest(what, code)).collect();
        ensure!(other.is_empty(), "{way:?}: not EROFS: {other:?}");
        ensure!(fs::read(work.join("f"))? == b"content", "{way:?}: it cannot be read");
        stage.lower.remount(false)?;
        stage.answers()?;
        stage.end()?;
    }
    Ok(())
}

/// A server that may open few descriptors, while many files are open: an honest error, never EBADF, never a missing name.
#[test]
fn the_descriptor_limit() -> Result<()> {
    const FILES: usize = 300;
    for way in WAYS {
        let Some(stage) = Stage::make(&LowerSpec::new(LowerKind::Ext4), |spec| spec.descriptors(64), way)?
        else {
            continue;
        };
        for index in 0..FILES {
            fs::write(stage.source.join(format!("work/{index}")), index.to_string())?;
        }
        let holder = Helper::spawn(&[&"open-many", &stage.work(), &FILES.to_string()])?;
        let said = holder.line_within(MOMENT * 3)?.with_context(|| format!("{way:?}: opening hangs"))?;
        let honest = said.ends_with("{}") || said.contains("EMFILE") || said.contains("ENFILE");
        let kinds = said.matches("\":").count();
        ensure!(honest && kinds <= 1, "{way:?}: {said}");
        let work = stage.work();
        let found = run_with_timeout(MOMENT * 3, "look", move || -> Result<Vec<String>> {
            let mut wrong = Vec::new();
            let listed = fs::read_dir(&work).map(|list| list.filter_map(Result::ok).count());
            match &listed {
                Ok(FILES) => {}
                other => wrong.push(format!("{other:?} names listed")),
            }
            for index in 0..FILES {
                if let Err(error) = fs::symlink_metadata(work.join(index.to_string())) {
                    wrong.push(format!("{index}: {error}"));
                }
            }
            Ok(wrong)
        })??;
        let lies: Vec<_> = found
            .iter()
            .filter(|line| !line.contains("os error 24") && !line.contains("os error 23"))
            .collect();
        ensure!(lies.is_empty(), "{way:?}: {lies:?}");
        holder.finish()?;
        // RELEASE comes in the background.
        let again = wait_until(MOMENT, || stage.answers().is_ok());
        ensure!(again, "{way:?}: after all were closed: {:?}", stage.answers());
        for index in 0..FILES {
            ensure!(
                fs::read(stage.work().join(index.to_string()))? == index.to_string().as_bytes(),
                "bytes of {index}"
            );
        }
        stage.end()?;
    }
    Ok(())
}

/// Lower files removed, replaced and renamed behind our back.
#[test]
fn changes_behind_our_back() -> Result<()> {
    for way in WAYS {
        let Some(stage) =
            Stage::make(&LowerSpec::new(LowerKind::Ext4), |spec| spec.args(&["--cache", "none"]), way)?
        else {
            continue;
        };
        let (above, below) = (stage.work(), stage.source.join("work"));
        fs::write(above.join("f"), "first")?;
        let mut open = File::open(above.join("f"))?;
        fs::remove_file(below.join("f"))?;
        ensure!(code(File::open(above.join("f"))) == "ENOENT", "{way:?}: a removed file opens");
        ensure!(code(fs::symlink_metadata(above.join("f"))) == "ENOENT", "{way:?}: a removed file is seen");
        let mut text = String::new();
        open.read_to_string(&mut text)?;
        ensure!(text == "first", "{way:?}: the open file lost its bytes: {text:?}");
        drop(open);
        fs::write(below.join("f"), "second, and longer")?;
        ensure!(fs::read(above.join("f"))? == b"second, and longer", "{way:?}: the new file is not seen");
        fs::write(below.join("f"), "third")?;
        ensure!(fs::read(above.join("f"))? == b"third", "{way:?}: an overwritten file is not seen");
        fs::create_dir_all(below.join("d/e"))?;
        ensure!(above.join("d/e").is_dir(), "{way:?}: a new folder is not seen");
        fs::rename(below.join("d"), below.join("moved"))?;
        ensure!(
            above.join("moved/e").is_dir() && !above.join("d").exists(),
            "{way:?}: a renamed folder is not seen"
        );
        fs::remove_dir_all(below.join("moved"))?;
        ensure!(
            code(File::create(above.join("moved/e/x"))) == "ENOENT",
            "{way:?}: a removed folder takes files"
        );
        stage.answers()?;
        stage.end()?;
    }
    // With caches a removed file may still be seen; then the answer is an honest error and nothing hangs.
    for way in EACH {
        let Some(stage) = Stage::plain(way)? else { continue };
        fs::write(stage.work().join("f"), "first")?;
        fs::remove_file(stage.source.join("work/f"))?;
        let found = code(fs::read(stage.work().join("f")));
        ensure!(["ENOENT", "ESTALE", "ok"].contains(&found.as_str()), "{way:?}: {found}");
        stage.answers()?;
        stage.end()?;
    }
    Ok(())
}

/// Lets a process work on the mount while `act` does something to the server; returns what that process said at last.
fn under_load(stage: &mut Stage, act: impl FnOnce(&mut Stage) -> Result<()>) -> Result<String> {
    let load = Helper::spawn(&[&"load", &stage.work(), &"60"])?;
    ensure!(load.line()? == "started", "the load starts");
    std::thread::sleep(Duration::from_millis(300));
    act(stage)?;
    let said =
        load.line_within(MOMENT * 2)?.context("the load neither fails nor ends: a process is stuck")?;
    load.finish()?;
    Ok(said)
}

fn is_mounted(path: &Path) -> Result<bool> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table.lines().any(|line| line.split(' ').nth(4) == path.to_str()))
}

/// SIGTERM and SIGINT during load: the mount goes, the server ends well, and callers get an error.
#[test]
fn termination_during_load() -> Result<()> {
    for (way, which) in EACH.into_iter().zip([Signal::TERM, Signal::INT, Signal::TERM]) {
        let Some(mut stage) = Stage::plain(way)? else { continue };
        let said = under_load(&mut stage, |stage| {
            stage.mount.signal(which)?;
            let ended = stage
                .mount
                .wait(MOMENT * 2)?
                .with_context(|| format!("{way:?}: {which:?} does not end it"))?;
            ensure!(ended.success(), "{way:?}: the server ended with {ended}:\n{}", stage.mount.log());
            Ok(())
        })?;
        ensure!(said.starts_with("stopped "), "{way:?}: {said}");
        ensure!(!is_mounted(stage.mount.path())?, "{way:?}: the mount is still there");
    }
    Ok(())
}

/// SIGKILL of the server during load: callers get an error, `umount` works, nobody is stuck.
#[test]
fn kill_during_load() -> Result<()> {
    for way in EACH {
        let Some(mut stage) = Stage::plain(way)? else { continue };
        let said = under_load(&mut stage, |stage| {
            stage.mount.signal(Signal::KILL)?;
            let ended = stage.mount.wait(MOMENT)?;
            ensure!(ended.is_some(), "{way:?}: it cannot be killed");
            Ok(())
        })?;
        // ECANCELED is the kernel's own answer to a request that a dying ring was about to fetch.
        let honest = ["ENOTCONN", "ECONNABORTED", "EIO", "ECANCELED"].iter().any(|code| said.contains(code));
        ensure!(said.starts_with("stopped ") && honest, "{way:?}: {said}");
        // What the kernel remembers it may go on saying; what it has to ask for, it cannot.
        // The kernel takes a ring down after its process is gone: a request of that moment is aborted.
        let mut asked = code(fs::metadata(stage.work().join("never-asked-for")));
        if asked == "ECONNABORTED" {
            asked = code(fs::metadata(stage.work().join("never-asked-for")));
        }
        ensure!(asked == "ENOTCONN", "{way:?}: the dead mount answers {asked}");
        call("umount", &[&stage.mount.path()], MOMENT)?;
        ensure!(!is_mounted(stage.mount.path())?, "{way:?}: umount left it");
    }
    Ok(())
}

/// Abort through the control file system: callers get an error and the server ends by itself.
#[test]
fn abort_during_load() -> Result<()> {
    for way in EACH {
        let Some(mut stage) = Stage::plain(way)? else { continue };
        let said = under_load(&mut stage, |stage| stage.mount.connection().abort())?;
        let honest = ["ENOTCONN", "ECONNABORTED", "EIO", "ECANCELED"].iter().any(|code| said.contains(code));
        // The server takes the dead mount away: a call that begins after that finds the empty folder below it.
        let below = said.contains("ENOENT") && !is_mounted(stage.mount.path())?;
        ensure!(said.starts_with("stopped ") && (honest || below), "{way:?}: {said}");
        ensure!(
            stage.mount.wait(MOMENT)?.is_some(),
            "{way:?}: the server stays after an abort:\n{}",
            stage.mount.log()
        );
        if is_mounted(stage.mount.path())? {
            call("umount", &[&stage.mount.path()], MOMENT)?;
        }
    }
    Ok(())
}

/// `umount -l` from outside: open files work until they are closed, then the server ends well.
#[test]
fn lazy_unmount_from_outside() -> Result<()> {
    for way in
        EACH.into_iter().chain([(Transport::Uring, Flow::Delegated), (Transport::Device, Flow::Served)])
    {
        let Some(mut stage) = Stage::plain(way)? else { continue };
        let path = stage.work().join("f");
        let mut file = File::create(&path)?;
        call("umount", &[&"-l", &stage.mount.path()], MOMENT)?;
        file.write_all(b"after the unmount")?;
        file.sync_all()?;
        ensure!(
            stage.mount.wait(Duration::from_millis(300))?.is_none(),
            "{way:?}: the server left an open file"
        );
        drop(file);
        let ended = stage.mount.wait(MOMENT)?.with_context(|| format!("{way:?}: the server stays"))?;
        ensure!(ended.success(), "{way:?}: the server ended with {ended}:\n{}", stage.mount.log());
        ensure!(
            fs::read(stage.source.join("work/f"))? == b"after the unmount",
            "{way:?}: what was written is lost"
        );
    }
    Ok(())
}

/// Thirty processes wait for one lock; the mount goes on, a waiting one can be killed, and the others get it in turn.
fn thirty_waiters(way: (Transport, Flow), locks: &str, owner: &str) -> Result<()> {
    let Some(stage) =
        Stage::make(&LowerSpec::new(LowerKind::Ext4), |spec| spec.args(&["--locks", locks]), way)?
    else {
        return Ok(());
    };
    let path = stage.work().join("locked");
    fs::write(&path, "x")?;
    let what = format!("{way:?} --locks {locks} {owner}");
    let take = |number: u32| -> Result<Helper> {
        let helper = Helper::spawn(&[&"lock", &owner, &"ex", &"wait", &path])?;
        let first =
            helper.line().with_context(|| format!("{what}: for number {number} the file does not open"))?;
        ensure!(first == "asking", "{what}: {first}");
        Ok(helper)
    };
    let holder = take(0)?;
    let first = holder.line().with_context(|| format!("{what}: the first waits"))?;
    ensure!(first == "held", "{what}: the first gets {first}");
    let mut waiting = (1..=30).map(take).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(Duration::from_millis(300));
    stage.answers().with_context(|| format!("{what}: while thirty wait"))?;
    let mut victim = waiting.pop().context("there are thirty")?;
    ensure!(victim.kill(Duration::from_secs(5))?, "{what}: a waiting process cannot be killed");
    ensure!(waiting[0].line_within(Duration::from_millis(50))?.is_none(), "{what}: two hold it");
    holder.finish()?;
    let mut served = 0;
    while !waiting.is_empty() {
        let mut next = None;
        let came = wait_until(MOMENT, || {
            next = waiting.iter().position(|helper| {
                matches!(helper.line_within(Duration::from_millis(1)), Ok(Some(line)) if line == "held")
            });
            next.is_some()
        });
        ensure!(came, "{what}: after {served} nobody gets the lock");
        if let Some(index) = next {
            ensure!(waiting.remove(index).finish()? == "exit 0", "{what}: a holder failed");
            served += 1;
        }
    }
    ensure!(served == 29, "{what}: {served} got it");
    stage.end()
}

#[test]
fn thirty_waiters_locks_of_the_kernel() -> Result<()> {
    EACH.into_iter().try_for_each(|way| thirty_waiters(way, "kernel", "flock"))
}

#[test]
fn thirty_waiters_locks_below() -> Result<()> {
    EACH.into_iter().try_for_each(|way| thirty_waiters(way, "lower", "flock"))
}

#[test]
fn thirty_waiters_record_locks_below() -> Result<()> {
    EACH.into_iter().try_for_each(|way| thirty_waiters(way, "lower", "posix"))
}

/// With `--locks lower` processes beside the mount see the locks, and a lock goes with its close.
#[test]
fn locks_seen_below() -> Result<()> {
    for way in EACH {
        let Some(stage) =
            Stage::make(&LowerSpec::new(LowerKind::Ext4), |spec| spec.args(&["--locks", "lower"]), way)?
        else {
            continue;
        };
        let (above, below) = (stage.work().join("f"), stage.source.join("work/f"));
        fs::write(&above, "0123456789")?;
        let attempt = |owner: &str, path: &Path| -> Result<String> {
            let helper = Helper::spawn(&[&"lock", &owner, &"ex", &"try", &path])?;
            helper.line()?;
            let answer = helper.line()?;
            helper.finish()?;
            Ok(answer)
        };
        for owner in ["posix", "ofd", "flock"] {
            for (holding, trying) in [(&above, &below), (&below, &above), (&above, &above)] {
                let holder = Helper::spawn(&[&"lock", &owner, &"ex", &"wait", holding])?;
                holder.line()?;
                ensure!(holder.line()? == "held", "{way:?} {owner}: it is free");
                let answer = attempt(owner, trying)?;
                ensure!(
                    answer == "EAGAIN",
                    "{way:?} {owner}: {} holds, {} gets {answer}",
                    holding.display(),
                    trying.display()
                );
                holder.finish()?;
                let free = wait_until(MOMENT, || attempt(owner, trying).is_ok_and(|answer| answer == "held"));
                ensure!(free, "{way:?} {owner}: the lock outlives its close");
            }
        }
        stage.end()?;
    }
    Ok(())
}

/// An unprivileged write through the kernel's passthrough leaves no program set-uid.
#[test]
fn unprivileged_passthrough_writes_strip_suid() -> Result<()> {
    use std::os::unix::fs::FileExt;
    for way in EACH {
        let Some(stage) = Stage::plain(way)? else { continue };
        let path = stage.work().join("program");
        fs::write(&path, "program")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777))?;
        Identity::nobody().run(|| File::options().write(true).open(&path)?.write_at(b"changed", 0))?;
        for place in [&path, &stage.source.join("work/program")] {
            let mode = fs::metadata(place)?.permissions().mode() & 0o7777;
            ensure!(mode == 0o777, "{way:?}: {} has {mode:o}", place.display());
        }
        let status = stage.mount.status()?;
        ensure!(status.flow("passthrough") > 0, "{way:?}: no passthrough here: {:?}", status.0);
        ensure!(status.requests("WRITE") == 0, "{way:?}: writes came to the server");
        stage.end()?;
    }
    Ok(())
}

/// Root's writes leave suid and sgid, as on the folder itself: an open that could write such a file past the server does not.
#[test]
fn writes_of_root_keep_suid() -> Result<()> {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    for way in EACH {
        let Some(stage) = Stage::plain(way)? else { continue };
        let path = stage.work().join("program");
        let is_kept = |when: &str| -> Result<()> {
            for place in [&path, &stage.source.join("work/program")] {
                let mode = fs::metadata(place)?.permissions().mode() & 0o7777;
                ensure!(mode == 0o6777, "{way:?}, {when}: {} has {mode:o}", place.display());
            }
            Ok(())
        };
        // By the open that makes it, whose umask is not what is tried.
        let umask = rustix::process::umask(rustix::fs::Mode::empty());
        let made = File::options().write(true).create_new(true).mode(0o6777).open(&path);
        rustix::process::umask(umask);
        made?.write_at(b"program", 0)?;
        is_kept("made")?;
        File::options().write(true).open(&path)?.write_at(b"changed", 0)?;
        is_kept("written")?;
        File::options().append(true).open(&path)?.write_all(b" more")?;
        is_kept("appended to")?;
        // While another holds it in passthrough.
        let held = File::open(&path)?;
        let both = File::options().read(true).write(true).open(&path)?;
        both.write_at(b"CHANGED", 0)?;
        is_kept("written beside a reader")?;
        let mut seen = [0; 12];
        held.read_exact_at(&mut seen, 0)?;
        ensure!(&seen == b"CHANGED more", "{way:?}: the reader sees {seen:?}");
        File::options().write(true).truncate(true).open(&path)?;
        is_kept("cut")?;
        drop((held, both));
        ensure!(stage.mount.status()?.flow("passthrough") > 0, "{way:?}: no passthrough here");
        stage.end()?;
    }
    Ok(())
}

/// Files made by many users at once belong each to who made it.
#[test]
fn new_files_belong_to_their_callers() -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    for way in EACH {
        let Some(stage) = Stage::plain(way)? else { continue };
        let work = stage.work();
        fs::set_permissions(&work, fs::Permissions::from_mode(0o777))?;
        std::thread::scope(|scope| -> Result<()> {
            let make = |uid: u32| {
                let work = &work;
                move || {
                    Identity::new(uid, uid + 100).run(|| -> std::io::Result<()> {
                        for index in 0..60 {
                            File::create(work.join(format!("{uid}-f{index}")))?;
                            fs::create_dir(work.join(format!("{uid}-d{index}")))?;
                        }
                        Ok(())
                    })
                }
            };
            let makers: Vec<_> = (4000..4006).map(|uid| scope.spawn(make(uid))).collect();
            for maker in makers {
                let Ok(made) = maker.join() else { bail!("a maker panicked") };
                made?;
            }
            Ok(())
        })?;
        for entry in fs::read_dir(stage.source.join("work"))? {
            let entry = entry?;
            let (name, meta) = (entry.file_name().to_string_lossy().into_owned(), entry.metadata()?);
            let uid: u32 = name.split('-').next().unwrap_or_default().parse()?;
            ensure!(
                (meta.uid(), meta.gid()) == (uid, uid + 100),
                "{way:?}: {name} belongs to {}",
                meta.uid()
            );
        }
        stage.end()?;
    }
    Ok(())
}
