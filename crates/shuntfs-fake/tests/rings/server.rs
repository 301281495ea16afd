//! A small server of one file on one ring, with pools and zero copy, that does as it should or breaks one rule.
//!
//! # Safety
//! The memory that its submissions name is its own and lives as long as its ring.
#![expect(unsafe_code, reason = "submissions are pushed")]

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shuntfs_sys::uring::{Pages, Ring, Submission, UringCommand};
use shuntfs_sys::{FuseDevice, OsError, threads};
use shuntfs_wire::uring::{CMD_ADD_BUFPOOL, CMD_ADD_QUEUE, CMD_COMMIT_AND_FETCH, CMD_REGISTER};
use shuntfs_wire::{
    Attr, AttrOut, EntryOut, FopenFlags, InHeader, InitFlags, InitIn, InitOut, Opcode, OpenOut, OutHeader,
    UringAddBufpool, UringCmdReq, UringEntFlags, UringEntInOut, UringQueueFlags, WriteOut,
};
use zerocopy::{FromBytes, IntoBytes};

/// What it does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    Nothing,
    /// The same with pinned pools.
    NothingPinned,
    /// Set-up.
    UnknownQueue,
    UnknownFlags,
    QueueTwice,
    ShortPool,
    PoolTwice,
    ReservedOfPool,
    PoolAfterEntry,
    OneIovec,
    ShortHeaders,
    PayloadBesidePool,
    PlaceTaken,
    PlaceBeyondTable,
    QueueWithoutEntry,
    UnknownCommand,
    PoolNotPinned,
    EntryWithoutPinned,
    PlaceOfPinned,
    /// Service.
    CommitsTwice,
    CommitsWithoutPinned,
    CommitsAnother,
    CommitsOnAnotherQueue,
    CommitsByAnotherEntry,
    AnswersAnother,
    ReadsTooMuch,
    AnswersWithoutRoom,
    MovesAfterCommit,
    CommitsBeforeMoved,
    MovesTheOtherWay,
    MovesTooFar,
    WritesTooMuch,
}

impl Deed {
    pub(crate) const ALL: [Self; 32] = [
        Self::Nothing,
        Self::NothingPinned,
        Self::UnknownQueue,
        Self::UnknownFlags,
        Self::QueueTwice,
        Self::ShortPool,
        Self::PoolTwice,
        Self::ReservedOfPool,
        Self::PoolAfterEntry,
        Self::OneIovec,
        Self::ShortHeaders,
        Self::PayloadBesidePool,
        Self::PlaceTaken,
        Self::PlaceBeyondTable,
        Self::QueueWithoutEntry,
        Self::UnknownCommand,
        Self::PoolNotPinned,
        Self::EntryWithoutPinned,
        Self::PlaceOfPinned,
        Self::CommitsTwice,
        Self::CommitsWithoutPinned,
        Self::CommitsAnother,
        Self::CommitsOnAnotherQueue,
        Self::CommitsByAnotherEntry,
        Self::AnswersAnother,
        Self::ReadsTooMuch,
        Self::AnswersWithoutRoom,
        Self::MovesAfterCommit,
        Self::CommitsBeforeMoved,
        Self::MovesTheOtherWay,
        Self::MovesTooFar,
        Self::WritesTooMuch,
    ];
}

impl Deed {
    /// Whether its pools are pinned.
    fn pins(self) -> bool {
        let pinned = [
            Self::NothingPinned,
            Self::PoolNotPinned,
            Self::EntryWithoutPinned,
            Self::PlaceOfPinned,
            Self::CommitsWithoutPinned,
        ];
        pinned.contains(&self)
    }
}

/// `max_write`, and with it each buffer.
const PAYLOAD: u32 = 8192;
const BUFFERS: u32 = 2;
/// Entries of each queue.
const DEPTH: u16 = 2;
/// What an entry has of the rogue's memory: headers, and iovecs behind them.
const ENTRY: usize = 4096;
const IOVECS: u64 = 512;
/// What completes with this and the entry's number is an operation on pages.
const MOVE: u64 = 1 << 32;
const LIMIT: Duration = Duration::from_secs(4);

