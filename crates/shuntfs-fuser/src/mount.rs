//! From a path to a mounted device, and back.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shuntfs_sys::mount::{
    Lifeline, MountOptions, MountRequest, mount_by_fusermount, mount_for_life, mount_fuse, mounts, unmount,
    unmount_by_fusermount,
};
use shuntfs_sys::{Cap, FuseDevice, MountError, OsError, caps, open, spawn, stat};

use crate::config::{Config, MountOption};
use crate::transport::transport_option;

/// What stands for the source in the mount table where nobody named one.
const SOURCE: &str = "/dev/fuse";
const S_IFMT: u32 = 0o170_000;

/// A mount. Dropping it unmounts; where it is busy, it stays.
#[derive(Debug)]
pub(crate) struct Mount {
    path: PathBuf,
    connection: Option<u32>,
    gone: bool,
    /// What unmounts when the process ends.
    keeper: Option<Lifeline>,
}

/// The options of a mount, taken apart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Wanted {
    source: Option<String>,
    subtype: Option<String>,
    options: MountOptions,
    auto_unmount: bool,
}

impl Mount {
    /// Mounts on `path`.
    pub(crate) fn new(path: &Path, config: &Config) -> io::Result<(Arc<FuseDevice>, Self)> {
        let wanted = Wanted::new(config)?;
        let path = path.canonicalize()?;
        let mut keeper = None;
        let device = if wanted.auto_unmount {
            let (device, kept) = mount_for_life(&path, &wanted.for_fusermount()).map_err(other)?;
            keeper = Some(kept);
            device
        } else if caps::has_effective(Cap::SysAdmin) {
            by_calls(&path, &wanted)?
        } else {
            mount_by_fusermount(&path, &wanted.for_fusermount()).map_err(other)?
        };
        let connection = connection_of(&device, &path);
        Ok((Arc::new(device), Self { path, connection, gone: false, keeper }))
    }

    /// Unmounts. That it is unmounted already is as good.
    pub(crate) fn unmount(mut self) -> io::Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> io::Result<()> {
        if self.gone || !self.is_mounted() {
            self.gone = true;
            return Ok(());
        }
        match unmount(&self.path, false) {
            Ok(()) | Err(OsError::INVAL | OsError::NOENT) => {}
            Err(OsError::PERM) => unmount_by_fusermount(&self.path, true).map_err(other)?,
            Err(error) => return Err(error.into()),
        }
        self.gone = true;
        self.keeper = None;
        Ok(())
    }

    /// Whether what is mounted there is still ours.
    fn is_mounted(&self) -> bool {
        let (Some(connection), Ok(mounts)) = (self.connection, mounts()) else { return true };
        let at_path = mounts.iter().rev().find(|mount| mount.mount_point == self.path);
        at_path.is_some_and(|mount| mount.dev.1 == connection)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            tracing::warn!(path = %self.path.display(), %error, "the mount stays");
        }
    }
}

fn by_calls(path: &Path, wanted: &Wanted) -> io::Result<FuseDevice> {
    let device = FuseDevice::open()?;
    let target = open::open_target(path)?;
    let rootmode = stat::stat_of(&target)?.mode & S_IFMT;
    let request = MountRequest {
        source: wanted.source().as_ref(),
        subtype: wanted.subtype.as_deref(),
        target: target.as_fd(),
        device: &device,
        rootmode,
        uid: spawn::effective_uid(),
        gid: spawn::effective_gid(),
        options: wanted.options,
    };
    mount_fuse(&request).map_err(|error| {
        let kind = io::Error::from(error.errno()).kind();
        io::Error::new(kind, format!("mounting on {} failed: {error}", path.display()))
    })?;
    Ok(device)
}

/// The number of a connection is its mount's minor device number.
fn connection_of(device: &FuseDevice, path: &Path) -> Option<u32> {
    if let Ok(Some(id)) = device.connection_id() {
        return Some(id);
    }
    let mounts = mounts().ok()?;
    mounts.iter().rev().find(|mount| mount.mount_point == path).map(|mount| mount.dev.1)
}

fn other(error: MountError) -> io::Error {
    io::Error::other(error)
}

impl Wanted {
    fn new(config: &Config) -> io::Result<Self> {
        let allow_other = config.acl.lets_others_in();
        let options = MountOptions { nosuid: true, nodev: true, allow_other, ..MountOptions::default() };
        let mut wanted = Self { options, ..Self::default() };
        for option in &config.mount_options {
            wanted.add(option)?;
        }
        Ok(wanted)
    }

