//! One lower tree.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use shuntfs::{Errno, LowerFile, Result, Traffic};
use shuntfs_sys::{Device, FsMagic, FsStat, Stat, filesystem_of, let_go, open_folder, stat_of};

use super::ahead::Ahead;
use super::asker::{Asker, Told, Word};
use super::flight::{touches, touches_nothing};
use super::health::Health;
use super::lane::Lane;
use super::mounts::{Mount, MountIndex, Mounts, is_served_here};
use super::opens::{OpenThere, Opens};
use super::probe::{Top, probe};
use super::pulse::Pulse;
use super::twins::Tree;
use crate::error::{PoolError, errno};
use crate::lasting::Lasting;
use crate::merge::{BranchOptions, InodeCalc};
use crate::node::{Identity, device_number, mix};
use crate::options::PoolOptions;
use crate::policy::{BranchMode, Space};

/// What is said of a branch, and can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct BranchTerms {
    pub(crate) mode: BranchMode,
    /// How many bytes something new must leave free; `None` for what is said of all branches.
    pub(crate) min_free: Option<u64>,
}

/// One lower tree of a pool.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) mounts: Mounts,
    pub(crate) lane: Lane,
    /// The folder at its top, `O_PATH`, and what that was when it was opened.
    root: Arc<LowerFile>,
    stat: Stat,
    /// Where that is, absolute and without symlinks.
    source: PathBuf,
    /// Whether its file system refuses changes, as last seen.
    is_read_only: AtomicBool,
    /// Whether it refused to have something made, and is not tried again.
    has_refused: AtomicBool,
    terms: RwLock<BranchTerms>,
    /// The files that are open on it, where it is one of several.
    opens: Opens,
    /// Those of them that are written in passthrough.
    writes_past: Opens,
    /// Whether its descriptors lead nowhere, so that it can be unmounted.
    is_let_go: AtomicBool,
    asker: Asker,
    /// Who reads its folders while other branches are read.
    pub(crate) ahead: Ahead,
    /// Where it must be found, if somebody watches whether it is.
    top: Option<Arc<Top>>,
    /// Whether it is in use, or its disk does not answer.
    pub(crate) health: Health,
    /// How long lower calls take there, where it is one of several.
    pub(crate) pulse: Pulse,
    /// The bytes that the server moved there, where it is one of several.
    traffic: Arc<Traffic>,
    /// What it is called wherever it is mounted, if users call it so.
    id: Option<String>,
    /// That, or its path, as a number; 0 where it is the only branch.
    key: u64,
    /// What the numbers of its inodes are changed by, and what they come to.
    salt: u64,
    calc: InodeCalc,
    /// Which numbers nodes on it have, where handles of them are to outlive the mount.
    lasting: Option<Lasting>,
}

impl Branch {
    /// Takes hold of the folder `source`, as the branch with this number.
    pub(crate) fn open(
        number: u16,
        source: &Path,
        options: &PoolOptions,
    ) -> std::result::Result<Self, PoolError> {
        let place = std::fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
        Self::open_by(number, source, place, options)
    }

    /// The same of a folder that another path leads to than the one by which it is known.
    fn open_by(
        number: u16,
        path: &Path,
        source: PathBuf,
        options: &PoolOptions,
    ) -> std::result::Result<Self, PoolError> {
        let failed = |error| PoolError::of_source(path, error);
        let fd = open_folder(path).map_err(failed)?;
        let stat = stat_of(&fd).map_err(failed)?;
        let below = filesystem_of(&fd).map_err(failed)?;
        let (index, id) = (MountIndex::own(number), stat.mnt_id.unwrap_or(0));
        let own = Mount::of(index, id, &fd, options.access_times).map_err(failed)?;
        Ok(Self {
            lane: Lane::new(options.calls, &own),
            mounts: Mounts::new(own, options.access_times),
            root: Arc::new(LowerFile::new(fd)),
            stat,
            source,
            is_read_only: AtomicBool::new(below.is_read_only()),
            has_refused: AtomicBool::new(false),
            terms: RwLock::default(),
            opens: Opens::default(),
            writes_past: Opens::default(),
            is_let_go: AtomicBool::new(false),
            asker: Asker::default(),
            ahead: Ahead::default(),
            top: None,
            health: Health::default(),
            pulse: Pulse::default(),
            traffic: Arc::default(),
            id: None,
            key: 0,
            salt: 0,
            calc: InodeCalc::default(),
            lasting: None,
        })
    }