pub(crate) struct Rogue {
    deed: Deed,
    ring: Ring,
    device: FuseDevice,
    memory: File,
    lower: File,
    headers: Pages,
    pools: Vec<Pages>,
    done: VecDeque<(u64, i32)>,
    deadline: Instant,
    seen: Seen,
    /// What each number under way stands for.
    under_way: HashMap<u64, &'static str>,
}

/// What it saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// What was refused it, and how, each once.
    pub(crate) refusals: BTreeSet<(&'static str, i32)>,
    /// The bytes of commands and entries, the first of each kind.
    pub(crate) frames: BTreeMap<String, Vec<u8>>,
}

impl Rogue {
    /// Answers INIT, sets up its ring and serves until all entries are gone.
    pub(crate) fn start(device: FuseDevice, deed: Deed) -> JoinHandle<Seen> {
        std::thread::spawn(move || {
            let mut request = vec![0; 1 << 16];
            device.read(&mut request).expect("INIT");
            let (header, _) = InHeader::read_from_prefix(&request).expect("a header");
            request.truncate(header.len as usize);
            let (offered, _) = InitIn::read_from_prefix(&request[InHeader::LEN..]).expect("longer");
            if !offered.offered().contains(InitFlags::OVER_IO_URING | InitFlags::HAS_IO_URING_BUFPOOL) {
                return Seen::default();
            }
            let flags = InitFlags::INIT_EXT
                | InitFlags::MAX_PAGES
                | InitFlags::OVER_IO_URING
                | InitFlags::HAS_IO_URING_BUFPOOL;
            let bits = flags.bits();
            let out = InitOut {
                major: 7,
                minor: 46,
                max_write: PAYLOAD,
                max_pages: 2,
                flags: (bits & 0xffff_ffff) as u32,
                flags2: (bits >> 32) as u32,
                ..InitOut::default()
            };
            let answer = OutHeader::success(header.request(), out.as_bytes().len());
            device.write(&[IoSlice::new(answer.as_bytes()), IoSlice::new(out.as_bytes())]).expect("answers");
            let queues = u16::try_from(threads::possible_cpus()).expect("few");
            let pool = || Pages::new((PAYLOAD * BUFFERS) as usize).expect("memory");
            let lower = tempfile::tempfile().expect("a file");
            lower.write_all_at(&[b'l'; 3 * PAYLOAD as usize], 0).expect("writes");
            let mut ring = Ring::of_device(&device, 256).expect("a ring");
            ring.make_table(queues * DEPTH + queues).expect("a table");
            let mut this = Self {
                deed,
                ring,
                device,
                memory: File::options().read(true).write(true).open("/proc/self/mem").expect("opens"),
                lower,
                headers: Pages::new(usize::from(queues * DEPTH) * ENTRY).expect("memory"),
                pools: (0..queues).map(|_| pool()).collect(),
                done: VecDeque::new(),
                deadline: Instant::now() + LIMIT,
                seen: Seen::default(),
                under_way: HashMap::new(),
            };
            this.keep("INIT", &request);
            this.set_up(queues);
            this.serve(queues * DEPTH);
            this.seen
        })
    }

