//! stat, statx with birth time, statfs, chmod, chown, fsync.

use rustix::fs::{
    AtFlags, FileType, OFlags, StatxFlags, fchmod, fchown, fdatasync, fstat, fstatfs, fsync, fstatvfs, statat, statx,
};
use rustix::io::pwrite;

use crate::conformance::{Case, Ctx, Limit, Outcome, ctx};
use crate::identity::Identity;

pub(super) const CASES: &[Case] = &[
    Case::new("stat/fields", fields),
    Case::limited(
        "stat/birth",
        birth,
        &[
            Limit::until((6, 6), "birth time is there", "false", BIRTH),
            Limit::until((6, 6), "as below", "false", BIRTH),
        ],
    ),
    Case::new("stat/sizes", sizes),
    Case::new("stat/inodes", inodes),
    Case::new("stat/statfs", filesystem),
    Case::new("stat/chmod-chown", chmod_chown),
    Case::new("stat/fsync", sync),
    Case::new("stat/o-path", o_path),
];

const BIRTH: &str = "FUSE_STATX, Linux 6.6: before, a server is not asked for the time of birth";

fn fields(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"12345")?;
    let stat = cx.statx("f")?;
    let basic = StatxFlags::BASIC_STATS.bits();
    seen.see("basic fields are there", stat.stx_mask & basic == basic);
    seen.see("block size", stat.stx_blksize);
    seen.see("blocks", stat.stx_blocks);
    seen.see("links", stat.stx_nlink);
    seen.see("device number of a file", format!("{}:{}", stat.stx_rdev_major, stat.stx_rdev_minor));
    let old = statat(cx.dir(), "f", AtFlags::empty())?;
    seen.see("stat says the same inode", old.st_ino == stat.stx_ino);
    seen.see("and the same size", old.st_size);
    let folder = cx.statx(".")?;
    seen.see("folder's block size", folder.stx_blksize);
    seen.see("same device", (folder.stx_dev_major, folder.stx_dev_minor) == (stat.stx_dev_major, stat.stx_dev_minor));
    seen.see("inode as below", rustix::fs::stat(cx.lower("f"))?.st_ino == old.st_ino);
    Ok(seen)
}

fn birth(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    let below = statx(rustix::fs::CWD, cx.lower("f"), AtFlags::empty(), StatxFlags::BTIME)?;
    let stat = cx.statx("f")?;
    seen.see("birth time is there", stat.stx_mask & StatxFlags::BTIME.bits() != 0);
    let same = (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec) == (below.stx_btime.tv_sec, below.stx_btime.tv_nsec);
    seen.see("as below", same);
    rustix::fs::renameat(cx.dir(), "f", cx.dir(), "g")?;
    let after = cx.statx("g")?;
    seen.see("kept by a rename", after.stx_btime.tv_nsec == stat.stx_btime.tv_nsec);
    Ok(seen)
}

fn sizes(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.create("f", 0o644)?;
    for (at, len) in [(0, 1), (4095, 2), (100_000, 1), (10, 5)] {
        pwrite(&fd, &vec![b'x'; len], at)?;
        seen.see(format!("{len} at {at}, by descriptor"), ctx::describe_fd(&fd));
        seen.see("by name", cx.look("f"));
    }
    for size in [0, 7, 70_000, 3] {
        rustix::fs::ftruncate(&fd, size)?;
        seen.see(format!("truncate to {size}"), cx.look("f"));
    }
    seen.see("by path", std::fs::File::options().write(true).open(cx.path("f")).and_then(|f| f.set_len(9)));
    seen.see("after", cx.read("f"));
    seen.see("negative", rustix::fs::ftruncate(&fd, u64::MAX));
    let reader = cx.open("f", OFlags::RDONLY)?;
    seen.see("by a reader", rustix::fs::ftruncate(&reader, 1));
    Ok(seen)
}

