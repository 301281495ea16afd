//! Where an attack happens: a lower file system, a mount of one of its folders, and the users on it.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use shuntfs_testkit::identity::Identity;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::{Serial, serial};

/// Owns what is worth attacking.
pub(crate) const OWNER: u32 = 4001;
/// Attacks it.
pub(crate) const ATTACKER: u32 = 4002;

/// A mount under attack.
pub(crate) struct Stage {
    pub(crate) mount: Mounted,
    /// The lower folder, of which the mount is a view.
    pub(crate) source: PathBuf,
    /// A folder beside the source, on the same lower file system: rules, stores, keys.
    pub(crate) beside: PathBuf,
}

impl Stage {
    /// A path on the mount.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }
}

/// What an attack is run on.
pub(crate) struct Ground {
    pub(crate) kind: LowerKind,
    pub(crate) flow: Flow,
}

impl Default for Ground {
    fn default() -> Self {
        Self { kind: LowerKind::Ext4, flow: Flow::Passthrough }
    }
}

/// Runs an attack on each transport, each time on a new lower file system.
///
/// `prepare` gets the source and the folder beside it, fills them and returns further arguments of `shunt mount`.
pub(crate) fn on_each_transport(
    ground: &Ground,
    prepare: impl Fn(&Path, &Path) -> Result<Vec<OsString>>,
    attack: impl Fn(&Stage) -> Result<()>,
) -> Result<()> {
    let _serial: Serial = serial();
    for transport in Transport::ALL {
        let Some(lower) = Lower::make(ground.kind)? else { return Ok(()) };
        let (source, beside) = (lower.folder("source")?, lower.folder("beside")?);
        let mut spec = MountSpec::new(&source, transport, ground.flow);
        spec.args.extend(prepare(&source, &beside)?);
        let Some(mount) = Mounted::start(&spec)? else { continue };
        let stage = Stage { mount, source, beside };
        attack(&stage).with_context(|| format!("on {}:\n{}", transport.name(), stage.mount.log()))?;
    }
    Ok(())
}

/// Runs the work as a user who has no privilege.
pub(crate) fn by<R: Send>(uid: u32, work: impl FnOnce() -> R + Send) -> R {
    Identity::new(uid, uid).run(work)
}

/// Writes a file with an owner and a mode.
pub(crate) fn put(path: &Path, bytes: &[u8], uid: u32, mode: u32) -> Result<()> {
    fs::write(path, bytes).with_context(|| path.display().to_string())?;
    chown(path, Some(uid), Some(uid))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// Makes a folder with an owner and a mode.
pub(crate) fn folder(path: &Path, uid: u32, mode: u32) -> Result<()> {
    fs::create_dir(path).with_context(|| path.display().to_string())?;
    chown(path, Some(uid), Some(uid))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}
