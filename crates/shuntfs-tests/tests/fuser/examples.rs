//! fuser's own examples, each on each transport.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::mounted::Transport;
use shuntfs_testkit::program::run;
use shuntfs_testkit::raw::ioctl_int;
use shuntfs_testkit::{serial, skipped};

use crate::build::{Built, Package, Target, build, crates};
use crate::server::{How, Server};

const LIMIT: Duration = Duration::from_secs(120);

const NAMES: [&str; 11] = [
    "hello",
    "simple",
    "ioctl",
    "null",
    "passthrough",
    "passthrough_fork",
    "poll",
    "poll_client",
    "notify_inval_entry",
    "notify_inval_inode",
    "async_hello",
];

/// As fuser's own manifest has them, but for fuser itself: it is there to be downloaded, and nothing imports it.
fn manifest() -> String {
    let ours = crates().join("shuntfs-fuser");
    format!(
        r#"version = "0.0.0"
edition = "2024"
publish = false
[workspace]
[dependencies]
fuser = {{ package = "shuntfs-fuser", path = {ours:?}, features = ["experimental", "serializable"] }}
published = {{ package = "fuser", version = "=0.18.0", optional = true }}
async-trait = "0.1"
bincode = "1.3.1"
clap = {{ version = "4.4", features = ["cargo", "derive"] }}
env_logger = "0.11.7"
libc = "0.2"
log = "0.4"
nix = {{ version = "0.31.0", features = ["poll", "fs", "ioctl", "socket", "process", "uio", "user", "mount"] }}
parking_lot = "0.12"
serde = {{ version = "1.0.102", features = ["std", "derive"] }}
tempfile = "3.10.1"
tokio = {{ version = "1.48", features = ["rt", "rt-multi-thread"] }}
[profile.dev]
debug = 0
"#
    )
}

fn examples() -> Result<Option<Built>> {
    if !rustix::process::geteuid().is_root() {
        skipped("mounting what was written for fuser needs root");
        return Ok(None);
    }
    let of = |name: &&str| Target {
        name: (*name).to_owned(),
        kind: "example",
        source: Some("fuser"),
        path: format!("examples/{name}.rs"),
    };
    let targets = NAMES.iter().map(of).collect();
    let package = Package { name: "examples", manifest: &manifest(), targets, files: &[] };
    build(&package, &["build", "--quiet", "--examples"])
}

