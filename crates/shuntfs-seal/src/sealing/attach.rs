//! Signatures that were made elsewhere, put into a seal.

use std::path::Path;

use shuntfs_verity::sign::{PublicKey, Signature};

use super::error::SealError;
use super::home::{Allowed, Home};
use super::stage::Stage;
use crate::walk::Top;
use crate::{Seal, Store, StoreError};

/// Adds signatures to a folder's seal, each by one of these keys; all or none. Returns the seal.
///
/// # Errors
/// There is no seal; a signature is not any of these keys' over it; the store cannot be written.
pub fn attach(
    folder: &Path,
    store: Option<&Path>,
    (keys, signatures): (&[PublicKey], &[Signature]),
    allowed: Allowed,
) -> Result<Seal, SealError> {
    // Not to make a store where there is none.
    let place = store.map_or_else(|| Store::beside(folder), Path::to_owned);
    Store::open(&place)?.seal()?;
    let top = Top::open(folder).map_err(|error| SealError::read(folder.to_owned(), error))?;
    let stage = Stage::open(Home::open(&top, folder, store, allowed)?)?;
    // Read under the lock: another one may be sealing.
    let mut seal = stage.store().seal()?;
    for signature in signatures {
        let good = keys.iter().find(|key| key.verify_message(&seal.message(), signature).is_ok());
        let broken = |why: String| StoreError::broken(stage.store().seal_path(), why);
        let key = good.ok_or_else(|| {
            broken(
                "a signature is not by any of these keys over this seal; was it sealed again meanwhile?"
                    .into(),
            )
        })?;
        seal.attach(key, *signature).map_err(broken)?;
    }
    stage.replace(c"seal", &seal.to_bytes())?;
    stage.check_place()?;
    Ok(seal)
}