    /// The same with handles that last, where they are to.
    ///
    /// # Errors
    /// [`PoolError::Handles`].
    pub(crate) fn with_handles(
        self,
        options: &PoolOptions,
        was_checked: bool,
    ) -> std::result::Result<Self, PoolError> {
        if !options.handles {
            return Ok(self);
        }
        let key = options.merge.is_some().then_some(self.key);
        let lasting = Lasting::of(&self.source, self.mounts.own(), (&*self.root, key), was_checked);
        let lasting = lasting.map_err(|why| PoolError::Handles { path: self.source.clone(), why })?;
        Ok(Self { lasting: Some(lasting), ..self })
    }

    /// The same, as one of several. It is opened by its path, or by another one that leads to the folder that was there.
    pub(crate) fn open_one_of(
        number: u16,
        branch: &BranchOptions,
        (options, by): (&PoolOptions, Option<&Path>),
    ) -> std::result::Result<Self, PoolError> {
        let own = match by {
            None => Self::open(number, &branch.path, options),
            Some(by) => Self::open_by(number, by, branch.path.clone(), options),
        }?;
        own.set_terms(BranchTerms { mode: branch.mode, min_free: branch.min_free });
        let calc = options.merge.as_ref().map(|merge| merge.inode_calc).unwrap_or_default();
        let key = key_of(branch.id.as_deref().map_or(own.source.as_os_str().as_bytes(), str::as_bytes));
        let was_checked = by.is_some() && options.goes_on;
        let is_watched = options.merge.as_ref().is_some_and(|merge| merge.timeout.is_some());
        let top = is_watched.then(|| Arc::new(Top::new(&own.source, own.identity_below())));
        Self { id: branch.id.clone(), key, salt: salt_of(key), calc, top, ..own }
            .with_handles(options, was_checked)
    }

    /// The folder at its top.
    pub(crate) fn root(&self) -> &Arc<LowerFile> {
        &self.root
    }

    /// What makes that folder the same one. It is held, so no handle is needed.
    pub(crate) fn identity(&self) -> Identity {
        Identity::new(&self.stat, self.mounts.own().index, None)
    }

    /// Which folder that is, whatever it is called.
    pub(crate) fn identity_below(&self) -> (Device, u64) {
        (self.stat.dev, self.stat.ino)
    }

    /// The number that it is shown with.
    pub(crate) fn root_ino(&self) -> u64 {
        self.shown_ino(self.stat.ino, self.stat.dev)
    }

    /// Its mode, as it was when it was opened.
    pub(crate) fn mode(&self) -> u32 {
        self.stat.mode
    }

    /// Whether these are attributes of that folder.
    pub(crate) fn is_root(&self, stat: &Stat) -> bool {
        stat.ino == self.stat.ino && stat.dev == self.stat.dev
    }

    /// Where that folder is, absolute and without symlinks.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    /// What it is called wherever it is mounted, if users call it so.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// That, or its path, as a number: it says which of several branches this is, whatever their order.
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// Which numbers nodes on it have, where handles of them outlive the mount.
    pub(crate) fn lasting(&self) -> Option<&Lasting> {
        self.lasting.as_ref()
    }

    /// Whether nothing may be changed on it: its file system refuses it, or its mode.
    pub(crate) fn is_read_only(&self) -> bool {
        self.terms().mode == BranchMode::ReadOnly || self.is_mounted_read_only()
    }

    /// The same, for who is about to refuse a change: where its file system was last seen to refuse changes it is asked again, at most once
    /// a second, because it may have been remounted.
    pub(crate) fn is_still_read_only(&self) -> bool {
        if self.terms().mode != BranchMode::ReadOnly
            && self.is_read_only.load(Ordering::Relaxed)
            && let Err(error) = self.space()
        {
            tracing::debug!(branch = ?self.source, %error, "it does not say whether it is read-only still");
        }
        self.is_read_only()
    }

    /// Has it look as if its file system had been seen to refuse changes.
    #[cfg(test)]
    pub(crate) fn seen_read_only(&self) {
        self.is_read_only.store(true, Ordering::Relaxed);
    }

