//! What is verified and shown as JSON.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use shuntfs_seal::{Attribute, Fault, Finding, Verified};
use shuntfs_verity::Digest;

use crate::failure::Failure;
use crate::json::{self, name};

/// A document about a path.
pub(super) fn of(path: &Path) -> Map<String, Value> {
    let mut document = Map::new();
    name(&mut document, "path", path);
    document
}

/// A line of the output.
pub(super) fn line(document: Map<String, Value>) -> Result<Vec<u8>, Failure> {
    json::line(&document).map(|line| format!("{line}\n").into_bytes())
}

/// A folder against its manifest.
pub(super) fn tree(path: &Path, root: &Path, verified: &Verified) -> Map<String, Value> {
    let manifest = &verified.manifest;
    let signers = manifest.seal().signatures().iter().map(|one| one.key.to_string());
    let mut document = of(path);
    name(&mut document, "root", root);
    document.insert("digest".into(), manifest.digest().to_string().into());
    document.insert("signed_by".into(), signers.collect::<Vec<_>>().into());
    document.insert("is_trusted".into(), manifest.is_authentic().into());
    document.insert("files".into(), verified.files.into());
    document.insert("bytes".into(), verified.bytes.into());
    let findings: Vec<Value> = verified.findings.iter().map(finding).collect();
    document.insert("findings".into(), findings.into());
    document
}

/// A single file; what differs of it has no path of its own.
pub(super) fn file(
    path: &Path,
    digest: &Digest,
    bytes: u64,
    is_trusted: bool,
    fault: Option<&Fault>,
) -> Map<String, Value> {
    let mut document = of(path);
    document.insert("digest".into(), digest.to_string().into());
    document.insert("is_trusted".into(), is_trusted.into());
    document.insert("files".into(), 1.into());
    document.insert("bytes".into(), bytes.into());
    let findings: Vec<Value> = fault.iter().map(|fault| fault_at(b"", fault)).collect();
    document.insert("findings".into(), findings.into());
    document
}

fn finding(finding: &Finding) -> Value {
    fault_at(&finding.path, &finding.fault)
}

fn fault_at(path: &[u8], fault: &Fault) -> Value {
    let mut document = Map::new();
    name(&mut document, "path", OsStr::from_bytes(path));
    document.insert("fault".into(), fault.name().into());
    document.insert("text".into(), fault.to_string().into());
    match fault {
        Fault::Data { blocks, block_size, first, unknown } => {
            let blocks: Vec<Value> = blocks.iter().map(|run| json!([run.start, run.end - 1])).collect();
            document.insert("blocks".into(), blocks.into());
            document.insert("block_size".into(), (*block_size).into());
            document.insert("unknown_blocks".into(), (*unknown).into());
            document.insert("expected".into(), first.map(|first| first.expected.to_string()).into());
            document.insert("found".into(), first.map(|first| first.found.to_string()).into());
        }
        Fault::Metadata(differences) => {
            let mut attributes: Vec<&str> = differences.iter().map(|one| word(one.attribute)).collect();
            attributes.dedup();
            document.insert("attributes".into(), attributes.into());
        }
        _ => {}
    }
    Value::Object(document)
}

/// A word for an attribute.
pub(super) fn word(attribute: Attribute) -> &'static str {
    match attribute {
        Attribute::Mode => "mode",
        Attribute::Owner => "owner",
        Attribute::Mtime => "mtime",
        Attribute::Xattr => "xattrs",
        Attribute::Target => "target",
        Attribute::Device => "device",
        _ => "other",
    }
}
