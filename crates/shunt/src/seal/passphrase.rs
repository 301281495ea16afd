//! Passphrases of private keys: from the terminal, a file or a descriptor.

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use shuntfs_sys::regular;
use shuntfs_verity::sign::Zeroizing;

use super::files::cannot;
use crate::failure::Failure;

/// The longest passphrase.
const LEN_MAX: u64 = 4096;

/// Where the passphrase of an encrypted key comes from; the terminal where nothing is said.
#[derive(Clone, Debug, Default, Args)]
pub struct PassphraseArgs {
    /// Reads the passphrase of an encrypted KEY from the first line of this file.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub passphrase_file: Option<PathBuf>,
    /// Reads it from the first line of this open file descriptor, such as a pipe.
    #[arg(long, value_name = "N", conflicts_with = "passphrase_file")]
    pub passphrase_fd: Option<u32>,
}

impl PassphraseArgs {
    /// The passphrase of a key that is there.
    pub(super) fn of(&self, key: &Path) -> Result<Zeroizing<String>, Failure> {
        self.read(&format!("Passphrase of {}: ", shuntfs_seal::shown(key)))
    }

    /// One for a new key: what is typed is asked for twice.
    pub(super) fn of_new(&self, key: &Path) -> Result<Zeroizing<String>, Failure> {
        let first = self.of(key)?;
        if first.is_empty() {
            return Err(Failure::new("an empty passphrase protects nothing"));
        }
        if self.passphrase_file.is_none() && self.passphrase_fd.is_none() && self.read("Again: ")? != first {
            return Err(Failure::new("the second one was another passphrase"));
        }
        Ok(first)
    }

    fn read(&self, prompt: &str) -> Result<Zeroizing<String>, Failure> {
        if let Some(path) = &self.passphrase_file {
            let file = regular::open(path).map_err(|error| cannot("read", path, error))?;
            return first_line(&file).map_err(|error| cannot("read", path, error));
        }
        if let Some(number) = self.passphrase_fd {
            // Whoever started us decided what it is, and waits with us for what comes.
            let path = PathBuf::from(format!("/dev/fd/{number}"));
            let file = File::open(&path).map_err(|error| cannot("read", &path, error))?;
            return first_line(&file).map_err(|error| cannot("read", &path, error));
        }
        if !std::io::stdin().is_terminal() {
            return Err(Failure::new(
                "the key is encrypted, and there is no terminal to ask for its passphrase",
            )
            .hint("--passphrase-file FILE, or --passphrase-fd N"));
        }
        let typed = rpassword::prompt_password(prompt);
        typed.map(Zeroizing::new).map_err(|error| Failure::new(format!("no passphrase: {error}")))
    }
}

fn first_line(file: &File) -> std::io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    file.take(LEN_MAX + 1).read_to_string(&mut text)?;
    let line = text.split('\n').next().unwrap_or_default();
    if line.len() as u64 > LEN_MAX {
        return Err(std::io::Error::other("the passphrase has more than 4096 bytes"));
    }
    Ok(Zeroizing::new(line.strip_suffix('\r').unwrap_or(line).to_owned()))
}