    /// Whether its file system refuses changes.
    pub(crate) fn is_mounted_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Relaxed) || self.has_refused()
    }

    /// What may be done there.
    pub(crate) fn terms(&self) -> BranchTerms {
        *self.terms.read()
    }

    /// From now on this may be done there. What it refused before is tried again.
    pub(crate) fn set_terms(&self, terms: BranchTerms) {
        *self.terms.write() = terms;
        self.has_refused.store(false, Ordering::Relaxed);
    }

    /// Counts a file that is opened on it, for as long as what is returned lives.
    pub(crate) fn open_there(&self) -> OpenThere {
        self.opens.one_more()
    }

    /// How many files are open on it.
    pub(crate) fn opens(&self) -> usize {
        self.opens.count()
    }

    /// Counts a file that is written in passthrough there, for as long as what is returned lives.
    pub(crate) fn write_past(&self) -> OpenThere {
        self.writes_past.one_more()
    }

    /// How many files are written in passthrough there.
    pub(crate) fn writers_past(&self) -> usize {
        self.writes_past.count()
    }

    /// Has its descriptors lead nowhere: it was removed, and nothing on it is open. Whether nobody had done so before.
    pub(crate) fn let_go(&self) -> bool {
        if self.is_let_go.swap(true, Ordering::SeqCst) {
            return false;
        }
        self.ahead.end();
        if let Err(error) = let_go(&*self.root).and_then(|()| self.mounts.let_go()) {
            tracing::warn!(branch = ?self.source, %error, "it was removed, and cannot be unmounted yet");
        }
        true
    }

    /// Whether that was done.
    pub(crate) fn is_let_go(&self) -> bool {
        self.is_let_go.load(Ordering::SeqCst)
    }

    /// How much space it has, by what its file system said not long ago.
    ///
    /// # Errors
    /// What fstatfs(2) gives; ETIMEDOUT where that does not come back in time, and EIO where the branch is set aside.
    pub(crate) fn space(&self) -> Result<Space> {
        if self.health.is_aside() {
            return Err(Errno::IO);
        }
        let below = self.answer()?.below;
        self.is_read_only.store(below.is_read_only(), Ordering::Relaxed);
        Ok(space_of(&below))
    }

    /// The same by what its file system says at this moment, for who may wait for the disk.
    ///
    /// # Errors
    /// What fstatfs(2) gives, and EIO where the branch is set aside.
    pub(crate) fn space_now(&self) -> Result<Space> {
        self.below_now().map(|below| space_of(&below))
    }

    /// What its file system says of itself at this moment, for who may wait for the disk.
    ///
    /// # Errors
    /// As [`Branch::space_now`].
    pub(crate) fn below_now(&self) -> Result<FsStat> {
        if self.health.is_aside() {
            return Err(Errno::IO);
        }
        touches(self.mounts.own().index.branch);
        filesystem_of(&*self.root).map_err(errno)
    }

    /// What its file system says of itself; where it does not answer in time, what it said before.
    ///
    /// # Errors
    /// As [`Branch::space`].
    pub(crate) fn below(&self) -> Result<FsStat> {
        match self.answer() {
            Err(Errno::TIMEDOUT) => {
                let before = self.asker.word().told.map(|(told, _)| told.below);
                before.ok_or(Errno::TIMEDOUT)
            }
            told => told.map(|told| told.below),
        }
    }

    fn answer(&self) -> Result<Told> {
        // Nobody waits for long here, and whether it is for this branch is known by whoever asks it.
        touches_nothing();
        self.asker.answer(self.question())
    }

    /// Has its file system be asked, unless it was a moment ago. Nobody waits.
    pub(crate) fn ask(&self) {
        self.asker.ask(self.question());
    }

    /// The same, however new the last answer is.
    pub(crate) fn ask_anew(&self) {
        self.asker.ask_anew(self.question());
    }

    /// What is known of it once it has answered, or does not within a moment.
    pub(crate) fn word_in_time(&self) -> Word {
        let word = self.asker.word_in_time();
        if let Some((told, _)) = word.told {
            self.is_read_only.store(told.below.is_read_only(), Ordering::Relaxed);
        }
        word
    }

    /// What is known of it now.
    pub(crate) fn word(&self) -> Word {
        self.asker.word()
    }

    /// How often it was asked and has answered, be it with an error.
    pub(crate) fn answers(&self) -> u64 {
        self.asker.ended()
    }

    fn question(&self) -> impl FnOnce() -> shuntfs_sys::Result<Told> + Send + 'static + use<> {
        let (root, top) = (Arc::clone(&self.root), self.top.clone());
        move || probe(&root, top.as_deref())
    }

    /// What counts the bytes that the server moves there.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Whether its file system has refused a change.
    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }

    /// Its file system refused a change. Whether that is new.
    pub(crate) fn refused(&self) -> bool {
        let was_known = self.has_refused.swap(true, Ordering::Relaxed);
        if !was_known {
            tracing::warn!(branch = ?self.source, "it is read-only, and is left out of what is made");
        }
        !was_known
    }

    /// Whether its file system is an overlay or FUSE, which are file systems on others.
    pub(crate) fn is_stacked(&self) -> bool {
        matches!(self.mounts.own().magic, FsMagic::OVERLAY | FsMagic::FUSE)
    }

    /// Whether it is on a mount that this process serves: whoever asked it would wait for itself.
    pub(crate) fn is_served_here(&self) -> bool {
        is_served_here(self.mounts.own().id)
    }

    /// The number that an inode is shown with. Those of other devices than the branch's own are changed in their top 24 bits
    /// by their device, so that they do not meet its own; the same device always gives the same change.
    pub(crate) fn shown_ino(&self, ino: u64, device: Device) -> u64 {
        if self.calc == InodeCalc::Passthrough {
            return ino;
        }
        let number = shown_ino(ino, device_number(device), device_number(self.stat.dev));
        self.calc.shown(number ^ self.salt)
    }

    /// The other paths of what has this one, because its file system is mounted in several places of the branch.
    pub(crate) fn aliases(&self, path: &[u8]) -> Vec<Vec<u8>> {
        self.mounts.aliases(&self.source, path)
    }

    /// The paths by which this branch shows what has a path on another one.
    pub(crate) fn aliases_from(&self, other: &Self, path: &[u8]) -> Vec<Vec<u8>> {
        let inside = other.mounts.inside(&other.source, path);
        inside.map_or_else(Vec::new, |(device, inside)| self.mounts.paths_to(&self.source, device, &inside))
    }

    /// What is shown of each file system: its device, and the folder inside of it; `None` where that is not known.
    pub(super) fn trees(&self) -> Vec<Tree> {
        self.mounts.trees(&self.source)
    }

    /// The mounts of the file system on this device.
    pub(crate) fn of_device(&self, device: (u32, u32)) -> impl Iterator<Item = MountIndex> {
        self.mounts.of_device(device)
    }
}

