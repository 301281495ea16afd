//! Reads requests, keeps the first of each kind, and answers them from memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use shuntfs_wire::{Errno, InHeader, Opcode, OutHeader, Request, Unique, abi};
use zerocopy::{FromBytes, IntoBytes};

use crate::memory::{Answer, Memory};

/// How many requests of each kind are kept, all different.
const KEPT: usize = 3;
/// Room for the longest WRITE that is agreed to, and its header.
pub(crate) const MAX_WRITE: u32 = 65_536;

/// Writes requests to files.
pub(crate) struct Keeper {
    folder: PathBuf,
    kept: BTreeMap<u32, Vec<Vec<u8>>>,
}

impl Keeper {
    pub(crate) const fn new(folder: PathBuf) -> Self {
        Self { folder, kept: BTreeMap::new() }
    }

    fn keep(&mut self, opcode: u32, frame: &[u8]) -> Result<()> {
        let kept = self.kept.entry(opcode).or_default();
        let body = frame.get(InHeader::LEN..).unwrap_or_default().to_vec();
        // The same again shows nothing new, unless there is nothing but a header.
        if kept.len() == KEPT || (!body.is_empty() && kept.contains(&body)) {
            return Ok(());
        }
        kept.push(body);
        let count = kept.len();
        let name = Opcode::new(opcode).map_or_else(|| opcode.to_string(), |opcode| opcode.to_string());
        let name = if count == 1 { format!("{name}.bin") } else { format!("{name}-{count}.bin") };
        let file = self.folder.join(name);
        std::fs::write(&file, frame).with_context(|| file.display().to_string())
    }
}

/// Serves until the connection ends; answers how many operations were kept.
pub(crate) fn all(mut device: &File, mut keeper: Keeper) -> Result<usize> {
    let mut memory = Memory::new();
    let mut buffer = vec![0; MAX_WRITE as usize + abi::MIN_READ_BUFFER];
    loop {
        let len = match device.read(&mut buffer) {
            Ok(len) => len,
            // The mount is gone.
            Err(error) if error.raw_os_error() == Some(19) => return Ok(keeper.kept.len()),
            // The request was interrupted before it was read.
            Err(error) if error.raw_os_error() == Some(2) => continue,
            Err(error) => return Err(error).context("reading the device"),
        };
        let frame = buffer.get(..len).context("longer than its buffer")?;
        let (header, body) = InHeader::read_from_prefix(frame).ok().context("a request without a header")?;
        keeper.keep(header.opcode, frame)?;
        let fixed = header.operation().map_or(0, Opcode::fixed_len).min(body.len());
        let (fixed, rest) = body.split_at(fixed);
        let answer = match Request::parse(&header, fixed, rest) {
            Ok(request) => memory.answer(&request),
            Err(error) => {
                eprintln!("{:?} does not parse: {error}", header.operation());
                Answer::Error(Errno::IO)
            }
        };
        send(device, header.request(), answer)?;
    }
}

fn send(mut device: &File, unique: Unique, answer: Answer) -> Result<()> {
    let (out, body) = match answer {
        Answer::Body(body) => (OutHeader::success(unique, body.len()), body),
        Answer::Error(errno) => (OutHeader::error(unique, errno), Vec::new()),
        Answer::Interrupted(held) => (OutHeader::error(held, Errno::INTR), Vec::new()),
        Answer::Notify(notification, errno) => {
            // Before the answer: what the kernel queues now is read together, later.
            device.write_all(&notification).context("notifying")?;
            (OutHeader::error(unique, errno), Vec::new())
        }
        Answer::Silent => return Ok(()),
    };
    match device.write_vectored(&[IoSlice::new(out.as_bytes()), IoSlice::new(&body)]) {
        // The caller did not wait for the answer.
        Err(error) if error.raw_os_error() == Some(2) => Ok(()),
        other => other.map(drop).with_context(|| format!("answering {unique:?}")),
    }
}
