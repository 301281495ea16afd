//! The page cache of one node.

use std::collections::BTreeMap;

/// Bytes in a page.
pub(crate) const PAGE: u64 = 4096;

/// Pages by number. A page at the end of a file is as short as the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages(BTreeMap<u64, Vec<u8>>);

impl Pages {
    /// The bytes from `offset` on, as far as pages are there without a gap, at most `len`.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut at = offset;
        while bytes.len() < len {
            let Some(page) = self.0.get(&(at / PAGE)) else { break };
            let within = usize::try_from(at % PAGE).unwrap_or(0);
            let Some(rest) = page.get(within..).filter(|rest| !rest.is_empty()) else { break };
            let taken = rest.len().min(len - bytes.len());
            bytes.extend_from_slice(&rest[..taken]);
            at += taken as u64;
        }
        bytes
    }

    /// Takes in what a READ of whole pages from `offset` on brought.
    pub(crate) fn fill(&mut self, offset: u64, bytes: &[u8]) {
        for (page, chunk) in (offset / PAGE..).zip(bytes.chunks(4096)) {
            self.0.insert(page, chunk.to_vec());
        }
    }

    /// Takes in what was written: pages that are there are changed, whole ones are new.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = usize::try_from(at % PAGE).unwrap_or(0);
            let (here, after) = rest.split_at(rest.len().min(4096 - within));
            if here.len() == 4096 {
                self.0.insert(at / PAGE, here.to_vec());
            } else if let Some(page) = self.0.get_mut(&(at / PAGE)) {
                let end = within + here.len();
                page.resize(page.len().max(end), 0);
                page[within..end].copy_from_slice(here);
            }
            at += here.len() as u64;
            rest = after;
        }
    }

    /// The file is so long now: what is beyond goes, and a short page within it is one no longer.
    pub(crate) fn cut(&mut self, size: u64) {
        self.0.retain(|page, bytes| {
            let start = page * PAGE;
            if start >= size {
                return false;
            }
            let held = usize::try_from((size - start).min(PAGE)).unwrap_or(4096);
            bytes.truncate(held);
            bytes.len() == held
        });
    }

    /// Drops the pages that the range touches; `len` of `None` is up to the end.
    pub(crate) fn forget(&mut self, offset: u64, len: Option<u64>) {
        let end = len.map_or(u64::MAX, |len| offset.saturating_add(len));
        self.0.retain(|page, _| (page + 1) * PAGE <= offset || page * PAGE >= end);
    }

    /// Drops all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn pages_are_read_as_far_as_they_go() {
        let mut pages = Pages::default();
        pages.fill(0, &[1; 5000]);
        assert_eq!(pages.read(4090, 100), [1; 100]);
        assert_eq!(pages.read(4990, 100), [1; 10]);
        assert!(pages.read(5000, 1).is_empty());
        pages.write(4000, &[2; 200]);
        assert_eq!(pages.read(3999, 202), [&[1][..], &[2; 200], &[1]].concat());
        pages.forget(4096, Some(1));
        assert_eq!(pages.read(0, 8192).len(), 4096);
    }

    #[test]
    fn a_cut_takes_what_is_beyond_and_growth_makes_no_bytes_up() {
        let mut pages = Pages::default();
        pages.fill(0, &[1; 8192]);
        pages.cut(4100);
        assert_eq!(pages.read(0, 8192).len(), 4100);
        pages.cut(4200);
        assert_eq!(pages.read(0, 8192).len(), 4096, "the short page is to be read again");
    }
}