/// By the identity, which stays the same wherever a disk is mounted, or the path, which does when disks come in another order.
fn key_of(called: &[u8]) -> u64 {
    called.iter().fold(0, |hash, byte| mix(hash ^ u64::from(*byte)))
}

/// In the top 24 bits, so that branches do not meet.
fn salt_of(key: u64) -> u64 {
    key & !0xff_ffff_ffff
}

/// The space of a file system, for policies.
pub(crate) fn space_of(below: &FsStat) -> Space {
    let unit = u64::from(below.frsize);
    Space { total: below.blocks.saturating_mul(unit), available: below.bavail.saturating_mul(unit) }
}

fn shown_ino(ino: u64, device: u32, own: u32) -> u64 {
    if device == own { ino } else { ino ^ (mix(u64::from(device)) & !0xff_ffff_ffff) }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn inode_numbers_of_devices_do_not_meet() {
        let number = |minor| device_number(Device { major: 8, minor });
        let own = number(1);
        assert_eq!(shown_ino(2, own, own), 2);
        let mut seen: Vec<_> = (2..200).map(|minor| shown_ino(2, number(minor), own)).collect();
        seen.push(2);
        seen.sort_unstable();
        let all = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), all);
        assert_eq!(shown_ino(5, number(7), own), shown_ino(5, number(7), own));
        assert_eq!(shown_ino(5, number(7), own) & 0xff_ffff_ffff, 5);
    }

    #[test]
    fn branches_have_numbers_of_their_own() {
        let salts =
            ["/mnt/a", "/mnt/b", "/mnt/ab", "/", "photos"].map(|called| salt_of(key_of(called.as_bytes())));
        for (index, salt) in salts.iter().enumerate() {
            assert_eq!(salt & 0xff_ffff_ffff, 0);
            assert!(!salts[..index].contains(salt));
        }
        // They stay from one release to the next.
        assert_eq!((salts[0], salts[4]), (0x13_df73 << 40, 0xc8_bdf3 << 40));
    }
}
