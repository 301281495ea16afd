//! What a mount can be told.

use std::str::FromStr;
use std::time::Duration;

use shuntfs_transport::{TransportKind, UnknownTransport};
use thiserror::Error;

/// Options of the mount itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// What `mount` and `df` show as the source. Default: `shuntfs`.
    pub source: String,
    /// The type shown after `fuse.`. Default: `shunt`.
    pub subtype: String,
    /// Whether users other than the one who mounts get in. Default: no. Without `default_permissions` the file
    /// system alone then guards what it shows.
    pub allow_other: bool,
    /// Whether the kernel checks permissions from owner, group and mode. Default: yes. Danger: without it the
    /// kernel checks next to nothing, and a file system that acts as root lets everybody do so.
    pub default_permissions: bool,
    /// Whether nothing can be changed. Default: no.
    pub read_only: bool,
    /// Whether set-uid and set-gid bits have no effect. Default: yes.
    pub nosuid: bool,
    /// Whether device files have no effect. Default: yes.
    pub nodev: bool,
    /// Whether nothing can be executed. Default: no.
    pub noexec: bool,
    /// Whether reading leaves the time of access alone. Default: no.
    pub noatime: bool,
    /// Whether fusermount3 mounts and stays, to unmount when the server has ended without doing so (`kill -9`). Default: no. Cost: a
    /// process; fusermount3 must be installed, for root, too. It looks once, when the server's end of a socket is closed: where
    /// the kernel closes that before the device, the mount is taken for one that is still served, and stays.
    pub auto_unmount: bool,
    /// The longest READ in bytes. Default (`None`): the payload's length.
    pub max_read: Option<u32>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "shuntfs".into(),
            subtype: "shunt".into(),
            allow_other: false,
            default_permissions: true,
            read_only: false,
            nosuid: true,
            nodev: true,
            noexec: false,
            noatime: false,
            auto_unmount: false,
            max_read: None,
        }
    }
}

/// What is wrong with the text of mount options.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum OptionError {
    /// There is no such option.
    #[error("there is no mount option {0:?}")]
    Unknown(String),
    /// The option takes another sort of value, or none.
    #[error("the mount option {0:?} has no such value")]
    Value(String),
}

/// Options as `-o` takes them, between commas; a later one overrules an earlier one. Known are `ro`, `rw`, `allow_other`,
/// `auto_unmount`, `suid`,
/// `dev`, `exec`, `atime`, `default_permissions` and each of the last five with `no` before it, `fsname=` (the source), `subtype=`
/// and `max_read=`. A backslash takes the meaning from a comma in a value.
///
/// ```
/// use shuntfs::MountOptions;
///
/// let options: MountOptions = "ro,noexec,fsname=a\\,b".parse()?;
/// assert!(options.read_only && options.noexec && options.nodev);
/// assert_eq!(options.source, "a,b");
/// assert_eq!("ro,colour=red".parse::<MountOptions>().unwrap_err().to_string(), "there is no mount option \"colour\"");
/// # Ok::<(), shuntfs::OptionError>(())
/// ```
impl FromStr for MountOptions {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for option in split(text) {
            options.set(&option)?;
        }
        Ok(options)
    }
}

impl MountOptions {
    fn set(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let (field, on) = match name {
            "" => return Ok(()),
            "ro" => (&mut self.read_only, true),
            "rw" => (&mut self.read_only, false),
            "allow_other" => (&mut self.allow_other, true),
            "default_permissions" => (&mut self.default_permissions, true),
            "nodefault_permissions" => (&mut self.default_permissions, false),
            "nosuid" => (&mut self.nosuid, true),
            "suid" => (&mut self.nosuid, false),
            "nodev" => (&mut self.nodev, true),
            "dev" => (&mut self.nodev, false),
            "noexec" => (&mut self.noexec, true),
            "exec" => (&mut self.noexec, false),
            "noatime" => (&mut self.noatime, true),
            "atime" => (&mut self.noatime, false),
            "auto_unmount" => (&mut self.auto_unmount, true),
            _ => return self.set_value(name, value),
        };
        if value.is_some() {
            return Err(OptionError::Value(name.into()));
        }
        *field = on;
        Ok(())
    }

    fn set_value(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        let wrong = || OptionError::Value(name.into());
        match name {
            "fsname" => self.source = value.ok_or_else(wrong)?.into(),
            "subtype" => self.subtype = value.ok_or_else(wrong)?.into(),
            "max_read" => {
                let bytes = value.and_then(|value| value.parse().ok());
                self.max_read = Some(bytes.ok_or_else(wrong)?);
            }
            _ => return Err(OptionError::Unknown(name.into())),
        }
        Ok(())
    }
}

/// At the commas that no backslash precedes.
fn split(text: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, options.last_mut()) {
            (',', _) => options.push(String::new()),
            ('\\', Some(last)) => last.extend(letters.next()),
            (letter, Some(last)) => last.push(letter),
            (_, None) => {}
        }
    }
    options
}

/// Which transport a session takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Transport {
    /// io_uring where the kernel offers it and it can be set up, else cloned devices where there is more than
    /// one CPU, else one device.
    #[default]
    Auto,
    /// This one, or no mount.
    Only(TransportKind),
}

