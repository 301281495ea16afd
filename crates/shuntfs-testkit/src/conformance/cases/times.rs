//! Times: which operation moves which.

use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{
    AtFlags, OFlags, Statx, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags, futimens, linkat, renameat,
    setxattr, unlinkat, utimensat,
};
use rustix::io::{pread, pwrite};
use rustix::mm::ProtFlags;

use crate::conformance::{Case, Ctx, Observation, Outcome};
use crate::identity::Identity;
use crate::raw::Mapping;

pub(super) const CASES: &[Case] = &[
    Case::new("times/set", set),
    Case::new("times/extremes", extremes),
    Case::new("times/who-may", who_may),
    Case::new("times/operations", operations),
    Case::new("times/folders", folders),
    Case::new("times/mapping", mapping),
    Case::new("times/mapping-closed", mapping_closed),
];

fn timestamps(access: Timespec, modify: Timespec) -> Timestamps {
    Timestamps { last_access: access, last_modification: modify }
}

fn at(seconds: i64, nanoseconds: i64) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}

fn text(stat: &Statx) -> String {
    let (access, modify) = (&stat.stx_atime, &stat.stx_mtime);
    format!("{}.{:09} {}.{:09}", access.tv_sec, access.tv_nsec, modify.tv_sec, modify.tv_nsec)
}

fn set(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"x")?;
    seen.see("both", futimens(&fd, &timestamps(at(1_000_000, 123_456_789), at(2_000_000, 987_654_321))));
    seen.see("times", text(&cx.statx("f")?));
    seen.see("omit one", futimens(&fd, &timestamps(at(0, UTIME_OMIT), at(3_000_000, 1))));
    seen.see("times after omit", text(&cx.statx("f")?));
    seen.see("one now", futimens(&fd, &timestamps(at(0, UTIME_NOW), at(0, UTIME_OMIT))));
    let stat = cx.statx("f")?;
    seen.see("modification is kept", stat.stx_mtime.tv_sec);
    seen.see("access is now", stat.stx_atime.tv_sec > 1_600_000_000);
    rustix::fs::symlinkat("f", cx.dir(), "s")?;
    let times = timestamps(at(5, 5), at(6, 6));
    seen.see("a symlink", utimensat(cx.dir(), "s", &times, AtFlags::SYMLINK_NOFOLLOW));
    seen.see("its times", text(&cx.statx("s")?));
    seen.see("below", std::fs::metadata(cx.lower("f")).map(|meta| mtime(&meta)));
    seen.see("nanoseconds too large", futimens(&fd, &timestamps(at(1, 1_000_000_000), at(1, 0))));
    Ok(seen)
}

fn mtime(meta: &std::fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("{}.{:09}", meta.mtime(), meta.mtime_nsec())
}

fn extremes(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"x")?;
    for seconds in [0, -1, -1_000_000, i64::from(i32::MAX), i64::from(i32::MAX) + 1, 10_000_000_000, 20_000_000_000] {
        let times = timestamps(at(seconds, 5), at(seconds, 999_999_999));
        seen.see(format!("{seconds}"), futimens(&fd, &times));
        seen.see("times", text(&cx.statx("f")?));
    }
    Ok(seen)
}

fn who_may(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"x")?;
    let fixed = timestamps(at(100, 0), at(200, 0));
    let now = timestamps(at(0, UTIME_NOW), at(0, UTIME_NOW));
    let nobody = Identity::nobody();
    for mode in [0o644, 0o666] {
        cx.chmod("f", mode)?;
        let set = |times: &Timestamps| nobody.run(|| utimensat(cx.dir(), "f", times, AtFlags::empty()));
        seen.see(format!("{mode:o} fixed"), set(&fixed));
        seen.see("now", set(&now));
    }
    cx.chown("f", 65534, 65534)?;
    seen.see("by the owner", nobody.run(|| utimensat(cx.dir(), "f", &fixed, AtFlags::empty())));
    seen.see("times", text(&cx.statx("f")?));
    Ok(seen)
}

/// Puts modification and change time into the past as far as that goes, acts, and says which of the times moved.
fn moved(
    cx: &Ctx,
    seen: &mut Observation,
    name: &str,
    label: &str,
    act: impl FnOnce() -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    utimensat(cx.dir(), name, &timestamps(at(1_000_000, 0), at(1_000_000, 0)), AtFlags::empty())?;
    let before = cx.statx(name)?;
    // Longer than the coarse clock's tick of any kernel.
    sleep(Duration::from_millis(12));
    act()?;
    let after = cx.statx(name)?;
    let word = |moved: bool| if moved { "moved" } else { "kept" };
    let changed = (before.stx_ctime.tv_sec, before.stx_ctime.tv_nsec) != (after.stx_ctime.tv_sec, after.stx_ctime.tv_nsec);
    seen.see(format!("mtime after {label}"), word(before.stx_mtime.tv_sec != after.stx_mtime.tv_sec));
    seen.see(format!("ctime after {label}"), word(changed));
    Ok(())
}

