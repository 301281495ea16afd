//! The few ioctls that make sense below; the list is the system layer's.

use std::sync::Arc;

use shuntfs::{Errno, LowerFile, NodeId, Result};

use crate::guard::{self, FlagsChange, Guard};
use crate::shared::Shared;
use crate::who::Who;

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

/// An ioctl's number and how much the caller can take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) number: u32,
    pub(crate) output_max: u32,
}

impl Command {
    /// Whether it is one that only asks.
    pub(crate) fn only_asks(self) -> bool {
        self.number & WRITES == 0
    }
}

/// IOCTL of an open file or folder whose lower file may be asked.
pub(crate) fn ioctl(
    shared: &Shared,
    who: Who,
    id: NodeId,
    lower: &Arc<LowerFile>,
    command: Command,
    input: &[u8],
) -> Result<Answer> {
    let output_max = usize::try_from(command.output_max).map_err(|_| Errno::INVAL)?;
    let mut data = input.to_vec();
    data.resize(data.len().max(output_max), 0);
    let result = if command.only_asks() {
        guard::ask(lower, command, &mut data)?
    } else {
        let node = &shared.node(id)?;
        Guard::new(shared, who).judge(FlagsChange { node })?.set(lower, command, &mut data)?
    };
    data.truncate(if command.number & READS != 0 { output_max } else { 0 });
    Ok(Answer { result, data })
}
