//! `shunt seal verify`: folders against their manifests, files against what is beside them.

use std::collections::BTreeSet;
use std::io::{Read as _, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use shuntfs_seal::{
    Attribute, Checking, Fault, Finding, Shown, Side, Store, Trust, Verified, shown, verify_file, verify_tree,
};
use shuntfs_sys::regular;
use shuntfs_verity::sign::pkcs7::Certificate;
use shuntfs_verity::sign::{PublicKey, Signature, pkcs7};
use shuntfs_verity::{Digest, Discard};

use super::args::{Ignored, VerifyArgs};
use super::asked::{What, asked};
use super::digest::{describe, open};
use super::document;
use super::files::{cannot, counted, jobs, with_suffix};
use super::trusting::{Trusting, advice, taken};
use crate::bar::Bar;
use crate::failure::{Failure, Kind};
use crate::run::{complain, output_failure};

/// What all of them come to.
#[derive(Default)]
struct Sum {
    /// Lines on what differs.
    differ: u64,
    /// What could not be looked at, or is not trusted.
    refused: Vec<String>,
    /// Attributes that differ and could be left out; `None` once something else differs.
    attributes: Option<BTreeSet<&'static str>>,
}

/// How many differ, or why nothing can be said.
type Said = Result<u64, String>;

/// One command: what was typed, whose word is taken, and where it is said.
struct Verifying<'a> {
    args: &'a VerifyArgs,
    trusting: &'a Trusting,
    out: &'a mut dyn Write,
    sum: Sum,
}

/// Verifies folders and files.
///
/// # Errors
/// Something differs from what was sealed, is not sealed, or not signed by whom it should.
pub(super) fn run(args: &VerifyArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let trusting = args.trust.read()?;
    trusting.notes.iter().for_each(|note| complain(&format!("shunt: {note}")));
    let all = asked(args)?;
    let has_signature = all.iter().find(|asked| matches!(asked.what, What::Signature));
    if let Some(asked) = has_signature.filter(|_| !trusting.trust.is_authentic()) {
        let why = format!("{} says nothing without a key", shown(&with_suffix(&asked.path, ".sig")));
        return Err(Failure::usage(why).hint("add --trust KEY.pub, or --trust CERT.pem"));
    }
    let sum = Sum { attributes: Some(BTreeSet::new()), ..Sum::default() };
    let mut verifying = Verifying { args, trusting: &trusting, out, sum };
    for asked in &all {
        let said = match &asked.what {
            What::Tree { root, only } => verifying.tree(&asked.path, root, only)?,
            What::Side => verifying.side(&asked.path)?,
            What::Signature => verifying.signature(&asked.path)?,
            What::Nothing(why) => Err(why.clone()),
        };
        match said {
            Ok(differ) => verifying.sum.differ += differ,
            Err(why) => verifying.refuse(&asked.path, why)?,
        }
    }
    verifying.sum.end()
}

impl Sum {
    fn end(self) -> Result<(), Failure> {
        let differ = match self.differ {
            1 => "1 is not as sealed".to_owned(),
            differ => format!("{differ} are not as sealed"),
        };
        match (self.differ, self.refused.as_slice()) {
            (0, []) => Ok(()),
            (0, [refused]) => Err(Failure::new(refused.as_str())),
            (0, refused) => {
                let count = refused.len();
                Err(Failure::new(format!("{count} cannot be verified")).details(self.refused))
            }
            (_, _) => {
                let failure = Failure::new(differ).details(self.refused);
                let words: Vec<&str> = self.attributes.into_iter().flatten().collect();
                if words.is_empty() {
                    return Err(failure);
                }
                Err(failure
                    .hint(format!("only attributes differ: --ignore {} leaves them out", words.join(","))))
            }
        }
    }

    /// Takes note of what differs: whether it could be left out.
    fn add(&mut self, fault: &Fault) {
        let words: Option<Vec<&'static str>> = match fault {
            Fault::Metadata(all) => all
                .iter()
                .map(|one| ignorable(one.attribute).map(|_| document::word(one.attribute)))
                .collect(),
            _ => None,
        };
        self.attributes = match (self.attributes.take(), words) {
            (Some(mut known), Some(words)) => {
                known.extend(words);
                Some(known)
            }
            _ => None,
        };
    }
}