fn operations(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"0123456789")?;
    moved(cx, &mut seen, "f", "nothing", || Ok(()))?;
    moved(cx, &mut seen, "f", "read", || pread(&fd, &mut [0_u8; 4], 0).map(drop))?;
    moved(cx, &mut seen, "f", "write", || pwrite(&fd, b"x", 0).map(drop))?;
    moved(cx, &mut seen, "f", "write of nothing", || pwrite(&fd, b"", 0).map(drop))?;
    moved(cx, &mut seen, "f", "truncate", || rustix::fs::ftruncate(&fd, 5))?;
    moved(cx, &mut seen, "f", "truncate to the same size", || rustix::fs::ftruncate(&fd, 5))?;
    moved(cx, &mut seen, "f", "chmod", || cx.chmod("f", 0o600))?;
    moved(cx, &mut seen, "f", "chown", || cx.chown("f", 1, 1))?;
    moved(cx, &mut seen, "f", "setxattr", || setxattr(cx.path("f"), "user.a", b"v", XattrFlags::empty()))?;
    moved(cx, &mut seen, "f", "link", || linkat(cx.dir(), "f", cx.dir(), "g", AtFlags::empty()))?;
    moved(cx, &mut seen, "f", "unlink of the other", || unlinkat(cx.dir(), "g", AtFlags::empty()))?;
    moved(cx, &mut seen, "f", "open to truncate", || cx.open("f", OFlags::WRONLY | OFlags::TRUNC).map(drop))?;
    moved(cx, &mut seen, "f", "open", || cx.open("f", OFlags::RDWR).map(drop))?;
    moved(cx, &mut seen, "f", "fallocate", || {
        rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, 9000)
    })?;
    Ok(seen)
}

fn folders(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o755)?;
    cx.make("g", b"")?;
    moved(cx, &mut seen, "d", "create", || cx.create("d/f", 0o644).map(drop))?;
    moved(cx, &mut seen, "d", "write inside", || pwrite(cx.open("d/f", OFlags::RDWR)?, b"x", 0).map(drop))?;
    moved(cx, &mut seen, "d", "rename inside", || renameat(cx.dir(), "d/f", cx.dir(), "d/h"))?;
    moved(cx, &mut seen, "d", "rename into", || renameat(cx.dir(), "g", cx.dir(), "d/g"))?;
    moved(cx, &mut seen, "d", "unlink", || unlinkat(cx.dir(), "d/g", AtFlags::empty()))?;
    moved(cx, &mut seen, "d", "mkdir", || rustix::fs::mkdirat(cx.dir(), "d/sub", rustix::fs::Mode::RWXU))?;
    moved(cx, &mut seen, "d", "readdir", || cx.names("d").map(drop))?;
    moved(cx, &mut seen, "d", "rmdir", || unlinkat(cx.dir(), "d/sub", AtFlags::REMOVEDIR))?;
    Ok(seen)
}

fn mapping(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &[b'.'; 4096])?;
    let map = Mapping::new(&fd, 4096, ProtFlags::READ | ProtFlags::WRITE, true)?;
    utimensat(cx.dir(), "f", &timestamps(at(1_000_000, 0), at(1_000_000, 0)), AtFlags::empty())?;
    map.store(0, b"stored");
    map.sync()?;
    let word = if cx.statx("f")?.stx_mtime.tv_sec == 1_000_000 { "kept" } else { "moved" };
    seen.see("mtime after a store", word);
    Ok(seen)
}

/// At the latest when the last descriptor is closed and the cache of attributes ends, the time of a store is seen.
fn mapping_closed(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", &[b'.'; 4096])?;
    utimensat(cx.dir(), "f", &timestamps(at(1_000_000, 0), at(1_000_000, 0)), AtFlags::empty())?;
    let map = Mapping::new(&fd, 4096, ProtFlags::READ | ProtFlags::WRITE, true)?;
    map.store(0, b"stored");
    map.sync()?;
    drop(map);
    rustix::fs::fsync(&fd)?;
    drop(fd);
    sleep(Duration::from_millis(1500));
    drop(cx.open("f", OFlags::RDONLY)?);
    seen.see("mtime", if cx.statx("f")?.stx_mtime.tv_sec == 1_000_000 { "kept" } else { "moved" });
    seen.see("below", std::fs::metadata(cx.lower("f")).map(|meta| mtime(&meta) != "1000000.000000000"));
    Ok(seen)
}
