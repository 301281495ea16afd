//! Sealed files that are kept open below: at most so many, the recently used ones.
//!
//! One that was found bad is not given out again: somebody may have put a good file in its place.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::checked::CheckedFile;

/// The bounded cache of open files, by node number.
#[derive(Debug)]
pub(crate) struct Files {
    kept: Mutex<Kept>,
    count_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<u64, Place>,
    /// Whose turn it is to go; numbers that are gone already are skipped.
    order: VecDeque<u64>,
}

#[derive(Debug)]
struct Place {
    file: Arc<CheckedFile>,
    used: bool,
}

impl Files {
    /// A cache of at most `count_max` files, at least 1.
    pub(crate) fn new(count_max: usize) -> Self {
        Self { kept: Mutex::default(), count_max: count_max.max(1) }
    }

    /// The file of a node, where it is kept and good.
    pub(crate) fn find(&self, node: u64) -> Option<Arc<CheckedFile>> {
        let mut kept = self.kept.lock();
        let place = kept.files.get_mut(&node)?;
        if place.file.is_suspect() {
            kept.files.remove(&node);
            kept.order.retain(|other| *other != node);
            return None;
        }
        place.used = true;
        Some(Arc::clone(&place.file))
    }

    /// Keeps a file; gives back the one that others will find.
    pub(crate) fn keep(&self, node: u64, file: Arc<CheckedFile>) -> Arc<CheckedFile> {
        // Closed after the lock is free.
        let mut gone = Vec::new();
        let mut kept = self.kept.lock();
        if let Some(place) = kept.files.get(&node).filter(|place| !place.file.is_suspect()) {
            return Arc::clone(&place.file);
        }
        let before = kept.files.insert(node, Place { file: Arc::clone(&file), used: false });
        if before.is_none() {
            kept.order.push_back(node);
        }
        gone.extend(before);
        while kept.files.len() > self.count_max {
            gone.extend(kept.turn());
        }
        drop(kept);
        drop(gone);
        file
    }

    /// Gives up every file; how many.
    pub(crate) fn shed(&self) -> usize {
        let kept = std::mem::take(&mut *self.kept.lock());
        kept.files.len()
    }

    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        self.kept.lock().files.len()
    }
}

impl Kept {
    /// Takes the next one's mark, or its place. After one round every mark is gone.
    fn turn(&mut self) -> Option<Place> {
        let node = self.order.pop_front()?;
        match self.files.get_mut(&node) {
            Some(place) if place.used => {
                place.used = false;
                self.order.push_back(node);
                None
            }
            _ => self.files.remove(&node),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::checked::Source;
    use crate::checks::Checks;
    use crate::native::KernelVerity;
    use crate::options::CheckOptions;
    use shuntfs::{Errno, LowerFile};
    use shuntfs_verity::{Descriptor, Digest, Params};

    fn file() -> Arc<CheckedFile> {
        let checks = Checks::new(&CheckOptions::default());
        let root = Digest::zero(Params::default().algorithm());
        let descriptor = Descriptor::new(&Params::default(), 0, root).unwrap();
        let lower = Arc::new(LowerFile::new(tempfile::tempfile().unwrap().into()));
        let source = Source { lower, tree: Box::new(|| Err(Errno::IO)), path: "x".into() };
        Arc::new(CheckedFile::new(&checks, descriptor, source, &KernelVerity).unwrap())
    }

    #[test]
    fn the_limit_holds_and_what_is_used_stays() {
        let files = Files::new(4);
        files.keep(1, file());
        for node in 2..40 {
            assert!(files.find(1).is_some(), "at {node}");
            files.keep(node, file());
            assert!(files.len() <= 4);
        }
        assert_eq!(files.shed(), 4);
        assert_eq!((files.len(), files.find(1).is_none()), (0, true));
    }

    #[test]
    fn what_was_found_bad_is_opened_anew() {
        let files = Files::new(4);
        let bad = files.keep(1, file());
        let other = file();
        assert!(Arc::ptr_eq(&files.keep(1, Arc::clone(&other)), &bad), "who came first");
        bad.suspect();
        assert!(files.find(1).is_none());
        assert!(Arc::ptr_eq(&files.keep(1, Arc::clone(&other)), &other));
        assert!(files.find(1).is_some_and(|found| Arc::ptr_eq(&found, &other)));
    }
}
