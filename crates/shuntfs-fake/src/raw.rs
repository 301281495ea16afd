//! Single requests as they are: any operation, any bytes, in any order.

use std::sync::Arc;

use shuntfs_wire::{Errno, InHeader, InterruptIn, Opcode};
use zerocopy::{FromBytes, IntoBytes};

use crate::kernel::{Caller, Kernel};
use crate::process::Process;

/// A request that was sent and may not be answered yet.
#[derive(Debug)]
pub struct Pending {
    kernel: Arc<Kernel>,
    caller: Caller,
    unique: u64,
}

impl Process {
    /// Sends one request and waits for its answer, whose body is given back. That it is answered once and with a legal
    /// length is checked; what it says is not in the books: nodes and open files that it tells of are the test's.
    ///
    /// # Errors
    /// That of the answer; ENOTCONN where the server is gone.
    pub fn ask(&self, opcode: Opcode, node: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
        self.kernel.books().has_raw = true;
        self.kernel.ask(self.caller, (opcode, node), &[body])
    }

    /// Sends one request and does not wait. Those that have no answer (FORGET ...) are sent so, too, and never waited for.
    ///
    /// # Errors
    /// ENOTCONN where the server is gone, EMSGSIZE for one that is too long.
    pub fn start(&self, opcode: u32, node: u64, body: &[u8]) -> Result<Pending, Errno> {
        self.kernel.books().has_raw = true;
        let unique = self.kernel.send(self.caller, (opcode, node), body)?;
        Ok(Pending { kernel: Arc::clone(&self.kernel), caller: self.caller, unique })
    }

    /// Sends a recorded request, or what is left of one, with a number of this connection: its header is trusted in all
    /// else, whatever it says. `None` where there is not even a header.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn replay(&self, frame: &[u8]) -> Result<Option<Pending>, Errno> {
        let Ok((header, body)) = InHeader::read_from_prefix(frame) else {
            self.kernel.push_raw(frame)?;
            return Ok(None);
        };
        let mut books = self.kernel.books();
        books.has_raw = true;
        let unique = books.requests.begin(header.opcode, body);
        drop(books);
        let header = InHeader { unique, ..header };
        self.kernel.post(unique, &[header.as_bytes(), body].concat())?;
        Ok(Some(Pending { kernel: Arc::clone(&self.kernel), caller: self.caller, unique }))
    }
}

impl Pending {
    /// The request's number.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Waits for the answer; that of a request which has none is empty, and there at once.
    ///
    /// # Errors
    /// That of the answer.
    pub fn wait(self) -> Result<Vec<u8>, Errno> {
        self.kernel.wait(self.unique)
    }

    /// The caller got a signal: INTERRUPT is sent.
    ///
    /// # Errors
    /// ENOTCONN where the server is gone.
    pub fn interrupt(&self) -> Result<(), Errno> {
        let number = self.kernel.books().requests.number(self.unique);
        let arg = InterruptIn { unique: number };
        let unique = number | shuntfs_wire::abi::UNIQUE_INTERRUPT;
        self.kernel.push(unique, self.caller, (Opcode::Interrupt.number(), 0), arg.as_bytes())
    }
}
