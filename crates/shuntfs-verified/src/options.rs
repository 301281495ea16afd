//! What the checks are asked to be.

/// How checking costs memory, and how far the tree is read ahead. Start from the default and change fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckOptions {
    /// How many bytes of verified tree blocks are kept, of all files together. Default: 64 MiB, the trees of 8 GiB of data.
    /// Smaller values cost reads and hashing of tree blocks once more; memory is used as blocks come.
    pub tree_cache: usize,
    /// Whether tree blocks are fetched ahead of sequential readers. Default: yes.
    pub tree_readahead: TreeReadahead,
    /// How many sealed files are kept open below, beyond those that are open above. Default: 512. Each costs up to two
    /// descriptors, and saves opening it anew.
    pub files_kept: usize,
}

/// Whether tree blocks are fetched ahead of sequential readers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum TreeReadahead {
    /// In reads that cover 8 MiB of data, the next one before it is needed.
    #[default]
    On,
    /// Never: the data is read, then each tree block that is missing to check it, by itself, as fs-verity did before it had
    /// readahead. For comparison.
    Off,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { tree_cache: 64 << 20, tree_readahead: TreeReadahead::On, files_kept: 512 }
    }
}
