//! `shunt verify`: folders against their manifests, files against what is beside them.

use std::fs;
use std::io::{Read as _, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use shuntfs_seal::{Checking, Fault, Finding, Side, Store, Trust, Verified, verify_file, verify_tree};
use shuntfs_sys::regular;
use shuntfs_verity::sign::pkcs7::Certificate;
use shuntfs_verity::sign::{PublicKey, Signature, pkcs7};
use shuntfs_verity::{Digest, Discard};

use super::args::VerifyArgs;
use super::bar::Bar;
use super::digest::{describe, open};
use super::files::{cannot, counted, jobs, with_suffix};
use super::trusting::{Trusting, advice, taken};
use crate::failure::Failure;
use crate::run::{complain, output_failure};

/// What a path on the command line stands for.
enum Asked {
    /// A sealed folder, and what is asked for in it; nothing for all.
    Tree { root: PathBuf, only: Vec<Vec<u8>> },
    /// A file with a side file.
    Side(PathBuf),
    /// A file with a signature.
    Signature(PathBuf),
}

/// What all of them come to.
#[derive(Default)]
struct Sum {
    /// Lines on what differs.
    differ: u64,
    /// What could not be looked at, or is not trusted.
    refused: Vec<String>,
}

/// Verifies folders and files.
///
/// # Errors
/// Something differs from what was sealed, is not sealed, or not signed by whom it should.
pub(crate) fn run(args: &VerifyArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let trusting = args.trust.read()?;
    trusting.notes.iter().for_each(|note| complain(&format!("shunt: {note}")));
    let mut sum = Sum::default();
    for asked in asked(args)? {
        let said = match &asked {
            Asked::Tree { root, only } => tree(args, &trusting.trust, (root, only), out)?,
            Asked::Side(file) => side(args, &trusting.trust, file, out)?,
            Asked::Signature(file) => signature(args, &trusting, file, out)?,
        };
        match said {
            Ok(differ) => sum.differ += differ,
            Err(refused) => sum.refused.push(refused),
        }
    }
    match (sum.differ, sum.refused.as_slice()) {
        (0, []) => Ok(()),
        (0, [refused]) => Err(Failure::new(refused.as_str())),
        (differ, refused) => {
            let what = format!(
                "{} not as sealed",
                if differ == 1 { "1 is".into() } else { format!("{differ} are") }
            );
            Err(Failure::new(what).details(refused.iter().cloned()))
        }
    }
}

/// Sorts what was asked for; paths in one sealed folder go together.
fn asked(args: &VerifyArgs) -> Result<Vec<Asked>, Failure> {
    let mut all: Vec<Asked> = Vec::new();
    if args.store.is_some() {
        let (root, rest) = args.paths.split_first().ok_or_else(|| Failure::usage("no folder"))?;
        let root = absolute(root)?;
        let inside = |path: &PathBuf| {
            let path = absolute(path)?;
            let below = path.strip_prefix(&root).map(|below| below.as_os_str().as_bytes().to_vec());
            below.map_err(|_| Failure::usage(format!("{} is not in {}", path.display(), root.display())))
        };
        let only = rest.iter().map(inside).collect::<Result<_, _>>()?;
        return Ok(vec![Asked::Tree { root, only }]);
    }
    for path in &args.paths {
        let whole = absolute(path)?;
        if Side::path_of(&whole).exists() && whole.is_file() {
            all.push(Asked::Side(path.clone()));
        } else if let Some(root) =
            whole.ancestors().find(|folder| Store::beside(folder).join("seal").exists())
        {
            let below = whole.strip_prefix(root).map(|below| below.as_os_str().as_bytes().to_vec());
            add(&mut all, root, below.unwrap_or_default());
        } else if with_suffix(&whole, ".sig").exists() {
            all.push(Asked::Signature(path.clone()));
        } else {
            return Err(Failure::new(format!("{} is not sealed", path.display()))
                .hint("shunt seal does that; --store DIR says where its store is"));
        }
    }
    Ok(all)
}

fn add(all: &mut Vec<Asked>, folder: &Path, below: Vec<u8>) {
    let known = all.iter_mut().find_map(|asked| match asked {
        Asked::Tree { root, only } if root == folder => Some(only),
        _ => None,
    });
    match known {
        // All of it was asked for before.
        Some(only) if only.is_empty() => {}
        Some(only) if below.is_empty() => only.clear(),
        Some(only) => only.push(below),
        None => {
            let only = if below.is_empty() { Vec::new() } else { vec![below] };
            all.push(Asked::Tree { root: folder.to_owned(), only });
        }
    }
}

/// A path without `..` and links in its folders; what it names itself may be a link, or gone.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let whole = std::path::absolute(path).map_err(|error| cannot("find", path, error))?;
    if whole.is_dir() && !whole.is_symlink() {
        return fs::canonicalize(&whole).map_err(|error| cannot("find", path, error));
    }
    let parent = whole.parent().and_then(|parent| fs::canonicalize(parent).ok());
    Ok(match (parent, whole.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => whole,
    })
}

