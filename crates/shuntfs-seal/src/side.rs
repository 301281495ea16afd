//! Single files, sealed without a store: a side file `FILE.fsv_meta`, in the form that Android's authfs reads.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | version, 1 |
//! | 4 | 256 | descriptor |
//! | 260 | 4 | kind of the signature: 0 none, 1 PKCS #7, 2 raw (here ed25519) |
//! | 264 | 4 | its length |
//! | 268 | | the signature, over the formatted digest |
//! | next multiple of 4096 | | the tree |
//!
//! Little endian.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use shuntfs_sys::{OsError, regular, stat_of};
use shuntfs_verity::sign::{KeyPair, PublicKey, Signature};
use shuntfs_verity::{DESCRIPTOR_LEN, Descriptor, Params, Shape, TreeSink, build_at};

use crate::sealing::settle;
use crate::spread::Counted;
use crate::store::read_full;
use crate::walk::State;
use crate::{Named, Progress, SealError, StoreError, Trust};

const SUFFIX: &str = ".fsv_meta";
const VERSION: u32 = 1;
const HEAD_LEN: usize = 12 + DESCRIPTOR_LEN;
const TREE_ALIGN: u64 = 4096;
const RAW: u32 = 2;
/// The longest signature that the kernel takes with a file.
const SIGNATURE_LEN_MAX: usize = 16128;

/// What is kept beside a single sealed file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Side {
    /// Where it is.
    pub path: PathBuf,
    /// Size, parameters and root hash of the file.
    pub descriptor: Descriptor,
    /// Kind and bytes of the signature, unchecked.
    pub signature: Option<(u32, Vec<u8>)>,
    /// The side file itself, and where its tree starts.
    pub(crate) tree: (File, u64),
}

impl Side {
    /// The side file of a file.
    #[must_use]
    pub fn path_of(file: &Path) -> PathBuf {
        let mut name = OsString::from(file);
        name.push(SUFFIX);
        name.into()
    }

    /// Reads the side file of a file, and believes none of it.
    ///
    /// # Errors
    /// [`StoreError::NotSealed`] where there is none; it cannot be read, or is not what it must be.
    pub fn open(file: &Path) -> Result<Self, StoreError> {
        let path = Self::path_of(file);
        let side = match regular::open(&path) {
            Err(error) if error.errno() == OsError::NOENT => {
                return Err(StoreError::NotSealed(file.to_owned()));
            }
            side => side.map_err(|error| StoreError::io(&path, error))?,
        };
        let found = side.metadata().map_err(|error| StoreError::io(&path, error))?;
        let mut bytes = vec![0; HEAD_LEN + SIGNATURE_LEN_MAX];
        let len = read_full(&side, &mut bytes).map_err(|error| StoreError::io(&path, error))?;
        bytes.truncate(len);
        let (descriptor, signature, head_len) =
            parse(&bytes).map_err(|why| StoreError::broken(&path, why))?;
        let shape = Shape::new(descriptor.params(), descriptor.file_size());
        let shape = shape.map_err(|error| StoreError::broken(&path, error.to_string()))?;
        let start = head_len.next_multiple_of(TREE_ALIGN);
        if shape.levels() > 0 && Some(found.len()) != start.checked_add(shape.tree_len()) {
            return Err(StoreError::broken(path, "its tree was truncated or grown"));
        }
        Ok(Self { path, descriptor, signature, tree: (side, start) })
    }

    /// Checks that it is of the digest that is asked for, and signed by one of the keys that are. A side file has one signature, no
    /// name and no serial: where more is asked for, it has not what it must.
    ///
    /// # Errors
    /// There is no signature, one of another kind, or none of these keys'; it is of another digest.
    pub fn check(&self, trust: &Trust) -> Result<(), StoreError> {
        let found = self.descriptor.digest();
        if let Some(wanted) = trust.digest().filter(|wanted| **wanted != found) {
            let (wanted, found) = (Box::new(*wanted), Box::new(found));
            return Err(StoreError::Pinned { path: self.path.clone(), wanted, found });
        }
        let Some(keys) = trust.trusted_keys() else { return Ok(()) };
        self.check_signature(keys)?;
        trust.check_single(&self.path)
    }

