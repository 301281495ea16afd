//! The branches in force and the settings, in a file in memory that outlives a server: the next one shows what that one showed, whatever the command
//! line says and whatever is at the paths of the branches by then.
//!
//! What is not as it was written is not believed ([`crate::slots`]). Folders are named by descriptors, which the keeper of a mount and its servers share.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs_sys::memory::file_in_memory;
use shuntfs_sys::{open_folder, stat_of};

use super::options::BranchOptions;
use super::settings::Settings;
use crate::branch::{Branch, BranchTerms, Branches};
use crate::error::PoolError;
use crate::node::device_number;
use crate::options::PoolOptions;
use crate::policy::BranchMode;
use crate::slots::Slots;

/// Enough for 4096 branches with paths of 1000 bytes.
const SLOT: u32 = 4 << 20;
/// The first field.
const LAYOUT: &str = "branches 1";
/// The same where requests have changed something: they follow the settings.
const LAYOUT_OF_REQUESTS: &str = "branches 2";
/// The same while the kernel may believe names that the next server does not show.
const LAYOUT_UNTOLD: &str = "branches 3";
/// So many requests are noted. Others that come again after a kill were not answered later than these.
const REQUESTS_MAX: usize = 64;

/// A branch as it is written down.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Kept {
    number: u16,
    /// Its root, and what that leads to.
    root: RawFd,
    is: (u32, u64),
    options: BranchOptions,
}

/// What is in force.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Text {
    /// Those in use, in their order.
    order: Vec<u16>,
    /// Those, and those that were removed and are still held.
    branches: Vec<Kept>,
    /// The number that the root is shown with; 0 before there is one.
    root: u64,
    /// The policy of each function, what must be left free, and by which policy files are moved; empty is what the options say.
    settings: Vec<String>,
    /// The numbers of the last requests that have changed something.
    requests: Vec<u64>,
    /// Whether something changes, or has changed, of which the kernel has not been told.
    is_untold: bool,
}

/// The branches of a pool that is to survive its server ([`crate::PoolOptions::kept`]), each open from the start.
#[derive(Debug)]
pub struct KeptBranches {
    slots: Slots,
    /// One writes at a time. How many changes of this server the kernel has not been told of.
    writes: Mutex<usize>,
    /// Those that this process has opened.
    _roots: Vec<OwnedFd>,
}

impl KeptBranches {
    /// Opens the branches of a mount that begins.
    ///
    /// # Errors
    /// Where a branch cannot be used.
    pub fn open(branches: &[BranchOptions]) -> Result<Self, PoolError> {
        let (mut text, mut roots) = (Text::default(), Vec::new());
        for (number, branch) in (0_u16..).zip(branches) {
            let failed = |error| PoolError::of_source(&branch.path, error);
            let root = open_folder(&branch.path).map_err(failed)?;
            let stat = stat_of(&root).map_err(failed)?;
            let path = std::fs::canonicalize(&branch.path).unwrap_or_else(|_| branch.path.clone());
            let options = BranchOptions { path, ..branch.clone() };
            let is = (device_number(stat.dev), stat.ino);
            text.order.push(number);
            text.branches.push(Kept { number, root: root.as_raw_fd(), is, options });
            roots.push(root);
        }
        let file = file_in_memory(c"shuntfs-branches").map_err(|error| kept(error.to_string()))?;
        let kept = Self { slots: Slots::of(file, SLOT), writes: Mutex::default(), _roots: roots };
        kept.put(&text)?;
        Ok(kept)
    }

    /// What another program has handed over ([`KeptBranches::as_fd`]), in a process in which the roots are open under their numbers
    /// ([`KeptBranches::roots`]).
    #[must_use]
    pub fn of(file: OwnedFd) -> Self {
        Self { slots: Slots::of(file.into(), SLOT), writes: Mutex::default(), _roots: Vec::new() }
    }

    /// The branches in use, in their order.
    ///
    /// # Errors
    /// [`PoolError::Kept`] where it is not what was written.
    pub fn branches(&self) -> Result<Vec<BranchOptions>, PoolError> {
        let text = self.found()?;
        let of = |number: &u16| text.branches.iter().find(|branch| branch.number == *number);
        Ok(text.order.iter().filter_map(of).map(|branch| branch.options.clone()).collect())
    }

    /// The descriptors of the branches, those that were removed and are still held included, as they are now; none if they cannot be read.
    #[must_use]
    pub fn roots(&self) -> Vec<RawFd> {
        self.found()
            .map_or_else(|_| Vec::new(), |text| text.branches.iter().map(|branch| branch.root).collect())
    }

