//! A user asks for a protected file by another spelling of its name, on a lower file system that takes both for the same.
//!
//! vfat and folders of ext4 with `chattr +F`, where the kernel has them; what every kernel can be made to have, a FUSE server that
//! folds names, is in the pool's own tests (`privileged_folding.rs`).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::program::run;
use shuntfs_testkit::{serial, skipped};

use crate::stage::{ATTACKER, by};

const RULES: &str = "[[rule]]\nbasename = 'secret.jpg'\nhide = true\n\
     [[rule]]\npath = 'folded/other.jpg'\ndeny = 'EACCES'\n";
const LIMIT: Duration = Duration::from_secs(30);
const EOPNOTSUPP: i32 = 95;

/// A file system on a loop device, gone with its guard.
struct Volume {
    room: tempfile::TempDir,
}

impl Volume {
    /// `None` where this kernel, or this machine, has no such file system; said.
    fn make(kind: &str, mkfs: &[&str]) -> Result<Option<Self>> {
        let room = tempfile::Builder::new().prefix("shuntfs-spelling-").tempdir()?;
        let (image, at) = (room.path().join("image"), room.path().join("fs"));
        fs::File::create(&image)?.set_len(64 << 20)?;
        fs::create_dir(&at)?;
        let mut make = Command::new(mkfs[0]);
        let Ok(made) = run(make.args(&mkfs[1..]).arg(&image), LIMIT) else {
            skipped(&format!("there is no {}", mkfs[0]));
            return Ok(None);
        };
        ensure!(made.status.success(), "{made:?}");
        let mounted =
            run(Command::new("mount").args(["-o", "loop", "-t", kind]).arg(&image).arg(&at), LIMIT)?;
        if mounted.status.success() {
            return Ok(Some(Self { room }));
        }
        skipped(&format!("this kernel cannot mount it ({}): {}", mkfs.join(" "), mounted.stderr.trim()));
        Ok(None)
    }

    fn at(&self) -> std::path::PathBuf {
        self.room.path().join("fs")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ended = run(Command::new("umount").arg(self.at()), LIMIT);
    }
}

fn spec(source: &Path, transport: Transport, rules: &Path) -> MountSpec {
    let mut spec = MountSpec::new(source, transport, Flow::Passthrough);
    spec.args.extend(["--rules".into(), rules.into()]);
    spec
}

#[test]
fn a_source_that_folds_names_is_not_mounted_under_rules_by_name() -> Result<()> {
    let _serial = serial();
    for (kind, mkfs) in [("vfat", &["mkfs.vfat"][..]), ("exfat", &["mkfs.exfat"][..])] {
        let Some(volume) = Volume::make(kind, mkfs)? else { continue };
        let rules = tempfile::NamedTempFile::new()?;
        fs::write(&rules, RULES)?;
        fs::write(volume.at().join("secret.jpg"), "what is in it")?;
        ensure!(fs::read(volume.at().join("SECRET.JPG"))? == b"what is in it");
        for transport in Transport::ALL.into_iter().filter(|transport| transport.is_available()) {
            let said = match Mounted::start(&spec(&volume.at(), transport, rules.path())) {
                Ok(_) => String::from("it was mounted"),
                Err(error) => format!("{error:#}"),
            };
            ensure!(said.contains("takes different names for the same"), "{kind}: {said}");
        }
    }
    Ok(())
}

#[test]
fn a_folder_that_folds_names_is_refused_under_rules_by_name() -> Result<()> {
    let _serial = serial();
    let Some(volume) = Volume::make("ext4", &["mkfs.ext4", "-q", "-O", "casefold"])? else { return Ok(()) };
    let rules = tempfile::NamedTempFile::new()?;
    fs::write(&rules, RULES)?;
    let folded = volume.at().join("folded");
    fs::create_dir(&folded)?;
    let flag = run(Command::new("chattr").arg("+F").arg(&folded), LIMIT)?;
    ensure!(flag.status.success(), "{flag:?}");
    fs::create_dir(volume.at().join("exact"))?;
    for name in ["folded/secret.jpg", "folded/other.jpg", "exact/other.jpg"] {
        fs::write(volume.at().join(name), "what is in it")?;
    }
    for transport in Transport::ALL {
        let Some(mount) = Mounted::start(&spec(&volume.at(), transport, rules.path()))? else { continue };
        let read = |name: &str| by(ATTACKER, || fs::read(mount.path().join(name)));
        for name in ["SECRET.JPG", "secret.jpg", "OTHER.jpg", "other.jpg"] {
            let error = read(&format!("folded/{name}")).err().and_then(|error| error.raw_os_error());
            ensure!(error == Some(EOPNOTSUPP), "{}: {name}: {error:?}", transport.name());
        }
        ensure!(fs::read_dir(mount.path().join("folded"))?.next().is_some_and(|entry| entry.is_err()));
        ensure!(read("exact/other.jpg")? == b"what is in it");
        ensure!(mount.log().contains("takes different names for the same"), "{}", mount.log());
    }
    Ok(())
}
