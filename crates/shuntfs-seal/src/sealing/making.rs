//! What runs that have not ended made in a store, written down before it is made: so that what a killed run leaves is
//! known as ours, and nothing else is ever removed.
//!
//! The file `making`, a line each:
//!
//! | line | what |
//! |---|---|
//! | `run ID` | a run, whose files in `staging/` start with the id |
//! | `seal HEX` | the manifest's descriptor of the seal that was there when a run started |
//! | `trees/HE/X..`, `manifests/HEX` | a file that was put into its place |
//!
//! Whoever can write the store can write lines: they name nothing but files of the store.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};

use parking_lot::Mutex;
use shuntfs_sys::OsError;
use shuntfs_verity::{Algorithm, DESCRIPTOR_LEN, Descriptor, Digest};

use super::home::Home;
use crate::new_file::NewFile;
use crate::store::{manifest_name, tree_name};
use crate::{Store, StoreError};

pub(super) const NAME: &CStr = c"making";
pub(super) const NEW_NAME: &CStr = c"making.new";
/// The longest list that is read: of some 50 million files.
const LEN_MAX: u64 = 4 << 30;
/// Longer than any line.
const LINE_LEN_MAX: u64 = 5 + 2 * DESCRIPTOR_LEN as u64 + 1;
/// Runs in a row that were killed and whose files are removed; what earlier ones left stays.
const RUNS_MAX: usize = 4096;

/// A line of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Made {
    Run(String),
    Seal(Box<Descriptor>),
    Tree(Digest),
    Manifest(Digest),
}

/// The list of this run, with what earlier ones left in it.
#[derive(Debug)]
pub(super) struct Making {
    file: Mutex<File>,
    /// Runs that did not end.
    pub(super) killed: Vec<String>,
}

impl Making {
    /// Goes on with the list of a store, for a run of this id over this seal.
    pub(super) fn start(
        home: &Home,
        store: &Store,
        run: &str,
        seal: Option<&Descriptor>,
    ) -> Result<Self, StoreError> {
        let failed = |error: OsError| StoreError::io(home.path().join("making"), error);
        match shuntfs_sys::unlink_at(&*home.folder(), NEW_NAME) {
            Err(error) if error != OsError::NOENT => return Err(failed(error)),
            _ => {}
        }
        let new = NewFile::start(home.folder(), NEW_NAME.to_owned(), 0o666).map_err(failed)?;
        let mut killed = Vec::new();
        let mut write = || -> io::Result<()> {
            let mut out = BufWriter::new(new.file());
            for_each(store, |made| {
                if let Made::Run(run) = &made
                    && killed.len() < RUNS_MAX
                {
                    killed.push(run.clone());
                }
                out.write_all(made.line().as_bytes())
            })?;
            out.write_all(Made::Run(run.to_owned()).line().as_bytes())?;
            if let Some(seal) = seal {
                out.write_all(Made::Seal(Box::new(*seal)).line().as_bytes())?;
            }
            out.flush()
        };
        write().map_err(|error| StoreError::io(home.path().join("making"), error))?;
        let file = new.keep(&*home.folder(), NAME).map_err(failed)?;
        Ok(Self { file: Mutex::new(file), killed })
    }

    /// Writes down what is about to be made.
    pub(super) fn add(&self, made: &Made) -> io::Result<()> {
        // The position is behind what was written before.
        (&*self.file.lock()).write_all(made.line().as_bytes())
    }
}

/// Calls `each` for what the list of a store says; lines that make no sense are left out, and a list that is too long is none.
pub(super) fn for_each(store: &Store, mut each: impl FnMut(Made) -> io::Result<()>) -> io::Result<()> {
    let Ok(file) = store.file("making") else { return Ok(()) };
    if file.metadata()?.len() > LEN_MAX {
        return Ok(());
    }
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = io::Read::take(&mut file, LINE_LEN_MAX);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if let Some(made) = line.strip_suffix(b"\n").and_then(Made::parse) {
            each(made)?;
        }
    }
}

impl Made {
    fn line(&self) -> String {
        match self {
            Self::Run(run) => format!("run {run}\n"),
            Self::Seal(descriptor) => {
                let digits: Vec<String> =
                    descriptor.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                format!("seal {}\n", digits.concat())
            }
            Self::Tree(digest) => format!("{}\n", tree_name(digest)),
            Self::Manifest(digest) => format!("{}\n", manifest_name(digest)),
        }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let made = if let Some(run) = line.strip_prefix("run ") {
            let is_id = run.len() == 16 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_id.then(|| Self::Run(run.to_owned()))?
        } else if let Some(digits) = line.strip_prefix("seal ") {
            Self::Seal(Box::new(Descriptor::parse(bytes_of(digits)?.as_slice().try_into().ok()?).ok()?))
        } else if let Some(name) = line.strip_prefix("trees/") {
            Self::Tree(digest_of(&name.replacen('/', "", 1))?)
        } else {
            Self::Manifest(digest_of(line.strip_prefix("manifests/")?)?)
        };
        // Only what is written as we write it.
        (made.line().strip_suffix('\n') == Some(line)).then_some(made)
    }
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if pairs.1.is_empty() { pairs.0.iter().map(byte).collect() } else { None }
}

fn digest_of(digits: &str) -> Option<Digest> {
    let bytes = bytes_of(digits)?;
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.digest_len() == bytes.len())?;
    Digest::new(algorithm, &bytes).ok()
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_verity::Params;

    #[test]
    fn lines_are_read_as_they_were_written_and_name_nothing_outside() {
        let sha256 = Digest::new(Algorithm::Sha256, &[0xab; 32]).unwrap();
        let sha512 = Digest::new(Algorithm::Sha512, &[7; 64]).unwrap();
        let descriptor = Descriptor::new(&Params::default(), 5, sha256).unwrap();
        for made in [
            Made::Run("0123456789abcdef".into()),
            Made::Seal(Box::new(descriptor)),
            Made::Tree(sha256),
            Made::Tree(sha512),
            Made::Manifest(sha512),
        ] {
            let line = made.line();
            assert!(line.len() as u64 <= LINE_LEN_MAX, "{line}");
            assert_eq!(Made::parse(line.trim_end().as_bytes()), Some(made));
        }
        let hex = "ab".repeat(32);
        for line in [
            String::new(),
            "run ../../etc".into(),
            "run 0123456789abcde/".into(),
            "seal 00".into(),
            format!("trees/{hex}"),
            format!("trees/../{hex}"),
            format!("trees/ab/../{hex}"),
            format!("trees/AB/{}", &hex[2..]),
            format!("manifests/{hex}/"),
            format!("manifests/{}", &hex[2..]),
            format!("/{hex}"),
            hex,
        ] {
            assert_eq!(Made::parse(line.as_bytes()), None, "{line}");
        }
    }
}
