//! The few ioctls that make sense below; the list is the system layer's.

use shuntfs::{Errno, LowerFile, NodeId, Result};
use shuntfs_sys::ioctl::file_ioctl;
use shuntfs_sys::stat::stat_of;

use crate::error::errno;
use crate::shared::Shared;

/// What an ioctl gave.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: i32,
    pub(crate) data: Vec<u8>,
}

/// The direction bits of an ioctl's number: the caller reads.
const READS: u32 = 2 << 30;
/// Ioctls that change something.
const WRITES: u32 = 1 << 30;

/// Whether an ioctl is one that only asks.
pub(crate) fn only_asks(command: u32) -> bool {
    command & WRITES == 0
}

/// An ioctl's number and how much the caller can take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) number: u32,
    pub(crate) output_max: u32,
}

/// IOCTL.
pub(crate) fn ioctl(
    shared: &Shared,
    id: NodeId,
    lower: &LowerFile,
    command: Command,
    input: &[u8],
) -> Result<Answer> {
    let output_max = usize::try_from(command.output_max).map_err(|_| Errno::INVAL)?;
    let mut data = input.to_vec();
    data.resize(data.len().max(output_max), 0);
    let result = file_ioctl(lower, command.number, &mut data).map_err(errno)?;
    if !only_asks(command.number) {
        // It may have become immutable, which opens must know.
        shared.node(id)?.saw(&stat_of(lower).map_err(errno)?);
    }
    data.truncate(if command.number & READS != 0 { output_max } else { 0 });
    Ok(Answer { result, data })
}