/// What leaves an attribute out.
fn ignorable(attribute: Attribute) -> Option<Ignored> {
    match attribute {
        Attribute::Mode => Some(Ignored::Mode),
        Attribute::Owner => Some(Ignored::Owner),
        Attribute::Mtime => Some(Ignored::Mtime),
        Attribute::Xattr => Some(Ignored::Xattrs),
        _ => None,
    }
}

impl Verifying<'_> {
    fn tree(&mut self, path: &Path, root: &Path, only: &[Vec<u8>]) -> Result<Said, Failure> {
        let trust = &self.trusting.trust;
        let bar = Bar::start("verifying");
        let checking = Checking {
            folder: root,
            store: self.args.store.clone(),
            trust,
            only: only.to_vec(),
            jobs: jobs(self.args.jobs),
        };
        let verified = verify_tree(&checking, &bar);
        drop(bar);
        let mut verified = match verified {
            Ok(verified) => verified,
            Err(error) => {
                let advice = advice(&error).map(|advice| format!(" ({advice})")).unwrap_or_default();
                return Ok(Err(format!("{error}{advice}")));
            }
        };
        if let Some(note) = verified.manifest.note() {
            complain(&format!("shunt: {note}"));
        }
        if !verified.manifest.is_authentic() {
            note_others(&self.args.store.clone().unwrap_or_else(|| Store::beside(root)));
        }
        leave_out(&mut verified.findings, &self.args.ignore);
        verified.findings.iter().for_each(|finding| self.sum.add(&finding.fault));
        let said = if self.args.json {
            document::line(document::tree(path, root, &verified))?
        } else {
            tree_in_words(root, &verified, trust)
        };
        self.write(&said)?;
        Ok(Ok(verified.findings.len() as u64))
    }

    fn side(&mut self, file: &Path) -> Result<Said, Failure> {
        let trust = &self.trusting.trust;
        let side = Side::open(file).and_then(|side| side.check(trust).map(|()| side));
        let bar = Bar::start("verifying");
        let fault = side.and_then(|side| {
            let fault = verify_file(file, &side, jobs(self.args.jobs), &bar)?;
            Ok((side.descriptor, fault))
        });
        drop(bar);
        let (descriptor, fault) = match fault {
            Ok(found) => found,
            Err(error) => return Ok(Err(error.to_string())),
        };
        fault.iter().for_each(|fault| self.sum.add(fault));
        let said = fault.as_ref().map_or_else(|| "as sealed".to_owned(), Fault::to_string);
        let (digest, bytes) = (descriptor.digest(), descriptor.file_size());
        self.say(file, &said, || document::file(file, &digest, bytes, trust.is_authentic(), fault.as_ref()))?;
        Ok(Ok(u64::from(fault.is_some())))
    }

    fn signature(&mut self, file: &Path) -> Result<Said, Failure> {
        let checked = self.check_signature(file);
        let (digest, bytes) = match checked {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => return Ok(Err(why)),
            // A wrong command line is wrong for all of them.
            Err(failure) if failure.kind() == Kind::Usage => return Err(failure),
            Err(failure) => return Ok(Err(failure.to_string())),
        };
        let is_signed = self.trusting.trust.trusted_keys().is_some();
        let how = if is_signed { "signed by a trusted key" } else { "the digest that is asked for" };
        self.say(file, &format!("{digest}, {how}"), || document::file(file, &digest, bytes, true, None))?;
        Ok(Ok(0))
    }

    /// The digest and the length of a file whose signature is taken, or why it is not.
    fn check_signature(&self, file: &Path) -> Result<Result<(Digest, u64), String>, Failure> {
        let path = with_suffix(file, ".sig");
        let trust = &self.trusting.trust;
        if trust.threshold().get() > 1 {
            let path = shown(&path);
            return Ok(Err(format!("{path} is one signature, and {} are needed", trust.threshold())));
        }
        let bytes = read_signature(&path)?;
        let descriptor = describe(file, &open(file)?, &self.args.hash.for_digest()?, Discard)?;
        let digest = descriptor.digest();
        let refused = match (trust.digest(), trust.trusted_keys()) {
            (Some(pinned), _) if *pinned != digest => Some(format!("{pinned} is asked for")),
            (_, None) => None,
            (_, Some(keys)) => check_signature(&bytes, &digest, keys, &self.trusting.certificates),
        };
        Ok(match refused {
            Some(why) => Err(format!("{}: {why} ({digest})", shown(&path))),
            None => Ok((digest, descriptor.file_size())),
        })
    }

    /// Nothing can be said of a path: goes to standard error in words, and in JSON beside the others.
    fn refuse(&mut self, path: &Path, why: String) -> Result<(), Failure> {
        if self.args.json {
            let mut document = document::of(path);
            document.insert("error".into(), why.as_str().into());
            self.write(&document::line(document)?)?;
        }
        self.sum.refused.push(why);
        Ok(())
    }

    fn say(
        &mut self,
        path: &Path,
        text: &str,
        document: impl FnOnce() -> Map<String, Value>,
    ) -> Result<(), Failure> {
        let said = if self.args.json {
            document::line(document())?
        } else {
            format!("{}: {text}\n", shown(path)).into_bytes()
        };
        self.write(&said)
    }

    fn write(&mut self, said: &[u8]) -> Result<(), Failure> {
        self.out.write_all(said).map_err(|error| output_failure(&error))
    }
}

