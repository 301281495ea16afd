//! A mount that survives its servers: what its keeper has of it, and what a server knows of its keeper.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use shuntfs::takeover::KeptMount;
use shuntfs::{FileType, SessionOptions};
use shuntfs_keeper::{Line, Seat};
use shuntfs_pool::{KeptBranches, Ledger, Pool, PoolOptions};
use shuntfs_sys::caps::Rights;
use shuntfs_sys::open::open_folder;
use shuntfs_sys::spawn::effective_uid;
use shuntfs_verified::{Sealed, Seals};

use super::check::Target;
use super::session::{
    mount_options, of_mount, of_pool, open_pool, pool_options, readahead, refuse_others, refuse_trust,
};
use super::verify::{OfKeeper, Verifying, lets_pass};
use crate::control::TakeoverStatus;
use crate::failure::Failure;
use crate::mounts::shown;
use crate::rules::LiveRules;
use crate::seal::SealsInForce;
use crate::serving::KeptPlace;
use crate::settings::Settings;
use crate::upgrade::candidate;

/// What the folder that is shown is called among what is handed over to another program.
const ROOT: &str = "root";
/// What the branches in force are called there.
const BRANCHES: &str = "branches";
/// What these are called where handles outlive the mount. A release that knows no such mounts finds no folder, and so does not go on: it would take
/// nodes whose numbers outlive the mount for something else.
const ROOT_OF_HANDLES: &str = "root-of-handles";
const BRANCHES_OF_HANDLES: &str = "branches-of-handles";
/// What is written down for the next server is called so.
pub(super) const LEDGER: &str = "ledger";
/// What the seal in force is called there.
pub(super) const SEAL: &str = "seal";

/// What the keeper has, before there is a mount.
#[derive(Debug)]
pub(super) struct Kept<'t> {
    pub(super) target: &'t Target,
    shown: Shown,
    /// What is written down for the next server, where there are rules.
    ledger: Option<Ledger>,
    seal: Option<OfKeeper>,
    /// Whether the mount has begun: what is shown was checked.
    goes_on: bool,
}

/// What one server shows, as a file system.
#[derive(Debug)]
pub(super) enum Shows {
    /// The folder, under rules and checked where there are any.
    Pool { pool: Pool, rules: Option<LiveRules>, verifying: Option<Verifying> },
    /// The manifest of what is sealed.
    Sealed(Sealed, Verifying),
}

/// What is shown. Each server opens it by this, because paths may lead elsewhere by then.
#[derive(Debug)]
pub(super) enum Shown {
    Folder(OwnedFd),
    Branches(Arc<KeptBranches>),
}

impl<'t> Kept<'t> {
    /// Opens what is shown, and checks whether one server after the other can show it.
    ///
    /// # Errors
    /// If that cannot be.
    pub(super) fn open(target: &'t Target, settings: &Settings) -> Result<Self, Failure> {
        let shown = match &target.branches {
            Some(branches) => {
                Shown::Branches(Arc::new(KeptBranches::open(branches).map_err(|error| of_pool(&error))?))
            }
            None => Shown::Folder(open_folder(&target.source).map_err(|error| {
                let error = std::io::Error::from(error);
                Failure::new(format!("SRC {} cannot be used: {error}", shown(&target.source)))
            })?),
        };
        let ledger = settings.rules.as_ref().map(|_| Ledger::new()).transpose();
        let ledger =
            ledger.map_err(|error| Failure::new(format!("no memory for what rules go by: {error}")))?;
        let seal = OfKeeper::open(&target.source, settings)?;
        let kept = Self { target, shown, ledger, seal, goes_on: false };
        kept.check(settings)?;
        Ok(Self { goes_on: true, ..kept })
    }

    /// What another program had shown until now, with what it had written down.
    pub(super) fn of(target: &'t Target, shown: Shown, left: LeftRecords) -> Self {
        let LeftRecords { ledger, seal } = left;
        Self { target, shown, ledger, seal, goes_on: true }
    }

