//! The bytes of one file: reads, writes, mappings and cuts at random offsets, against a copy in memory.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use rustix::io::Errno;
use rustix::mm::ProtFlags;

use crate::raw::Mapping;
use crate::seeded::Random;

/// The file never becomes longer, in bytes.
const LEN_MAX: usize = 256 << 10;
/// Length of most operations, in bytes.
const SHORT: usize = 9000;
const PAGE: usize = 4096;

/// Random operations on one file.
#[derive(Debug)]
pub struct FileExercise {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
    seed: u64,
    random: Random,
    steps: u64,
    /// How often each operation was carried out, by its place in [`OPERATIONS`].
    counts: [u64; OPERATIONS.len()],
}

type Operation = fn(&mut FileExercise) -> Result<Outcome>;

/// Whether an operation was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done,
    /// The file system below does not have it.
    Missing,
}
use Outcome::{Done, Missing};

const OPERATIONS: [(&str, Operation); 12] = [
    ("read", FileExercise::read),
    ("write", FileExercise::write),
    ("append", FileExercise::append),
    ("truncate", FileExercise::truncate),
    ("read of a mapping", FileExercise::load),
    ("write to a mapping", FileExercise::store),
    ("fallocate", FileExercise::allocate),
    ("hole", FileExercise::punch),
    ("range of zeroes", FileExercise::zero),
    ("copy_file_range", FileExercise::copy),
    ("fsync", FileExercise::sync),
    ("close and open", FileExercise::reopen),
];

impl FileExercise {
    /// Makes the file, which must not exist.
    ///
    /// # Errors
    /// The file system's.
    pub fn new(path: &Path, seed: u64) -> Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path);
        Ok(Self {
            path: path.to_owned(),
            file: file.with_context(|| format!("seed {seed}: {} cannot be made", path.display()))?,
            bytes: Vec::new(),
            seed,
            random: Random::new(seed),
            steps: 0,
            counts: [0; OPERATIONS.len()],
        })
    }

    /// Carries out one operation and compares its result and the file's length with the model.
    ///
    /// # Errors
    /// A call failed, or its result is wrong. The error names the seed, the step and the operation.
    pub fn step(&mut self) -> Result<()> {
        let index = self.random.below(OPERATIONS.len());
        let (name, operation) = OPERATIONS[index];
        self.steps += 1;
        let (seed, step) = (self.seed, self.steps);
        let outcome = operation(self).and_then(|outcome| {
            let len = self.file.metadata().context("fstat")?.len();
            ensure!(len == self.bytes.len() as u64, "the file has {len} bytes and not {}", self.bytes.len());
            Ok(outcome)
        });
        let outcome = outcome.with_context(|| format!("seed {seed}, step {step}, {name}"))?;
        self.counts[index] += u64::from(outcome == Done);
        Ok(())
    }

    /// Closes the file, reads it by its name, and returns that and what the file must contain.
    ///
    /// # Errors
    /// A call failed, the bytes are wrong, or the file system carried out none of some operation that every one has.
    pub fn finish(self) -> Result<(PathBuf, Vec<u8>)> {
        let Self { path, file, bytes, seed, steps, counts, .. } = self;
        drop(file);
        let found = std::fs::read(&path).with_context(|| format!("seed {seed}, after {steps} steps"))?;
        compare(&found, &bytes, 0).with_context(|| format!("seed {seed}, after {steps} steps"))?;
        for ((name, _), count) in OPERATIONS.iter().zip(counts) {
            // By then each operation was chosen, but for one case in ten thousand.
            ensure!(
                steps < 200 || count > 0 || *name == "range of zeroes",
                "seed {seed}: no {name} was done"
            );
        }
        Ok((path.file_name().map(PathBuf::from).unwrap_or_default(), bytes))
    }

    /// How many operations were carried out.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// A range below [`LEN_MAX`], of at least one byte; short and at the edge of a page more often than not.
    fn range(&mut self) -> (usize, usize) {
        let mut at = self.random.below(LEN_MAX);
        if self.random.below(3) == 0 {
            at = at / PAGE * PAGE;
        }
        let longest = if self.random.below(5) == 0 { LEN_MAX } else { SHORT };
        (at, 1 + self.random.below(longest.min(LEN_MAX - at)))
    }

    /// A range inside the file; `None` where it is empty.
    fn range_inside(&mut self) -> Option<(usize, usize)> {
        let (at, len) = self.range();
        let at = at % self.bytes.len().max(1);
        (!self.bytes.is_empty()).then(|| (at, len.min(self.bytes.len() - at)))
    }

    fn fill(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(8)).flat_map(|_| self.random.number().to_le_bytes()).take(len).collect()
    }

    fn put(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(data);
    }

    fn read(&mut self) -> Result<Outcome> {
        let (at, len) = self.range();
        let mut room = vec![0; len];
        let mut filled = 0;
        while filled < len {
            match self.file.read_at(&mut room[filled..], (at + filled) as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        let end = (at + len).min(self.bytes.len());
        compare(&room[..filled], self.bytes.get(at..end).unwrap_or_default(), at)?;
        Ok(Done)
    }

    fn write(&mut self) -> Result<Outcome> {
        let (at, len) = self.range();
        self.write_at(at, len)
    }

    fn append(&mut self) -> Result<Outcome> {
        let at = self.bytes.len();
        let len = (1 + self.random.below(SHORT)).min(LEN_MAX - at);
        self.write_at(at, len)
    }

    fn write_at(&mut self, at: usize, len: usize) -> Result<Outcome> {
        let data = self.fill(len);
        self.file.write_all_at(&data, at as u64)?;
        self.put(at, &data);
        Ok(Done)
    }

    fn truncate(&mut self) -> Result<Outcome> {
        let len = self.random.below(LEN_MAX);
        self.file.set_len(len as u64)?;
        self.bytes.resize(len, 0);
        Ok(Done)
    }

    fn load(&mut self) -> Result<Outcome> {
        let Some((at, len)) = self.range_inside() else { return Ok(Done) };
        let whole = self.bytes.len().next_multiple_of(PAGE);
        let mapping = Mapping::new(&self.file, whole, ProtFlags::READ, true)?;
        compare(&mapping.try_load(at, len)?, &self.bytes[at..at + len], at)?;
        // Behind the end of the file, its last page is zero.
        let end = self.bytes.len();
        compare(&mapping.try_load(end, whole - end)?, &vec![0; whole - end], end)?;
        Ok(Done)
    }

    fn store(&mut self) -> Result<Outcome> {
        let Some((at, len)) = self.range_inside() else { return Ok(Done) };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = Mapping::new(&self.file, self.bytes.len(), protection, true)?;
        let data = self.fill(len);
        mapping.store(at, &data);
        self.put(at, &data);
        if self.random.below(2) == 0 {
            mapping.sync()?;
        }
        Ok(Done)
    }

    fn allocate(&mut self) -> Result<Outcome> {
        let (at, len) = self.range();
        let keeps_size = self.random.below(2) == 0;
        let flags = if keeps_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let outcome = self.fallocate(flags, at, len)?;
        if !keeps_size && outcome == Done {
            self.bytes.resize(self.bytes.len().max(at + len), 0);
        }
        Ok(outcome)
    }

    fn punch(&mut self) -> Result<Outcome> {
        let (at, len) = self.range();
        let outcome = self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len)?;
        self.clear(outcome, at, len);
        Ok(outcome)
    }

    fn zero(&mut self) -> Result<Outcome> {
        let (at, len) = self.range();
        let outcome = self.fallocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, at, len)?;
        self.clear(outcome, at, len);
        Ok(outcome)
    }

    fn fallocate(&self, flags: FallocateFlags, at: usize, len: usize) -> Result<Outcome> {
        match fallocate(&self.file, flags, at as u64, len as u64) {
            Ok(()) => Ok(Done),
            Err(Errno::OPNOTSUPP) => Ok(Missing),
            Err(error) => Err(error.into()),
        }
    }

    fn clear(&mut self, outcome: Outcome, at: usize, len: usize) {
        let end = (at + len).min(self.bytes.len());
        if let Some(range) = self.bytes.get_mut(at..end).filter(|_| outcome == Done) {
            range.fill(0);
        }
    }

    /// Inside the file, to a place that does not overlap.
    fn copy(&mut self) -> Result<Outcome> {
        let Some((from, len)) = self.range_inside() else { return Ok(Done) };
        let to = self.random.below(LEN_MAX);
        let len = len.min(LEN_MAX - to).min(from.abs_diff(to));
        let data = self.bytes[from..from + len].to_vec();
        let (mut source, mut target) = (from as u64, to as u64);
        let mut copied = 0;
        while copied < len {
            let some =
                copy_file_range(&self.file, Some(&mut source), &self.file, Some(&mut target), len - copied)?;
            ensure!(some > 0, "{copied} of {len} bytes were copied");
            copied += some;
        }
        if len > 0 {
            self.put(to, &data);
        }
        Ok(Done)
    }

    fn sync(&mut self) -> Result<Outcome> {
        if self.random.below(2) == 0 { self.file.sync_all() } else { self.file.sync_data() }?;
        Ok(Done)
    }

    fn reopen(&mut self) -> Result<Outcome> {
        self.file = File::options().read(true).write(true).open(&self.path)?;
        Ok(Done)
    }
}