/// `auto`, or the name of a [`TransportKind`].
impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(name: &str) -> Result<Self, UnknownTransport> {
        if name == "auto" { Ok(Self::Auto) } else { name.parse().map(Self::Only) }
    }
}

/// Options of how requests are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionOptions {
    /// Which transport. Default: [`Transport::Auto`].
    pub transport: Transport,
    /// How many queues, one thread each. Default (`None`): as the transport sees fit, at most one a CPU.
    pub queues: Option<usize>,
    /// How many requests a queue serves at once. Default: 32.
    pub depth: usize,
    /// The longest READ and WRITE in bytes, rounded up to whole pages; 8192 at least. Default: 1 MiB. Cost: each of
    /// queues x depth requests may come to use that much memory.
    pub payload_len: usize,
    /// What the payloads may come to use together, in bytes. Default: 256 MiB, or 4 MiB for each CPU that is online where that is more.
    pub payload_cap: u64,
    /// How many threads run offloaded work, at most. Default: 64.
    pub offload_threads: usize,
    /// Whether queues that serve much go to the scheduler's class `SCHED_IDLE` while they do. Default: yes. Cost of no: a caller is
    /// more often woken on another CPU. See `docs/scheduler.md`.
    pub sched_idle: bool,
    /// Where another server may go on: whether the memory of payloads is there before it is used, as that of small requests always is. A WRITE
    /// that the kernel copies to memory that was not there fails with EIO if the server is killed in that moment. Default: no. Cost:
    /// queues x depth x `payload_len` bytes of memory, all the time.
    pub warm_payloads: bool,
    /// How many backing ids are kept that no open uses. Default: 1024. Each pins a lower inode and keeps the lower
    /// mount busy; without any, each first open of a file registers it again.
    pub backing_ids_kept: usize,
    /// Whether opens may be put in passthrough. Default: yes.
    pub passthrough: bool,
    /// Whether bytes that nobody has to see may be moved by zero copy, where passthrough is not available (Linux 7.3, on io_uring, as root).
    /// Default: yes.
    pub zero_copy: bool,
    /// Whether the memory of pools of payloads is pinned (Linux 7.3, on io_uring), where the limit of locked memory (`RLIMIT_MEMLOCK`) allows
    /// that for all of it. The kernel then looks no page up when it copies. Default: no, as no gain was measured. Cost: the memory is used from
    /// the start on and never given back, depth x `payload_len` bytes for each CPU.
    pub pin_payloads: bool,
    /// How many background requests (readahead, asynchronous I/O, RELEASE) the kernel sends at once. Default
    /// (`None`): queues x depth, at least 64.
    pub max_background: Option<u16>,
    /// How far the kernel reads ahead in bytes. Default (`None`): the kernel's own choice, 128 KiB. Needs root.
    pub readahead: Option<u64>,
    /// How long a request may be under way before the log tells of it ([`crate::StallStatus`]); `None`: as long as it likes. Default: 10
    /// seconds. Cost: 64 bytes for each request that there is room for; on io_uring, a timer that is set and stopped for each request while few
    /// come. Requests that wait for locks, or for what a file is ready for, are left out.
    pub stall_after: Option<Duration>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        let settings = shuntfs_transport::Settings::default();
        Self {
            transport: Transport::Auto,
            queues: settings.queues,
            depth: settings.depth,
            payload_len: settings.payload_len,
            payload_cap: settings.payload_cap,
            offload_threads: settings.offload_threads,
            sched_idle: settings.sched_idle,
            warm_payloads: false,
            backing_ids_kept: 1024,
            passthrough: true,
            zero_copy: true,
            pin_payloads: settings.pin,
            max_background: None,
            readahead: None,
            stall_after: Some(Duration::from_secs(10)),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn each_option_moves_its_own_field() {
        let base = MountOptions::default();
        let table = [
            ("", base.clone()),
            ("rw,nosuid,nodev,exec,atime,default_permissions", base.clone()),
            ("ro", MountOptions { read_only: true, ..base.clone() }),
            ("ro,rw", base.clone()),
            ("suid,dev", MountOptions { nosuid: false, nodev: false, ..base.clone() }),
            ("noatime,noexec", MountOptions { noatime: true, noexec: true, ..base.clone() }),
            ("allow_other", MountOptions { allow_other: true, ..base.clone() }),
            ("nodefault_permissions", MountOptions { default_permissions: false, ..base.clone() }),
            ("max_read=8192", MountOptions { max_read: Some(8192), ..base.clone() }),
            (
                "fsname=a\\,b\\\\,subtype=",
                MountOptions { source: "a,b\\".into(), subtype: "".into(), ..base },
            ),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_option_is_refused_by_name() {
        for (text, expected) in [
            ("ro,nope", OptionError::Unknown("nope".into())),
            ("noro", OptionError::Unknown("noro".into())),
            ("ro=1", OptionError::Value("ro".into())),
            ("fsname", OptionError::Value("fsname".into())),
            ("max_read=many", OptionError::Value("max_read".into())),
        ] {
            assert_eq!(text.parse::<MountOptions>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn transports_have_names() {
        assert_eq!("auto".parse(), Ok(Transport::Auto));
        for kind in [TransportKind::Device, TransportKind::Cloned, TransportKind::Uring] {
            assert_eq!(kind.to_string().parse(), Ok(Transport::Only(kind)));
        }
        assert!("pigeon".parse::<Transport>().is_err());
    }
}
