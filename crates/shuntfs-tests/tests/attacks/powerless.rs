//! The owner of a folder makes its seal: a program of root's with the set-uid bit, one with a capability, a device node. None of it is
//! in the folder, all of it in the manifest, which nobody has signed. Then root mounts the folder with `--verify=required`, for others,
//! with `suid` and `dev`, and the attacker runs the programs and opens the device.
//!
//! The same seal by a key that the mount trusts does all of that: the attack itself works.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use shuntfs_testkit::mounted::shunt_binary;
use shuntfs_testkit::program::{have, run};

use crate::stage::{ATTACKER, Ground, OWNER, Stage, by, folder, on_each_transport, put};

const SECRET: &str = "for root's eyes alone";
/// CAP_DAC_READ_SEARCH, effective, as file systems keep it (`struct vfs_cap_data`, revision 2).
const CAPABILITY: &str = "0x0100000204000000000000000000000000000000";

fn shell(script: &str, folder: &Path) -> Result<String> {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(folder).env("SHUNT", shunt_binary()?);
    run(&mut command, Duration::from_secs(60))?.ok(script)
}

/// Seals what the folder should be like elsewhere, and puts the seal and the bytes into the owner's folder.
fn forge(source: &Path, beside: &Path, key: bool) -> Result<Vec<OsString>> {
    folder(&beside.join("forged"), 0, 0o755)?;
    put(&beside.join("secret"), SECRET.as_bytes(), 0, 0o600)?;
    let sign = if key { "--key key" } else { "" };
    shell(
        &format!(
            "cp \"$(command -v cat)\" forged/suid; chmod 4755 forged/suid
             cp \"$(command -v cat)\" forged/capable; setfattr -n security.capability -v {CAPABILITY} forged/capable
             setfattr -n trusted.overlay.redirect -v /etc forged
             mknod -m 666 forged/disk c 1 5
             \"$SHUNT\" key new key
             \"$SHUNT\" seal forged {sign}"
        ),
        beside,
    )?;
    shell(
        "cp beside/forged/suid beside/forged/capable source/; cp -r beside/forged/.shunt source/",
        parent(source)?,
    )?;
    shell(&format!("chown -R {OWNER}:{OWNER} .; chmod -R a+rX .; chmod 755 suid capable"), source)?;
    chown(source, Some(OWNER), Some(OWNER))?;
    ensure!(fs::metadata(source.join("suid"))?.permissions().mode() & 0o7777 == 0o755);
    let mut args: Vec<OsString> =
        ["--verify=required", "-o", "suid,dev,allow_other"].map(OsString::from).into();
    if key {
        args.extend(["--trust".into(), beside.join("key.pub").into()]);
    }
    Ok(args)
}

fn parent(path: &Path) -> Result<&Path> {
    path.parent().context("a folder below the lower file system's top")
}

/// What the attacker gets; each must be nothing.
fn loot(stage: &Stage) -> Result<Vec<String>> {
    let mut got = Vec::new();
    for program in ["suid", "capable"] {
        let mut command = Command::new(stage.at(program));
        command.arg(stage.beside.join("secret")).uid(ATTACKER).gid(ATTACKER);
        if run(&mut command, Duration::from_secs(20))?.stdout.contains(SECRET) {
            got.push(format!("{program} read root's file"));
        }
    }
    let device = stage.at("disk");
    if by(ATTACKER, || {
        fs::File::open(&device).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut [9; 8]))
    })
    .is_ok()
    {
        got.push("the device answers".into());
    }
    let seen = shell("getfattr -m - -d . capable 2>&1 || true", stage.mount.path())?;
    got.extend(
        ["security.capability", "trusted.overlay"]
            .iter()
            .filter(|name| seen.contains(**name))
            .map(ToString::to_string),
    );
    let mode = fs::metadata(stage.at("suid"))?.permissions().mode();
    if mode & 0o6000 != 0 {
        got.push(format!("mode {mode:o} is shown, and kept by who copies it"));
    }
    Ok(got)
}

#[test]
fn what_nobody_vouches_for_gives_nobody_a_right() -> Result<()> {
    if !have(&["setfattr", "getfattr", "mknod"]) {
        return Ok(());
    }
    on_each_transport(
        &Ground::default(),
        |source, beside| forge(source, beside, false),
        |stage| {
            let got = loot(stage)?;
            ensure!(got.is_empty(), "{got:?}");
            let flags = shell("findmnt -n -o OPTIONS .", stage.mount.path())?;
            ensure!(flags.contains("nosuid") && flags.contains("nodev"), "{flags}");
            let log = stage.mount.log();
            ensure!(
                log.contains("nothing says whose seal it is") && log.contains("nosuid and nodev"),
                "{log}"
            );
            Ok(())
        },
    )
}

/// With a key that is trusted, all of it is as sealed: what the test above finds missing was available there.
#[test]
fn what_a_trusted_key_has_signed_keeps_its_power() -> Result<()> {
    if !have(&["setfattr", "getfattr", "mknod"]) {
        return Ok(());
    }
    on_each_transport(
        &Ground::default(),
        |source, beside| forge(source, beside, true),
        |stage| {
            let got = loot(stage)?;
            ensure!(got.len() == 6, "{got:?}");
            Ok(())
        },
    )
}