/// How many differ, or why nothing can be said.
type Said = Result<u64, String>;

fn tree(
    args: &VerifyArgs,
    trust: &Trust,
    (root, only): (&Path, &[Vec<u8>]),
    out: &mut dyn Write,
) -> Result<Said, Failure> {
    let bar = Bar::start("verifying");
    let checking = Checking {
        folder: root,
        store: args.store.clone(),
        trust,
        only: only.to_vec(),
        jobs: jobs(args.jobs),
    };
    let verified = verify_tree(&checking, &bar);
    drop(bar);
    let verified = match verified {
        Ok(verified) => verified,
        Err(error) => {
            let advice = advice(&error).map(|advice| format!(" ({advice})")).unwrap_or_default();
            return refuse(args, root, &format!("{error}{advice}"), out);
        }
    };
    if let Some(note) = verified.manifest.note() {
        complain(&format!("shunt: {note}"));
    }
    let said = if args.json { tree_in_json(root, &verified) } else { tree_in_words(root, &verified, trust) };
    out.write_all(&said).map_err(|error| output_failure(&error))?;
    Ok(Ok(verified.findings.len() as u64))
}

fn tree_in_words(root: &Path, verified: &Verified, trust: &Trust) -> Vec<u8> {
    let mut said = Vec::new();
    for Finding { path, fault, .. } in &verified.findings {
        let below = std::ffi::OsString::from_vec(path.clone());
        let path = if below.is_empty() { root.to_owned() } else { root.join(below) };
        said.extend_from_slice(path.as_os_str().as_bytes());
        said.extend_from_slice(format!(": {fault}\n").as_bytes());
    }
    let sum = match verified.findings.len() {
        0 => "as sealed".to_owned(),
        count => format!("{count} not as sealed"),
    };
    let trusted = taken(trust, verified.manifest.trusted_signers().len());
    let trusted = trusted.map(|how| format!(", {how}")).unwrap_or_default();
    let files = counted(verified.files, "file");
    let line = format!("{}: {files} of {} bytes{trusted}: {sum}\n", root.display(), verified.bytes);
    said.extend_from_slice(line.as_bytes());
    said
}

fn tree_in_json(root: &Path, verified: &Verified) -> Vec<u8> {
    let signers = verified.manifest.seal().signatures().iter().map(|one| one.key.to_string());
    let findings: Vec<Value> = verified.findings.iter().map(finding_in_json).collect();
    line(&json!({
        "path": root.to_string_lossy(),
        "digest": verified.manifest.digest().to_string(),
        "signed_by": signers.collect::<Vec<_>>(),
        "files": verified.files,
        "bytes": verified.bytes,
        "findings": findings,
    }))
}

fn finding_in_json(finding: &Finding) -> Value {
    let mut value = fault_in_json(&finding.fault);
    value["path"] = String::from_utf8_lossy(&finding.path).into();
    value
}

