//! Reading a folder on one branch while it is read on another one, so that disks that have to move their heads, or to spin up, do so at the
//! same time.
//!
//! What is read is thrown away: the kernel's caches have it then, where the listing finds it.

use std::fs::read_dir;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many names are read at most. A listing that is left early has cost no more, and one that goes on waits for the disk itself.
const NAMES_MAX: usize = 65_536;

/// Who reads ahead on one branch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ahead {
    is_reading: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

/// Reading, until this is dropped.
struct Reading(Arc<AtomicBool>);

impl Ahead {
    /// Has a thread read a folder, and the attributes of what is in it if they are wanted. Does nothing if a folder of the branch is being
    /// read: a disk that hangs holds one thread.
    pub(crate) fn read(&self, folder: OwnedFd, wants_attributes: bool) {
        let Some(reading) = self.begin() else { return };
        let is_over = Arc::clone(&self.is_over);
        let read = move || {
            shuntfs::leave_queue();
            // By its path it is opened anew: the position in `folder` belongs to the listing.
            let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
            for entry in read_dir(path).into_iter().flatten().take(NAMES_MAX) {
                let Ok(entry) = entry else { break };
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // On a folder something else may be mounted, or wait to be.
                if wants_attributes && entry.file_type().is_ok_and(|kind| !kind.is_dir()) {
                    // If there are none, the listing finds that out.
                    drop(entry.metadata());
                }
            }
            drop(reading);
        };
        if let Err(error) = std::thread::Builder::new().name("shunt-ahead".into()).spawn(read) {
            tracing::debug!(%error, "no thread to read a folder ahead");
        }
    }

    /// Nothing is read any more: the branch was removed.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn begin(&self) -> Option<Reading> {
        let was_reading = self.is_reading.swap(true, Ordering::Acquire);
        (!was_reading).then(|| Reading(Arc::clone(&self.is_reading)))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    fn is_done(ahead: &Ahead) -> bool {
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            !ahead.is_reading.load(Ordering::Acquire)
        })
    }

    /// Reading a folder sets its time of access, if that is old.
    #[test]
    fn a_folder_is_read_and_only_one_at_a_time() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("name"), "").unwrap();
        let open = || OwnedFd::from(File::open(top.path()).unwrap());
        let accessed = || fs::metadata(top.path()).unwrap().accessed().unwrap();
        let old = SystemTime::now() - Duration::from_secs(200_000);
        File::open(top.path()).unwrap().set_times(fs::FileTimes::new().set_accessed(old)).unwrap();
        let ahead = Ahead::default();
        let reading = ahead.begin().unwrap();
        ahead.read(open(), true);
        assert!(accessed() < old + Duration::from_secs(1), "somebody else reads");
        drop(reading);
        ahead.read(open(), true);
        assert!(is_done(&ahead));
        assert!(accessed() > old + Duration::from_secs(1));
        // What cannot be listed ends it, too.
        ahead.read(OwnedFd::from(File::open(top.path().join("name")).unwrap()), false);
        assert!(is_done(&ahead));
        ahead.end();
        ahead.read(open(), true);
        assert!(is_done(&ahead));
    }
}
