//! What the checks are asked to be.

/// How checking costs memory, and how far the tree is read ahead. Start from the default and change fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckOptions {
    /// How many bytes of verified tree blocks are kept, of all files together. Default: 64 MiB, the trees of 8 GiB of data.
    /// Smaller values cost reads and hashing of tree blocks once more; memory is used as blocks come.
    pub tree_cache: usize,
    /// Whether tree blocks are fetched ahead of sequential readers. Default: yes.
    pub tree_readahead: TreeReadahead,
    /// Whether data is read and checked ahead of sequential readers by rings. Default: where that helps.
    pub data_readahead: DataReadahead,
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

/// Whether data is read and checked ahead of sequential readers, where requests come by rings and there is a second CPU.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum DataReadahead {
    /// Where the lower file comes as fast as from the page cache, so that the hashing is what a reader waits for. Where reading below
    /// takes CPUs or time of its own, one that checks ahead is in the way: with a loop device below it cost 6 %, with 1 ms 19 %.
    #[default]
    Auto,
    /// Wherever it can be. For tests.
    Always,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            tree_cache: 64 << 20,
            tree_readahead: TreeReadahead::On,
            data_readahead: DataReadahead::Auto,
            files_kept: 512,
        }
    }
}
