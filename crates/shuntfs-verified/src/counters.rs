//! What the checks of one mount have done.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Raised by all queues.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// READs answered with checked bytes, or refused.
    pub(crate) reads: Count,
    /// Of these, those whose blocks were checked before they came.
    pub(crate) reads_ahead: Count,
    /// Data blocks that were hashed.
    pub(crate) data_blocks: Count,
    /// Reads of trees.
    pub(crate) tree_reads: Count,
    /// Of these, those that nobody waited for yet.
    pub(crate) tree_reads_ahead: Count,
    /// Bytes of trees that were read.
    pub(crate) tree_bytes: Count,
    /// Tree blocks that were hashed.
    pub(crate) tree_blocks: Count,
    /// Blocks found bad, each once for as long as it is remembered.
    pub(crate) bad_blocks: Count,
    /// Files found shorter than they were sealed.
    pub(crate) short_files: Count,
    /// Names found that do not lead to what was sealed there, each once for as long as it is remembered.
    pub(crate) wrong_names: Count,
    /// READs refused because they touch a bad block or what is missing.
    pub(crate) refused_reads: Count,
    /// Opens refused because the lower file does not exist, or no file.
    pub(crate) refused_opens: Count,
    /// Files found that the lower file system verifies by itself.
    pub(crate) native_files: Count,
}

/// One number.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn bump(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the checks of one mount have done, and what they hold.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VerifyFacts {
    /// READs that were checked.
    pub reads: u64,
    /// Of these, those whose blocks were read and checked before they came.
    #[serde(default)]
    pub reads_ahead: u64,
    /// Data blocks that were hashed.
    pub data_blocks: u64,
    /// Reads of trees.
    pub tree_reads: u64,
    /// Of these, those ahead of what was asked for.
    pub tree_reads_ahead: u64,
    /// Bytes of trees that were read.
    pub tree_bytes: u64,
    /// Tree blocks that were hashed.
    pub tree_blocks: u64,
    /// Bytes of verified tree blocks that are kept.
    pub tree_cached: u64,
    /// The most of them that are kept.
    pub tree_cache_max: u64,
    /// Blocks that are not what was sealed.
    pub bad_blocks: u64,
    /// Files that are shorter than they were sealed.
    pub short_files: u64,
    /// Names that lead to something else than what was sealed there, or to nothing.
    #[serde(default)]
    pub wrong_names: u64,
    /// READs that were refused for that.
    pub refused_reads: u64,
    /// Opens that were refused because there is no such lower file.
    pub refused_opens: u64,
    /// Files that the lower file system verifies by itself.
    pub native_files: u64,
}

impl Counters {
    pub(crate) fn facts(&self, tree_cached: usize, tree_cache_max: usize) -> VerifyFacts {
        VerifyFacts {
            reads: self.reads.get(),
            reads_ahead: self.reads_ahead.get(),
            data_blocks: self.data_blocks.get(),
            tree_reads: self.tree_reads.get(),
            tree_reads_ahead: self.tree_reads_ahead.get(),
            tree_bytes: self.tree_bytes.get(),
            tree_blocks: self.tree_blocks.get(),
            tree_cached: tree_cached as u64,
            tree_cache_max: tree_cache_max as u64,
            bad_blocks: self.bad_blocks.get(),
            short_files: self.short_files.get(),
            wrong_names: self.wrong_names.get(),
            refused_reads: self.refused_reads.get(),
            refused_opens: self.refused_opens.get(),
            native_files: self.native_files.get(),
        }
    }
}
