//! The lower files that an open file goes through. Each is opened when it is needed, and exchanged when the file is moved to another branch.
//!
//! The order in which things are done keeps an old one from being left: a move changes the place of the node, and then takes the lower
//! files away. Whoever opens one checks whether the place is still the same after it was opened, with the slot locked that it goes into.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use shuntfs::{LowerFile, Result};

use crate::branch::{Branch, OpenThere};
use crate::gate::{Gates, Passed};
use crate::node::Node;

/// The lower files of one open file.
#[derive(Debug, Default)]
pub(crate) struct Lowers {
    /// Open as the caller's open asks, or wider.
    pub(crate) mover: Slot,
    /// Open as an append-only file is written.
    pub(crate) appender: Slot,
    /// Open for reading, for what needs a real descriptor but no right to write, which would keep the file from
    /// being executed.
    pub(crate) reader: Slot,
    /// What it passed because others, who see less, may want to look at the file.
    gate: Mutex<Option<Passed>>,
    /// Counts the open file on its branch, in a merge. Dropped last: what is not counted any more holds nothing there.
    there: Mutex<Option<OpenThere>>,
    /// Whether it was opened for writing.
    writes: bool,
    course: AtomicU8,
}

/// Where the bytes of an open file go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Course {
    /// That is not settled yet.
    Unsettled,
    /// Through the server.
    ByUs,
    /// From the kernel to the lower file, or they may: the kernel cannot be given another one.
    PastUs,
}

impl Course {
    const ALL: [Self; 3] = [Self::Unsettled, Self::ByUs, Self::PastUs];
}

/// What an open file had on the branch that its file was on. To close it may take its time.
#[derive(Debug)]
pub(crate) struct Left {
    _files: [Option<Arc<LowerFile>>; 3],
    _there: Option<OpenThere>,
}

/// A lower file, once it is open.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<Option<Arc<LowerFile>>>);

impl Slot {
    /// The lower file, where it is open.
    pub(crate) fn held(&self) -> Option<Arc<LowerFile>> {
        self.0.lock().clone()
    }

    /// The lower file of a node, opened where it is not.
    pub(crate) fn held_or(
        &self,
        node: &Node,
        open: impl Fn() -> Result<Arc<LowerFile>>,
    ) -> Result<Arc<LowerFile>> {
        loop {
            if let Some(held) = self.held() {
                return Ok(held);
            }
            let before = node.moves();
            let opened = open()?;
            let mut held = self.0.lock();
            // Else it was moved meanwhile, and is opened where it is now.
            if node.moves() == before {
                return Ok(Arc::clone(held.get_or_insert(opened)));
            }
        }
    }

    /// Takes this for the lower file, unless there is one.
    pub(crate) fn set(&self, file: impl Into<Arc<LowerFile>>) {
        self.0.lock().get_or_insert_with(|| file.into());
    }

    fn give_up(&self) -> Option<Arc<LowerFile>> {
        self.0.lock().take()
    }
}

impl Lowers {
    /// Those of a file that is being opened, for writing or not.
    pub(crate) fn of_open(writes: bool) -> Self {
        Self { writes, ..Self::default() }
    }

    /// Whether it was opened for writing.
    pub(crate) fn may_write(&self) -> bool {
        self.writes
    }

    /// Where its bytes go.
    pub(crate) fn course(&self) -> Course {
        Course::ALL[usize::from(self.course.load(Ordering::SeqCst))]
    }

    /// That is settled.
    pub(crate) fn takes(&self, course: Course) {
        self.course.store(course as u8, Ordering::SeqCst);
    }

    /// Counts the open file on the branch that its node is on.
    pub(crate) fn count<'b>(&self, node: &Node, branch: impl Fn() -> &'b Branch) {
        loop {
            let before = node.moves();
            let counted = branch().open_there();
            let mut there = self.there.lock();
            *there = Some(counted);
            if node.moves() == before {
                return;
            }
        }
    }

    /// Waits until nobody looks at the file who sees less of it, and keeps them from beginning to.
    pub(crate) fn pass(&self, node: &Node, gates: &Arc<Gates>) {
        loop {
            let before = node.moves();
            let passed = gates.write(node);
            let mut gate = self.gate.lock();
            *gate = Some(passed);
            if node.moves() == before {
                return;
            }
        }
    }

    /// The file was moved to this branch: what was open on the other is given up.
    pub(crate) fn exchange(&self, node: &Node, branch: &Branch) -> Left {
        if let Some(passed) = &mut *self.gate.lock() {
            passed.follow(node);
        }
        // Counted first, so that neither branch is let go of meanwhile.
        let before = self.there.lock().replace(branch.open_there());
        Left { _files: [&self.mover, &self.appender, &self.reader].map(Slot::give_up), _there: before }
    }
}
