//! Pipes, sockets and devices.

use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{FileType, Mode, OFlags, makedev, mknodat};
use rustix::io::{read, write};

use crate::conformance::{Case, Ctx, Outcome};
use crate::identity::Identity;

pub(super) const CASES: &[Case] = &[
    Case::new("special/pipe", pipe),
    Case::new("special/socket", socket),
    Case::new("special/devices", devices),
    Case::new("special/unprivileged", unprivileged),
];

const MODE: Mode = Mode::from_raw_mode(0o666);

fn pipe(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    seen.see("mkfifo", mknodat(cx.dir(), "p", FileType::Fifo, MODE, 0));
    seen.see("look", cx.look("p"));
    seen.see("a writer without a reader", cx.open("p", OFlags::WRONLY | OFlags::NONBLOCK));
    let reader = cx.open("p", OFlags::RDONLY | OFlags::NONBLOCK)?;
    let writer = cx.open("p", OFlags::WRONLY | OFlags::NONBLOCK)?;
    seen.see("write", write(&writer, b"through"));
    let mut room = [0_u8; 16];
    seen.see("read", read(&reader, &mut room));
    seen.see("bytes", room);
    drop(writer);
    seen.see("end", read(&reader, &mut room));
    seen.see("chmod", cx.chmod("p", 0o600));
    seen.see("look again", cx.look("p"));
    Ok(seen)
}

fn socket(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    // A socket's path is short; the working directory of a thread of its own makes it so.
    let listener = Identity::same().run(|| -> std::io::Result<UnixListener> {
        rustix::process::fchdir(cx.dir())?;
        UnixListener::bind("s")
    });
    seen.see("bind", listener.as_ref().map(drop).map_err(|error| std::io::Error::from(error.kind())));
    let listener = listener?;
    seen.see("look", cx.look("s"));
    let client = Identity::same().run(|| -> std::io::Result<UnixStream> {
        rustix::process::fchdir(cx.dir())?;
        UnixStream::connect("s")
    })?;
    let (server, _) = listener.accept()?;
    seen.see("write", write(&client, b"hello"));
    let mut room = [0_u8; 5];
    seen.see("read", read(&server, &mut room));
    seen.see("bytes", room);
    seen.see("open", cx.open("s", OFlags::RDONLY));
    Ok(seen)
}

fn devices(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    for (name, kind, major, minor) in [
        ("null", FileType::CharacterDevice, 1, 3),
        ("block", FileType::BlockDevice, 7, 200),
        ("large", FileType::CharacterDevice, 300, 70_000),
        ("zero", FileType::CharacterDevice, 0, 0),
    ] {
        seen.see(format!("mknod {name}"), mknodat(cx.dir(), name, kind, MODE, makedev(major, minor)));
        seen.see("look", cx.look(name));
    }
    seen.see("nothing there", cx.open("block", OFlags::RDONLY));
    Ok(seen)
}

fn unprivileged(cx: &Ctx) -> Outcome {
    let mut seen = cx.observe();
    cx.make_folder("d", 0o777)?;
    let make = |name: &str, kind: FileType, device: u64| {
        Identity::nobody().run(|| mknodat(cx.dir(), name, kind, MODE, device))
    };
    seen.see("pipe", make("d/p", FileType::Fifo, 0));
    seen.see("socket", make("d/s", FileType::Socket, 0));
    seen.see("regular", make("d/r", FileType::RegularFile, 0));
    seen.see("char", make("d/c", FileType::CharacterDevice, makedev(1, 3)));
    seen.see("whiteout", make("d/w", FileType::CharacterDevice, 0));
    for name in ["d/p", "d/s", "d/r", "d/w"] {
        seen.see(name, cx.look(name));
    }
    Ok(seen)
}
