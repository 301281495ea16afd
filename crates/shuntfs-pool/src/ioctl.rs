//! The few ioctls that make sense below; the list is the system layer's.

use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::ioctl::file_ioctl;

use crate::error::errno;

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

/// IOCTL.
pub(crate) fn ioctl(lower: &Arc<LowerFile>, command: u32, input: &[u8], output_max: u32) -> Result<Answer> {
    let output_max = usize::try_from(output_max).map_err(|_| Errno::INVAL)?;
    let mut data = input.to_vec();
    data.resize(data.len().max(output_max), 0);
    let result = file_ioctl(lower, command, &mut data).map_err(errno)?;
    data.truncate(if command & READS != 0 { output_max } else { 0 });
    Ok(Answer { result, data })
}
