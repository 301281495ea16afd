//! `shunt seal` and its commands: verify, show, digest, sign, key, trust.

mod args;
mod asked;
mod command;
mod detached;
mod digest;
mod document;
mod files;
mod kept;
mod key;
mod make;
mod passphrase;
mod show;
mod sign;
mod trust;
mod trusting;
mod verify;

pub use args::{
    DigestArgs, HashArgs, Ignored, KeyArgs, KeyFileArgs, KeyWhat, NewKeyArgs, SealArgs, SealCommand,
    SealWhat, ShowArgs, SignArgs, TrustAddArgs, TrustForgetArgs, TrustListArgs, TrustStoreArgs, TrustWhat,
    VerifyArgs,
};
pub(crate) use command::{HELP, run};
pub(crate) use kept::{InForce as SealsInForce, KeptSeal};
pub use passphrase::PassphraseArgs;
pub use trusting::TrustArgs;
pub(crate) use trusting::{Trusting, advice};
