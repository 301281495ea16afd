//! The server's memory, as the kernel reaches it: by address, with EFAULT where there is nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;

use shuntfs_sys::OsError;

/// The memory of this process, which the server shares.
#[derive(Debug)]
pub(super) struct Memory(File);

impl Memory {
    pub(super) fn new() -> Result<Self, OsError> {
        let file = File::options().read(true).write(true).open("/proc/self/mem");
        file.map(Self).map_err(|error| OsError::from_io_error(&error).unwrap_or(OsError::IO))
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), OsError> {
        self.0.write_all_at(bytes, address).map_err(|_| OsError::FAULT)
    }

    pub(super) fn read(&self, address: u64, len: usize) -> Result<Vec<u8>, OsError> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, address).map_err(|_| OsError::FAULT)?;
        Ok(bytes)
    }
}
