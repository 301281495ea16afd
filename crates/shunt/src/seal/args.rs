//! What the commands of sealed files are told.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use shuntfs_seal::{Allowed, Day, TreeName};
use shuntfs_verity::{Algorithm, BlockSize, Digest, Params, Salt};

use super::passphrase::PassphraseArgs;
use super::trusting::TrustArgs;
use crate::failure::Failure;

/// How files are hashed.
#[derive(Debug, Args)]
pub struct HashArgs {
    /// The hash: sha256 or sha512.
    #[arg(long, value_name = "HASH", default_value = "sha256")]
    pub hash: Algorithm,
    /// Block size for data and tree: a power of two.
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = crate::units::small_size)]
    pub block_size: u32,
    /// Up to 32 bytes of salt for each block, in hexadecimal digits.
    #[arg(long, value_name = "HEX", default_value = "", hide_default_value = true)]
    pub salt: Salt,
}

impl HashArgs {
    /// What files can be sealed with.
    ///
    /// # Errors
    /// A block size that is not offered.
    pub fn for_sealing(&self) -> Result<Params, Failure> {
        let block_size = BlockSize::new(self.block_size);
        let params = block_size.and_then(|size| Params::new(self.hash, size, self.salt));
        params.map_err(|error| Failure::usage(error.to_string()))
    }

    /// What digests can be computed with, as `fsverity digest` takes it.
    ///
    /// # Errors
    /// A block size that nobody has.
    pub fn for_digest(&self) -> Result<Params, Failure> {
        let block_size = BlockSize::any(self.block_size, self.hash);
        let params = block_size.and_then(|size| Params::new(self.hash, size, self.salt));
        params.map_err(|error| Failure::usage(error.to_string()))
    }
}

/// Arguments of `shunt seal` and its commands.
#[derive(Debug, Args)]
pub struct SealCommand {
    /// What else to do.
    #[command(subcommand)]
    pub what: Option<SealWhat>,
    /// How to seal; empty if something else is done.
    #[command(flatten)]
    pub args: SealArgs,
}

/// What is done with seals, other than making them.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum SealWhat {
    /// Verifies sealed folders and files, and reports which blocks of which files differ.
    #[command(
        after_help = "Exit codes: 0 everything is as sealed, 1 something differs, is not sealed or not signed by a trusted key, \
        2 the command line is wrong."
    )]
    Verify(VerifyArgs),
    /// Shows the manifest of a sealed folder, and who signed it.
    Show(ShowArgs),
    /// Prints the fs-verity digests of files, like `fsverity digest`.
    Digest(DigestArgs),
    /// Signs the digest of a file, or a seal for another machine.
    Sign(SignArgs),
    /// Creates and shows keys.
    Key(KeyArgs),
    /// Manages a folder with trusted keys and the highest serials seen, for --trust-store.
    Trust(TrustStoreArgs),
}

/// Arguments of `shunt seal PATH...`.
#[derive(Debug, Args)]
pub struct SealArgs {
    /// Folders, each sealed with all its contents; or files, each sealed separately with a file FILE.fsv_meta. A folder that is called like a
    /// command: ./NAME.
    #[arg(value_name = "PATH", required = true, value_hint = clap::ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Signs with this key, created by `shunt seal key new`; may be repeated up to 16 times.
    #[arg(long, value_name = "KEY", value_hint = clap::ValueHint::FilePath)]
    pub key: Vec<PathBuf>,
    /// Where the passphrase of an encrypted key comes from.
    #[command(flatten)]
    pub passphrase: PassphraseArgs,
    /// Adds a signature made elsewhere (shunt seal sign --seal) to the existing seal, without sealing again; may be
    /// repeated. It must be by one of the keys given with --trust.
    #[arg(long, value_name = "SIG", value_hint = clap::ValueHint::FilePath, requires = "trust",
        conflicts_with_all = ["key", "unsigned", "enable", "rehash", "repair", "adopt", "tree"])]
    pub attach: Vec<PathBuf>,
    /// The key of an attached signature; may be repeated.
    #[arg(long, value_name = "KEY.pub", requires = "attach", value_hint = clap::ValueHint::FilePath)]
    pub trust: Vec<PathBuf>,
    /// The name of the tree, for checks by name [default: the folder's own name].
    #[arg(long, value_name = "NAME")]
    pub tree: Option<TreeName>,
    /// Stores trees and manifest of this tree in this folder instead of `.shunt` in the sealed folder.
    #[arg(long = "seal-store", alias = "store", value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub store: Option<PathBuf>,
    /// Allows an unsigned seal to replace a signed one.
    #[arg(long, conflicts_with = "key")]
    pub unsigned: bool,
    /// Hashes every file again, ignoring the records of earlier runs.
    #[arg(long)]
    pub rehash: bool,
    /// Also checks the hash trees in the store, and rebuilds damaged or missing ones.
    #[arg(long, conflicts_with = "rehash")]
    pub repair: bool,
    /// Takes over the store of another folder, whose seal is lost.
    #[arg(long)]
    pub adopt: bool,
    /// Accepts a store that users other than you and root can write: they can spoil it.
    #[arg(long)]
    pub shared_store: bool,
    /// How files are hashed.
    #[command(flatten)]
    pub hash: HashArgs,
    /// Turns on the kernel's own fs-verity where supported; the files can never be written again.
    #[arg(long)]
    pub enable: bool,
    /// Number of hashing threads [default: one per CPU].
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

impl SealArgs {
    /// What is done to a store that would be refused otherwise.
    pub(super) fn allowed(&self) -> Allowed {
        Allowed { unsigned: self.unsigned, adopt: self.adopt, shared: self.shared_store }
    }
}