    fn set_up(&mut self, queues: u16) {
        let zero_copy = UringQueueFlags::ZERO_COPY;
        let deed = self.deed;
        for qid in 0..queues {
            self.ask(CMD_ADD_QUEUE, UringCmdReq::add_queue(qid, zero_copy).as_bytes());
            let pool = UringAddBufpool {
                qid,
                address: self.pools[qid as usize].address(),
                len: PAYLOAD * BUFFERS,
                ..UringAddBufpool::default()
            };
            if deed.pins() && deed != Deed::PoolNotPinned {
                let pages = &self.pools[qid as usize];
                let address = usize::try_from(pages.address()).expect("an address");
                let memory = (std::ptr::with_exposed_provenance_mut(address), pages.len());
                // SAFETY: the pages are neither given back nor unmapped before the ring is gone.
                unsafe { self.ring.pin(self.pinned(qid), memory) }.expect("pins");
            }
            match deed {
                Deed::QueueTwice => {
                    self.ask(CMD_ADD_QUEUE, UringCmdReq::add_queue(qid, zero_copy).as_bytes());
                }
                Deed::ShortPool => {
                    self.ask(CMD_ADD_BUFPOOL, UringAddBufpool { len: PAYLOAD - 1, ..pool }.as_bytes());
                }
                Deed::ReservedOfPool => {
                    self.ask(CMD_ADD_BUFPOOL, UringAddBufpool { reserved: 1, ..pool }.as_bytes());
                }
                _ => {}
            }
            let pinned = deed.pins().then(|| self.pinned(qid));
            self.push(&UringCommand { pinned, ..command(CMD_ADD_BUFPOOL, pool.as_bytes()) }, u64::MAX);
            self.wait_for(u64::MAX);
            if deed == Deed::PoolTwice {
                self.ask(CMD_ADD_BUFPOOL, pool.as_bytes());
            }
            if deed == Deed::QueueWithoutEntry && qid == 0 {
                continue;
            }
            (qid * DEPTH..(qid + 1) * DEPTH).for_each(|entry| self.register(entry, qid));
            if deed == Deed::PoolAfterEntry {
                self.ask(CMD_ADD_BUFPOOL, pool.as_bytes());
            }
        }
        match deed {
            Deed::UnknownQueue => {
                self.ask(CMD_ADD_QUEUE, UringCmdReq::add_queue(queues, zero_copy).as_bytes());
            }
            Deed::UnknownFlags => {
                let flags = UringQueueFlags::from_bits_retain(2);
                self.ask(CMD_ADD_QUEUE, UringCmdReq::add_queue(0, flags).as_bytes());
            }
            Deed::UnknownCommand => self.ask(77, &[]),
            _ => {}
        }
    }

    /// An entry as it must be; a bad one is refused, and the connection goes on without rings.
    fn register(&mut self, entry: u16, qid: u16) {
        let (mut headers_len, mut payload_len, mut count) = (288, 0, 2);
        let mut place = entry;
        match self.deed {
            Deed::OneIovec => count = 1,
            Deed::ShortHeaders => headers_len = 287,
            Deed::PayloadBesidePool => payload_len = u64::from(PAYLOAD),
            Deed::PlaceTaken => place = place / DEPTH * DEPTH,
            Deed::PlaceBeyondTable => place += 10_000,
            Deed::PlaceOfPinned => place = self.pinned(qid),
            _ => {}
        }
        let pinned = (self.deed.pins() && self.deed != Deed::EntryWithoutPinned).then(|| self.pinned(qid));
        let address = self.headers.address() + (usize::from(entry) * ENTRY) as u64;
        let iovecs = [address, headers_len, 0, payload_len];
        self.write(address + IOVECS, iovecs.as_bytes());
        let request = UringCmdReq { qid, zero_copy_index: place, ..UringCmdReq::default() };
        let command = UringCommand {
            iovecs: address + IOVECS,
            iovecs_count: count,
            pinned,
            ..command(CMD_REGISTER, request.as_bytes())
        };
        self.push(&command, entry.into());
    }

    /// In which place of the table the memory of a queue's pool is pinned.
    fn pinned(&self, qid: u16) -> u16 {
        let queues = u16::try_from(self.pools.len()).expect("few");
        queues * DEPTH + qid
    }

    /// Asks for something that is answered at once.
    fn ask(&mut self, op: u32, bytes: &[u8]) {
        self.push(&command(op, bytes), u64::MAX);
        self.wait_for(u64::MAX);
    }

