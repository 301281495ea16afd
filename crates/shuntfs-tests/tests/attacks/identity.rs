//! A server that cannot act as its callers is asked to serve them: by a sandbox that forbids what it needs, or by a kernel
//! that does not do what it says.
//!
//! What a user makes would then be the server's: with its set-user-id bit a program that runs as root. `strace` stands
//! for the sandbox: it makes one system call fail, or do nothing and look as if it had worked.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::{serial, skipped};

use crate::stage::{ATTACKER, by, folder};

fn fault(call: &str, outcome: &str) -> [String; 7] {
    let inject = format!("inject={call}:{outcome}");
    let words = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject];
    words.map(str::to_owned)
}

fn spec(source: &Path, transport: Transport, by: &[impl AsRef<str>]) -> MountSpec {
    let by: Vec<&str> = by.iter().map(AsRef::as_ref).collect();
    MountSpec::new(source, transport, Flow::Passthrough).by(&by)
}

fn has_strace() -> bool {
    let has = std::process::Command::new("strace").arg("-V").output().is_ok();
    if !has {
        skipped("there is no strace to stand for a sandbox");
    }
    has
}

#[test]
fn a_server_in_a_sandbox_that_keeps_its_identity_refuses_to_serve() -> Result<()> {
    let _serial = serial();
    if !has_strace() {
        return Ok(());
    }
    let Some(lower) = Lower::make(LowerKind::Ext4)? else { return Ok(()) };
    let source = lower.folder("source")?;
    const NOBODY: &str = "the server cannot act as its callers";
    for (call, outcome, words) in [
        ("unshare", "error=EPERM", NOBODY),
        ("unshare", "error=ENOSYS", NOBODY),
        // Called first by the whole server, which is to give up more than its threads.
        ("capset", "error=EPERM", "cannot drop unneeded privileges"),
    ] {
        for transport in Transport::ALL.into_iter().filter(|transport| transport.is_available()) {
            let started = Mounted::start(&spec(&source, transport, &fault(call, outcome)));
            let error =
                started.err().with_context(|| format!("{}: {call} {outcome}: serves", transport.name()))?;
            let said = format!("{error:#}");
            ensure!(said.contains(words), "{call} {outcome}: {said}");
        }
    }
    Ok(())
}

#[test]
fn what_a_user_makes_never_becomes_the_servers() -> Result<()> {
    let _serial = serial();
    if !has_strace() {
        return Ok(());
    }
    for transport in Transport::ALL {
        for (call, outcome) in [("setfsuid", "retval=0"), ("setfsgid", "retval=0")] {
            let Some(lower) = Lower::make(LowerKind::Ext4)? else { return Ok(()) };
            let source = lower.folder("source")?;
            folder(&source.join("open"), 0, 0o777)?;
            let Some(mount) = Mounted::start(&spec(&source, transport, &fault(call, outcome)))? else {
                continue;
            };
            let at = |name: &str| mount.path().join("open").join(name);
            let made: Vec<_> = by(ATTACKER, || {
                let tool = at("tool");
                let set_id = || fs::set_permissions(&tool, Permissions::from_mode(0o6755));
                vec![
                    fs::write(&tool, "#!/bin/sh").and_then(|()| set_id()),
                    fs::create_dir(at("folder")),
                    symlink("target", at("link")),
                ]
            });
            for outcome in made {
                let refused = outcome.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
                ensure!(refused, "{}: {call} did nothing, and something was made", transport.name());
            }
            for entry in fs::read_dir(source.join("open"))? {
                let entry = entry?;
                let stat = entry.metadata()?;
                ensure!(stat.uid() == ATTACKER, "{:?} is of {}", entry.file_name(), stat.uid());
            }
        }
    }
    Ok(())
}

#[test]
fn a_server_that_may_not_act_as_others_lets_none_in() -> Result<()> {
    let _serial = serial();
    let Some(lower) = Lower::make(LowerKind::Ext4)? else { return Ok(()) };
    let source = lower.folder("source")?;
    fs::write(source.join("file"), "its bytes")?;
    let bound = ["setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-setuid,-setgid"];
    for transport in Transport::ALL.into_iter().filter(|transport| transport.is_available()) {
        let error = Mounted::start(&spec(&source, transport, &bound)).err().context("it lets others in")?;
        let said = format!("{error:#}");
        ensure!(said.contains("other users cannot be given access (allow_other)"), "{said}");
        // Where nothing can be made there is nothing to act for.
        let Some(mount) = Mounted::start(&spec(&source, transport, &bound).args(&["-o", "ro"]))? else {
            continue;
        };
        let read = by(ATTACKER, || fs::read(mount.path().join("file")));
        ensure!(read? == b"its bytes");
    }
    Ok(())
}
