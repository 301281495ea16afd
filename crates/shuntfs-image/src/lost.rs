//! Errors of making durable, which the kernel tells once: whoever asks again is told that all is well, though what it could not
//! write is gone. So they stay, and whoever asks later, or ends the export, is told, too.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

const EIO: i32 = 5;

/// The first error of a file, by its number; 0 where there was none.
#[derive(Debug, Default)]
pub(crate) struct Lost(AtomicI32);

impl Lost {
    /// Notes how making durable went, and says how it stands with all that was ever written.
    pub(crate) fn note<E>(&self, outcome: Result<(), E>) -> io::Result<()>
    where
        io::Error: From<E>,
    {
        if let Err(error) = outcome {
            let error = io::Error::from(error);
            let number = error.raw_os_error().unwrap_or(EIO);
            if self.0.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                tracing::error!("what was written may be lost: {error}");
            }
        }
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_first_error_stays() {
        let lost = Lost::default();
        lost.note::<io::Error>(Ok(())).expect("nothing is lost");
        let number = |outcome: io::Result<()>| outcome.err().and_then(|error| error.raw_os_error());
        assert_eq!(number(lost.note(Err(io::Error::from_raw_os_error(28)))), Some(28));
        assert_eq!(number(lost.note::<io::Error>(Ok(()))), Some(28));
        assert_eq!(number(lost.note(Err(io::Error::from_raw_os_error(5)))), Some(28));
    }
}
