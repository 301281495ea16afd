//! Whose files are, and who may do what: umask, sticky and setgid folders, supplementary groups.

use std::os::fd::AsRawFd;

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, linkat, mkdirat, mknodat, openat, renameat, symlinkat, unlinkat,
};

use crate::conformance::{Case, Ctx, Limit, Outcome, TREE};
use crate::identity::Identity;

pub(super) const CASES: &[Case] = &[
    Case::new("modes/umask", umask),
    Case::new("modes/owner", owner),
    Case::new("modes/sticky", sticky),
    Case::limited(
        "modes/setgid-folder",
        setgid_folder,
        &[
            Limit::until((6, 3), "d/f-in", "RegularFile 0755 4000:5000 links=1 size=0", GROUPS),
            Limit::until((6, 3), TREE, "", GROUPS),
        ],
    ),
    Case::new("modes/groups", groups),
    Case::new("modes/permissions", permissions),
    Case::new("modes/access", access),
];

const GROUPS: &str = "FUSE_CREATE_SUPP_GROUP, Linux 6.3: before, a server is not told that the caller is in the folder's group";

const CREATE: OFlags = OFlags::RDWR.union(OFlags::CREATE);

fn umask(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for mask in [0o000, 0o022, 0o077, 0o123, 0o777] {
        let name = |kind: &str| format!("{kind}{mask:o}");
        Identity::same().umask(mask).run(|| -> rustix::io::Result<()> {
            openat(cx.dir(), name("f"), CREATE, Mode::from_raw_mode(0o6777))?;
            mkdirat(cx.dir(), name("d"), Mode::from_raw_mode(0o1777))?;
            mknodat(cx.dir(), name("p"), FileType::Fifo, Mode::from_raw_mode(0o777), 0)?;
            mknodat(cx.dir(), name("r"), FileType::RegularFile, Mode::from_raw_mode(0o4777), 0)?;
            symlinkat("x", cx.dir(), name("s"))?;
            let unnamed = openat(cx.dir(), ".", OFlags::RDWR | OFlags::TMPFILE, Mode::from_raw_mode(0o666))?;
            linkat(&unnamed, "", cx.dir(), name("t"), AtFlags::EMPTY_PATH)
        })?;
        for kind in ["f", "d", "p", "r", "s", "t"] {
            seen.see(name(kind), cx.look(&name(kind)));
        }
    }
    Ok(seen)
}

fn owner(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o777)?;
    let who = Identity::new(4000, 5000).groups(&[6000, 7000]);
    who.run(|| -> rustix::io::Result<()> {
        openat(cx.dir(), "d/f", CREATE, Mode::from_raw_mode(0o644))?;
        mkdirat(cx.dir(), "d/d", Mode::from_raw_mode(0o755))?;
        symlinkat("x", cx.dir(), "d/s")?;
        mknodat(cx.dir(), "d/p", FileType::Fifo, Mode::from_raw_mode(0o644), 0)?;
        let unnamed = openat(cx.dir(), "d", OFlags::RDWR | OFlags::TMPFILE, Mode::from_raw_mode(0o600))?;
        // Before Linux 6.10 only CAP_DAC_READ_SEARCH allows an empty path.
        let path = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
        linkat(CWD, path, cx.dir(), "d/t", AtFlags::SYMLINK_FOLLOW)
    })?;
    for name in ["d/f", "d/d", "d/s", "d/p", "d/t"] {
        seen.see(name, cx.look(name));
        seen.see("below", rustix::fs::lstat(cx.lower(name)).map(|stat| format!("{}:{}", stat.st_uid, stat.st_gid)));
    }
    // The one after must not be made by who came before.
    cx.create("d/root", 0o644)?;
    seen.see("d/root", cx.look("d/root"));
    Ok(seen)
}

fn sticky(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o1777)?;
    let (one, other) = (Identity::new(4000, 4000), Identity::new(4001, 4001));
    for name in ["d/a", "d/b", "d/c"] {
        one.run(|| openat(cx.dir(), name, CREATE, Mode::from_raw_mode(0o666)))?;
    }
    other.run(|| openat(cx.dir(), "d/theirs", CREATE, Mode::from_raw_mode(0o666)))?;
    seen.see("unlink another's", other.run(|| unlinkat(cx.dir(), "d/a", AtFlags::empty())));
    seen.see("rename another's", other.run(|| renameat(cx.dir(), "d/a", cx.dir(), "d/z")));
    seen.see("rename over another's", other.run(|| renameat(cx.dir(), "d/theirs", cx.dir(), "d/b")));
    seen.see("unlink one's own", one.run(|| unlinkat(cx.dir(), "d/a", AtFlags::empty())));
    seen.see("rename one's own", one.run(|| renameat(cx.dir(), "d/b", cx.dir(), "d/y")));
    seen.see("by root", unlinkat(cx.dir(), "d/c", AtFlags::empty()));
    seen.see("names", cx.names("d"));
    Ok(seen)
}

