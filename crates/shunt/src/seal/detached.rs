//! Signing on another machine: what is carried there, and what comes back.

use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use shuntfs_seal::{Seal, Store, ToSign, attach, shown};
use shuntfs_sys::regular;
use shuntfs_verity::sign::Signature;

use super::args::{SealArgs, ShowArgs, SignArgs};
use super::digest::{find, write};
use super::document;
use super::files::{cannot, private_key};
use super::sign::{open, place_of};
use super::trusting::TrustArgs;
use crate::failure::Failure;
use crate::json;
use crate::run::{complain, output_failure};

/// `shunt seal show --to-sign`: writes what is signed of a seal.
///
/// # Errors
/// The seal has no serial, or the file cannot be written.
pub(super) fn hand_out(args: &ShowArgs, store: &Store, seal: &Seal) -> Result<(), Failure> {
    let Some(path) = &args.to_sign else { return Ok(()) };
    if seal.issue().is_none() {
        return Err(
            Failure::new("an older shunt made this seal, without name and serial").hint("seal it again")
        );
    }
    let place = store.seal_path();
    let file = regular::open(&place).map_err(|error| cannot("read", &place, error))?;
    write(&find(path)?, path, &file, seal.message().as_bytes())
}

/// `shunt seal sign --seal`: signs what was carried here, and says what it is.
///
/// # Errors
/// It is something else, or not of the digest that was told; the signature cannot be written.
pub(super) fn sign(args: &SignArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let (named, file) = open(args)?;
    let bytes = regular::read_all(&file, ToSign::LEN_MAX as u64);
    let bytes = bytes.map_err(|error| cannot("read", &args.file, error))?;
    let refused = |why: &str| Failure::new(format!("{}: {why}", shown(&args.file)));
    let to_sign = ToSign::parse(&bytes).map_err(|why| refused(&why))?;
    if let Some(told) = args.digest.filter(|told| *told != to_sign.digest) {
        return Err(refused(&format!("it is of {}, and not of {told}; nothing is signed", to_sign.digest)));
    }
    if to_sign.issue.is_far_ahead_of(SystemTime::now()) {
        complain(&format!(
            "shunt: serial {} is far in the future: no seal with a lower one will be taken after it",
            to_sign.issue.serial
        ));
    }
    let key = private_key(&args.key, &args.passphrase)?;
    let (place, path) = place_of(args, &named)?;
    write(&place, &path, &file, &key.sign_message(&to_sign.message()).0)?;
    let said = format!(
        "{}: key {} over {}, tree {}, serial {}",
        shown(&path),
        key.public().id(),
        to_sign.digest,
        to_sign.issue.tree,
        to_sign.issue.serial
    );
    writeln!(out, "{said}").map_err(|error| output_failure(&error))
}

/// `shunt seal --attach`: adds signatures that were made elsewhere.
///
/// # Errors
/// One is no signature by any of the keys over this seal; the seal cannot be written.
pub(super) fn attach_to(args: &SealArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let [folder] = args.paths.as_slice() else {
        return Err(Failure::usage("signatures are attached to one folder's seal"));
    };
    let trusting = TrustArgs { trust: args.trust.clone(), ..TrustArgs::default() }.read()?;
    let keys = trusting.trust.trusted_keys().unwrap_or_default();
    let read = |path: &std::path::PathBuf| {
        let bytes = regular::read_to_end(path, 4096).map_err(|error| cannot("read", path, error))?;
        let raw = <[u8; Signature::LEN]>::try_from(bytes.as_slice());
        raw.map(Signature).map_err(|_| Failure::new(format!("{} is no signature of 64 bytes", shown(path))))
    };
    let signatures = args.attach.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let seal = attach(folder, args.store.as_deref(), (keys, &signatures), args.allowed())
        .map_err(|error| Failure::new(format!("{}: {error}", shown(folder))))?;
    say(args, folder, &seal, out)
}

fn say(args: &SealArgs, folder: &Path, seal: &Seal, out: &mut dyn Write) -> Result<(), Failure> {
    let ids: Vec<String> = seal.signatures().iter().map(|one| one.key.to_string()).collect();
    let digest = seal.descriptor().digest();
    let said = if args.json {
        let mut document = document::of(folder);
        document.insert("digest".into(), digest.to_string().into());
        document.insert("signed_by".into(), ids.into());
        document.insert("serial".into(), seal.serial().into());
        json::line(&document)?
    } else {
        format!("{}: {digest}, signed by {}", shown(folder), ids.join(", "))
    };
    writeln!(out, "{said}").map_err(|error| output_failure(&error))
}
