//! Letting go of a file whose descriptor others may be using.
#![expect(unsafe_code, reason = "rustix replaces descriptors that are borrowed for writing alone")]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::io::{DupFlags, dup3, retry_on_intr};

use crate::Result;
use crate::event::EventFd;

/// Makes a descriptor stand for an event descriptor in place of what it stood for, which so can be unmounted, while other threads
/// may be using the descriptor: their calls find the one or the other. An event descriptor is no folder, and on no file system that
/// takes file handles: neither names nor handles lead anywhere from it.
///
/// # Errors
/// EMFILE where there is no room for one more descriptor.
pub fn let_go(fd: impl AsFd) -> Result<()> {
    let nothing = EventFd::new()?;
    // SAFETY: the number is open for as long as `fd` is borrowed, and is not closed here, because the owner that is made of it is
    // never dropped. That the number stands for another file afterwards is seen by calls only, which is what is wanted.
    let mut same = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd.as_fd().as_raw_fd()) });
    retry_on_intr(|| dup3(&nothing, &mut same, DupFlags::CLOEXEC))
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::{handle_of, open_by_handle, open_path_at, stat_of};

    #[test]
    fn the_number_stays_and_the_file_goes() {
        let folder = crate::open::open_folder(std::path::Path::new("/")).unwrap();
        let handle = handle_of(&folder);
        let number = folder.as_raw_fd();
        assert!(stat_of(&folder).unwrap().is_dir());
        let_go(&folder).unwrap();
        assert_eq!(folder.as_raw_fd(), number);
        assert!(!stat_of(&folder).unwrap().is_dir());
        assert!(open_path_at(&folder, c"tmp").is_err());
        // Not every file system at `/` has handles.
        if let Ok((handle, _)) = handle {
            assert!(open_by_handle(&folder, &handle, 0).is_err());
        }
    }
}