fn fault_in_json(fault: &Fault) -> Value {
    let mut value = json!({"fault": fault.name(), "text": fault.to_string()});
    if let Fault::Data { blocks, block_size, first, unknown } = fault {
        value["blocks"] = blocks.iter().map(|run| json!([run.start, run.end - 1])).collect();
        value["block_size"] = (*block_size).into();
        value["unknown_blocks"] = (*unknown).into();
        value["expected"] = first.map(|first| first.expected.to_string()).into();
        value["found"] = first.map(|first| first.found.to_string()).into();
    }
    value
}

fn side(args: &VerifyArgs, trust: &Trust, file: &Path, out: &mut dyn Write) -> Result<Said, Failure> {
    let side = Side::open(file).and_then(|side| {
        side.check(trust)?;
        Ok(side)
    });
    let bar = Bar::start("verifying");
    let fault = side.and_then(|side| {
        let fault = verify_file(file, &side, jobs(args.jobs), &bar)?;
        Ok((side.descriptor.digest(), fault))
    });
    drop(bar);
    match fault {
        Err(error) => refuse(args, file, &error.to_string(), out),
        Ok((digest, fault)) => {
            let findings: Vec<Value> = fault.iter().map(fault_in_json).collect();
            let said = fault.as_ref().map_or_else(|| "as sealed".to_owned(), Fault::to_string);
            let object =
                json!({"path": file.to_string_lossy(), "digest": digest.to_string(), "findings": findings});
            say(args, file, &said, &object, out)?;
            Ok(Ok(u64::from(fault.is_some())))
        }
    }
}

fn signature(
    args: &VerifyArgs,
    trusting: &Trusting,
    file: &Path,
    out: &mut dyn Write,
) -> Result<Said, Failure> {
    let path = with_suffix(file, ".sig");
    let keys = trusting.trust.trusted_keys();
    if !trusting.trust.is_authentic() {
        let why = format!("{} says nothing without a key", path.display());
        return Err(Failure::usage(why).hint("add --trust KEY.pub, or --trust CERT.pem"));
    }
    if trusting.trust.threshold().get() > 1 {
        let why =
            format!("{} is one signature, and {} are needed", path.display(), trusting.trust.threshold());
        return refuse(args, file, &why, out);
    }
    let bytes = read_signature(&path)?;
    let digest = describe(file, &open(file)?, &args.hash.for_digest()?, Discard)?.digest();
    let refused = match (trusting.trust.digest(), keys) {
        (Some(pinned), _) if *pinned != digest => Some(format!("{pinned} is asked for")),
        (_, None) => None,
        (_, Some(keys)) => check_signature(&bytes, &digest, keys, &trusting.certificates),
    };
    if let Some(why) = refused {
        return refuse(args, file, &format!("{}: {why} ({digest})", path.display()), out);
    }
    let object = json!({"path": file.to_string_lossy(), "digest": digest.to_string(), "findings": []});
    let how = if keys.is_some() { "signed by a trusted key" } else { "the digest that is asked for" };
    say(args, file, &format!("{digest}, {how}"), &object, out)?;
    Ok(Ok(0))
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

/// Nothing can be said of a path: goes to standard error in words, and in JSON beside the others.
fn refuse(args: &VerifyArgs, path: &Path, why: &str, out: &mut dyn Write) -> Result<Said, Failure> {
    if args.json {
        let object = json!({"path": path.to_string_lossy(), "error": why});
        out.write_all(&line(&object)).map_err(|error| output_failure(&error))?;
    }
    Ok(Err(why.to_owned()))
}

fn say(
    args: &VerifyArgs,
    path: &Path,
    text: &str,
    object: &Value,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let said = if args.json { line(object) } else { format!("{}: {text}\n", path.display()).into_bytes() };
    out.write_all(&said).map_err(|error| output_failure(&error))
}

fn line(object: &Value) -> Vec<u8> {
    format!("{object}\n").into_bytes()
}
