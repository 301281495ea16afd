//! POSIX ACLs as the kernel's attributes carry them: version 2, then tag, permissions and id of each entry.

use rustix::fs::{Mode, OFlags, XattrFlags, getxattr, mkdirat, openat, removexattr, setxattr};

use crate::conformance::{Case, Ctx, Observation, Outcome};
use crate::identity::Identity;

pub(super) const CASES: &[Case] = &[
    Case::new("acl/access", access),
    Case::new("acl/groups", groups),
    Case::new("acl/default", default),
    Case::new("acl/default-and-umask", default_and_umask),
    Case::new("acl/chmod", chmod),
    Case::new("acl/bad", bad),
    Case::new("acl/setgid", setgid),
];

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP_OWNER: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NO_ID: u32 = u32::MAX;

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// An ACL that gives one user and one group something of their own.
fn named(user: u16, group: u16) -> Vec<u8> {
    let ids = [(USER, user, 4000), (GROUP_OWNER, 4, NO_ID), (GROUP, group, 5000), (MASK, 7, NO_ID)];
    let mut entries = vec![(OWNER, 6, NO_ID)];
    entries.extend(ids);
    entries.push((OTHER, 0, NO_ID));
    acl(&entries)
}

fn set(cx: &Ctx, name: &str, attribute: &str, value: &[u8]) -> rustix::io::Result<()> {
    setxattr(cx.path(name), attribute, value, XattrFlags::empty())
}

fn show(cx: &Ctx, seen: &mut Observation, name: &str) {
    for attribute in [ACCESS, DEFAULT] {
        let mut room = [0_u8; 256];
        let found = getxattr(cx.path(name), attribute, &mut room[..]);
        seen.see(format!("{attribute} of {name}"), found.map(|len| room[..len].to_vec()));
    }
    seen.see(format!("mode of {name}"), cx.mode(name));
}

fn may(cx: &Ctx, seen: &mut Observation, who: &Identity, name: &str) {
    let label = format!("uid {} groups {:?}", who.uid, who.groups);
    let (reads, writes) =
        who.run(|| (cx.open(name, OFlags::RDONLY).map(drop), cx.open(name, OFlags::WRONLY).map(drop)));
    seen.see(format!("{label} reads {name}"), reads);
    seen.see(format!("{label} writes {name}"), writes);
}

fn access(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"secret")?;
    cx.chmod("f", 0o640)?;
    may(cx, &mut seen, &Identity::new(4000, 4000), "f");
    seen.see("set", set(cx, "f", ACCESS, &named(6, 4)));
    show(cx, &mut seen, "f");
    may(cx, &mut seen, &Identity::new(4000, 4000), "f");
    may(cx, &mut seen, &Identity::new(4001, 5000), "f");
    may(cx, &mut seen, &Identity::new(4001, 4001), "f");
    seen.see("less", set(cx, "f", ACCESS, &named(0, 6)));
    may(cx, &mut seen, &Identity::new(4000, 4000), "f");
    may(cx, &mut seen, &Identity::new(4001, 5000), "f");
    seen.see("remove", removexattr(cx.path("f"), ACCESS));
    show(cx, &mut seen, "f");
    may(cx, &mut seen, &Identity::new(4000, 4000), "f");
    Ok(seen)
}

fn groups(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"x")?;
    set(cx, "f", ACCESS, &named(0, 6))?;
    may(cx, &mut seen, &Identity::new(4001, 4001).groups(&[5000]), "f");
    may(cx, &mut seen, &Identity::new(4001, 4001).groups(&[5001]), "f");
    cx.make_folder("d", 0o700)?;
    set(cx, "d", ACCESS, &named(7, 7))?;
    let who = Identity::new(4001, 4001).groups(&[5000]);
    let flags = OFlags::RDWR | OFlags::CREATE;
    seen.see("create by a group's entry", who.run(|| openat(cx.dir(), "d/new", flags, Mode::from_raw_mode(0o666))));
    seen.see("whose", cx.look("d/new"));
    let who = Identity::new(4002, 4002);
    seen.see("a stranger", who.run(|| openat(cx.dir(), "d/other", flags, Mode::from_raw_mode(0o666))));
    Ok(seen)
}

