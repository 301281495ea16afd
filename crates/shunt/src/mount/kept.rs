//! A mount of one folder that survives its servers: what its keeper has of it, and what a server knows of its keeper.

use std::os::fd::{AsRawFd, OwnedFd};

use shuntfs::takeover::KeptMount;
use shuntfs::{FileType, SessionOptions};
use shuntfs_keeper::Seat;
use shuntfs_pool::{Pool, PoolOptions};
use shuntfs_sys::open::open_folder;

use super::check::{At, Target};
use super::session::{
    mount_options, of_mount, of_pool, pool_options, readahead, refuse_others, refuse_trust,
};
use crate::control::TakeoverStatus;
use crate::failure::Failure;
use crate::mounts::shown;
use crate::serving::KeptPlace;
use crate::settings::Settings;

/// What the keeper has, before there is a mount.
#[derive(Debug)]
pub(super) struct Kept<'t> {
    pub(super) target: &'t Target,
    /// The folder that is shown: each server opens it by this, because the path may lead elsewhere by then.
    root: OwnedFd,
}

impl<'t> Kept<'t> {
    /// Looks whether the folder can be shown by one server after the other.
    ///
    /// # Errors
    /// Where it cannot.
    pub(super) fn open(target: &'t Target, settings: &Settings) -> Result<Self, Failure> {
        refuse_others(settings)?;
        refuse_trust(settings)?;
        let root = open_folder(&target.source).map_err(|error| {
            let error = std::io::Error::from(error);
            Failure::new(format!("SRC {} cannot be used: {error}", shown(&target.source)))
        })?;
        let kept = Self { target, root };
        kept.open_pool(settings)?.survives().map_err(|why| {
            let failure = Failure::new(format!("--takeover crash is not possible with {why}"));
            failure.hint("leave out --takeover")
        })?;
        Ok(kept)
    }

    /// The folder as a file system, for one server.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub(super) fn open_pool(&self, settings: &Settings) -> Result<Pool, Failure> {
        let source = format!("/proc/self/fd/{}", self.root.as_raw_fd()).into();
        let options = PoolOptions { source, ..pool_options(self.target, settings) };
        Pool::open(&options).map_err(|error| of_pool(&error))
    }

    /// Mounts. Whoever touches the mount waits for the first server.
    ///
    /// # Errors
    /// As a mount without a keeper.
    pub(super) fn mount(&self, settings: &Settings) -> Result<KeptMount, Failure> {
        let At::Folder(path) = &self.target.at else {
            return Err(Failure::new("a device that somebody else has mounted is not kept"));
        };
        let options = mount_options(&self.target.source, settings);
        KeptMount::mount(path, &options, FileType::Directory).map_err(|error| of_mount(&error))
    }

    pub(super) fn place(&self, settings: &Settings) -> KeptPlace {
        KeptPlace {
            source: self.target.source.to_string_lossy().into_owned(),
            readahead: readahead(settings, &SessionOptions::default()),
        }
    }
}

/// What a server knows of its keeper, and of its mount, which is the keeper's.
#[derive(Debug)]
pub(crate) struct SeatOf {
    keeper: u32,
    replaced: u64,
    /// The number of the connection, which not every kernel tells a server.
    pub(crate) connection: Option<u32>,
    /// What the list of mounts calls the source.
    pub(crate) source: String,
}

impl SeatOf {
    pub(super) fn new(seat: &Seat<'_>, target: &Target, settings: &Settings) -> Self {
        Self::of(seat, mount_options(&target.source, settings).source)
    }

    /// Of a mount whose source the list of mounts calls so.
    pub(crate) fn of(seat: &Seat<'_>, source: String) -> Self {
        Self { keeper: seat.keeper(), replaced: seat.predecessors(), connection: seat.connection(), source }
    }

    pub(crate) fn status(&self) -> TakeoverStatus {
        let lives = std::os::unix::process::parent_id() == self.keeper;
        TakeoverStatus { keeper: lives.then_some(self.keeper), replaced: self.replaced }
    }
}
