//! A text in a file in memory that outlives a server: a server that is killed while it writes leaves the text before.
//!
//! There are two slots, which are written in turn. Each begins with its version, its length and a check over all of it; what is not as it was
//! written is not believed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;

use crate::node::mix;

/// Version, length and check.
const HEAD: usize = 24;

/// The file, and how many bytes each of its slots takes.
#[derive(Debug)]
pub struct Slots {
    file: File,
    len: u32,
}

impl Slots {
    /// Those in a file in memory.
    #[must_use]
    pub fn of(file: File, len: u32) -> Self {
        Self { file, len }
    }

    /// Writes the text of this version, the one after the newest. One writes at a time.
    ///
    /// # Errors
    /// ENOSPC for a text that is too long, ENOMEM.
    pub fn put(&self, version: u64, text: &[u8]) -> io::Result<()> {
        if text.len() > self.text_max() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let head = [version, text.len() as u64, check_of(version, text)];
        let head: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all_at(&[&head, text].concat(), version % 2 * u64::from(self.len))
    }

    /// The newest text that is as it was written, and its version, which is not 0.
    #[must_use]
    pub fn newest(&self) -> Option<(u64, Vec<u8>)> {
        let both = [0, u64::from(self.len)].into_iter().filter_map(|at| self.at(at));
        both.max_by_key(|(version, _)| *version)
    }

    fn at(&self, at: u64) -> Option<(u64, Vec<u8>)> {
        let mut head = [0; HEAD];
        self.file.read_exact_at(&mut head, at).ok()?;
        let word = |place: usize| head.chunks_exact(8).nth(place)?.try_into().ok().map(u64::from_le_bytes);
        let (version, len, check) = (word(0)?, usize::try_from(word(1)?).ok()?, word(2)?);
        let mut text = vec![0; Some(len).filter(|len| *len <= self.text_max())?];
        self.file.read_exact_at(&mut text, at + HEAD as u64).ok()?;
        (version > 0 && check == check_of(version, &text)).then_some((version, text))
    }

    fn text_max(&self) -> usize {
        usize::try_from(self.len).map_or(0, |len| len.saturating_sub(HEAD))
    }
}

impl AsFd for Slots {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn check_of(version: u64, text: &[u8]) -> u64 {
    let words = text.chunks(8).map(|bytes| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    words.fold(mix(version ^ text.len() as u64), |hash, word| mix(hash ^ word))
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_sys::memory::file_in_memory;

    #[test]
    fn the_text_before_is_found_where_the_newest_is_not_whole() {
        let slots = Slots::of(file_in_memory(c"test").unwrap(), 4096);
        assert_eq!(slots.newest(), None);
        for (version, text) in (1..).zip([&b"first"[..], b"", b"a third one"]) {
            slots.put(version, text).unwrap();
            assert_eq!(slots.newest(), Some((version, text.to_vec())));
        }
        // The third is in the second slot.
        for at in 0..HEAD as u64 + 11 {
            let mut byte = [0];
            slots.file.read_exact_at(&mut byte, 4096 + at).unwrap();
            slots.file.write_all_at(&[!byte[0]], 4096 + at).unwrap();
            assert_eq!(slots.newest(), Some((2, Vec::new())), "byte {at}");
            slots.file.write_all_at(&byte, 4096 + at).unwrap();
        }
        assert_eq!(slots.newest().map(|(version, _)| version), Some(3));
        assert!(slots.put(4, &[0; 4096]).is_err());
    }
}