fn default(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o755)?;
    seen.see("set", set(cx, "d", DEFAULT, &named(7, 5)));
    show(cx, &mut seen, "d");
    cx.create("d/file", 0o666)?;
    mkdirat(cx.dir(), "d/sub", Mode::from_raw_mode(0o777))?;
    cx.create("d/sub/deep", 0o600)?;
    rustix::fs::symlinkat("x", cx.dir(), "d/link")?;
    rustix::fs::mknodat(cx.dir(), "d/pipe", rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o666), 0)?;
    for name in ["d/file", "d/sub", "d/sub/deep", "d/pipe"] {
        show(cx, &mut seen, name);
    }
    seen.see("link", cx.look("d/link"));
    seen.see("on a file", set(cx, "d/file", DEFAULT, &named(7, 5)));
    seen.see("remove", removexattr(cx.path("d"), DEFAULT));
    cx.create("d/later", 0o666)?;
    show(cx, &mut seen, "d/later");
    Ok(seen)
}

/// A default ACL takes the place of the mask.
fn default_and_umask(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("with", 0o777)?;
    cx.make_folder("without", 0o777)?;
    set(cx, "with", DEFAULT, &named(7, 5))?;
    for mask in [0o000, 0o077, 0o777] {
        for folder in ["with", "without"] {
            let (file, sub) = (format!("{folder}/f{mask:o}"), format!("{folder}/d{mask:o}"));
            Identity::same().umask(mask).run(|| -> rustix::io::Result<()> {
                cx.create(&file, 0o666)?;
                mkdirat(cx.dir(), sub.as_str(), Mode::from_raw_mode(0o777))
            })?;
            show(cx, &mut seen, &file);
            show(cx, &mut seen, &sub);
        }
    }
    Ok(seen)
}

fn chmod(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    set(cx, "f", ACCESS, &named(6, 4))?;
    for mode in [0o600, 0o777, 0o070] {
        seen.see(format!("chmod {mode:o}"), cx.chmod("f", mode));
        show(cx, &mut seen, "f");
    }
    may(cx, &mut seen, &Identity::new(4000, 4000), "f");
    Ok(seen)
}

fn bad(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    seen.see("without a mask", set(cx, "f", ACCESS, &acl(&[(OWNER, 6, NO_ID), (USER, 6, 4000)])));
    seen.see("wrong version", set(cx, "f", ACCESS, &[1, 0, 0, 0]));
    seen.see("cut", set(cx, "f", ACCESS, &[2, 0, 0, 0, 1]));
    seen.see("empty", set(cx, "f", ACCESS, &acl(&[])));
    let minimal = acl(&[(OWNER, 6, NO_ID), (GROUP_OWNER, 4, NO_ID), (OTHER, 4, NO_ID)]);
    seen.see("minimal", set(cx, "f", ACCESS, &minimal));
    show(cx, &mut seen, "f");
    let by_other = Identity::nobody().run(|| set(cx, "f", ACCESS, &minimal));
    seen.see("by who does not own it", by_other);
    Ok(seen)
}

/// An owner outside of the file's group loses the setgid bit when setting an ACL.
fn setgid(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    cx.chown("f", 4000, 5000)?;
    cx.chmod("f", 0o2755)?;
    let set_by = |who: Identity| who.run(|| set(cx, "f", ACCESS, &named(6, 4)));
    seen.see("inside the group", set_by(Identity::new(4000, 4000).groups(&[5000])));
    show(cx, &mut seen, "f");
    cx.chmod("f", 0o2755)?;
    seen.see("outside the group", set_by(Identity::new(4000, 4000)));
    show(cx, &mut seen, "f");
    Ok(seen)
}
