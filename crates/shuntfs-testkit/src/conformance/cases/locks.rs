//! POSIX, OFD and flock locks between processes.

use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::conformance::{Case, Ctx, Observation, Outcome};
use crate::helper::Helper;
use crate::raw::{Lock, LockKind, LockOwner, lock, test_lock};

pub(super) const CASES: &[Case] = &[
    Case::new("locks/posix", posix),
    Case::new("locks/posix-close", posix_close),
    Case::new("locks/ofd", ofd),
    Case::new("locks/flock", whole),
    Case::new("locks/waiting", waiting),
    Case::new("locks/killed", killed),
    Case::new("locks/ranges", ranges),
    Case::new("locks/errors", errors),
];

/// Long enough for a waiter that will be admitted, short enough for one that will not.
const MOMENT: Duration = Duration::from_millis(150);

fn record(owner: LockOwner, kind: LockKind, start: i64, len: i64) -> Lock {
    Lock { owner, kind, start, len }
}

/// Lets another process try for a lock: `held`, or the error's name.
fn other(cx: &Ctx, owner: &str, kind: &str, range: [&str; 2]) -> anyhow::Result<String> {
    let helper = Helper::spawn(&[&"lock", &owner, &kind, &"try", &cx.path("f"), &range[0], &range[1]])?;
    anyhow::ensure!(helper.line()? == "asking", "the helper asks first");
    let answer = helper.line()?;
    helper.finish()?;
    Ok(answer)
}

fn tested(cx: &Ctx, seen: &mut Observation, label: &str, owner: &str, kind: &str) -> anyhow::Result<()> {
    let helper = Helper::spawn(&[&"test-lock", &owner, &kind, &"-", &cx.path("f"), &"0", &"0"])?;
    let us = format!("by {}", std::process::id());
    seen.see(label, helper.line()?.replace(&us, "by us"));
    helper.finish()?;
    Ok(())
}

fn posix(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"0123456789")?;
    seen.see("take", lock(&fd, &record(LockOwner::Process, LockKind::Exclusive, 2, 3), false));
    seen.see("same range", other(cx, "posix", "ex", ["2", "3"])?);
    seen.see("shared", other(cx, "posix", "sh", ["4", "1"])?);
    seen.see("before", other(cx, "posix", "ex", ["0", "2"])?);
    seen.see("after", other(cx, "posix", "ex", ["5", "0"])?);
    tested(cx, &mut seen, "who", "posix", "ex")?;
    seen.see("downgrade", lock(&fd, &record(LockOwner::Process, LockKind::Shared, 2, 3), false));
    seen.see("shared beside shared", other(cx, "posix", "sh", ["0", "0"])?);
    seen.see("exclusive beside shared", other(cx, "posix", "ex", ["0", "0"])?);
    seen.see("unlock a part", lock(&fd, &record(LockOwner::Process, LockKind::Unlock, 3, 1), false));
    seen.see("in the gap", other(cx, "posix", "ex", ["3", "1"])?);
    tested(cx, &mut seen, "who is left", "posix", "ex")?;
    Ok(seen)
}

fn posix_close(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"0123456789")?;
    lock(&fd, &record(LockOwner::Process, LockKind::Exclusive, 0, 0), false)?;
    seen.see("held", other(cx, "posix", "ex", ["0", "0"])?);
    drop(cx.open("f", OFlags::RDONLY)?);
    seen.see("gone with any close", other(cx, "posix", "ex", ["0", "0"])?);
    lock(&fd, &record(LockOwner::Process, LockKind::Exclusive, 0, 0), false)?;
    seen.see("held again", other(cx, "posix", "ex", ["0", "0"])?);
    drop(fd);
    seen.see("gone with the last", other(cx, "posix", "ex", ["0", "0"])?);
    Ok(seen)
}

fn ofd(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"0123456789")?;
    let second = cx.open("f", OFlags::RDWR)?;
    let take = record(LockOwner::Description, LockKind::Exclusive, 0, 5);
    seen.see("take", lock(&fd, &take, false));
    seen.see("by another description", lock(&second, &take, false));
    seen.see("who", test_lock(&second, &take).map(|found| format!("{found:?}")));
    seen.see("by another process", other(cx, "ofd", "ex", ["0", "1"])?);
    seen.see("posix of another process", other(cx, "posix", "ex", ["0", "1"])?);
    drop(cx.open("f", OFlags::RDONLY)?);
    seen.see("another close changes nothing", lock(&second, &take, false));
    let copy = rustix::io::dup(&fd)?;
    drop(fd);
    seen.see("a copy keeps it", lock(&second, &take, false));
    drop(copy);
    seen.see("gone with its close", lock(&second, &take, false));
    drop(second);
    seen.see("nothing is left", other(cx, "ofd", "ex", ["0", "0"])?);
    Ok(seen)
}