    fn check_signature(&self, keys: &[PublicKey]) -> Result<(), StoreError> {
        let (kind, bytes) = self.signature.as_ref().ok_or_else(|| StoreError::Unsigned(self.path.clone()))?;
        let signature = <[u8; Signature::LEN]>::try_from(bytes.as_slice()).ok().filter(|_| *kind == RAW);
        let Some(signature) = signature.map(Signature) else {
            return Err(StoreError::broken(&self.path, "a signature that is no raw ed25519"));
        };
        let digest = self.descriptor.digest();
        if keys.iter().any(|key| key.verify_digest(&digest, &signature).is_ok()) {
            return Ok(());
        }
        Err(StoreError::Untrusted { path: self.path.clone(), signers: "some key".into() })
    }
}

/// Seals a single file: writes its side file, which takes the place of an older one when it is whole.
///
/// # Errors
/// The file cannot be read, or changed meanwhile; the side file cannot be written.
pub fn seal_file(
    file: &Path,
    params: &Params,
    key: Option<&KeyPair>,
    jobs: NonZeroUsize,
    progress: &dyn Progress,
) -> Result<Descriptor, SealError> {
    let read = |error: io::Error| SealError::read(file.to_owned(), error);
    let named = Named::find(file).map_err(read)?;
    let data = named.open().map_err(|error| read(error.into()))?;
    let state = || stat_of(&data).map(|stat| State::of(&stat)).map_err(|error| read(error.into()));
    let before = state()?;
    settle(before.ctime);
    progress.to_hash(1, before.size);
    let path = Side::path_of(file);
    let failed = |error| SealError::from(StoreError::io(&path, error));
    let signature_len = if key.is_some() { Signature::LEN } else { 0 };
    let start = ((HEAD_LEN + signature_len) as u64).next_multiple_of(TREE_ALIGN);
    let side = named.with_suffix(SUFFIX).start(&data).map_err(failed)?;
    let source = Counted { file: &data, progress };
    let built = build_at(params, before.size, &source, At { file: side.file(), start }, jobs);
    let descriptor = built.map_err(|error| SealError::build(file.to_owned(), path.clone(), error))?;
    if state()? != before {
        return Err(SealError::changed(file.to_owned()));
    }
    side.file().write_all_at(&head(&descriptor, key), 0).map_err(failed)?;
    side.keep().map_err(failed)?;
    progress.file_done();
    Ok(descriptor)
}

/// A tree behind a head.
struct At<'a> {
    file: &'a File,
    start: u64,
}

impl TreeSink for At<'_> {
    fn put(&mut self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        self.file.write_all_at(blocks, self.start + offset)
    }
}

fn head(descriptor: &Descriptor, key: Option<&KeyPair>) -> Vec<u8> {
    let signature = key.map(|key| key.sign_digest(&descriptor.digest()).0);
    let signature = signature.as_ref().map_or(&[][..], |signature| signature);
    let kind = if signature.is_empty() { 0 } else { RAW };
    let len = u32::try_from(signature.len()).expect("64 bytes");
    let mut head = VERSION.to_le_bytes().to_vec();
    head.extend_from_slice(&descriptor.to_bytes());
    head.extend_from_slice(&kind.to_le_bytes());
    head.extend_from_slice(&len.to_le_bytes());
    head.extend_from_slice(signature);
    head
}

type Parsed = (Descriptor, Option<(u32, Vec<u8>)>, u64);

fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    let truncated = "it is truncated";
    let (version, rest) = bytes.split_first_chunk::<4>().ok_or(truncated)?;
    let (descriptor, rest) = rest.split_first_chunk::<DESCRIPTOR_LEN>().ok_or(truncated)?;
    let (kind, rest) = rest.split_first_chunk::<4>().ok_or(truncated)?;
    let (len, rest) = rest.split_first_chunk::<4>().ok_or(truncated)?;
    let (version, kind) = (u32::from_le_bytes(*version), u32::from_le_bytes(*kind));
    if version != VERSION {
        return Err(format!("it has version {version}, and only version 1 is known"));
    }
    let descriptor = Descriptor::parse(descriptor).map_err(|error| format!("the descriptor: {error}"))?;
    if !descriptor.params().block_size().is_for_sealing() {
        return Err("the descriptor: a block size that is not offered".into());
    }
    let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
    if len > SIGNATURE_LEN_MAX || (kind == 0) != (len == 0) {
        return Err("its signature has no such length".into());
    }
    let signature = rest.get(..len).ok_or(truncated)?;
    Ok((descriptor, (kind != 0).then(|| (kind, signature.to_vec())), (HEAD_LEN + len) as u64))
}
