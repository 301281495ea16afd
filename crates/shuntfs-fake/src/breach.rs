//! What a server did that the kernel would not stand, or that its callers would suffer from.

use std::fmt;

/// The rule that was broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Rule {
    /// Each request is answered once.
    AnsweredOnce,
    /// An answer has a legal length and a legal error number.
    Shape,
    /// A node that the kernel holds (its lookup count is above zero) stays what it is.
    Held,
    /// A node keeps its type and its generation, and attributes make sense.
    Identity,
    /// An open that was answered is released once, and its number is good until then.
    Handles,
    /// The opens of a node agree on one io mode (`fs/fuse/iomode.c`).
    IoMode,
    /// A backing id is used while it is registered, and closed once.
    BackingId,
    /// A name holds as long as was promised.
    Names,
    /// Attributes hold as long as was promised.
    Attributes,
    /// Cached pages are what a READ would bring.
    Pages,
    /// A listing comes to its end, and names what exists.
    Listing,
    /// A notification is well formed.
    Notification,
    /// What is agreed to at INIT was offered.
    Init,
    /// What is done with a ring's entries, buffers and pages is what the kernel allows (`fs/fuse/dev_uring.c`).
    Ring,
    /// No operation panics.
    Panics,
}

/// One broken rule, and what was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Breach {
    /// The rule.
    pub rule: Rule,
    /// What was seen, for a reader who knows the file system and not the protocol.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// Every rule that was broken, in the order of their discovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken(pub Vec<Breach>);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel's rules were broken:")?;
        self.0.iter().try_for_each(|breach| write!(f, "\n  {breach}"))
    }
}

impl std::error::Error for Broken {}