fn compare(found: &[u8], expected: &[u8], at: usize) -> Result<()> {
    ensure!(found.len() == expected.len(), "{} bytes from {at} on and not {}", found.len(), expected.len());
    let Some(wrong) = found.iter().zip(expected).position(|(found, expected)| found != expected) else {
        return Ok(());
    };
    let count = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
    anyhow::bail!(
        "byte {} is {:#04x} and not {:#04x}; {count} bytes are wrong",
        at + wrong,
        found[wrong],
        expected[wrong]
    )
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_bare_file_passes_and_a_changed_byte_is_found() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        for seed in 1..4 {
            let mut exercise = FileExercise::new(&path, seed)?;
            for _ in 0..600 {
                exercise.step()?;
            }
            exercise.write_at(0, 2)?;
            let first = exercise.bytes[0];
            exercise.file.write_all_at(&[!first], 0)?;
            let error = format!("{:#}", exercise.finish().expect_err("a byte is wrong"));
            assert!(error.contains(&format!("seed {seed}")) && error.contains("byte 0 is"), "{error}");
            std::fs::remove_file(&path)?;
        }
        Ok(())
    }

    #[test]
    fn a_seed_makes_the_same_bytes_again() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut ends = Vec::new();
        for name in ["one", "other"] {
            let mut exercise = FileExercise::new(&folder.path().join(name), 77)?;
            for _ in 0..300 {
                exercise.step()?;
            }
            ends.push(exercise.finish()?.1);
        }
        assert!(ends[0] == ends[1] && !ends[0].is_empty());
        Ok(())
    }
}
