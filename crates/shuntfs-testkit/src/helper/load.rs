//! A process that works in a folder without a pause, and notices when what it wrote is not what it reads.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{said, word};
use crate::conformance::errno_name;

/// `load FOLDER SECONDS`: creates, writes, reads back, renames, lists and removes files until an error or the end.
///
/// Says `started`, and at the end `done ROUNDS` or `stopped ERRNO after ROUNDS`. Wrong bytes are said as an error.
pub(super) fn serve(words: &[OsString]) -> Result<()> {
    let folder = Path::new(word(words, 0)?).to_owned();
    let seconds: u64 = word(words, 1)?.to_str().context("seconds")?.parse()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    said("started");
    let mut rounds = 0_u64;
    while Instant::now() < end {
        if let Err(error) = round(&folder, rounds) {
            let cause = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
            let Some(code) = cause else { return Err(error) };
            said(&format!("stopped {} after {rounds}", errno_name(code)));
            return Ok(());
        }
        rounds += 1;
    }
    said(&format!("done {rounds}"));
    Ok(())
}

fn round(folder: &Path, number: u64) -> Result<()> {
    let (one, other) = (folder.join(format!("a{}", number % 7)), folder.join(format!("b{}", number % 7)));
    let bytes: Vec<u8> = number.to_le_bytes().repeat(2000);
    let mut file = File::create(&one)?;
    file.write_all(&bytes)?;
    drop(file);
    fs::rename(&one, &other)?;
    let read = fs::read(&other)?;
    ensure!(read == bytes, "round {number}: {} bytes written, other {} bytes read", bytes.len(), read.len());
    for entry in fs::read_dir(folder)? {
        entry?;
    }
    if number.is_multiple_of(3) {
        fs::remove_file(&other)?;
    }
    Ok(())
}
