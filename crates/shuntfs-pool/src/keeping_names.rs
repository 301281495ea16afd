//! By which name each file was looked up last, written down so that the next server shows the same inode numbers: where numbers of files go by
//! their paths. A name that is not written down, for want of memory, gives its file the number below until it is looked up again.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use shuntfs::NodeId;
use shuntfs::takeover::{KeptNode, KeptNodes, LeftNode, NodePlace};

use crate::node::Way;
use crate::records::{Record, node_of};

/// So many bytes of a name find room in the record of the file, and in each further one.
const NAME_FIRST: usize = 40;
const NAME_FURTHER: usize = 64;

/// Words of a record: the folder; the length of the name, and whether the file is the last one that had it; the first further record; the name.
const FOLDER: usize = 0;
const LENGTH: usize = 1;
const FURTHER: usize = 2;
const NAME: usize = 3;
const IS_LAST: u64 = 1 << 16;

/// The records of one file.
#[derive(Debug)]
pub(crate) struct NamePlaces {
    name: NodePlace,
    /// The rest of a long name.
    further: Vec<NodePlace>,
}

/// The name of a file that the kernel knows.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct NamedFile {
    pub(crate) way: Way,
    /// Whether no other file was known by it since.
    pub(crate) is_last: bool,
}

/// What a predecessor has written down of a file; without a name if that is damaged.
#[derive(Debug)]
pub(crate) struct LeftName {
    pub(crate) file: NodeId,
    pub(crate) places: NamePlaces,
    pub(crate) named: Option<NamedFile>,
}

/// Where that is written down.
#[derive(Debug)]
pub(crate) struct KeptNames {
    nodes: KeptNodes,
    places: Mutex<HashMap<NodeId, NamePlaces>>,
    next_further: AtomicU64,
    /// That one could not be was said.
    has_warned: AtomicBool,
}

impl KeptNames {
    pub(crate) fn new(nodes: KeptNodes) -> Self {
        let next_further = Record::Further.first_of_names(nodes.servers());
        Self {
            nodes,
            places: Mutex::default(),
            next_further: AtomicU64::new(next_further),
            has_warned: AtomicBool::new(false),
        }
    }

    /// What is written down of a file is there.
    pub(crate) fn has(&self, file: NodeId, places: NamePlaces) {
        self.places.lock().insert(file, places);
    }

    /// Writes down the name that a file has from now on, before the kernel hears of it.
    pub(crate) fn keep(&self, file: NodeId, parent: NodeId, name: &CStr, is_last: bool) {
        let Some(number) = Record::Name.of(file) else { return };
        let bytes = name.to_bytes();
        let rest = bytes.get(NAME_FIRST..).unwrap_or_default().chunks(NAME_FURTHER);
        let count = rest.len() as u64;
        let first = self.next_further.fetch_add(count, Ordering::Relaxed);
        let further = (first..).zip(rest).map(|(number, bytes)| {
            let mut words = [0; 8];
            put_bytes(&mut words, bytes);
            let kept = KeptNode { node: NodeId::new(number)?, file: None, words };
            self.nodes.keep(&kept).ok()
        });
        // Before what names them.
        let further: Vec<NodePlace> = further.map_while(|place| place).collect();
        let is_whole = further.len() as u64 == count;
        let kept = KeptNode { node: number, file: None, words: words_of(parent, bytes, is_last, first) };
        let mut places = self.places.lock();
        let before = places.remove(&file);
        let next = match (&before, is_whole) {
            (_, false) => None,
            (Some(before), true) => self.nodes.replace(&before.name, &kept).ok(),
            (None, true) => self.nodes.keep(&kept).ok(),
        };
        match next {
            Some(name) => {
                // The record before was replaced.
                let old = before.map(|before| before.further);
                old.into_iter().flatten().for_each(|place| self.nodes.let_go(place));
                places.insert(file, NamePlaces { name, further });
            }
            None => {
                // What it was before it is not any more.
                before.into_iter().for_each(|before| self.drop_left(before));
                further.into_iter().for_each(|place| self.nodes.let_go(place));
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        node = file.get(),
                        "its name is not kept for another server, and its inode number goes by that: there are too many nodes, or no memory"
                    );
                }
            }
        }
    }

    /// The kernel has forgotten the file.
    pub(crate) fn let_go(&self, file: NodeId) {
        let places = self.places.lock().remove(&file);
        places.into_iter().for_each(|places| self.drop_left(places));
    }

    /// Records that no file needs any more.
    pub(crate) fn drop_left(&self, places: NamePlaces) {
        self.nodes.let_go(places.name);
        // In this order: a record that nobody names is found to be useless.
        places.further.into_iter().for_each(|place| self.nodes.let_go(place));
    }
}