    /// Checks whether one server after the other can show it; as a file system, for none.
    ///
    /// # Errors
    /// Where they cannot.
    pub(super) fn check(&self, settings: &Settings) -> Result<Shows, Failure> {
        let shows = self.shows(settings)?.0;
        let Shows::Pool { pool, .. } = &shows else { return Ok(shows) };
        refuse_others(settings)?;
        refuse_trust(settings)?;
        match pool.survives() {
            Ok(()) => Ok(shows),
            Err(why) => {
                let failure = Failure::new(format!("--takeover crash is not possible with {why}"));
                Err(failure.hint("leave out --takeover"))
            }
        }
    }

    /// What one server shows: under the rules, and by the seal, that were in force last.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub(super) fn shows(&self, settings: &Settings) -> Result<(Shows, Option<SealsInForce>), Failure> {
        let source = &self.target.source;
        let seal = self.seal.as_ref().map(|seal| seal.verifying(source, &settings.verify)).transpose()?;
        let (mut verifying, in_force) = seal.unzip();
        if let Some(verifying) = verifying.take_if(|verifying| verifying.is_required()) {
            let sealed = Sealed::new(verifying.seals(), lets_pass(settings));
            return Ok((Shows::Sealed(sealed, verifying), in_force));
        }
        let (pool, rules) = self.open_pool(settings, verifying.as_ref().map(Verifying::seals))?;
        if let (Some(verifying), Some(control)) = (&mut verifying, pool.seal_control()) {
            verifying.hand_over(control);
        }
        if let Some(SealsInForce { number, earlier, .. }) = &in_force {
            pool.follow_seals(*number, earlier.clone());
        }
        Ok((Shows::Pool { pool, rules, verifying }, in_force))
    }

    /// The same for a server, which has descriptors of its own from then on.
    ///
    /// # Errors
    /// As [`Kept::shows`].
    pub(super) fn begin(&self, settings: &Settings) -> Result<Shows, Failure> {
        let (shows, in_force) = self.shows(settings)?;
        if let (Some(seal), Some(in_force)) = (&self.seal, &in_force) {
            seal.kept.note(in_force)?;
        }
        Ok(shows)
    }

    fn open_pool(
        &self,
        settings: &Settings,
        seals: Option<Arc<Seals>>,
    ) -> Result<(Pool, Option<LiveRules>), Failure> {
        let options = PoolOptions { goes_on: self.goes_on, ..pool_options(self.target, settings) };
        let options = match &self.shown {
            Shown::Folder(root) => {
                PoolOptions { source: format!("/proc/self/fd/{}", root.as_raw_fd()).into(), ..options }
            }
            Shown::Branches(branches) => PoolOptions { kept: Some(Arc::clone(branches)), ..options },
        };
        // As it is now, and not as it was when this process was made.
        let ledger = self.ledger.as_ref().map(|ledger| ledger.file().try_clone().and_then(Ledger::of));
        let ledger = ledger.transpose().map_err(|error| Failure::new(error.to_string()))?;
        open_pool(&options, settings, seals, ledger.map(Arc::new))
    }

    /// Mounts, or takes the device that is mounted. Whoever touches the mount waits for the first server.
    ///
    /// # Errors
    /// As a mount without a keeper.
    pub(super) fn mount(&self, settings: &Settings) -> Result<KeptMount, Failure> {
        let path = self.target.at.path();
        let mut options = mount_options(&self.target.source, settings);
        let is_powerless = self.seal.as_ref().is_some_and(OfKeeper::is_powerless);
        options.nosuid |= is_powerless;
        options.nodev |= is_powerless;
        KeptMount::mount(&path, &options, FileType::Directory).map_err(|error| of_mount(&error))
    }

    pub(super) fn place(&self, settings: &Settings) -> KeptPlace {
        KeptPlace {
            source: self.target.source.to_string_lossy().into_owned(),
            readahead: readahead(settings, &SessionOptions::default()),
            kept: [match &self.shown {
                Shown::Folder(root) => (name_of_root(settings).to_owned(), root.as_raw_fd()),
                Shown::Branches(branches) => {
                    (name_of_branches(settings).to_owned(), branches.as_fd().as_raw_fd())
                }
            }]
            .into_iter()
            .chain(self.ledger.iter().map(|ledger| (LEDGER.to_owned(), ledger.file().as_raw_fd())))
            .chain(self.seal.iter().map(|seal| (SEAL.to_owned(), seal.kept.number())))
            .collect(),
            seal: self.seal.as_ref().map(|seal| Arc::clone(&seal.kept)),
            branches: match &self.shown {
                Shown::Folder(_) => None,
                Shown::Branches(branches) => Some(Arc::clone(branches)),
            },
        }
    }
}

