//! Registration of lower files with the kernel, and what is remembered of its refusals.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use shuntfs_sys::{FuseDevice, OsError};
use shuntfs_wire::Errno;

use crate::delegation::Reason;

/// The kernel's number of a registered lower file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BackingId(pub(crate) u32);

/// Where lower files are registered: the kernel, or a test's stand-in.
pub(crate) trait Registrar: Send + Sync + std::fmt::Debug {
    /// Registers a lower file.
    fn register(&self, lower: BorrowedFd<'_>) -> Result<BackingId, OsError>;
    /// Takes a registration back. Opens that were answered with it keep their own reference.
    fn unregister(&self, id: BackingId);
}

impl Registrar for FuseDevice {
    fn register(&self, lower: BorrowedFd<'_>) -> Result<BackingId, OsError> {
        self.backing_open(lower).map(BackingId)
    }

    fn unregister(&self, id: BackingId) {
        if let Err(error) = self.backing_close(id.0) {
            // Expected once the connection is gone, whose end took the id along.
            tracing::debug!(id = id.0, %error, "a backing id could not be closed");
        }
    }
}

/// While a refusal is remembered, one in so many wishes is tried nonetheless: a pool may have branches that
/// are stacked less deep than the first one that was asked for.
const RETRY_EVERY: u32 = 64;

/// Registers, and remembers what the kernel refuses for good, so that it is not asked at each open.
#[derive(Debug)]
pub(crate) struct Backings {
    registrar: std::sync::Arc<dyn Registrar>,
    /// What the negotiation came to: `Some` where passthrough is off for the whole mount.
    off: Option<Reason>,
    /// No privilege: never tried again.
    unprivileged: AtomicBool,
    /// Wishes since the lower file system was found too deep; 0 while it is not, or has also been good.
    too_deep: AtomicU32,
    /// Whether a registration ever succeeded; then a refusal tells something of one file alone.
    succeeded: AtomicBool,
}

impl Backings {
    pub(crate) fn new(registrar: std::sync::Arc<dyn Registrar>, off: Option<Reason>) -> Self {
        Self {
            registrar,
            off,
            unprivileged: AtomicBool::new(false),
            too_deep: AtomicU32::new(0),
            succeeded: AtomicBool::new(false),
        }
    }

    /// Whether a registration is worth trying, or why not.
    pub(crate) fn offer(&self) -> Result<(), Reason> {
        if let Some(reason) = self.off {
            return Err(reason);
        }
        if self.unprivileged.load(Ordering::Relaxed) {
            return Err(Reason::NotPrivileged);
        }
        if self.too_deep.load(Ordering::Relaxed) != 0 {
            // Two threads may lose a count to each other; then a retry comes a little later.
            let wishes = self.too_deep.fetch_add(1, Ordering::Relaxed);
            if !wishes.is_multiple_of(RETRY_EVERY) {
                return Err(Reason::TooDeep);
            }
        }
        Ok(())
    }

    /// Registers a lower file.
    pub(crate) fn register(&self, lower: BorrowedFd<'_>) -> Result<BackingId, Reason> {
        match self.registrar.register(lower) {
            Ok(id) => {
                self.succeeded.store(true, Ordering::Relaxed);
                self.too_deep.store(0, Ordering::Relaxed);
                Ok(id)
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Takes a registration back.
    pub(crate) fn unregister(&self, id: BackingId) {
        self.registrar.unregister(id);
    }

    fn refused(&self, error: OsError) -> Reason {
        let errno = Errno::from_lower(error.raw_os_error());
        match errno {
            Errno::PERM => {
                if !self.unprivileged.swap(true, Ordering::Relaxed) {
                    tracing::warn!("no passthrough: {}", Reason::NotPrivileged);
                }
                Reason::NotPrivileged
            }
            Errno::LOOP => {
                let first = self.too_deep.load(Ordering::Relaxed) == 0;
                if first && !self.succeeded.load(Ordering::Relaxed) {
                    self.too_deep.store(1, Ordering::Relaxed);
                    tracing::warn!("no passthrough: {}", Reason::TooDeep);
                }
                Reason::TooDeep
            }
            Errno::INVAL | Errno::ISDIR => Reason::NotBackable,
            Errno::NOTTY | Errno::OPNOTSUPP => Reason::KernelLacks,
            _ => {
                tracing::debug!(%errno, "a lower file could not be registered");
                Reason::RegisterFailed
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod test {
    use std::collections::HashSet;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// Gives out numbers, or one error, and knows which numbers live.
    #[derive(Debug, Default)]
    pub(crate) struct FakeRegistrar {
        pub(crate) live: Mutex<HashSet<u32>>,
        pub(crate) asked: AtomicU32,
        pub(crate) error: Mutex<Option<OsError>>,
    }

    impl Registrar for FakeRegistrar {
        fn register(&self, _: BorrowedFd<'_>) -> Result<BackingId, OsError> {
            let id = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            if let Some(error) = *self.error.lock() {
                return Err(error);
            }
            assert!(self.live.lock().insert(id));
            Ok(BackingId(id))
        }

        fn unregister(&self, id: BackingId) {
            assert!(self.live.lock().remove(&id.0), "{id:?} was registered and not yet taken back");
        }
    }

    #[test]
    fn refusals_are_mapped() {
        for (error, reason) in [
            (OsError::PERM, Reason::NotPrivileged),
            (OsError::LOOP, Reason::TooDeep),
            (OsError::INVAL, Reason::NotBackable),
            (OsError::ISDIR, Reason::NotBackable),
            (OsError::NOTTY, Reason::KernelLacks),
            (OsError::NOMEM, Reason::RegisterFailed),
        ] {
            let fake = Arc::new(FakeRegistrar::default());
            *fake.error.lock() = Some(error);
            let backings = Backings::new(Arc::clone(&fake) as Arc<dyn Registrar>, None);
            let file = std::fs::File::open("/proc/self/exe").unwrap();
            assert_eq!(backings.register(file.as_fd()), Err(reason), "{error:?}");
            let remembered = matches!(reason, Reason::NotPrivileged | Reason::TooDeep);
            assert_eq!(backings.offer(), if remembered { Err(reason) } else { Ok(()) }, "{error:?}");
        }
    }

    #[test]
    fn too_deep_is_tried_again_now_and_then_and_forgotten_after_a_success() {
        let fake = Arc::new(FakeRegistrar::default());
        *fake.error.lock() = Some(OsError::LOOP);
        let backings = Backings::new(Arc::clone(&fake) as Arc<dyn Registrar>, None);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(backings.register(file.as_fd()), Err(Reason::TooDeep));
        let skipped = (0..RETRY_EVERY).take_while(|_| backings.offer().is_err()).count();
        assert_eq!(skipped, RETRY_EVERY as usize - 1);
        *fake.error.lock() = None;
        assert!(backings.register(file.as_fd()).is_ok());
        *fake.error.lock() = Some(OsError::LOOP);
        assert_eq!(backings.register(file.as_fd()), Err(Reason::TooDeep));
        assert_eq!(backings.offer(), Ok(()), "one file's refusal says nothing of the others");
    }

    #[test]
    fn what_the_negotiation_refused_is_never_asked_for() {
        let fake = Arc::new(FakeRegistrar::default());
        let backings = Backings::new(fake, Some(Reason::TurnedOff));
        assert_eq!(backings.offer(), Err(Reason::TurnedOff));
    }
}