fn words_of(parent: NodeId, name: &[u8], is_last: bool, further: u64) -> [u64; 8] {
    let mut words = [0; 8];
    words[FOLDER] = parent.get();
    words[LENGTH] = name.len() as u64 | if is_last { IS_LAST } else { 0 };
    words[FURTHER] = if name.len() > NAME_FIRST { further } else { 0 };
    put_bytes(&mut words[NAME..], &name[..name.len().min(NAME_FIRST)]);
    words
}

fn put_bytes(words: &mut [u64], bytes: &[u8]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
}

fn bytes_of(words: &[u64]) -> impl Iterator<Item = u8> {
    words.iter().flat_map(|word| word.to_le_bytes())
}

/// Takes the names of files out of what was left, with their further records.
pub(crate) fn part(left: &mut Vec<LeftNode>, further: &mut HashMap<u64, LeftNode>) -> Vec<LeftName> {
    let of_names: Vec<LeftNode> = left.extract_if(.., |left| Record::Name.has(left.node)).collect();
    let named = |left: LeftNode| {
        let (named, further) = named_by(left.words, further);
        let places = NamePlaces { name: left.place, further };
        Some(LeftName { file: node_of(left.node)?, places, named })
    };
    of_names.into_iter().filter_map(named).collect()
}

/// The name that these words tell, and the further records of it.
fn named_by(words: [u64; 8], further: &mut HashMap<u64, LeftNode>) -> (Option<NamedFile>, Vec<NodePlace>) {
    let (is_last, len) = (words[LENGTH] & IS_LAST != 0, words[LENGTH] & !IS_LAST);
    let mut name: Vec<u8> = bytes_of(&words[NAME..]).collect();
    let (mut places, mut next) = (Vec::new(), words[FURTHER]);
    let named = || {
        let len = usize::try_from(len).ok()?;
        while name.len() < len {
            let LeftNode { place, words, .. } = further.remove(&next)?;
            name.extend(bytes_of(&words));
            places.push(place);
            next = next.checked_add(1)?;
        }
        name.truncate(len);
        let name: Box<CStr> = CString::new(name).ok().filter(|name| !name.is_empty())?.into_boxed_c_str();
        Some(NamedFile { way: (NodeId::new(words[FOLDER])?, name), is_last })
    };
    (named(), places)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_short_name_is_the_same_after_it_was_written_down() {
        let parent = NodeId::new(77).unwrap();
        for (len, is_last) in [(1, true), (8, false), (39, true), (40, false)] {
            let name = CString::new(vec![b'x'; len]).unwrap();
            let words = words_of(parent, name.to_bytes(), is_last, 5);
            let (named, places) = named_by(words, &mut HashMap::new());
            assert_eq!(named, Some(NamedFile { way: (parent, name.into_boxed_c_str()), is_last }));
            assert!(places.is_empty());
        }
    }

    #[test]
    fn what_is_damaged_is_no_name() {
        let parent = NodeId::new(77).unwrap();
        let words = words_of(parent, b"name", true, 5);
        let damaged = |change: &dyn Fn(&mut [u64; 8])| {
            let mut words = words;
            change(&mut words);
            named_by(words, &mut HashMap::new()).0
        };
        assert_eq!(damaged(&|words| words[FOLDER] = 0), None, "no folder");
        assert_eq!(damaged(&|words| words[LENGTH] = IS_LAST), None, "no name");
        assert_eq!(damaged(&|words| words[LENGTH] = 41), None, "its rest is missing");
        assert_eq!(damaged(&|words| words[LENGTH] = u64::MAX), None);
        assert_eq!(damaged(&|words| words[NAME] = u64::from(b'a') << 8), None, "a NUL in it");
    }
}
