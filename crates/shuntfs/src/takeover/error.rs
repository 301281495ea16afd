//! Why a connection does not last.

use shuntfs_sys::OsError;
use shuntfs_transport::TransportKind;
use thiserror::Error;

use super::store::StoreError;
use super::surviving::NotTaken;
use crate::init::InitError;
use crate::mount::MountError;
use crate::notify::NotifyError;

/// Why a connection cannot be served so that it lasts, or not be taken over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TakeoverError {
    /// What any mount may fail by.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// What the predecessor left is not to be used.
    #[error("the connection cannot be taken over: {0}")]
    Handover(#[from] HandoverError),
    /// The file system has operations by which something is kept.
    #[error(
        "{0} is among the operations of the file system, and what it leaves in the server dies with it: leave it out \
         (Filesystem::OPS, Wanted::ops)"
    )]
    Keeps(&'static str),
    /// io_uring was asked for.
    #[error(
        "requests that come by io_uring are lost with the server: the kernel fails those for which a slot was free \
         (ECANCELED) and sends none of them again; ask for device or cloned"
    )]
    Ring,
    /// A server of a mount on io_uring ended otherwise than as it was planned.
    #[error(
        "its predecessor died, and on io_uring only a server that is replaced as planned has a successor: the kernel \
         fails requests of rings whose server dies"
    )]
    RingDied,
    /// The kernel did not take the rings, which lie where a successor finds them.
    #[error("the kernel refused the rings ({0})")]
    RingRefused(#[source] OsError),
    /// The kernel is older than Linux 6.9.
    #[error(
        "the kernel does not send requests again (FUSE_HAS_RESEND, Linux 6.9): a successor could not answer what was read"
    )]
    NoResend,
    /// The kernel did not send them again anyway.
    #[error("unanswered requests were not sent again: {0}")]
    Resend(#[source] NotifyError),
    /// The state that a predecessor left is not to be used.
    #[error("the connection cannot be taken over: {0}")]
    State(#[from] StoreError),
    /// The file system cannot go on with what it had kept.
    #[error("the file system does not go on with what it had kept: {0}")]
    FileSystem(#[source] NotTaken),
    /// There is no state, and the file system has some.
    #[error("the predecessor left no state")]
    NoState,
    /// A transport could not be set up.
    #[error("the transport {kind} is unavailable: {why}")]
    Transport {
        /// Which.
        kind: TransportKind,
        /// Why.
        why: String,
    },
    /// A descriptor could not be put into the state that a new server expects.
    #[error("a descriptor that the predecessor left cannot be used ({0})")]
    Descriptor(#[source] OsError),
    /// Whoever is to keep what a successor needs did not take it.
    #[error("what a successor needs could not be handed on: {0}")]
    Untold(#[source] std::io::Error),
}

impl From<InitError> for TakeoverError {
    fn from(error: InitError) -> Self {
        Self::Mount(error.into())
    }
}

/// What is wrong with what a predecessor left.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// It was written by another release.
    #[error("it has layout {found}, and {known} is known here")]
    Version {
        /// Its own.
        found: u32,
        /// The one that this release writes and reads.
        known: u32,
    },
    /// A number is out of its range.
    #[error("{what} is {found}, which cannot be")]
    Value {
        /// Which.
        what: &'static str,
        /// The number.
        found: u64,
    },
    /// This server would have agreed to something else, and INIT does not come again.
    #[error("{what}: this server would not have agreed to what its predecessor did")]
    Differs {
        /// What differs.
        what: &'static str,
    },
    /// There are more or fewer descriptors than requests were read through.
    #[error("{given} descriptors were left, and requests were read through {expected}")]
    Descriptors {
        /// As the predecessor said.
        expected: usize,
        /// As given.
        given: usize,
    },
    /// A descriptor belongs to another connection, or to none.
    #[error("descriptor {0} is not of the connection")]
    Foreign(usize),
}
