//! How many files are open on a branch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of files that are open on a branch.
#[derive(Debug, Default)]
pub(super) struct Opens(Arc<AtomicUsize>);

impl Opens {
    /// Counts one more.
    pub(super) fn one_more(&self) -> OpenThere {
        // Whoever removes a branch says so and then looks at the count; whoever closes a file counts it out and then looks what was said.
        // So at least one of them sees the other.
        self.0.fetch_add(1, Ordering::SeqCst);
        OpenThere(Arc::clone(&self.0))
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A file that is open on a branch: it is counted for as long as this lives.
#[derive(Debug)]
pub(crate) struct OpenThere(Arc<AtomicUsize>);

impl Drop for OpenThere {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_file_counts_until_it_goes() {
        let opens = Opens::default();
        let (first, second) = (opens.one_more(), opens.one_more());
        assert_eq!(opens.count(), 2);
        drop(first);
        assert_eq!(opens.count(), 1);
        drop(second);
        assert_eq!(opens.count(), 0);
    }
}
