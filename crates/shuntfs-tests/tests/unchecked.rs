//! What a mount gives away where its owner has checks left out, and what it does not.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Access, XattrFlags, access, getxattr, listxattr, setxattr};
use rustix::io::Errno;
use shuntfs_testkit::identity::Identity;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport, shunt, shunt_binary};
use shuntfs_testkit::{Serial, serial};

/// Whose files are in the way.
const OWNER: u32 = 4000;

struct Stage {
    mount: Mounted,
    source: PathBuf,
    _lower: Lower,
    _serial: Serial,
}

impl Stage {
    /// A folder with things that belong to somebody else.
    fn make(transport: Transport, args: &[&str]) -> Result<Option<Self>> {
        let serial = serial();
        let Some(lower) = Lower::make(LowerKind::Ext4)? else { return Ok(None) };
        let source = lower.folder("source")?;
        for (folder, mode) in [("locked", 0o700), ("open", 0o755), ("sticky", 0o1777)] {
            let path = source.join(folder);
            fs::create_dir(&path)?;
            for (file, mode) in [("secret", 0o600), ("public", 0o644), ("program", 0o755)] {
                fs::write(path.join(file), "#!/bin/sh\necho ran\n")?;
                fs::set_permissions(path.join(file), Permissions::from_mode(mode))?;
                chown(path.join(file), Some(OWNER), Some(OWNER))?;
            }
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            chown(&path, Some(OWNER), Some(OWNER))?;
        }
        let spec = MountSpec::new(&source, transport, Flow::Passthrough).args(args).alone();
        let Some(mount) = Mounted::start(&spec)? else { return Ok(None) };
        Ok(Some(Self { mount, source, _lower: lower, _serial: serial }))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    fn end(mut self) -> Result<()> {
        let status = self.mount.unmount()?;
        ensure!(status.success(), "the server ended with {status}:\n{}", self.mount.log());
        Ok(())
    }
}

/// Whether root without any capability can do something.
fn powerless(program: &str, words: &[&dyn AsRef<OsStr>]) -> Result<bool> {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--", program]);
    let ran = command.args(words.iter().map(AsRef::as_ref)).output().context("setpriv")?;
    Ok(ran.status.success())
}

/// What root without capabilities is kept from on the bare folder, and whether it is in this one. Names are looked up first by root
/// itself, so that the kernel has them all.
fn attacks(folder: &Path) -> Result<Vec<(&'static str, bool)>> {
    ensure!(Command::new("find").arg(folder).arg("-ls").output()?.status.success());
    fs::read(folder.join("locked/public"))?;
    let at = |name: &str| folder.join(name);
    Ok(vec![
        ("read a secret file", powerless("cat", &[&at("open/secret")])?),
        ("read in a locked folder", powerless("cat", &[&at("locked/public")])?),
        ("look at a name in a locked folder", powerless("stat", &[&at("locked/public")])?),
        ("list a locked folder", powerless("ls", &[&at("locked")])?),
        ("run in a locked folder", powerless("sh", &[&"-c", &"\"$0\"", &at("locked/program")])?),
        ("enter a locked folder", powerless("sh", &[&"-c", &"cd \"$0\"", &at("locked")])?),
        ("make a name", powerless("touch", &[&at("open/mine")])?),
        ("remove a name", powerless("rm", &[&"-f", &at("open/public")])?),
        ("remove a name in a sticky folder", powerless("rm", &[&"-f", &at("sticky/public")])?),
        ("write", powerless("sh", &[&"-c", &"echo >> \"$0\"", &at("open/program")])?),
        ("change a mode", powerless("chmod", &[&"0777", &at("open/secret")])?),
        ("change an owner", powerless("chown", &[&"0", &at("open/secret")])?),
        ("cut", powerless("truncate", &[&"-s1", &at("open/program")])?),
    ])
}

/// As a mount is where nothing is said: root without capabilities is kept from what it is kept from below.
#[test]
fn the_kernel_checks_where_nothing_is_said() -> Result<()> {
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, &[])? else { continue };
        for (attack, works) in attacks(stage.mount.path())? {
            ensure!(!works, "{transport:?}: root without capabilities can {attack}");
        }
        stage.end()?;
    }
    Ok(())
}

/// Why that stays the default: left out, root without capabilities can do all of it, by names and listings that the kernel
/// keeps even without a request that the server could refuse.
#[test]
fn without_the_check_root_needs_no_capability() -> Result<()> {
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, &["--permissions", "none"])? else { continue };
        for (attack, works) in attacks(stage.mount.path())? {
            ensure!(
                works,
                "{transport:?}: root without capabilities cannot {attack}, which the docs say it can"
            );
        }
        // Nobody else gets in.
        let path = stage.path("open/program");
        let outcome = Identity::new(OWNER, OWNER).run(move || fs::metadata(path).map(drop));
        let error = outcome.err().context("another user got in")?;
        ensure!(error.kind() == std::io::ErrorKind::PermissionDenied, "{transport:?}: {error}");
        stage.end()?;
    }
    Ok(())
}