/// Says who could have made up a seal that nobody vouches for.
fn note_others(path: &Path) {
    if let Some(why) = Store::open(path).ok().and_then(|store| store.others_who_write()) {
        complain(&format!("shunt: the store {}: {why}; --trust KEY.pub tells whose seal it is", shown(path)));
    }
}

/// Leaves out attributes that may differ.
fn leave_out(findings: &mut Vec<Finding>, ignored: &[Ignored]) {
    findings.retain_mut(|finding| match &mut finding.fault {
        Fault::Metadata(all) => {
            all.retain(|one| !ignorable(one.attribute).is_some_and(|one| ignored.contains(&one)));
            !all.is_empty()
        }
        _ => true,
    });
}

fn tree_in_words(root: &Path, verified: &Verified, trust: &Trust) -> Vec<u8> {
    let mut said = String::new();
    for Finding { path, fault, .. } in &verified.findings {
        let below = PathBuf::from(std::ffi::OsString::from_vec(path.clone()));
        let path = if path.is_empty() { root.to_owned() } else { root.join(below) };
        said.push_str(&format!("{}: {fault}\n", Shown::bytes(path.as_os_str().as_bytes())));
    }
    let sum = match verified.findings.len() {
        0 => "as sealed".to_owned(),
        count => format!("{count} not as sealed"),
    };
    let trusted = taken(trust, verified.manifest.trusted_signers().len());
    let trusted = trusted.map(|how| format!(", {how}")).unwrap_or_default();
    let files = counted(verified.files, "file");
    said.push_str(&format!("{}: {files} of {} bytes{trusted}: {sum}\n", shown(root), verified.bytes));
    said.into_bytes()
}

/// Why a signature is not taken.
fn check_signature(
    bytes: &[u8],
    digest: &Digest,
    keys: &[PublicKey],
    certificates: &[Certificate],
) -> Option<String> {
    match <[u8; Signature::LEN]>::try_from(bytes) {
        Ok(raw) => {
            let is_good = |key: &PublicKey| key.verify_digest(digest, &Signature(raw)).is_ok();
            (!keys.iter().any(is_good)).then(|| "the signature is no trusted key's over this".to_owned())
        }
        Err(_) => pkcs7::verify(bytes, digest, certificates).err().map(|error| error.to_string()),
    }
}

/// Reads a signature, and not much more than one can have.
fn read_signature(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let file = regular::open(path).map_err(|error| cannot("read", path, error))?;
    let mut file = file.take(pkcs7::SIGNATURE_LEN_MAX as u64 + 1);
    file.read_to_end(&mut bytes).map_err(|error| cannot("read", path, error))?;
    Ok(bytes)
}