fn inodes(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o755)?;
    for name in ["d/a", "d/b"] {
        cx.make(name, b"")?;
    }
    let fd = cx.open("d", OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in rustix::fs::Dir::read_from(&fd)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == ".." {
            continue;
        }
        let stat = statat(&fd, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        anyhow::ensure!(stat.st_ino == entry.ino(), "{name}: readdir says {}, stat {}", entry.ino(), stat.st_ino);
    }
    seen.see("readdir and stat agree", true);
    let mut all = vec![cx.statx("d")?.stx_ino, cx.statx("d/a")?.stx_ino, cx.statx("d/b")?.stx_ino];
    all.sort_unstable();
    all.dedup();
    seen.see("different files", all.len());
    Ok(seen)
}

fn filesystem(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"")?;
    let (here, below) = (fstatvfs(&fd)?, rustix::fs::statvfs(cx.lower("f"))?);
    seen.see("block size", here.f_bsize);
    seen.see("fragment size", here.f_frsize);
    seen.see("blocks as below", here.f_blocks == below.f_blocks);
    seen.see("files as below", here.f_files == below.f_files);
    seen.see("free within reach of below", here.f_bfree.abs_diff(below.f_bfree) < 5000);
    seen.see("available within reach of below", here.f_bavail.abs_diff(below.f_bavail) < 5000);
    seen.see("longest name", here.f_namemax);
    seen.see("statfs says the same", fstatfs(&fd)?.f_blocks == here.f_blocks);
    Ok(seen)
}

fn chmod_chown(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"")?;
    for mode in [0o000, 0o7777, 0o644] {
        seen.see(format!("chmod {mode:o}"), cx.chmod("f", mode));
        seen.see("mode", cx.mode("f"));
    }
    seen.see("fchmod", fchmod(&fd, rustix::fs::Mode::from_raw_mode(0o600)));
    seen.see("chown", cx.chown("f", 4000, 5000));
    seen.see("look", cx.look("f"));
    seen.see("only the group", fchown(&fd, None, Some(rustix::fs::Gid::from_raw(6000))));
    seen.see("look again", cx.look("f"));
    rustix::fs::symlinkat("f", cx.dir(), "s")?;
    seen.see("a symlink itself", cx.chown("s", 1, 2));
    seen.see("link", cx.look("s"));
    seen.see("target", cx.look("f"));
    let nobody = Identity::nobody();
    seen.see("chmod by another", nobody.run(|| cx.chmod("f", 0o777)));
    seen.see("chown by another", nobody.run(|| cx.chown("f", 65534, 65534)));
    let owner = Identity::new(4000, 4000).groups(&[7000]);
    seen.see("owner gives to a group of theirs", owner.run(|| cx.chown("f", 4000, 7000)));
    seen.see("owner gives to another group", owner.run(|| cx.chown("f", 4000, 8000)));
    seen.see("owner gives it away", owner.run(|| cx.chown("f", 4001, 7000)));
    seen.see("at last", cx.look("f"));
    Ok(seen)
}

fn sync(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"durable")?;
    seen.see("fsync", fsync(&fd));
    seen.see("fdatasync", fdatasync(&fd));
    seen.see("a reader", fsync(cx.open("f", OFlags::RDONLY)?));
    seen.see("a folder", fsync(cx.dir()));
    seen.see("a folder's data", fdatasync(cx.dir()));
    seen.see("syncfs", rustix::fs::syncfs(cx.dir()));
    let direct = cx.open("f", OFlags::RDWR | OFlags::SYNC)?;
    seen.see("O_SYNC write", pwrite(&direct, b"D", 0));
    Ok(seen)
}

fn o_path(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"x")?;
    cx.chmod("f", 0o000)?;
    let fd = cx.open("f", OFlags::PATH)?;
    seen.see("kind", FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::RegularFile);
    seen.see("read", rustix::io::read(&fd, &mut [0_u8; 4]));
    seen.see("fchmod", fchmod(&fd, rustix::fs::Mode::RUSR));
    rustix::fs::renameat(cx.dir(), "f", cx.dir(), "g")?;
    seen.see("after a rename", ctx::describe_fd(&fd));
    Ok(seen)
}
