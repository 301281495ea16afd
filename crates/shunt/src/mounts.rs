//! Which mounts there are, and which one a path is on, told from the list of mounts: a mount whose server is
//! stuck must never be touched to find out about it.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use shuntfs_sys::mount::MountInfo;

use crate::failure::Failure;

/// The mounts of this process's mount namespace.
#[derive(Debug)]
pub(crate) struct Mounts(Vec<MountInfo>);

/// Where a path is, whatever it is called: the file system's device, and the path below its root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) device: (u32, u32),
    pub(crate) path: PathBuf,
}

impl Mounts {
    /// Reads the list.
    ///
    /// # Errors
    /// Where /proc does not exist.
    pub(crate) fn read() -> Result<Self, Failure> {
        let list = shuntfs_sys::mount::mounts().map_err(|error| {
            Failure::new(format!("cannot read the list of mounts: {}", io::Error::from(error)))
                .hint("is /proc mounted? mount -t proc proc /proc")
        })?;
        Ok(Self(list))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &MountInfo> {
        self.0.iter()
    }

    /// The mounts of shunt: by their type, or by a connection that one of our servers answers for.
    pub(crate) fn of_shunt(&self, answered: &HashSet<u64>) -> impl Iterator<Item = &MountInfo> {
        self.0.iter().filter(|mount| {
            is_shunt(mount) || connection(mount).is_some_and(|connection| answered.contains(&connection))
        })
    }

    /// The mount that an absolute path without symlinks is on. The walk goes as the kernel's does, so that
    /// mounts hidden by later ones do not count.
    pub(crate) fn covering(&self, path: &Path) -> Option<&MountInfo> {
        let parent_is_here =
            |mount: &MountInfo| self.0.iter().any(|other| other.id == mount.parent && other.id != mount.id);
        let root = |mount: &&MountInfo| mount.mount_point == Path::new("/") && !parent_is_here(mount);
        let mut current = self.0.iter().find(root)?;
        // Each step goes to a child, so there are no more steps than mounts.
        for _ in 0..self.0.len() {
            let next = self
                .0
                .iter()
                .filter(|mount| {
                    mount.parent == current.id
                        && mount.id != current.id
                        && path.starts_with(&mount.mount_point)
                })
                .min_by_key(|mount| mount.mount_point.as_os_str().len());
            match next {
                Some(mount) => current = mount,
                None => break,
            }
        }
        Some(current)
    }

    /// The mount whose root an absolute path without symlinks is.
    pub(crate) fn at(&self, path: &Path) -> Option<&MountInfo> {
        self.covering(path).filter(|mount| mount.mount_point == path)
    }

    /// The mounts that lie inside another one.
    pub(crate) fn inside<'a>(&'a self, outer: &'a MountInfo) -> impl Iterator<Item = &'a MountInfo> {
        self.0.iter().filter(|mount| mount.parent == outer.id && mount.id != outer.id)
    }

    /// Where an absolute path without symlinks is; two names of one place (bind mounts) are told to be one.
    pub(crate) fn place(&self, path: &Path) -> Option<Place> {
        let mount = self.covering(path)?;
        let below = path.strip_prefix(&mount.mount_point).ok()?;
        Some(Place { device: mount.dev, path: mount.root.join(below) })
    }

    /// The absolute path of a mount point or folder, without symlinks. Where it is a mount point, the mount
    /// itself is not touched.
    ///
    /// # Errors
    /// Those of looking up the path.
    pub(crate) fn locate(&self, path: &Path) -> io::Result<PathBuf> {
        let absolute = std::path::absolute(path)?;
        if let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) {
            let located = parent.canonicalize()?.join(name);
            if self.at(&located).is_some() {
                return Ok(located);
            }
        }
        absolute.canonicalize()
    }
}

/// Whether it is of type fuse.
pub(crate) fn is_fuse(mount: &MountInfo) -> bool {
    mount.fs_type == "fuse" || mount.fs_type.starts_with("fuse.")
}

/// Whether its type says that it is ours.
pub(crate) fn is_shunt(mount: &MountInfo) -> bool {
    mount.fs_type == "fuse.shunt"
}

/// The number of its connection.
pub(crate) fn connection(mount: &MountInfo) -> Option<u64> {
    (is_fuse(mount) && mount.dev.0 == 0).then_some(u64::from(mount.dev.1))
}

/// The user who mounted it.
pub(crate) fn owner(mount: &MountInfo) -> Option<u32> {
    mount.super_options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
}

/// Text for a terminal: control characters of file names are shown, not obeyed.
pub(crate) fn shown(text: impl AsRef<std::ffi::OsStr>) -> String {
    shuntfs_seal::shown(&text).to_string()
}
