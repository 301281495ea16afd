//! Everything that can be wrong with a mount, looked for before anything happens.

use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use shuntfs_pool::BranchOptions;
use shuntfs_sys::{Cap, FuseDevice, OsError, caps, open};
use thiserror::Error;

use crate::branches;
use crate::control::Client;
use crate::doctor::access;
use crate::failure::Failure;
use crate::mounts::{self, Mounts, shown};
use crate::settings::{Settings, TakeoverChoice, TransportChoice, VerifyChoice};

/// What passed.
#[derive(Debug)]
pub(super) struct Target {
    /// The folder that is shown; absolute, without symlinks. Of several, their list.
    pub(super) source: PathBuf,
    /// Several that are shown as one, absolute and without symlinks.
    pub(super) branches: Option<Vec<BranchOptions>>,
    /// Where.
    pub(super) at: At,
    /// What the user should know.
    pub(super) notes: Vec<String>,
}

/// Where a folder is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum At {
    /// At this folder; absolute, without symlinks.
    Folder(PathBuf),
    /// Wherever this device, which is a descriptor of this process, is mounted already.
    Device(RawFd),
}

impl At {
    /// The path of the folder, or of the device (`/dev/fd/N`).
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Folder(path) => path.clone(),
            Self::Device(number) => format!("/dev/fd/{number}").into(),
        }
    }

    /// What has this path.
    pub(super) fn of(path: &Path) -> Self {
        inherited_device(path).map_or_else(|| Self::Folder(path.to_owned()), Self::Device)
    }
}

/// Why a mount cannot be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum Refusal {
    #[error("SRC {path} cannot be used: {error}")]
    Source { path: String, error: io::Error },
    #[error("SRC {path} is not a folder")]
    SourceNoFolder { path: String },
    #[error("MNT {path} cannot be used: {error}")]
    Mountpoint { path: String, error: io::Error },
    #[error("MNT {path} is not a folder")]
    MountpointNoFolder { path: String },
    #[error("SRC and MNT are the same folder, {path}")]
    Same { path: String },
    #[error("MNT {mountpoint} is inside SRC {source_folder}: the mount would show itself")]
    Inside { mountpoint: String, source_folder: String },
    #[error("SRC {source_folder} is inside MNT {mountpoint}: the mount would hide it")]
    Around { mountpoint: String, source_folder: String },
    #[error("the branches {path} and {other} are the same folder")]
    Twice { path: String, other: String },
    #[error("the branch {path} is inside the branch {other}: its files would be shown twice")]
    BranchInside { path: String, other: String },
    #[error("MNT {path} shows {source_folder} already")]
    Mounted { path: String, source_folder: String },
    #[error("MNT {path} is a mount of shunt whose server is gone")]
    Dead { path: String },
    #[error("MNT {path} is in use: {source_folder} of type {fs_type} is mounted there")]
    InUse { path: String, source_folder: String, fs_type: String },
    #[error("there is no /dev/fuse")]
    NoDevice,
    #[error("/dev/fuse cannot be opened: {error}")]
    Device { error: io::Error },
    #[error("no permission to mount, and no fusermount3")]
    NoPermission,
    #[error("no permission to mount: {why}")]
    RuledOut { why: &'static str },
    #[error("allow_other is not allowed to ordinary users")]
    AllowOther,
}

impl Refusal {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Source { error, .. } | Self::Mountpoint { error, .. } => return hint_of(error, self),
            Self::SourceNoFolder { .. } => "only folders can be shown",
            Self::MountpointNoFolder { .. } => "name a folder, best an empty one",
            Self::Same { .. } => "show it at another folder",
            Self::Inside { .. } => "choose a mount point outside of SRC",
            Self::Twice { .. } => "name each folder once",
            Self::BranchInside { .. } => "name folders that are beside each other",
            Self::Around { .. } => "choose a mount point beside SRC",
            Self::Mounted { path, .. } | Self::Dead { path } => {
                return Some(format!("take it away first: shunt umount {path}"));
            }
            Self::InUse { .. } => "choose another mount point, or umount that first",
            Self::NoDevice => access::MISSING_DEVICE,
            Self::Device { error } if error.kind() == io::ErrorKind::PermissionDenied => {
                access::CLOSED_DEVICE
            }
            Self::Device { .. } => "modprobe fuse",
            Self::NoPermission => "mount as root, or install fusermount3: apt-get install fuse3",
            Self::RuledOut { .. } => access::RULED_OUT,
            Self::AllowOther => "mount as root, or: echo user_allow_other >> /etc/fuse.conf",
        };
        Some(hint.into())
    }
}

