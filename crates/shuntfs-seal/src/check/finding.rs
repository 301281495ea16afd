//! What differs from what was sealed.

use std::fmt;
use std::ops::Range;

use shuntfs_verity::Mismatch;

use crate::NodeKind;

/// Runs of blocks that are named in words.
const NAMED_MAX: usize = 8;

/// Something that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The path below the sealed folder; empty for the folder itself.
    pub path: Vec<u8>,
    /// What differs.
    pub fault: Fault,
}

/// An attribute that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Difference {
    /// Which.
    pub attribute: Attribute,
    /// How, in words.
    pub text: String,
}

/// An attribute of a file that is sealed besides what it holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Attribute {
    /// Permission bits.
    Mode,
    /// Owner and group.
    Owner,
    /// Last change of the data.
    Mtime,
    /// An extended attribute.
    Xattr,
    /// Where a symlink leads.
    Target,
    /// Which device a special file stands for.
    Device,
}

/// How something differs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It was sealed and does not exist.
    Missing,
    /// It is there and was not sealed.
    Extra,
    /// It is something else.
    Kind {
        /// What was sealed.
        sealed: NodeKind,
        /// What exists, where it is anything.
        found: Option<NodeKind>,
    },
    /// Attributes differ.
    Metadata(Vec<Difference>),
    /// The file has another length.
    Size {
        /// Bytes that were sealed.
        sealed: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// Blocks of the data differ.
    Data {
        /// Which blocks, in order.
        blocks: Vec<Range<u64>>,
        /// Size of a block in bytes.
        block_size: u32,
        /// The first of them, with its hashes.
        first: Option<Mismatch>,
        /// Blocks of which nothing can be said, because the tree above them is damaged.
        unknown: u64,
    },
    /// The data is what was sealed, but the stored tree is not.
    Tree(String),
    /// It cannot be read.
    Unreadable(String),
}

impl Fault {
    /// A word for it, for programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Kind { .. } => "kind",
            Self::Metadata(_) => "metadata",
            Self::Size { .. } => "size",
            Self::Data { .. } => "data",
            Self::Tree(_) => "tree",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(out, "missing"),
            Self::Extra => write!(out, "not sealed"),
            Self::Kind { sealed, found } => {
                write!(out, "a {} in place of a {}", found.map_or("stranger", NodeKind::name), sealed.name())
            }
            Self::Metadata(what) => {
                let words: Vec<&str> = what.iter().map(|one| one.text.as_str()).collect();
                write!(out, "{}", words.join(", "))
            }
            Self::Size { sealed, found } => write!(out, "{found} bytes in place of {sealed}"),
            Self::Data { blocks, block_size, first, unknown } => {
                describe(out, blocks, *block_size)?;
                if let Some(first) = first {
                    write!(out, " (block {}: {} in place of {})", first.block, first.found, first.expected)?;
                }
                if *unknown > 0 {
                    write!(out, "; the tree is damaged, so nothing is known of {unknown} blocks")?;
                }
                Ok(())
            }
            Self::Tree(why) => write!(out, "the data is as it was sealed, its tree is not: {why}"),
            Self::Unreadable(why) => write!(out, "{why}"),
        }
    }
}

fn describe(out: &mut fmt::Formatter<'_>, blocks: &[Range<u64>], block_size: u32) -> fmt::Result {
    let count: u64 = blocks.iter().map(|run| run.end - run.start).sum();
    if count == 0 {
        return write!(out, "the data differs");
    }
    let plural = if count == 1 { "block" } else { "blocks" };
    let differ = if count == 1 { "differs" } else { "differ" };
    write!(out, "{count} {plural} of {block_size} bytes {differ}:")?;
    for (index, run) in blocks.iter().take(NAMED_MAX).enumerate() {
        let comma = if index == 0 { "" } else { "," };
        match run.end - run.start {
            1 => write!(out, "{comma} {}", run.start)?,
            _ => write!(out, "{comma} {}-{}", run.start, run.end - 1)?,
        }
    }
    if blocks.len() > NAMED_MAX { write!(out, ", ..") } else { Ok(()) }
}