/// What the folder that is shown is called among what is handed over to another program.
pub(super) fn name_of_root(settings: &Settings) -> &'static str {
    if settings.handles { ROOT_OF_HANDLES } else { ROOT }
}

/// What the branches in force are called there.
pub(super) fn name_of_branches(settings: &Settings) -> &'static str {
    if settings.handles { BRANCHES_OF_HANDLES } else { BRANCHES }
}

/// What another program had written down for the next server, besides what is shown.
#[derive(Debug)]
pub(super) struct LeftRecords {
    /// Where there are rules.
    pub(super) ledger: Option<Ledger>,
    /// Where there is a seal.
    pub(super) seal: Option<OfKeeper>,
}

/// What a server knows of its keeper, and of its mount, which is the keeper's.
#[derive(Debug)]
pub(crate) struct SeatOf {
    keeper: u32,
    replaced: u64,
    taken_back: Option<String>,
    /// The number of the connection, which not every kernel tells a server.
    pub(crate) connection: Option<u32>,
    /// What the list of mounts calls the source.
    pub(crate) source: String,
    /// The way to the keeper, where there could be one.
    line: Option<Line>,
}

impl SeatOf {
    pub(super) fn new(seat: &Seat<'_>, target: &Target, settings: &Settings) -> Self {
        Self::of(seat, mount_options(&target.source, settings).source)
    }

    /// Of a mount whose source the list of mounts calls so.
    pub(crate) fn of(seat: &Seat<'_>, source: String) -> Self {
        let (keeper, replaced, connection) = (seat.keeper(), seat.predecessors(), seat.connection());
        let taken_back = seat.taken_back().map(str::to_owned);
        Self { keeper, replaced, taken_back, connection, source, line: seat.line().ok() }
    }

    pub(crate) fn status(&self) -> TakeoverStatus {
        let program = std::fs::read_link("/proc/self/exe").ok();
        TakeoverStatus {
            keeper: self.has_keeper().then_some(self.keeper),
            replaced: self.replaced,
            program: program.map(|path| path.to_string_lossy().into_owned()),
            taken_back: self.taken_back.clone(),
        }
    }

    fn has_keeper(&self) -> bool {
        std::os::unix::process::parent_id() == self.keeper
    }

    /// Has the keeper go on with another program, where that may be run and could.
    ///
    /// # Errors
    /// Why it is not asked.
    pub(crate) fn upgrade(&self, program: &Path, asker: UnixStream) -> Result<(), String> {
        let line = self.line.as_ref().filter(|_| self.has_keeper());
        let line = line.ok_or("its keeper is dead, so no other program follows; unmount and mount again")?;
        if effective_uid() != 0 && has_capabilities() {
            // Those of a file (setcap): an exec of another one ends them. A program that is the user's own must not get them, either.
            return Err(
                "its server has capabilities that belong to its program, and another one would not have them"
                    .into(),
            );
        }
        line.replace(candidate::hold(program)?, asker.into())
            .map_err(|error| format!("its keeper cannot be told: {error}"))
    }
}

/// Whether this process may do more than its user; where nobody can tell, too.
fn has_capabilities() -> bool {
    Rights::of_this_thread().is_none_or(|rights| !rights.capabilities.is_empty())
}
