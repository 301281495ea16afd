//! Calls made from numbers: valid ones in any order, and requests that no kernel sends.

use shuntfs_wire::{Errno, InHeader, Opcode};
use zerocopy::IntoBytes;

use crate::fake::Fake;
use crate::file::File;
use crate::open::{O_APPEND, O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
use crate::raw::Pending;

/// SplitMix64: a seed means the same forever.
#[derive(Clone, Debug)]
struct Numbers(u64);

impl Numbers {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, and without, `end`.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or(0)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    /// One of few names, so that calls meet.
    fn path(&mut self) -> String {
        let name = |number| char::from(b'a' + u8::try_from(number).unwrap_or(0));
        let (folder, name) = (name(self.below(3)), name(self.below(4)));
        match self.below(3) {
            0 => format!("/{folder}"),
            _ => format!("/{folder}/{name}"),
        }
    }
}

/// As many files are open at most.
const OPEN_MAX: usize = 8;

impl Fake {
    /// Makes `steps` calls that follow from a seed: names come, go and move, files are opened, written, read, cut and closed,
    /// folders are listed, time passes and caches are dropped. Returns how many calls succeeded; what the file system breaks is
    /// in the books. The mount is left with whatever names were made.
    ///
    /// # Errors
    /// ENOTCONN or ETIMEDOUT where the file system serves no more.
    pub fn wander(&self, seed: u64, steps: usize) -> Result<usize, Errno> {
        let mut numbers = Numbers(seed);
        let mut files = Vec::new();
        let mut succeeded = 0;
        for _ in 0..steps {
            match self.step(&mut numbers, &mut files) {
                Ok(()) => succeeded += 1,
                Err(errno @ (Errno::NOTCONN | Errno::TIMEDOUT)) => return Err(errno),
                Err(_) => {}
            }
        }
        Ok(succeeded)
    }

    fn step(&self, numbers: &mut Numbers, files: &mut Vec<File>) -> Result<(), Errno> {
        let path = numbers.path();
        match numbers.below(24) {
            0 | 1 => self.mkdir(&path, 0o755).map(drop),
            2..=5 => {
                let access = [O_RDONLY, O_WRONLY, O_RDWR][numbers.below(3)];
                let more = [0, O_CREAT, O_CREAT | O_TRUNC, O_APPEND][numbers.below(4)];
                if files.len() == OPEN_MAX {
                    files.swap_remove(numbers.below(OPEN_MAX));
                }
                files.push(self.open(&path, access | more)?);
                Ok(())
            }
            6 => self.unlink(&path),
            7 => self.rmdir(&path),
            8 => self.rename(&path, &numbers.path()),
            9 => self.link(&path, &numbers.path()).map(drop),
            10 => self.symlink(&numbers.path(), &path).map(drop),
            11 => self.truncate(&path, numbers.below(20_000) as u64).map(drop),
            12 => self.chmod(&path, 0o644).map(drop),
            13 => self.list(&path).map(drop),
            14 => self.list("/").map(drop),
            15 => self.lstat(&path).map(drop),
            16 => {
                self.pass(std::time::Duration::from_millis(numbers.below(2000) as u64));
                Ok(())
            }
            17 => {
                self.drop_caches();
                Ok(())
            }
            18 => self.set_xattr(&path, "user.fake", &numbers.bytes(5), 0),
            19 if !files.is_empty() => {
                files.swap_remove(numbers.below(files.len()));
                Ok(())
            }
            20..=21 => {
                let file = files.get(numbers.below(files.len())).ok_or(Errno::BADF)?;
                let len = [1, 100, 4096, 9000][numbers.below(4)];
                file.write_at(numbers.below(16_000) as u64, &numbers.bytes(len)).map(drop)
            }
            _ => {
                let file = files.get(numbers.below(files.len())).ok_or(Errno::BADF)?;
                file.read_at(numbers.below(20_000) as u64, numbers.below(20_000)).map(drop)
            }
        }
    }

    /// Sends `count` requests that follow from a seed and that no kernel sends: any operation on nodes and open files that
    /// may not exist, with bodies that are cut, too long or anything. Several are under way at once, some are interrupted,
    /// and answers are awaited in another order. Each must be answered, legally.
    ///
    /// # Errors
    /// ENOTCONN or ETIMEDOUT where the file system serves no more.
    pub fn babble(&self, seed: u64, count: usize) -> Result<(), Errno> {
        let mut numbers = Numbers(seed);
        let mut pending: Vec<Pending> = Vec::new();
        for _ in 0..count {
            let frame = babbled(&mut numbers);
            pending.extend(self.replay(&frame)?);
            if numbers.below(8) == 0
                && let Some(one) = pending.last()
            {
                one.interrupt()?;
            }
            while pending.len() > numbers.below(6) {
                settled(pending.swap_remove(numbers.below(pending.len())))?;
            }
        }
        pending.into_iter().try_for_each(settled)
    }
}

/// Waits for an answer, whatever it is.
fn settled(pending: Pending) -> Result<(), Errno> {
    match pending.wait() {
        Err(errno @ (Errno::NOTCONN | Errno::TIMEDOUT)) => Err(errno),
        _ => Ok(()),
    }
}

/// A request that means little.
fn babbled(numbers: &mut Numbers) -> Vec<u8> {
    let opcode = if numbers.below(16) == 0 {
        u32::try_from(numbers.below(70)).unwrap_or(0)
    } else {
        Opcode::ALL[numbers.below(Opcode::ALL.len())].number()
    };
    let fixed = Opcode::new(opcode).map_or(0, Opcode::fixed_len);
    let mut body = match numbers.below(4) {
        0 => numbers.bytes(fixed),
        _ => vec![0; fixed],
    };
    // Numbers that are small are nodes, open files, lengths and flags that may exist.
    for _ in 0..numbers.below(4) {
        if let Some(at) = numbers.below(body.len()).checked_next_multiple_of(4).filter(|at| *at < body.len())
        {
            body[at] = u8::try_from(numbers.below(16)).unwrap_or(0);
        }
    }
    match numbers.below(5) {
        0 => {}
        1 => body.extend_from_slice(&numbers.bytes(9)),
        2 => body.extend_from_slice(b"name\0"),
        3 => body.extend_from_slice(b"name\0other\0"),
        _ => body.truncate(numbers.below(fixed + 1)),
    }
    let total_extlen = if numbers.below(16) == 0 { 2 } else { 0 };
    let nodeid = numbers.below(6) as u64;
    let len = u32::try_from(InHeader::LEN + body.len()).unwrap_or(0);
    let header = InHeader { len, opcode, nodeid, total_extlen, pid: 1, ..InHeader::default() };
    [header.as_bytes(), &body].concat()
}