fn hint_of(error: &io::Error, refusal: &Refusal) -> Option<String> {
    let hint = match (error.kind(), refusal) {
        (io::ErrorKind::NotFound, Refusal::Mountpoint { path, .. }) => format!("make it: mkdir -p {path}"),
        (io::ErrorKind::NotFound, _) => "is it spelled right, and its disk mounted?".into(),
        (io::ErrorKind::PermissionDenied, _) => "its owner or root may".into(),
        (io::ErrorKind::NotConnected, _) => "a server on the way there is gone; see shunt list".into(),
        _ => return None,
    };
    Some(hint)
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let failure = Self::new(refusal.to_string());
        match refusal.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Looks at everything that was asked for.
///
/// # Errors
/// The first thing that cannot be.
pub(super) fn check(source: &Path, mountpoint: &Path, settings: &Settings) -> Result<Target, Failure> {
    let mounts = Mounts::read()?;
    let mut branches = branches::of_source(source)?;
    check_branches(branches.as_deref_mut(), settings)?;
    if settings.replace_hung.is_some() && settings.takeover == TakeoverChoice::Off {
        let failure = Failure::usage("--replace-hung needs a keeper, which starts another server");
        return Err(failure.hint("add --takeover crash, or leave out --replace-hung"));
    }
    if settings.takeover.has_keeper() {
        check_takeover(inherited_device(mountpoint).is_some(), settings)?;
    }
    // A list stays as it was written: it is what the mount is called.
    let source = if branches.is_some() { source.to_owned() } else { check_source(source)? };
    if let Some(fd) = inherited_device(mountpoint) {
        return Ok(Target { source, branches, at: At::Device(fd), notes: Vec::new() });
    }
    let path = shown(mountpoint);
    let mountpoint = mounts.locate(mountpoint).map_err(|error| Refusal::Mountpoint { path, error })?;
    check_unused(&mounts, &mountpoint)?;
    if !mountpoint.is_dir() {
        return Err(Refusal::MountpointNoFolder { path: shown(&mountpoint) }.into());
    }
    match &branches {
        None => check_apart(&mounts, &source, &mountpoint)?,
        Some(branches) => {
            for (index, branch) in branches.iter().enumerate() {
                check_apart(&mounts, &branch.path, &mountpoint)?;
                for other in &branches[..index] {
                    check_not_twice(&mounts, &branch.path, &other.path)?;
                }
            }
        }
    }
    check_rights(settings)?;
    let notes = Vec::from_iter(note_of_hidden(&mountpoint));
    Ok(Target { source, branches, at: At::Folder(mountpoint), notes })
}

/// The number in `/dev/fd/N`, the form in which mount.fuse3(8) hands over a device that it has mounted.
pub(super) fn inherited_device(mountpoint: &Path) -> Option<RawFd> {
    mountpoint.to_str()?.strip_prefix("/dev/fd/")?.parse().ok()
}

/// What is not possible with a takeover, and why.
pub(crate) const RING: &str = "io_uring: when a server dies, the kernel itself fails requests of its rings";

/// Why a mount that needs no less is not asked for less.
pub(crate) const DEVICE: &str = "a device, where another server can follow after a crash, too";

/// Why a server on io_uring that hangs is not replaced.
const HUNG: &str = "--replace-hung: the device does not tell the keeper which requests wait for rings, so none is known to hang";

/// Refuses what no other server could go on with.
fn check_takeover(is_device: bool, settings: &Settings) -> Result<(), Failure> {
    let crash = settings.takeover == TakeoverChoice::Crash;
    let is_ring = matches!(settings.transport, TransportChoice::Auto | TransportChoice::Uring);
    let refused = [
        (
            crash && settings.transport == TransportChoice::Uring,
            RING,
            "--transport cloned, or device, or --takeover upgrade",
        ),
        (!crash && !is_ring, DEVICE, "--takeover crash, which includes upgrades"),
        (!crash && settings.replace_hung.is_some(), HUNG, "leave out --replace-hung"),
        (!crash && is_device, "a device that somebody else has mounted", "name a folder to mount on"),
    ];
    if let Some((_, what, instead)) = refused.into_iter().find(|(is_there, ..)| *is_there) {
        let asked = if crash { "crash" } else { "upgrade" };
        let failure = Failure::usage(format!("--takeover {asked} is not possible with {what}"));
        return Err(failure.hint(format!("{instead}, or leave out --takeover")));
    }
    Ok(())
}

/// Looks at each of several branches, and at what they exclude.
fn check_branches(branches: Option<&mut [BranchOptions]>, settings: &Settings) -> Result<(), Failure> {
    let Some(branches) = branches else {
        if settings.handles && settings.rules.is_some() {
            let failure = Failure::usage("rules go by names, and a handle leads to a file without one");
            return Err(failure.hint("leave out --handles, or --rules"));
        }
        return if settings.merge.is_asked() {
            let failure = Failure::usage(
                "policies, minfreespace, moveonenospc and the like are for several branches, and SRC is one folder",
            );
            Err(failure.hint("leave them out, or name branches: /a:/b"))
        } else {
            Ok(())
        };
    };
    if settings.verify.what != VerifyChoice::Off {
        let why = "a seal is of one folder, and --verify cannot be had with several branches";
        return Err(Failure::usage(why).hint(
            "mount the sealed folder with --verify=required, and make that mount a branch (docs/pool.md, \"A sealed branch\")",
        ));
    }
    for (index, branch) in branches.iter().enumerate() {
        if let Some(id) = branch.id.as_ref()
            && branches[..index].iter().any(|other| other.id.as_ref() == Some(id))
        {
            let failure = Failure::usage(format!("two branches are called {id:?}"));
            return Err(failure.hint("what a branch is called is its alone, so a pattern has no id="));
        }
    }
    for branch in branches {
        branch.path = check_source(&branch.path)?;
    }
    Ok(())
}

/// Compares what two branches are, as [`check_apart`] does.
fn check_not_twice(mounts: &Mounts, one: &Path, other: &Path) -> Result<(), Refusal> {
    let (place, other_place) = (mounts.place(one), mounts.place(other));
    let is_within = |inner: &Path, outer: &Path| match (mounts.place(inner), mounts.place(outer)) {
        (Some(inner), Some(outer)) if inner.device == outer.device => inner.path.starts_with(&outer.path),
        _ => false,
    } || inner.starts_with(outer);
    let is_same = match (&place, &other_place) {
        (Some(place), Some(other)) => place.device == other.device && place.path == other.path,
        _ => one == other,
    };
    let (path, around) = (shown(one), shown(other));
    if is_same {
        return Err(Refusal::Twice { path, other: around });
    }
    match (is_within(one, other), is_within(other, one)) {
        (true, _) => Err(Refusal::BranchInside { path, other: around }),
        (_, true) => Err(Refusal::BranchInside { path: around, other: path }),
        _ => Ok(()),
    }
}

/// A folder that can be shown, absolute and without symlinks.
///
/// # Errors
/// Where it is none.
pub(crate) fn check_source(source: &Path) -> Result<PathBuf, Refusal> {
    let refused = |error| Refusal::Source { path: shown(source), error };
    let located = source.canonicalize().map_err(refused)?;
    if !fs::metadata(&located).map_err(refused)?.is_dir() {
        return Err(Refusal::SourceNoFolder { path: shown(&located) });
    }
    open::open_folder(&located).map_err(|error| refused(error.into()))?;
    Ok(located)
}

pub(crate) fn check_unused(mounts: &Mounts, mountpoint: &Path) -> Result<(), Refusal> {
    let Some(mount) = mounts.at(mountpoint) else { return Ok(()) };
    let path = shown(mountpoint);
    let source_folder = shown(&mount.source);
    if !mounts::is_shunt(mount) {
        return Err(Refusal::InUse { path, source_folder, fs_type: shown(&mount.fs_type) });
    }
    let connection = mounts::connection(mount).unwrap_or_default();
    match Client::of_connection(connection, &Vec::from_iter(mounts::owner(mount))) {
        Err(crate::control::AskError::NoServer) => Err(Refusal::Dead { path }),
        _ => Err(Refusal::Mounted { path, source_folder }),
    }
}

/// Compares what the paths are, not what they are called: a bind mount gives a folder a second name, and mounts
/// made at one of them can show at the other.
///
/// # Errors
/// Where one is the other or inside it.
pub(crate) fn check_apart(mounts: &Mounts, source: &Path, mountpoint: &Path) -> Result<(), Refusal> {
    let (places, named) = ((mounts.place(source), mounts.place(mountpoint)), (source, mountpoint));
    let within = |inner: &Path, outer: &Path| inner.starts_with(outer);
    let (same_device, below) = match &places {
        (Some(source), Some(mountpoint)) if source.device == mountpoint.device => {
            (true, (&*source.path, &*mountpoint.path))
        }
        _ => (false, named),
    };
    let (source_folder, mountpoint_shown) = (shown(source), shown(mountpoint));
    if named.0 == named.1 || (same_device && below.0 == below.1) {
        return Err(Refusal::Same { path: source_folder });
    }
    if within(named.1, named.0) || (same_device && within(below.1, below.0)) {
        return Err(Refusal::Inside { mountpoint: mountpoint_shown, source_folder });
    }
    if within(named.0, named.1) || (same_device && within(below.0, below.1)) {
        return Err(Refusal::Around { mountpoint: mountpoint_shown, source_folder });
    }
    Ok(())
}

pub(crate) fn check_rights(settings: &Settings) -> Result<(), Refusal> {
    if !Path::new("/dev/fuse").exists() {
        return Err(Refusal::NoDevice);
    }
    let privileged = caps::has_effective(Cap::SysAdmin);
    if !privileged {
        if let Some(why) = access::mounting_is_ruled_out() {
            return Err(Refusal::RuledOut { why });
        }
        if access::in_path("fusermount3").is_none() {
            return Err(Refusal::NoPermission);
        }
        if settings.mount.allow_other && !access::allow_other_is_allowed() {
            return Err(Refusal::AllowOther);
        }
    }
    match FuseDevice::open() {
        Ok(_) => Ok(()),
        Err(OsError::NOENT) => Err(Refusal::NoDevice),
        Err(error) => Err(Refusal::Device { error: error.into() }),
    }
}

fn note_of_hidden(mountpoint: &Path) -> Option<String> {
    let used = fs::read_dir(mountpoint).is_ok_and(|mut entries| entries.next().is_some());
    used.then(|| format!("{} is not empty; what is in it is hidden while this is mounted", shown(mountpoint)))
}