fn whole(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"")?;
    let second = cx.open("f", OFlags::RDONLY)?;
    seen.see("exclusive", flock(&fd, FlockOperation::NonBlockingLockExclusive));
    seen.see("a second", flock(&second, FlockOperation::NonBlockingLockShared));
    seen.see("another process", other(cx, "flock", "sh", ["0", "0"])?);
    seen.see("posix is apart", other(cx, "posix", "ex", ["0", "0"])?);
    seen.see("downgrade", flock(&fd, FlockOperation::NonBlockingLockShared));
    seen.see("two share", flock(&second, FlockOperation::NonBlockingLockShared));
    seen.see("a third", other(cx, "flock", "sh", ["0", "0"])?);
    seen.see("upgrade beside another", flock(&fd, FlockOperation::NonBlockingLockExclusive));
    drop(second);
    seen.see("upgrade alone", flock(&fd, FlockOperation::NonBlockingLockExclusive));
    seen.see("unlock", flock(&fd, FlockOperation::Unlock));
    seen.see("free", other(cx, "flock", "ex", ["0", "0"])?);
    flock(&fd, FlockOperation::LockExclusive)?;
    drop(fd);
    seen.see("gone with its close", other(cx, "flock", "ex", ["0", "0"])?);
    Ok(seen)
}

fn waiting(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for owner in ["posix", "ofd", "flock"] {
        let fd = cx.make("f", b"0123456789")?;
        match owner {
            "posix" => lock(&fd, &record(LockOwner::Process, LockKind::Exclusive, 0, 0), false)?,
            "ofd" => lock(&fd, &record(LockOwner::Description, LockKind::Exclusive, 0, 0), false)?,
            _ => flock(&fd, FlockOperation::LockExclusive)?,
        }
        let helper = Helper::spawn(&[&"lock", &owner, &"ex", &"wait", &cx.path("f"), &"0", &"0"])?;
        seen.see(format!("{owner}: first"), helper.line()?);
        seen.see(format!("{owner}: while held"), helper.line_within(MOMENT)?);
        drop(fd);
        seen.see(format!("{owner}: after close"), helper.line()?);
        let fd = cx.open("f", OFlags::RDWR)?;
        seen.see(format!("{owner}: now theirs"), flock(&fd, FlockOperation::NonBlockingLockExclusive).is_ok());
        helper.finish()?;
    }
    Ok(seen)
}

fn killed(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"0123456789")?;
    for owner in ["posix", "flock"] {
        let mut holder = Helper::spawn(&[&"lock", &owner, &"ex", &"wait", &cx.path("f"), &"0", &"0"])?;
        seen.see(format!("{owner}: asks"), holder.line()?);
        seen.see(format!("{owner}: has it"), holder.line()?);
        let mut waiter = Helper::spawn(&[&"lock", &owner, &"ex", &"wait", &cx.path("f"), &"0", &"0"])?;
        seen.see(format!("{owner}: waiter"), waiter.line()?);
        seen.see(format!("{owner}: waits"), waiter.line_within(MOMENT)?);
        seen.see(format!("{owner}: a waiter can be killed"), waiter.kill(Duration::from_secs(3))?);
        seen.see(format!("{owner}: the holder too"), holder.kill(Duration::from_secs(3))?);
        seen.see(format!("{owner}: free after"), other(cx, owner, "ex", ["0", "0"])?);
    }
    drop(fd);
    Ok(seen)
}

fn ranges(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"")?;
    let far = 1_i64 << 62;
    let exclusive = |start, len| record(LockOwner::Process, LockKind::Exclusive, start, len);
    seen.see("far", lock(&fd, &exclusive(far, 100), false));
    seen.see("to the end", lock(&fd, &exclusive(far + 1000, 0), false));
    tested(cx, &mut seen, "first in the way", "posix", "ex")?;
    seen.see("between", other(cx, "posix", "ex", ["4611686018427388004", "10"])?);
    seen.see("behind", other(cx, "posix", "ex", ["9223372036854775806", "1"])?);
    seen.see("two into one", lock(&fd, &exclusive(0, 0), false));
    tested(cx, &mut seen, "all", "posix", "sh")?;
    Ok(seen)
}

fn errors(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"x")?;
    let (reader, writer) = (cx.open("f", OFlags::RDONLY)?, cx.open("f", OFlags::WRONLY)?);
    for owner in [LockOwner::Process, LockOwner::Description] {
        seen.see("exclusive by a reader", lock(&reader, &record(owner, LockKind::Exclusive, 0, 1), false));
        seen.see("shared by a writer", lock(&writer, &record(owner, LockKind::Shared, 0, 1), false));
        seen.see("negative start", lock(&reader, &record(owner, LockKind::Shared, -5, 1), false));
        seen.see("over the end", lock(&reader, &record(owner, LockKind::Shared, i64::MAX, 10), false));
    }
    let folder = cx.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    seen.see("flock a folder", flock(&folder, FlockOperation::NonBlockingLockExclusive));
    Ok(seen)
}