    /// All of them, opened again.
    ///
    /// # Errors
    /// [`PoolError::Kept`], and those of opening one.
    pub(super) fn open_all(&self, options: &PoolOptions) -> Result<Branches, PoolError> {
        let text = self.found()?;
        let last = text.branches.iter().map(|branch| branch.number).max().unwrap_or(0);
        let mut all = Vec::new();
        for number in 0..=last {
            let held = text.branches.iter().find(|branch| branch.number == number);
            // One that was removed is let go of before that is noted.
            let held = held.filter(|held| text.order.contains(&number) || held.root().is_ok());
            // The number of one that is gone is nobody else's.
            let in_use = |branch: &&Kept| text.order.contains(&branch.number);
            let as_any = || text.branches.iter().find(in_use).ok_or_else(|| kept("there is none"));
            let of = held.map_or_else(as_any, Ok)?;
            let branch = Branch::open_one_of(number, &of.options, (options, Some(&of.root()?)))?;
            if held.is_none() {
                branch.let_go();
            }
            all.push(branch);
        }
        let branches = Branches::several(all);
        branches.set_order(text.order);
        Ok(branches)
    }

    /// The number that the root is shown with, if there was a server.
    pub(super) fn root_ino(&self) -> Option<u64> {
        self.found().ok().map(|text| text.root).filter(|ino| *ino != 0)
    }

    /// Gives a pool the settings that were in force.
    ///
    /// # Errors
    /// [`PoolError::Kept`].
    pub(super) fn set(&self, settings: &Settings) -> Result<(), PoolError> {
        let text = self.found()?;
        let is_set = text.settings.is_empty() || settings.set_words(&text.settings).is_some();
        if is_set { Ok(()) } else { Err(kept("its settings are none")) }
    }

    /// Whether a request has brought about what is noted, or what was in force before that.
    pub(super) fn was_done(&self, request: u64) -> bool {
        self.found().is_ok_and(|text| text.requests.contains(&request))
    }

    /// Notes what is in force now, by a request, unless its number is 0.
    ///
    /// # Errors
    /// [`PoolError::Kept`]; what was noted before stays.
    pub(crate) fn note(
        &self,
        (branches, root): (&Branches, u64),
        settings: &Settings,
        request: u64,
    ) -> Result<(), PoolError> {
        let held = (0_u16..).zip(branches.known()).filter(|(_, branch)| !branch.is_let_go());
        let of = |(number, branch): (u16, &Branch)| {
            let BranchTerms { mode, min_free } = branch.terms();
            let (path, id) = (branch.source().to_owned(), branch.id().map(str::to_owned));
            let (device, inode) = branch.identity_below();
            let is = (device_number(device), inode);
            let options = BranchOptions { path, mode, min_free, id };
            Kept { number, root: branch.root().as_fd().as_raw_fd(), is, options }
        };
        let text = Text {
            order: branches.order().to_vec(),
            branches: held.map(of).collect(),
            root,
            settings: settings.words(),
            ..Text::default()
        };
        let _alone = self.writes.lock();
        let Text { requests, is_untold, .. } = self.found()?;
        let requests = requests.into_iter().chain(Some(request).filter(|request| *request != 0));
        let requests: Vec<u64> = requests.collect();
        let requests = requests[requests.len().saturating_sub(REQUESTS_MAX)..].to_vec();
        self.put(&Text { requests, is_untold, ..text })
    }

    /// Notes, before it has an effect, that something is about to change of which the kernel must be told: if this server dies, the next one tells it.
    pub(crate) fn begin(self: &Arc<Self>) -> Untold {
        let mut count = self.writes.lock();
        *count += 1;
        self.set_untold(true);
        Untold(Arc::clone(self))
    }

    /// Whether a server has died before it had told the kernel of a change.
    pub(super) fn is_untold(&self) -> bool {
        self.found().is_ok_and(|text| text.is_untold)
    }

    /// The kernel was told of everything, by a server of which nothing changes yet.
    pub(super) fn has_told(&self) {
        if *self.writes.lock() == 0 {
            self.set_untold(false);
        }
    }

    /// By who writes alone.
    fn set_untold(&self, is_untold: bool) {
        let set = |text: Text| {
            if text.is_untold == is_untold { Ok(()) } else { self.put(&Text { is_untold, ..text }) }
        };
        if let Err(error) = self.found().and_then(set) {
            tracing::error!(%error, "another server would not know whether the kernel was told of this change");
        }
    }

    /// One writes at a time.
    fn put(&self, text: &Text) -> Result<(), PoolError> {
        // As it is in the file: a server has a copy of what its keeper knew, and others have written since.
        let last = self.slots.newest().map_or(0, |(version, _)| version);
        self.slots.put(last + 1, &text.write()).map_err(|error| kept(error.to_string()))
    }

    fn found(&self) -> Result<Text, PoolError> {
        let newest = self.slots.newest();
        newest.and_then(|(_, bytes)| Text::read(&bytes)).ok_or_else(|| kept("it is not what was written"))
    }
}

/// A change of which the kernel must be told. Dropped when it was told, or when nothing changed.
#[derive(Debug)]
pub(crate) struct Untold(Arc<KeptBranches>);

impl Drop for Untold {
    fn drop(&mut self) {
        let mut count = self.0.writes.lock();
        *count -= 1;
        if *count == 0 {
            self.0.set_untold(false);
        }
    }
}

/// Those of one mount are the same, whatever is in force.
impl PartialEq for KeptBranches {
    fn eq(&self, other: &Self) -> bool {
        self.as_fd().as_raw_fd() == other.as_fd().as_raw_fd()
    }
}

impl Eq for KeptBranches {}

