//! Listings: READDIR and READDIRPLUS.

use std::collections::HashSet;

use shuntfs_wire::{Dirent, EntryOut, Errno, InitFlags, Opcode, ReadIn};
use zerocopy::{FromBytes, IntoBytes};

use crate::breach::Rule;
use crate::file::File;
use crate::process::Process;
use crate::walk::{Place, told};

/// One record of a listing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Record {
    /// The name.
    pub name: Vec<u8>,
    /// Its inode number, as the listing has it.
    pub ino: u64,
    /// Its type, as in `d_type`.
    pub kind: u32,
}

/// Room for the records of one answer, as `getdents64` of a C library asks for it.
const ROOM: u32 = 32 << 10;
/// So many records end the patience.
const RECORDS_MAX: usize = 1 << 20;

/// A listing as it comes in.
#[derive(Default)]
struct Seen {
    records: Vec<Record>,
    names: HashSet<Vec<u8>>,
    cookies: HashSet<u64>,
}

impl Process {
    /// Lists a folder, without "." and "..", in the file system's order.
    ///
    /// # Errors
    /// Those of the way, of OPENDIR and of READDIR. EIO where a record cannot be: a breach then says why.
    pub fn list(&self, path: &str) -> Result<Vec<Record>, Errno> {
        self.list_in_room(path, ROOM)
    }

    /// As [`Process::list`], with answers of at most `room` bytes, so that a listing comes in several pieces.
    ///
    /// # Errors
    /// As [`Process::list`]; EINVAL where no record fits.
    pub fn list_in_room(&self, path: &str, room: u32) -> Result<Vec<Record>, Errno> {
        let (records, error) = self.list_to_error(path, room)?;
        error.map_or(Ok(records), Err)
    }

    /// As [`Process::list_in_room`], with what was listed before READDIR failed.
    ///
    /// # Errors
    /// Those of the way and of OPENDIR.
    pub fn list_to_error(&self, path: &str, room: u32) -> Result<(Vec<Record>, Option<Errno>), Errno> {
        let node = self.walk(path, true)?;
        if self.attributes(node)?.mode & crate::inode::S_IFMT != crate::inode::S_IFDIR {
            return Err(Errno::NOTDIR);
        }
        let folder = self.open_as(Opcode::Opendir, node, 0o200_000)?;
        let mut seen = Seen::default();
        let error = self.list_open(&folder, room, &mut seen).err();
        Ok((seen.records, error))
    }

    /// The names of a folder, in order of the alphabet.
    ///
    /// # Errors
    /// As [`Process::list`].
    pub fn names(&self, path: &str) -> Result<Vec<String>, Errno> {
        let records = self.list(path)?;
        let mut names: Vec<_> =
            records.iter().map(|record| String::from_utf8_lossy(&record.name).into_owned()).collect();
        names.sort();
        Ok(names)
    }

    fn list_open(&self, folder: &File, room: u32, seen: &mut Seen) -> Result<(), Errno> {
        let open = folder.open()?;
        let plus = self.kernel.books().has_agreed(InitFlags::DO_READDIRPLUS);
        let opcode = if plus { Opcode::Readdirplus } else { Opcode::Readdir };
        let mut offset = 0;
        loop {
            let arg = ReadIn { fh: open.fh, offset, size: room, flags: open.flags, ..ReadIn::default() };
            let answer = folder.ask(opcode, open.node, arg.as_bytes())?;
            if answer.is_empty() {
                return Ok(());
            }
            let before = offset;
            offset = self.take_records(open.node, &answer, plus, seen)?.ok_or(Errno::INVAL)?;
            if offset == before || seen.records.len() > RECORDS_MAX {
                let what = format!(
                    "the listing of node {} does not come to its end: it goes on at cookie {offset}",
                    open.node
                );
                self.kernel.books().breach(Rule::Listing, what);
                return Err(Errno::IO);
            }
        }
    }

    /// Takes the records of one answer in; the cookie of the last one, `None` where not even one was whole.
    fn take_records(
        &self,
        parent: u64,
        mut answer: &[u8],
        plus: bool,
        seen: &mut Seen,
    ) -> Result<Option<u64>, Errno> {
        let mut last = None;
        while !answer.is_empty() {
            let (entry, rest) = if plus {
                let Ok((entry, rest)) = EntryOut::read_from_prefix(answer) else { break };
                (Some(entry), rest)
            } else {
                (None, answer)
            };
            let Ok((head, rest)) = Dirent::read_from_prefix(rest) else { break };
            let len = head.namelen as usize;
            // A record that is cut off ends the answer; the kernel asks again from the last whole one on.
            let padded = (size_of::<Dirent>() + len).next_multiple_of(8) - size_of::<Dirent>();
            let (Some(name), Some(after)) = (rest.get(..len), rest.get(padded..)) else { break };
            self.take_record(parent, entry, (head, name), seen)?;
            last = Some(head.off);
            answer = after;
        }
        Ok(last)
    }

    fn take_record(
        &self,
        parent: u64,
        entry: Option<EntryOut>,
        (head, name): (Dirent, &[u8]),
        seen: &mut Seen,
    ) -> Result<(), Errno> {
        let place = Place::new(parent, name);
        let mut wrong = Vec::new();
        let bad = name.is_empty() || name.contains(&b'/') || name.contains(&0) || name.len() > 1024;
        if bad {
            wrong.push(format!(
                "the listing of node {parent} has the name {:?}: the kernel fails it with EIO",
                place.name
            ));
        }
        if !seen.cookies.insert(head.off) {
            wrong.push(format!(
                "{} has cookie {}, which another record of the listing has",
                told(&place),
                head.off
            ));
        }
        let is_dot = name == b"." || name == b"..";
        if !bad && !seen.names.insert(name.to_vec()) {
            wrong.push(format!("{} is listed twice", told(&place)));
        }
        let mut met = Ok(());
        if let Some(entry) = entry.filter(|entry| entry.nodeid != 0 && !is_dot) {
            if entry.attr.ino != head.ino {
                wrong.push(format!(
                    "{} is listed with inode {}, and its attributes have {}",
                    told(&place),
                    head.ino,
                    entry.attr.ino
                ));
            }
            let kind = entry.attr.mode >> 12 & 0xf;
            if kind != head.kind && head.kind != 0 {
                wrong.push(format!(
                    "{} is listed with type {}, and its attributes have {kind}",
                    told(&place),
                    head.kind
                ));
            }
            met = self.meet(&entry, &place).map(drop);
        }
        let mut books = self.kernel.books();
        for what in wrong {
            books.breach(Rule::Listing, what);
        }
        drop(books);
        if !is_dot {
            seen.records.push(Record { name: place.name, ino: head.ino, kind: head.kind });
        }
        if bad { Err(Errno::IO) } else { met }
    }
}