/// A link that somebody planted in a shared folder is not followed, by nobody, where the kernel protects from that. Without the check no folder is
/// sticky to it, and root with all its capabilities follows.
#[test]
fn without_the_check_planted_links_are_followed() -> Result<()> {
    let protects = fs::read_to_string("/proc/sys/fs/protected_symlinks")?.trim() == "1";
    for transport in Transport::ALL {
        for (args, follows) in [(&[][..], !protects), (&["--permissions", "none"], true)] {
            let Some(stage) = Stage::make(transport, args)? else { continue };
            let planted = stage.source.join("sticky/planted");
            std::os::unix::fs::symlink("../open/public", &planted)?;
            std::os::unix::fs::lchown(&planted, Some(OWNER + 1), Some(OWNER + 1))?;
            ensure!(fs::read(&planted).is_ok() != protects, "the bare folder");
            let here = fs::read(stage.path("sticky/planted")).is_ok();
            ensure!(here == follows, "{transport:?} {args:?}: followed: {here}");
            stage.end()?;
        }
    }
    Ok(())
}

/// The kernel sends access(2) and chdir(2) on where it does not check.
#[test]
fn access_is_answered_as_below() -> Result<()> {
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, &["--permissions", "none"])? else { continue };
        for name in ["open", "locked/secret", "open/public", "open/program", "locked"] {
            for how in [Access::EXISTS, Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK] {
                let (here, below) = (access(stage.path(name), how), access(stage.source.join(name), how));
                ensure!(here == below, "{transport:?}: {name} {how:?} is {here:?}, and below {below:?}");
            }
        }
        let mode = |mode| fs::set_permissions(stage.path("open/public"), Permissions::from_mode(mode));
        let run = || Command::new(stage.path("open/public")).output().map(|ran| ran.stdout);
        ensure!(run().is_err(), "{transport:?}: what nobody may run ran");
        mode(0o700)?;
        ensure!(access(stage.path("open/public"), Access::EXEC_OK).is_ok() && run()? == b"ran\n");
        mode(0o600)?;
        ensure!(access(stage.path("open/public"), Access::EXEC_OK) == Err(Errno::ACCESS) && run().is_err());
        stage.end()?;
    }
    Ok(())
}

/// Something that is done to a file.
type Act<'a> = &'a dyn Fn(&Path) -> Result<()>;

/// `cap_net_raw+ep` as the kernel keeps it.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The kernel asks for file capabilities before a write because a write takes them away. Where it cannot ask, the lower file system
/// does that anyway, and so it does where the owner changes.
#[test]
fn without_xattrs_a_write_still_takes_capabilities_away() -> Result<()> {
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, &["--xattrs", "off"])? else { continue };
        let capability =
            |name: &str| getxattr(stage.source.join(name), "security.capability", &mut [0_u8; 64]);
        let give = |name: &str| {
            setxattr(stage.source.join(name), "security.capability", &CAPABILITY, XattrFlags::empty())
        };
        let acts: [(&str, Act<'_>); 3] = [
            ("write", &|path| Ok(fs::write(path, "other")?)),
            ("cut", &|path| Ok(fs::OpenOptions::new().write(true).open(path)?.set_len(1)?)),
            ("chown", &|path| Ok(chown(path, Some(1), Some(1))?)),
        ];
        for (what, act) in acts {
            give("open/program")?;
            ensure!(capability("open/program")? == CAPABILITY.len());
            act(&stage.path("open/program"))?;
            let left = capability("open/program");
            ensure!(left == Err(Errno::NODATA), "{transport:?}: after {what} the capability is {left:?}");
        }
        give("open/program")?;
        let (got, listed) = (
            getxattr(stage.path("open/program"), "security.capability", &mut [0_u8; 64]),
            listxattr(stage.path("open/program"), &mut [0_u8; 64]),
        );
        ensure!(got == Err(Errno::OPNOTSUPP), "{transport:?}: {got:?}");
        ensure!(listed == Err(Errno::OPNOTSUPP), "{transport:?}: {listed:?}");
        stage.end()?;
    }
    Ok(())
}

#[test]
fn nothing_is_left_out_where_somebody_else_gets_in() -> Result<()> {
    let _serial = serial();
    let room = tempfile::tempdir()?;
    let (source, target, rules) = (room.path().join("s"), room.path().join("m"), room.path().join("r.toml"));
    fs::create_dir(&source)?;
    fs::create_dir(&target)?;
    fs::write(&rules, "")?;
    for left_out in [["--permissions", "none"], ["--xattrs", "off"]] {
        let rules = rules.to_str().context("plain")?;
        for beside in [&["--allow-other"][..], &["--rules", rules], &["--verify", "if-sealed"]] {
            let mut words: Vec<&dyn AsRef<OsStr>> = vec![&"mount"];
            words.extend(left_out.iter().map(|word| word as &dyn AsRef<OsStr>));
            words.extend(beside.iter().map(|word| word as &dyn AsRef<OsStr>));
            words.extend([&source as &dyn AsRef<OsStr>, &target]);
            let ran = shunt(&words)?;
            ensure!(!ran.status.success(), "{left_out:?} beside {beside:?} was taken");
            let said = &ran.stderr;
            ensure!(said.contains(left_out[0]), "{left_out:?} beside {beside:?}: {said}");
        }
    }
    // What the server itself may not do it can let nobody do. And where it is not root, others of its user would get what it may do.
    let powers = ["--inh-caps=+dac_override,+sys_admin", "--ambient-caps=+dac_override,+sys_admin"];
    let other = ["--reuid=4000", "--regid=4000", "--clear-groups", powers[0], powers[1]];
    for how in [&["--bounding-set=-dac_override"][..], &other] {
        let mut command = Command::new("setpriv");
        command.args(how).arg(shunt_binary()?).args(["mount", "--permissions", "none"]);
        let ran = command.args([&source, &target]).output()?;
        let said = String::from_utf8_lossy(&ran.stderr);
        ensure!(!ran.status.success() && said.contains("by root"), "{how:?}: {said}");
    }
    Ok(())
}