impl AsFd for KeptBranches {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.slots.as_fd()
    }
}

impl Kept {
    /// A path that leads to its root.
    fn root(&self) -> Result<PathBuf, PoolError> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.root));
        let leads = open_folder(&path)
            .and_then(stat_of)
            .is_ok_and(|stat| (device_number(stat.dev), stat.ino) == self.is);
        if leads { Ok(path) } else { Err(kept(format!("nothing leads to {}", self.options.path.display()))) }
    }
}

impl Text {
    fn write(&self) -> Vec<u8> {
        let order: Vec<String> = self.order.iter().map(u16::to_string).collect();
        // As long as there are none, the release before reads it.
        let layout = match (self.is_untold, self.requests.is_empty()) {
            (true, _) => LAYOUT_UNTOLD,
            (false, true) => LAYOUT,
            (false, false) => LAYOUT_OF_REQUESTS,
        };
        let mut fields: Vec<Vec<u8>> = vec![layout.into(), order.join(",").into()];
        fields.push(self.root.to_string().into());
        fields.push(self.settings.join(",").into());
        if layout != LAYOUT {
            let requests: Vec<String> = self.requests.iter().map(u64::to_string).collect();
            fields.push(requests.join(",").into());
        }
        for Kept { number, root, is: (device, inode), options } in &self.branches {
            let min_free = options.min_free.map(|bytes| bytes.to_string()).unwrap_or_default();
            let mode = options.mode.word();
            fields.push(format!("{number},{root},{device},{inode},{mode},{min_free}").into());
            fields.push(options.id.clone().unwrap_or_default().into());
            // A path has no NUL.
            fields.push(options.path.as_os_str().as_bytes().to_owned());
        }
        fields.join(&0)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.split(|byte| *byte == 0);
        let mut next = || fields.next().and_then(|field| std::str::from_utf8(field).ok());
        let layout = next()?;
        if ![LAYOUT, LAYOUT_OF_REQUESTS, LAYOUT_UNTOLD].contains(&layout) {
            return None;
        }
        let order = next()?.split(',').map(|number| number.parse().ok()).collect::<Option<Vec<u16>>>()?;
        let root = next()?.parse().ok()?;
        let settings = next()?.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let requests = if layout == LAYOUT { "" } else { next()? };
        let is_untold = layout == LAYOUT_UNTOLD;
        let requests = requests.split(',').filter(|number| !number.is_empty());
        let requests = requests.map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let mut branches = Vec::new();
        while let Some(words) = fields.next() {
            let words: Vec<&str> = std::str::from_utf8(words).ok()?.split(',').collect();
            let [number, root, device, inode, mode, min_free] = words[..] else { return None };
            let id = std::str::from_utf8(fields.next()?).ok()?;
            let options = BranchOptions {
                path: OsStr::from_bytes(fields.next()?).into(),
                mode: BranchMode::of(mode)?,
                min_free: Some(min_free).filter(|text| !text.is_empty()).map(str::parse).transpose().ok()?,
                id: Some(id).filter(|id| !id.is_empty()).map(str::to_owned),
            };
            let is = (device.parse().ok()?, inode.parse().ok()?);
            branches.push(Kept { number: number.parse().ok()?, root: root.parse().ok()?, is, options });
        }
        Some(Self { order, branches, root, settings, requests, is_untold })
    }
}

fn kept(why: impl Into<String>) -> PoolError {
    PoolError::Kept { why: why.into() }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_with_requests_and_without() {
        let options = BranchOptions { id: Some("one".into()), ..BranchOptions::new("/a=b,c") };
        let branches = vec![Kept { number: 3, root: 7, is: (1, u64::MAX), options }];
        let settings = vec!["ff".into()];
        let text = Text { order: vec![3], branches, root: 9, settings, ..Text::default() };
        assert!(text.write().starts_with(b"branches 1\0"), "the release before reads it");
        assert_eq!(Text::read(&text.write()).as_ref(), Some(&text));
        let untold = Text { is_untold: true, ..text.clone() };
        assert_eq!(Text::read(&untold.write()).as_ref(), Some(&untold));
        let text = Text { requests: vec![2, u64::MAX], ..text };
        assert_eq!(Text::read(&text.write()).as_ref(), Some(&text));
        let untold = Text { is_untold: true, ..text.clone() };
        assert_eq!(Text::read(&untold.write()).as_ref(), Some(&untold));
    }

    #[test]
    fn the_mark_goes_with_the_last_change_that_the_kernel_was_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Arc::new(KeptBranches::open(&[BranchOptions::new(folder.path())]).unwrap());
        let before = kept.found().unwrap();
        assert!(!kept.is_untold());
        let (one, two) = (kept.begin(), kept.begin());
        drop(one);
        kept.has_told();
        assert!(kept.is_untold(), "of the other one it was not");
        // A server dies here: the next one knows the mark alone.
        let next = KeptBranches::of(kept.as_fd().try_clone_to_owned().unwrap());
        assert!(next.is_untold());
        next.has_told();
        assert!(!next.is_untold());
        drop(two);
        assert_eq!(kept.found().unwrap(), before, "else nothing is another");
    }
}
