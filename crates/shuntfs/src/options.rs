//! What a mount can be told.

use shuntfs_transport::TransportKind;

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
            max_read: None,
        }
    }
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
    /// What the payloads may come to use together, in bytes. Default: 256 MiB.
    pub payload_cap: u64,
    /// How many threads run offloaded work, at most. Default: 64.
    pub offload_threads: usize,
    /// How many backing ids are kept that no open uses. Default: 1024. Each pins a lower inode and keeps the lower
    /// mount busy; without any, each first open of a file registers it again.
    pub backing_ids_kept: usize,
    /// Whether opens may be put in passthrough. Default: yes.
    pub passthrough: bool,
    /// How many background requests (readahead, asynchronous I/O, RELEASE) the kernel sends at once. Default
    /// (`None`): queues x depth, at least 64.
    pub max_background: Option<u16>,
    /// How far the kernel reads ahead in bytes. Default (`None`): the kernel's own choice, 128 KiB. Needs root.
    pub readahead: Option<u64>,
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
            backing_ids_kept: 1024,
            passthrough: true,
            max_background: None,
            readahead: None,
        }
    }
}