/// Runs an example on all transports at once, and `test` in its mount.
fn on_each(
    name: &str,
    words: &[&str],
    ends: bool,
    test: impl Fn(&Server, &Built) -> Result<()> + Sync,
) -> Result<()> {
    let Some(built) = examples()? else { return Ok(()) };
    let _serial = serial();
    let program = built.program("example", name)?;
    let transports = Transport::ALL.into_iter().filter(|transport| transport.is_available());
    thread::scope(|scope| {
        let threads: Vec<_> = transports
            .map(|transport| {
                let (program, built, test) = (&program, &built, &test);
                let one = move || -> Result<()> {
                    let more = |point: &Path| {
                        let beside = point.with_file_name("data").display().to_string();
                        let point = point.display().to_string();
                        let words =
                            words.iter().map(|word| word.replace("{}", &point).replace("{data}", &beside));
                        words.collect()
                    };
                    let server = Server::start(program, Some(transport), LIMIT, more)?;
                    test(&server, built)?;
                    server.end(ends)
                };
                scope.spawn(move || one().with_context(|| format!("{name} on {}", transport.name())))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

#[test]
fn hello() -> Result<()> {
    on_each("hello", &["{}"], true, |server, _| {
        ensure!(fs::read_to_string(server.join("hello.txt"))? == "Hello World!\n");
        ensure!(fs::read(server.join("nothing")).is_err());
        ensure!(server.script("ls -a | wc -l")?.trim() == "4", "., .. and two files");
        Ok(())
    })
}

/// Without root, fusermount3 mounts; nobody else gets in, root neither.
#[test]
fn hello_of_an_ordinary_user() -> Result<()> {
    const NOBODY: u32 = 65_534;
    let Some(built) = examples()? else { return Ok(()) };
    if fs::metadata("/usr/bin/fusermount3").map_or(true, |found| found.permissions().mode() & 0o4000 == 0) {
        skipped("fusermount3 is not there, or not set-uid");
        return Ok(());
    }
    let _serial = serial();
    // The folders of the built one may be closed to others.
    let copies = tempfile::tempdir()?;
    fs::set_permissions(copies.path(), Permissions::from_mode(0o755))?;
    let program = copies.path().join("hello");
    fs::copy(built.program("example", "hello")?, &program)?;
    for transport in Transport::ALL.into_iter().filter(|transport| transport.is_available()) {
        let words = |point: &Path| vec![point.display().to_string()];
        let how = How { user: Some(NOBODY), ..How::default() };
        let server = Server::start_by(how, &program, Some(transport), LIMIT, words)?;
        let read =
            |user: u32| run(Command::new("cat").arg(server.join("hello.txt")).uid(user).gid(user), LIMIT);
        ensure!(read(NOBODY)?.ok("cat")? == "Hello World!\n");
        ensure!(!read(0)?.status.success(), "root is let in");
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        let point = server.path().display().to_string();
        let line = table.lines().find(|line| line.split(' ').nth(4) == Some(&point)).context("a mount")?;
        ensure!(line.contains("nosuid") && line.contains(&format!("user_id={NOBODY}")), "{line}");
        server.end_as(NOBODY).with_context(|| transport.name())?;
    }
    Ok(())
}

#[test]
fn async_hello() -> Result<()> {
    on_each("async_hello", &["{}"], true, |server, _| {
        ensure!(server.script("cat hello.txt")? == "Hello World!\n");
        Ok(())
    })
}

/// An empty file system answers ENOSYS to all that is asked.
#[test]
fn null() -> Result<()> {
    on_each("null", &["{}"], true, |server, _| {
        let error = fs::metadata(server.path()).expect_err("nothing is implemented");
        ensure!(error.raw_os_error() == Some(libc::ENOSYS), "{error}");
        Ok(())
    })
}

#[test]
fn simple() -> Result<()> {
    let work = r#"
        mkdir -p a/b && head -c 3000000 /dev/urandom > a/big && cp a/big a/b/copy && cmp a/big a/b/copy
        ln a/big a/hard && ln -s big a/soft && cmp a/soft a/hard && test "$(stat -c %h a/hard)" = 2
        mv a/b/copy a/moved && rmdir a/b && truncate -s 10 a/moved && test "$(stat -c %s a/moved)" = 10
        chmod 640 a/moved && chown 1:2 a/moved && test "$(stat -c %a:%u:%g a/moved)" = 640:1:2
        echo one > f && echo two >> f && test "$(cat f)" = "one
two"
        for n in $(seq 60); do echo $n > "file$n"; done && test "$(ls file* | wc -l)" = 60 && rm file*
        rm -r a f && ls | wc -l
    "#;
    on_each("simple", &["--data-dir", "{data}", "--mount-point", "{}"], true, |server, _| {
        ensure!(server.script(work)?.trim() == "0", "something is left");
        Ok(())
    })
}

#[test]
fn ioctl() -> Result<()> {
    // _IOR('E', 0, size_t) and _IOW('E', 1, size_t)
    const GET: u32 = 0x8008_4500;
    const SET: u32 = 0x4008_4501;
    on_each("ioctl", &["{}"], true, |server, _| {
        let file = File::open(server.join("fioc"))?;
        let mut size = 4321;
        ioctl_int(&file, SET, &mut size)?;
        size = 0;
        ioctl_int(&file, GET, &mut size)?;
        ensure!(size == 4321, "{size}");
        ensure!(ioctl_int(&file, GET + 7, &mut size).is_err());
        Ok(())
    })
}

#[test]
fn passthrough() -> Result<()> {
    for name in ["passthrough", "passthrough_fork"] {
        on_each(name, &["{}"], name == "passthrough", |server, _| {
            let file = server.join("passthrough");
            ensure!(fs::read(&file)? == fs::read("/etc/profile")?, "the bytes are the lower file's");
            let (one, two) = (File::open(&file)?, File::open(&file)?);
            ensure!(one.metadata()?.len() == 123_456 && two.metadata()?.len() == 123_456, "the size is told");
            Ok(())
        })?;
    }
    Ok(())
}

/// The other program of the example reads 16 files whenever one has something, 16 times.
#[test]
fn poll() -> Result<()> {
    on_each("poll", &["{}"], false, |server, built| {
        let mut client = Command::new(built.program("example", "poll_client")?);
        let text = run(client.current_dir(server.path()), Duration::from_secs(60))?.ok("poll_client")?;
        let rounds: Vec<&str> = text.lines().collect();
        ensure!(rounds.len() == 16, "{text}");
        ensure!(rounds.iter().all(|round| round.contains(':') && round.contains(char::is_numeric)), "{text}");
        ensure!(server.said().contains("NOTIFY"), "nobody was told: {}", server.said());
        Ok(())
    })
}

/// The kernel would believe the old name for a hundred seconds.
#[test]
fn notify_inval_entry() -> Result<()> {
    let words = ["--timeout", "100", "--update-interval", "0.3", "{}"];
    on_each("notify_inval_entry", &words, false, |server, _| {
        let name = server.script("ls")?;
        let old = server.join(name.trim());
        let gone = wait_until(Duration::from_secs(20), || {
            // Looked up again and again, or the kernel would not keep it.
            fs::metadata(&old).is_err()
        });
        ensure!(gone, "the kernel still knows {}", old.display());
        Ok(())
    })
}

/// The kernel keeps the pages of the file over each open.
#[test]
fn notify_inval_inode() -> Result<()> {
    for how in
        [&["--update-interval", "0.3", "{}"][..], &["--update-interval", "0.3", "--notify-store", "{}"]]
    {
        on_each("notify_inval_inode", how, false, |server, _| {
            let name = server.script("ls")?;
            let file = server.join(name.trim());
            let before = fs::read_to_string(&file)?;
            let changed = wait_until(Duration::from_secs(20), || {
                fs::read_to_string(&file).is_ok_and(|now| now != before)
            });
            ensure!(changed && before.starts_with("The current time is "), "{before}");
            Ok(())
        })?;
    }
    Ok(())
}