    fn serve(&mut self, entries: u16) {
        let mut living = entries;
        if self.deed == Deed::QueueWithoutEntry {
            living -= DEPTH;
        }
        while living > 0 && Instant::now() < self.deadline {
            match self.next() {
                Some((entry, result)) if entry < entries.into() => match u16::try_from(entry) {
                    Ok(entry) if result == 0 => self.answer(entry),
                    _ => living -= 1,
                },
                _ => {}
            }
        }
    }

    /// Answers the request in an entry, wrongly where that is its deed.
    fn answer(&mut self, entry: u16) {
        let address = self.headers.address() + (usize::from(entry) * ENTRY) as u64;
        let header = InHeader::read_from_bytes(&self.read(address, InHeader::LEN)).expect("a header");
        let said = UringEntInOut::read_from_bytes(&self.read(address + 256, 32)).expect("32 bytes");
        let area = self.read(address, 288);
        let in_pages = said.flags.contains(UringEntFlags::ZERO_COPY);
        // What was fetched in the name of another entry lies in that one.
        let Some(opcode) = Opcode::new(header.opcode) else { return };
        self.keep(opcode.name(), &area);
        let attr = Attr { ino: header.nodeid, mode: 0o100_644, size: 20_000, nlink: 1, ..Attr::default() };
        let mut body = match opcode {
            Opcode::Lookup => EntryOut { nodeid: 2, attr: Attr { ino: 2, ..attr }, ..EntryOut::default() }
                .as_bytes()
                .to_vec(),
            Opcode::Getattr => AttrOut { attr, ..AttrOut::default() }.as_bytes().to_vec(),
            Opcode::Open => {
                let open_flags = FopenFlags::IO_URING_ZERO_COPY | FopenFlags::DIRECT_IO;
                OpenOut { fh: 9, open_flags, ..OpenOut::default() }.as_bytes().to_vec()
            }
            Opcode::Write => WriteOut { size: 4, ..WriteOut::default() }.as_bytes().to_vec(),
            _ => Vec::new(),
        };
        let (qid, mut unique, mut len) = (entry / DEPTH, header.unique, len_of(&body));
        let mut request = UringCmdReq { commit_id: said.commit_id, qid, ..UringCmdReq::default() };
        let mut by = entry;
        match (self.deed, opcode, in_pages) {
            (Deed::CommitsBeforeMoved, Opcode::Read, true) => {
                self.push_move(entry, true, 0..4);
                len = 4;
            }
            (Deed::MovesTheOtherWay, Opcode::Read, true) => self.moves(entry, false, 0..4),
            (Deed::MovesTooFar, Opcode::Read, true) => self.moves(entry, true, 2..5),
            (Deed::MovesTheOtherWay, Opcode::Write, true) => self.moves(entry, true, 0..4),
            (_, Opcode::Read, true) => {
                self.moves(entry, true, 0..4);
                len = 4;
            }
            (_, Opcode::Write, true) => self.moves(entry, false, 0..4),
            _ => {}
        }
        match (self.deed, opcode) {
            (Deed::CommitsAnother, Opcode::Read) => request.commit_id += 1000,
            (Deed::CommitsOnAnotherQueue, Opcode::Read) => request.qid ^= 1,
            (Deed::CommitsByAnotherEntry, Opcode::Read) => by ^= 1,
            (Deed::AnswersAnother, Opcode::Read) => unique += 2,
            (Deed::ReadsTooMuch, Opcode::Read) => len = 5,
            (Deed::AnswersWithoutRoom, Opcode::Release) => len = 1,
            (Deed::WritesTooMuch, Opcode::Write) => {
                body = WriteOut { size: 5, ..WriteOut::default() }.as_bytes().to_vec();
            }
            _ => {}
        }
        if !body.is_empty() {
            let pool = self.pools[usize::from(qid)].address();
            self.write(pool + u64::from(said.offset), &body);
        }
        let out = OutHeader { len: 16 + len, error: 0, unique };
        self.write(address, out.as_bytes());
        let answer = UringEntInOut { payload_sz: len, commit_id: said.commit_id, ..UringEntInOut::default() };
        self.write(address + 256, answer.as_bytes());
        let forgets = self.deed == Deed::CommitsWithoutPinned && opcode == Opcode::Read;
        let pinned = (self.deed.pins() && !forgets).then(|| self.pinned(qid));
        let commit = UringCommand { pinned, ..command(CMD_COMMIT_AND_FETCH, request.as_bytes()) };
        self.push(&commit, by.into());
        match (self.deed, opcode) {
            (Deed::CommitsTwice, Opcode::Read) => {
                self.push(&command(CMD_COMMIT_AND_FETCH, request.as_bytes()), (by ^ 1).into());
            }
            (Deed::MovesAfterCommit, Opcode::Read) => self.moves(entry, true, 0..4),
            _ => {}
        }
    }