fn setgid_folder(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o777)?;
    cx.chown("d", 0, 5000)?;
    cx.chmod("d", 0o2777)?;
    for (who, identity) in [
        ("in", Identity::new(4000, 4000).groups(&[5000])),
        ("out", Identity::new(4001, 4001)),
        ("root", Identity::same()),
    ] {
        let name = |kind: &str| format!("d/{kind}-{who}");
        identity.run(|| -> rustix::io::Result<()> {
            openat(cx.dir(), name("f"), CREATE, Mode::from_raw_mode(0o2775))?;
            openat(cx.dir(), name("x"), CREATE, Mode::from_raw_mode(0o2644))?;
            mkdirat(cx.dir(), name("d"), Mode::from_raw_mode(0o755))?;
            mknodat(cx.dir(), name("p"), FileType::Fifo, Mode::from_raw_mode(0o644), 0)?;
            symlinkat("x", cx.dir(), name("s"))?;
            mkdirat(cx.dir(), format!("{}/deep", name("d")), Mode::from_raw_mode(0o700))
        })?;
        for kind in ["f", "x", "d", "p", "s"] {
            seen.see(name(kind), cx.look(&name(kind)));
        }
        seen.see("deep", cx.look(&format!("{}/deep", name("d"))));
    }
    Ok(seen)
}

fn groups(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"x")?;
    cx.chown("f", 0, 5000)?;
    cx.chmod("f", 0o060)?;
    cx.make_folder("d", 0o070)?;
    cx.chown("d", 0, 5000)?;
    let many: Vec<u32> = (5000..5060).rev().collect();
    for (label, who) in [
        ("outside", Identity::new(4000, 4000)),
        ("first", Identity::new(4000, 5000)),
        ("supplementary", Identity::new(4000, 4000).groups(&[1, 5000])),
        ("sixty", Identity::new(4000, 4000).groups(&many)),
    ] {
        seen.see(format!("{label} opens"), who.run(|| cx.open("f", OFlags::RDWR)));
        let name = format!("d/{label}");
        seen.see("creates", who.run(|| openat(cx.dir(), name.as_str(), CREATE, Mode::from_raw_mode(0o644))));
        seen.see("lists", who.run(|| cx.open("d", OFlags::RDONLY | OFlags::DIRECTORY)));
        seen.see("renames", who.run(|| renameat(cx.dir(), name.as_str(), cx.dir(), format!("{name}-2"))));
        seen.see("looks", cx.look(&format!("{name}-2")));
    }
    Ok(seen)
}

fn permissions(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("closed", 0o700)?;
    cx.make("closed/f", b"")?;
    cx.make_folder("look", 0o744)?;
    cx.make("look/f", b"")?;
    cx.make_folder("pass", 0o711)?;
    cx.make("pass/f", b"")?;
    cx.make_folder("write", 0o733)?;
    cx.make("write/f", b"")?;
    let nobody = Identity::nobody();
    for folder in ["closed", "look", "pass", "write"] {
        let file = format!("{folder}/f");
        seen.see(format!("{folder}: list"), nobody.run(|| cx.names(folder)));
        seen.see("stat", nobody.run(|| cx.look(&file)));
        seen.see("open", nobody.run(|| cx.open(&file, OFlags::RDONLY)));
        seen.see("open to write", nobody.run(|| cx.open(&file, OFlags::WRONLY)));
        let name = format!("{folder}/new");
        seen.see("create", nobody.run(|| openat(cx.dir(), name.as_str(), CREATE, Mode::from_raw_mode(0o600))));
        seen.see("unlink", nobody.run(|| unlinkat(cx.dir(), file.as_str(), AtFlags::empty())));
    }
    seen.see("noatime by another", nobody.run(|| cx.open("pass/f", OFlags::RDONLY | OFlags::NOATIME)));
    Ok(seen)
}

fn access(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for mode in [0o000, 0o100, 0o444, 0o646, 0o755] {
        let name = format!("f{mode:o}");
        cx.make(&name, b"")?;
        cx.chmod(&name, mode)?;
        for (label, who) in [("root", Identity::same()), ("nobody", Identity::nobody())] {
            let asks = [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK];
            let answers: Vec<String> = who.run(|| {
                let ask = |kind| accessat(cx.dir(), name.as_str(), kind, AtFlags::EACCESS);
                asks.iter().map(|kind| ask(*kind).map_or_else(|error| error.to_string(), |()| "yes".into())).collect()
            });
            seen.see(format!("{mode:o} {label}"), answers);
        }
    }
    Ok(seen)
}
