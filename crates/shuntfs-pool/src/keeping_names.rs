//! By which name each file was looked up last, written down so that the next server shows the same inode numbers: where numbers of files go by
//! their paths. A name that is not written down, for want of memory, gives its file the number below until it is looked up again.

use std::collections::HashMap;
use std::ffi::{CStr, CString};

use shuntfs::NodeId;
use shuntfs::takeover::{KeptNode, KeptNodes, NodePlace};

use crate::node::Way;
use crate::records::Record;

/// So many bytes of a name find room in the record of the file, and in each further one.
const NAME_FIRST: usize = 40;
const NAME_FURTHER: usize = 64;

/// Words of a record: the folder; the length of the name, and whether the file is the last one that had it; the first further record; the name.
const FOLDER: usize = 0;
const LENGTH: usize = 1;
const FURTHER: usize = 2;
const NAME: usize = 3;
const IS_LAST: u64 = 1 << 16;

/// Writes that down. Who knows the names has the place of each file's record.
#[derive(Debug)]
pub(crate) struct KeptNames {
    nodes: KeptNodes,
    /// The rest of long names.
    further: HashMap<NodeId, Vec<NodePlace>>,
    next_further: u64,
    /// That one could not be was said.
    has_warned: bool,
}

impl KeptNames {
    pub(crate) fn new(nodes: KeptNodes) -> Self {
        let next_further = Record::Further.first_of_names(nodes.servers());
        Self { nodes, further: HashMap::new(), next_further, has_warned: false }
    }

    /// The rest of a file's long name is there.
    pub(crate) fn has_further(&mut self, file: NodeId, further: Vec<NodePlace>) {
        if !further.is_empty() {
            self.further.insert(file, further);
        }
    }

    /// The name of a file that is written down at this place; `None` where that is damaged.
    pub(crate) fn read(&self, place: &NodePlace, file: NodeId) -> Option<Way> {
        let (number, words) = self.nodes.read(place)?;
        let mut further = self.further.get(&file).into_iter().flatten();
        let mut name = Vec::new();
        let told = told_by(&words, &mut name, |number| {
            let (of, words) = self.nodes.read(further.next()?)?;
            (of.get() == number).then_some(words)
        })?;
        let name = CString::new(name).ok().filter(|_| Record::Name.of(file) == Some(number))?;
        Some((told.folder, name.into_boxed_c_str()))
    }

    /// Writes down the name that a file has from now on, before the kernel hears of it. `place` is where the one before is written down, and then
    /// where this one is.
    pub(crate) fn keep(
        &mut self,
        place: &mut Option<NodePlace>,
        file: NodeId,
        (parent, name): (NodeId, &CStr),
        is_last: bool,
    ) {
        let Some(number) = Record::Name.of(file) else { return };
        let bytes = name.to_bytes();
        let rest = bytes.get(NAME_FIRST..).unwrap_or_default().chunks(NAME_FURTHER);
        let (first, count) = (self.next_further, rest.len());
        self.next_further += count as u64;
        let further = (first..).zip(rest).map(|(number, bytes)| {
            let mut words = [0; 8];
            put_bytes(&mut words, bytes);
            let kept = KeptNode { node: NodeId::new(number)?, file: None, words };
            self.nodes.keep(&kept).ok()
        });
        // Before what names them.
        let further: Vec<NodePlace> = further.map_while(|place| place).collect();
        let kept = KeptNode { node: number, file: None, words: words_of(parent, bytes, is_last, first) };
        let next = match &*place {
            _ if further.len() != count => None,
            Some(before) => self.nodes.replace(before, &kept).ok(),
            None => self.nodes.keep(&kept).ok(),
        };
        let before = std::mem::replace(place, next);
        if place.is_some() {
            // The record before was replaced.
            self.drop_further(file);
            self.has_further(file, further);
            return;
        }
        // What it was before it is not any more.
        self.let_go(before, file);
        further.into_iter().for_each(|place| self.nodes.let_go(place));
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                node = file.get(),
                "its name is not kept for another server, and its inode number goes by that: there are too many nodes, or no memory"
            );
        }
    }

    /// The kernel has forgotten the file, whose record is there.
    pub(crate) fn let_go(&mut self, place: Option<NodePlace>, file: NodeId) {
        if let Some(place) = place {
            self.nodes.let_go(place);
            // In this order: a record that nobody names is found to be useless.
            self.drop_further(file);
        }
    }

    fn drop_further(&mut self, file: NodeId) {
        if !self.further.is_empty() {
            let further = self.further.remove(&file);
            further.into_iter().flatten().for_each(|place| self.nodes.let_go(place));
        }
    }

    /// Records that no file needs any more.
    pub(crate) fn drop_left(&self, place: NodePlace, further: Vec<NodePlace>) {
        self.nodes.let_go(place);
        further.into_iter().for_each(|place| self.nodes.let_go(place));
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

/// What a record tells beside the name itself.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Told {
    /// The folder in which the file has the name.
    pub(crate) folder: NodeId,
    /// Whether no other file was known by the name since.
    pub(crate) is_last: bool,
}

/// Puts the name that a record of these words tells into `name`. `further` gives the words of the further record with a number. `None` where they tell none.
pub(crate) fn told_by(
    words: &[u64; 8],
    name: &mut Vec<u8>,
    mut further: impl FnMut(u64) -> Option<[u64; 8]>,
) -> Option<Told> {
    let put = |name: &mut Vec<u8>, words: &[u64]| {
        words.iter().for_each(|word| name.extend_from_slice(&word.to_le_bytes()));
    };
    let (is_last, len) = (words[LENGTH] & IS_LAST != 0, usize::try_from(words[LENGTH] & !IS_LAST).ok()?);
    name.clear();
    put(name, &words[NAME..]);
    let mut next = words[FURTHER];
    while name.len() < len {
        put(name, &further(next)?);
        next = next.checked_add(1)?;
    }
    name.truncate(len);
    let is_name = len > 0 && !name.contains(&0);
    Some(Told { folder: NodeId::new(words[FOLDER])?, is_last }).filter(|_| is_name)
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
            let mut read = Vec::new();
            let told = told_by(&words, &mut read, |_| panic!("it has no further record"));
            assert_eq!((told, &read[..]), (Some(Told { folder: parent, is_last }), name.to_bytes()));
        }
    }

    #[test]
    fn what_is_damaged_is_no_name() {
        let parent = NodeId::new(77).unwrap();
        let words = words_of(parent, b"name", true, 5);
        let damaged = |change: &dyn Fn(&mut [u64; 8])| {
            let mut words = words;
            change(&mut words);
            told_by(&words, &mut Vec::new(), |_| None)
        };
        assert_eq!(damaged(&|words| words[FOLDER] = 0), None, "no folder");
        assert_eq!(damaged(&|words| words[LENGTH] = IS_LAST), None, "no name");
        assert_eq!(damaged(&|words| words[LENGTH] = 41), None, "its rest is missing");
        assert_eq!(damaged(&|words| words[LENGTH] = u64::MAX), None);
        assert_eq!(damaged(&|words| words[NAME] = u64::from(b'a') << 8), None, "a NUL in it");
    }
}
