//! `shunt seal key new` and `shunt seal key show`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use shuntfs_seal::{Day, shown, split_key_file};
use shuntfs_verity::sign::{KeyError, KeyPair, PublicKey, is_encrypted};

use super::args::{KeyArgs, KeyWhat};
use super::files::{cannot, private_key, read_text, with_suffix};
use crate::failure::Failure;
use crate::run::output_failure;

/// Makes or shows a key.
///
/// # Errors
/// A file that is there already, cannot be written or read, or is no key.
pub(super) fn run(args: &KeyArgs, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.what {
        KeyWhat::New(args) => {
            if let Some(day) = args.expires.filter(|day| day.is_over(SystemTime::now())) {
                return Err(Failure::usage(format!("{day} is over: the key would never be trusted")));
            }
            let failed = |error: KeyError| Failure::new(error.to_string());
            let key = KeyPair::generate().map_err(failed)?;
            let secret = if args.encrypt {
                key.to_encrypted_pem(args.passphrase.of_new(&args.file)?.as_bytes()).map_err(failed)?
            } else {
                key.to_pem()
            };
            let public = with_suffix(&args.file, ".pub");
            let until = args.expires.map(|day| format!("expires = {day}\n")).unwrap_or_default();
            let text = until + &key.public().to_pem();
            // Never over a key that may be the only one to what was signed.
            write_new(&args.file, 0o600, secret.as_bytes())?;
            if let Err(failure) = write_new(&public, 0o644, text.as_bytes()) {
                drop(fs::remove_file(&args.file));
                return Err(failure);
            }
            say(out, &key.public(), args.expires)
        }
        KeyWhat::Show(args) => {
            let text = read_text(&args.file)?;
            let none = || Failure::new(format!("{} is no ed25519 key", shown(&args.file)));
            if is_encrypted(&text) {
                let key = private_key(&args.file, &args.passphrase)?;
                return say(out, &key.public(), None);
            }
            if let Ok(key) = KeyPair::from_pem(&text) {
                return say(out, &key.public(), None);
            }
            if !text.contains("-----BEGIN ") {
                return Err(none());
            }
            let failed = |why| Failure::new(format!("{}: {why}", shown(&args.file)));
            let (block, expires) = split_key_file(&text).map_err(failed)?;
            say(out, &PublicKey::from_pem(&block).map_err(|_| none())?, expires)
        }
    }
}

fn say(out: &mut dyn Write, key: &PublicKey, expires: Option<Day>) -> Result<(), Failure> {
    let until = expires.map(|day| format!(", expires after {day}")).unwrap_or_default();
    writeln!(out, "ed25519 {}{until}", key.id()).map_err(|error| output_failure(&error))
}

fn write_new(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| cannot("write", path, error);
    let mut file = File::options().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| {
        // A part of a key is none, and would be in the way of the next one.
        drop(fs::remove_file(path));
        failed(error)
    })
}