    fn add(&mut self, option: &MountOption) -> io::Result<()> {
        let options = &mut self.options;
        match option {
            MountOption::FSName(name) => self.source = Some(name.clone()),
            MountOption::Subtype(subtype) => self.subtype = Some(subtype.clone()),
            MountOption::AutoUnmount => self.auto_unmount = true,
            MountOption::DefaultPermissions => options.default_permissions = true,
            MountOption::Dev => options.nodev = false,
            MountOption::NoDev => options.nodev = true,
            MountOption::Suid => options.nosuid = false,
            MountOption::NoSuid => options.nosuid = true,
            MountOption::RO => options.read_only = true,
            MountOption::NoExec => options.noexec = true,
            MountOption::NoAtime => options.noatime = true,
            MountOption::DirSync => options.dirsync = true,
            MountOption::Sync => options.sync = true,
            MountOption::RW | MountOption::Exec | MountOption::Atime | MountOption::Async => {}
            custom @ MountOption::CUSTOM(_) if transport_option(custom).is_some() => {}
            MountOption::CUSTOM(text) => return self.add_by_name(text),
        }
        Ok(())
    }

    fn add_by_name(&mut self, text: &str) -> io::Result<()> {
        let options = &mut self.options;
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let number = value.and_then(|value| value.parse().ok());
        match (name, value, number) {
            ("max_read", _, Some(number)) => options.max_read = Some(number),
            ("fsname", Some(value), _) => self.source = Some(value.into()),
            ("subtype", Some(value), _) => self.subtype = Some(value.into()),
            ("allow_other", None, _) => options.allow_other = true,
            ("default_permissions", None, _) => options.default_permissions = true,
            ("dev", None, _) => options.nodev = false,
            ("nodev", None, _) => options.nodev = true,
            ("suid", None, _) => options.nosuid = false,
            ("nosuid", None, _) => options.nosuid = true,
            ("ro", None, _) => options.read_only = true,
            ("noexec", None, _) => options.noexec = true,
            ("noatime", None, _) => options.noatime = true,
            ("nodiratime", None, _) => options.nodiratime = true,
            ("dirsync", None, _) => options.dirsync = true,
            ("sync", None, _) => options.sync = true,
            ("rw" | "exec" | "atime" | "async", None, _) => {}
            _ => {
                let what = format!("the mount option {text} is not known");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        }
        Ok(())
    }

    fn source(&self) -> &str {
        self.source.as_deref().or(self.subtype.as_deref()).unwrap_or(SOURCE)
    }

    /// The options as `fusermount3 -o` takes them. It splits at commas and takes a backslash as an escape.
    fn for_fusermount(&self) -> OsString {
        let escaped = |value: &str| value.replace('\\', "\\\\").replace(',', "\\,");
        let options = self.options;
        let mut words = vec![format!("fsname={}", escaped(self.source()))];
        words.extend(self.subtype.as_deref().map(|subtype| format!("subtype={}", escaped(subtype))));
        words.extend(options.max_read.map(|max_read| format!("max_read={max_read}")));
        for (word, on) in [
            (if options.read_only { "ro" } else { "rw" }, true),
            (if options.nosuid { "nosuid" } else { "suid" }, true),
            (if options.nodev { "nodev" } else { "dev" }, true),
            ("noexec", options.noexec),
            ("noatime", options.noatime),
            ("nodiratime", options.nodiratime),
            ("sync", options.sync),
            ("dirsync", options.dirsync),
            ("allow_other", options.allow_other),
            ("default_permissions", options.default_permissions),
        ] {
            if on {
                words.push(word.to_owned());
            }
        }
        words.join(",").into()
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::config::SessionACL;

    fn wanted(options: &[MountOption]) -> io::Result<Wanted> {
        Wanted::new(&Config { mount_options: options.to_vec(), acl: SessionACL::All, ..Config::default() })
    }

    #[test]
    fn options_are_taken_apart() {
        let custom = |text: &str| MountOption::CUSTOM(text.into());
        let given = [
            MountOption::Subtype("a,b".into()),
            MountOption::Suid,
            MountOption::NoExec,
            custom("max_read=8192"),
            custom("nodiratime"),
            custom("shuntfs_transport=uring"),
        ];
        let wanted = wanted(&given).unwrap();
        assert_eq!((wanted.source(), wanted.options.max_read), ("a,b", Some(8192)));
        let expected = "fsname=a\\,b,subtype=a\\,b,max_read=8192,rw,suid,nodev,noexec,nodiratime,allow_other";
        assert_eq!(wanted.for_fusermount(), OsString::from(expected));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for text in ["bongos", "max_read", "max_read=x", "ro=1"] {
            assert!(wanted(&[MountOption::CUSTOM(text.into())]).is_err(), "{text}");
        }
        assert_eq!(wanted(&[]).unwrap().source(), SOURCE);
    }
}