/// Arguments of `shunt seal verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Sealed folders, or paths inside them; or files with a FILE.fsv_meta or a FILE.sig next to them.
    #[arg(value_name = "PATH", default_value = ".", value_hint = clap::ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Whose seals are accepted.
    #[command(flatten)]
    pub trust: TrustArgs,
    /// The store of the tree, if it is not `.shunt` in the folder; the first PATH is then the sealed folder, the others are inside it.
    #[arg(long = "seal-store", alias = "store", value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub store: Option<PathBuf>,
    /// Attributes that may differ, for copies that do not preserve them; comma-separated.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_enum)]
    pub ignore: Vec<Ignored>,
    /// How files that have only a FILE.sig were hashed.
    #[command(flatten)]
    pub hash: HashArgs,
    /// Number of hashing threads [default: one per CPU].
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Prints JSON, one object per line for each PATH.
    #[arg(long)]
    pub json: bool,
}

/// An attribute that may differ from what was sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[non_exhaustive]
pub enum Ignored {
    /// Permission bits.
    Mode,
    /// Owner and group.
    Owner,
    /// The mtime.
    Mtime,
    /// Extended attributes, including ACLs.
    Xattrs,
}

/// Arguments of `shunt seal show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A sealed folder.
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Whose seals are accepted.
    #[command(flatten)]
    pub trust: TrustArgs,
    /// The store of the tree, if it is not `.shunt` in the folder.
    #[arg(long = "seal-store", alias = "store", value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub store: Option<PathBuf>,
    /// Writes the data to sign to this file, for the machine with the key (shunt seal sign --seal).
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub to_sign: Option<PathBuf>,
    /// Lists every name with its digest.
    #[arg(long)]
    pub list: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `shunt seal digest`.
#[derive(Debug, Args)]
pub struct DigestArgs {
    /// The files.
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// How they are hashed.
    #[command(flatten)]
    pub hash: HashArgs,
    /// Prints only the hexadecimal digits.
    #[arg(long)]
    pub compact: bool,
    /// Prints the data that signatures cover, in hexadecimal digits.
    #[arg(long)]
    pub for_builtin_sig: bool,
    /// Writes the tree to this file; needs exactly one FILE.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub out_merkle_tree: Option<PathBuf>,
    /// Writes the descriptor to this file; needs exactly one FILE.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub out_descriptor: Option<PathBuf>,
}

/// Arguments of `shunt seal sign`.
#[derive(Debug, Args)]
pub struct SignArgs {
    /// The file.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// The key, created by `shunt seal key new`.
    #[arg(long, value_name = "KEY", value_hint = clap::ValueHint::FilePath)]
    pub key: PathBuf,
    /// Where the passphrase of an encrypted key comes from.
    #[command(flatten)]
    pub passphrase: PassphraseArgs,
    /// FILE was written by `shunt seal show --to-sign`: signs that seal.
    #[arg(long)]
    pub seal: bool,
    /// Signs only if this is the digest.
    #[arg(long, value_name = "HEX", value_parser = Digest::from_text)]
    pub digest: Option<Digest>,
    /// Where to write the signature [default: FILE.sig].
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// How it is hashed.
    #[command(flatten)]
    pub hash: HashArgs,
}

/// Arguments of `shunt seal key`.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: KeyWhat,
}

/// What to do with a key.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum KeyWhat {
    /// Creates a key: writes KEY, which must be kept secret, and KEY.pub, which may be published.
    New(NewKeyArgs),
    /// Prints the id of a key, private or public.
    Show(KeyFileArgs),
}

/// Arguments of `shunt seal key new`.
#[derive(Debug, Args)]
pub struct NewKeyArgs {
    /// The file.
    #[arg(value_name = "KEY", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// The last day (UTC) on which KEY.pub is trusted; written to KEY.pub, where the person who trusts the key may change it.
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub expires: Option<Day>,
    /// Protects KEY with a passphrase (PKCS #8 with PBES2), which is needed for each signature.
    #[arg(long)]
    pub encrypt: bool,
    /// Where the passphrase comes from.
    #[command(flatten)]
    pub passphrase: PassphraseArgs,
}

/// A file with a key.
#[derive(Debug, Args)]
pub struct KeyFileArgs {
    /// The file.
    #[arg(value_name = "KEY", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// Where the passphrase of an encrypted key comes from.
    #[command(flatten)]
    pub passphrase: PassphraseArgs,
}

/// Arguments of `shunt seal trust`.
#[derive(Debug, Args)]
pub struct TrustStoreArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: TrustWhat,
}

/// What to do with a trust store.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum TrustWhat {
    /// Adds keys to a trust store, creating it if necessary.
    Add(TrustAddArgs),
    /// Shows its keys, and the highest serial seen of each tree.
    List(TrustListArgs),
    /// Forgets the serial of a tree, so that an older seal of it is accepted again.
    Forget(TrustForgetArgs),
}

/// Arguments of `shunt seal trust add`.
#[derive(Debug, Args)]
pub struct TrustAddArgs {
    /// The folder, for example /var/lib/shunt/trust.
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Public keys.
    #[arg(value_name = "KEY.pub", required_unless_present = "threshold", value_hint = clap::ValueHint::FilePath)]
    pub keys: Vec<PathBuf>,
    /// How many of the keys must have signed a seal [default: 1, or unchanged].
    #[arg(long, value_name = "N")]
    pub threshold: Option<NonZeroUsize>,
}

/// Arguments of `shunt seal trust list`.
#[derive(Debug, Args)]
pub struct TrustListArgs {
    /// The folder.
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `shunt seal trust forget`.
#[derive(Debug, Args)]
pub struct TrustForgetArgs {
    /// The folder.
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
    /// The tree's name.
    #[arg(value_name = "TREE")]
    pub tree: TreeName,
}
