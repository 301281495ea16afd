//! Extended attributes.

use rustix::fs::{
    OFlags, XattrFlags, fgetxattr, fsetxattr, getxattr, lgetxattr, listxattr, lsetxattr, removexattr, setxattr,
    symlinkat,
};

use crate::conformance::{Case, Ctx, Observation, Outcome};
use crate::identity::Identity;

pub(super) const CASES: &[Case] = &[
    Case::new("xattr/set-get", set_get),
    Case::new("xattr/flags", flags),
    Case::new("xattr/list", list),
    Case::new("xattr/sizes", sizes),
    Case::new("xattr/kinds", kinds),
    Case::new("xattr/unprivileged", unprivileged),
];

fn get(cx: &Ctx, seen: &mut Observation, name: &str, attribute: &str) {
    let mut room = [0_u8; 256];
    let found = getxattr(cx.path(name), attribute, &mut room[..]);
    seen.see(format!("{attribute} of {name}"), found);
    seen.see("value", &room[..found.unwrap_or(0).min(256)]);
}

fn set_get(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    let fd = cx.make("f", b"")?;
    let path = cx.path("f");
    seen.see("set", setxattr(&path, "user.a", b"one", XattrFlags::empty()));
    get(cx, &mut seen, "f", "user.a");
    seen.see("set again", setxattr(&path, "user.a", b"longer than one", XattrFlags::empty()));
    get(cx, &mut seen, "f", "user.a");
    seen.see("empty", setxattr(&path, "user.a", b"", XattrFlags::empty()));
    get(cx, &mut seen, "f", "user.a");
    seen.see("by descriptor", fsetxattr(&fd, "user.fd", b"\0\xff", XattrFlags::empty()));
    let mut room = [0_u8; 10];
    seen.see("read by descriptor", fgetxattr(&fd, "user.fd", &mut room[..]));
    seen.see("room", room);
    seen.see("remove", removexattr(&path, "user.a"));
    seen.see("remove again", removexattr(&path, "user.a"));
    get(cx, &mut seen, "f", "user.a");
    cx.make_folder("d", 0o755)?;
    seen.see("on a folder", setxattr(cx.path("d"), "user.d", b"dir", XattrFlags::empty()));
    get(cx, &mut seen, "d", "user.d");
    Ok(seen)
}

fn flags(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    let path = cx.path("f");
    seen.see("replace what is not", setxattr(&path, "user.a", b"1", XattrFlags::REPLACE));
    seen.see("create", setxattr(&path, "user.a", b"2", XattrFlags::CREATE));
    seen.see("create again", setxattr(&path, "user.a", b"3", XattrFlags::CREATE));
    seen.see("replace", setxattr(&path, "user.a", b"4", XattrFlags::REPLACE));
    get(cx, &mut seen, "f", "user.a");
    Ok(seen)
}

fn list(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    let path = cx.path("f");
    let mut room = vec![0_u8; 4096];
    seen.see("none", listxattr(&path, &mut room[..]));
    for index in 0..12 {
        setxattr(&path, format!("user.number{index}"), &[b'v'; 20], XattrFlags::empty())?;
    }
    let len = listxattr(&path, &mut room[..]);
    seen.see("len", len);
    let mut names: Vec<String> = room[..len.unwrap_or(0)]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| name.escape_ascii().to_string())
        .collect();
    names.sort();
    seen.see("names", names);
    seen.see("size query", listxattr(&path, &mut room[..0]));
    seen.see("too small", listxattr(&path, &mut room[..5]));
    Ok(seen)
}

fn sizes(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    let path = cx.path("f");
    setxattr(&path, "user.a", b"0123456789", XattrFlags::empty())?;
    let mut room = [0_u8; 20];
    seen.see("size query", getxattr(&path, "user.a", &mut room[..0]));
    seen.see("too small", getxattr(&path, "user.a", &mut room[..9]));
    seen.see("exact", getxattr(&path, "user.a", &mut room[..10]));
    seen.see("2 KiB", setxattr(&path, "user.large", &[b'l'; 2048], XattrFlags::empty()));
    seen.see("64 KiB and one", setxattr(&path, "user.huge", &vec![b'h'; 65537], XattrFlags::empty()));
    let name = |len: usize| format!("user.{}", "n".repeat(len));
    seen.see("longest name", setxattr(&path, name(250), b"x", XattrFlags::empty()));
    seen.see("name too long", setxattr(&path, name(251), b"x", XattrFlags::empty()));
    seen.see("no name", setxattr(&path, "user.", b"x", XattrFlags::empty()));
    Ok(seen)
}

fn kinds(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("f", b"")?;
    symlinkat("f", cx.dir(), "s")?;
    let path = cx.path("f");
    seen.see("trusted", setxattr(&path, "trusted.t", b"t", XattrFlags::empty()));
    get(cx, &mut seen, "f", "trusted.t");
    seen.see("security", setxattr(&path, "security.test", b"s", XattrFlags::empty()));
    get(cx, &mut seen, "f", "security.test");
    seen.see("unknown", setxattr(&path, "nothing.n", b"n", XattrFlags::empty()));
    seen.see("user on a symlink", lsetxattr(cx.path("s"), "user.s", b"s", XattrFlags::empty()));
    seen.see("trusted on a symlink", lsetxattr(cx.path("s"), "trusted.s", b"s", XattrFlags::empty()));
    let mut room = [0_u8; 10];
    seen.see("read it", lgetxattr(cx.path("s"), "trusted.s", &mut room[..]));
    seen.see("not its target's", getxattr(&path, "trusted.s", &mut room[..]));
    Ok(seen)
}

fn unprivileged(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make("theirs", b"")?;
    cx.chmod("theirs", 0o600)?;
    cx.make("open", b"")?;
    cx.chmod("open", 0o666)?;
    let set = |name: &str, attribute: &str| {
        let path = cx.path(name);
        Identity::nobody().run(|| setxattr(path, attribute, b"n", XattrFlags::empty()))
    };
    seen.see("user on what is closed", set("theirs", "user.a"));
    seen.see("user on what is open", set("open", "user.a"));
    seen.see("trusted", set("open", "trusted.a"));
    seen.see("security", set("open", "security.a"));
    let path = cx.path("theirs");
    let read = Identity::nobody().run(|| getxattr(path, "user.a", &mut [0_u8; 10][..]));
    seen.see("read what is closed", read);
    seen.see("open for reading", Identity::nobody().run(|| cx.open("theirs", OFlags::RDONLY)));
    Ok(seen)
}
