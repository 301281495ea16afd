//! Whether the lower file system verifies a file by itself: the kernel's fs-verity, with the digest that was sealed.

use std::fmt;

use shuntfs::LowerFile;
use shuntfs_sys::verity::{DIGEST_LEN_MAX, measure};
use shuntfs_sys::{FsMagic, filesystem_of};
use shuntfs_verity::{Algorithm, Digest};

/// Tells the digest of a file that its file system verifies.
pub trait Measure: Send + Sync + fmt::Debug {
    /// The digest; `None` where nobody verifies it.
    fn measure(&self, lower: &LowerFile) -> Option<Digest>;
}

/// The file systems whose code in the kernel verifies what is read (`fs/verity`, Linux 6.18). The type of a file system is the
/// kernel's word; what it answers to the ioctl may be anybody's: a FUSE server is asked from Linux 6.12 on, and answers what
/// it likes.
const VERIFYING: [FsMagic; 3] = [FsMagic::EXT, FsMagic::F2FS, FsMagic::BTRFS];

/// Asks the kernel (`FS_IOC_MEASURE_VERITY`), where it is the kernel that answers.
#[derive(Clone, Copy, Default, Debug)]
pub struct KernelVerity;

impl Measure for KernelVerity {
    fn measure(&self, lower: &LowerFile) -> Option<Digest> {
        if !VERIFYING.contains(&filesystem_of(lower).ok()?.magic) {
            return None;
        }
        let mut room = [0; DIGEST_LEN_MAX];
        let (number, len) = measure(lower, &mut room).ok()?;
        let algorithm = Algorithm::from_number(u8::try_from(number).ok()?).ok()?;
        Digest::new(algorithm, room.get(..len)?).ok()
    }
}

/// Whether every byte of this open file is verified by its file system, as sealed.
pub(crate) fn verifies(measure: &dyn Measure, lower: &LowerFile, sealed: &Digest) -> bool {
    measure.measure(lower).is_some_and(|measured| measured == *sealed)
}

#[cfg(test)]
mod test {
    use super::*;

    #[derive(Debug)]
    struct Says(Option<Digest>);

    impl Measure for Says {
        fn measure(&self, _: &LowerFile) -> Option<Digest> {
            self.0
        }
    }

    #[test]
    fn only_the_sealed_digest_will_do() {
        let lower = LowerFile::new(tempfile::tempfile().unwrap().into());
        let digest =
            |algorithm: Algorithm, byte| Digest::new(algorithm, &vec![byte; algorithm.digest_len()]).unwrap();
        let sealed = digest(Algorithm::Sha256, 1);
        for (said, verifies_it) in [
            (None, false),
            (Some(sealed), true),
            (Some(digest(Algorithm::Sha256, 2)), false),
            (Some(digest(Algorithm::Sha512, 1)), false),
        ] {
            assert_eq!(verifies(&Says(said), &lower, &sealed), verifies_it, "{said:?}");
        }
        assert!(!verifies(&KernelVerity, &lower, &sealed), "a file without fs-verity");
    }
}
