//! The commands of sealed files: seal, verify, show, digest, sign, key.

mod args;
mod asked;
mod bar;
mod detached;
mod digest;
mod document;
mod files;
mod key;
mod make;
mod passphrase;
mod show;
mod sign;
mod trust;
mod trusting;
mod verify;

pub use args::{
    DigestArgs, HashArgs, Ignored, KeyArgs, KeyFileArgs, KeyWhat, NewKeyArgs, SealArgs, ShowArgs, SignArgs,
    TrustAddArgs, TrustForgetArgs, TrustListArgs, TrustStoreArgs, TrustWhat, VerifyArgs,
};
pub(crate) use digest::run as digest;
pub(crate) use key::run as key;
pub(crate) use make::run as seal;
pub use passphrase::PassphraseArgs;
pub(crate) use show::run as show;
pub(crate) use sign::run as sign;
pub(crate) use trust::run as trust;
pub use trusting::TrustArgs;
pub(crate) use trusting::{Trusting, advice};
pub(crate) use verify::run as verify;