    /// Moves bytes between the lower file and an entry's pages.
    fn moves(&mut self, entry: u16, in_to: bool, part: std::ops::Range<u32>) {
        self.push_move(entry, in_to, part);
        self.wait_for(MOVE | u64::from(entry));
    }

    fn push_move(&mut self, entry: u16, in_to: bool, part: std::ops::Range<u32>) {
        let (fd, place) = (self.lower.as_fd(), (entry, part));
        let of = if in_to { Submission::read_to_pages } else { Submission::write_from_pages };
        self.under_way.insert(MOVE | u64::from(entry), "a move");
        // SAFETY: it names the kernel's memory.
        unsafe { self.ring.push(of(fd, place, 0, MOVE | u64::from(entry))) };
    }

    fn keep(&mut self, name: &str, bytes: &[u8]) {
        self.seen.frames.entry(name.to_owned()).or_insert_with(|| bytes.to_vec());
    }

    fn push(&mut self, command: &UringCommand, user_data: u64) {
        let name = match command.op {
            CMD_REGISTER => "REGISTER",
            CMD_COMMIT_AND_FETCH => "COMMIT_AND_FETCH",
            CMD_ADD_QUEUE => "ADD_QUEUE",
            CMD_ADD_BUFPOOL => "ADD_BUFPOOL",
            _ => "another",
        };
        self.keep(name, &command.bytes);
        self.under_way.insert(user_data, name);
        // SAFETY: see the module's text.
        unsafe { self.ring.push(Submission::command(self.device.as_fd(), command, user_data)) };
    }

    fn wait_for(&mut self, user_data: u64) {
        let mut others = VecDeque::new();
        while Instant::now() < self.deadline {
            match self.next() {
                Some((found, _)) if found == user_data => break,
                Some(other) => others.push_back(other),
                None => {}
            }
        }
        self.done.extend(others);
    }

    fn next(&mut self) -> Option<(u64, i32)> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        let entered = self.ring.enter(1, Some(Duration::from_millis(50)));
        assert!(matches!(entered, Ok(()) | Err(OsError::TIME)), "{entered:?}");
        let done = self.ring.next_completion()?;
        let is_end = [OsError::NOTCONN, OsError::CONNABORTED, OsError::CANCELED, OsError::NODEV];
        if done.result < 0 && !is_end.contains(&OsError::from_raw_os_error(-done.result)) {
            let name = self.under_way.get(&done.user_data).copied().unwrap_or("nothing");
            self.seen.refusals.insert((name, -done.result));
        }
        Some((done.user_data, done.result))
    }

    fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_exact_at(&mut bytes, address).expect("mapped");
        bytes
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, address).expect("mapped");
    }
}

fn len_of(body: &[u8]) -> u32 {
    u32::try_from(body.len()).expect("small")
}

fn command(op: u32, request: &[u8]) -> UringCommand {
    let mut bytes = [0; 40];
    bytes[..request.len()].copy_from_slice(request);
    UringCommand { op, bytes, iovecs: 0, iovecs_count: 0, pinned: None }
}
