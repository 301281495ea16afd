//! `shunt seal show`: what a manifest holds, and who signed it.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Map, Value, json};
use shuntfs_seal::{Issue, Manifest, ManifestError, NodeIndex, NodeKind, Shown, Store};

use super::args::ShowArgs;
use super::detached;
use super::document;
use super::files::counted;
use super::trusting::Trusting;
use crate::failure::Failure;
use crate::json;
use crate::run::{complain, output_failure};

/// Shows a manifest.
///
/// # Errors
/// There is none, it is damaged, or signed by nobody who is trusted.
pub(super) fn run(args: &ShowArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let Trusting { trust, notes, .. } = args.trust.read()?;
    notes.iter().for_each(|note| complain(&format!("shunt: {note}")));
    let path = args.store.clone().unwrap_or_else(|| Store::beside(&args.folder));
    let opened = Store::open(&path).and_then(|store| Ok((Manifest::open(&store, &trust)?, store)));
    let (manifest, store) = opened.map_err(|error| Failure::new(error.to_string()))?;
    let signers: Vec<String> = manifest.seal().signatures().iter().map(|one| one.key.to_string()).collect();
    if let Some(note) = manifest.note() {
        complain(&format!("shunt: {note}"));
    }
    detached::hand_out(args, &store, manifest.seal())?;
    let issue = manifest.seal().issue();
    if args.json {
        let list = if args.list { Some(list(&manifest)?) } else { None };
        let list: Option<Vec<Value>> = list.map(|list| list.into_iter().map(in_json).collect());
        let mut document = document::of(&args.folder);
        let rest = json!({
            "digest": manifest.digest().to_string(),
            "signed_by": signers,
            "is_trusted": manifest.is_authentic(),
            "tree": issue.map(|issue| issue.tree.as_str()),
            "serial": manifest.seal().serial(),
            "time": issue.map(|issue| issue.time),
            "hash": manifest.params().algorithm().name(),
            "block_size": manifest.params().block_size().bytes(),
            "salt": manifest.params().salt().to_string(),
            "files": manifest.counts().files,
            "folders": manifest.counts().folders,
            "symlinks": manifest.counts().symlinks,
            "others": manifest.counts().others,
            "bytes": manifest.counts().bytes,
            "list": list,
        });
        document.extend(rest.as_object().cloned().unwrap_or_default());
        return out.write_all(&document::line(document)?).map_err(|error| output_failure(&error));
    }
    let trusted: Vec<String> = manifest.trusted_signers().iter().map(ToString::to_string).collect();
    let who = match (signers.as_slice(), trusted.as_slice()) {
        ([], _) => "not signed".to_owned(),
        (signers, []) => format!("signed, it says, by {}; --trust KEY.pub checks", signers.join(", ")),
        (_, [one]) => format!("signed by {one}: a key that is trusted"),
        (_, several) => format!("signed by {}: keys that are trusted", several.join(", ")),
    };
    let which = match issue {
        None => "no name and no serial: an older shunt sealed it".to_owned(),
        Some(Issue { tree, serial, time }) => {
            format!("tree {tree}, serial {serial}, made at {time} (seconds since 1970)")
        }
    };
    let counts = manifest.counts();
    let mut said = format!(
        "{}\n{who}\n{which}\n{} of {} bytes, {}, {}, {}\nhashed with {} in blocks of {} bytes{}\n",
        manifest.digest(),
        counted(counts.files, "file"),
        counts.bytes,
        counted(counts.folders, "folder"),
        counted(counts.symlinks, "symlink"),
        counted(counts.others, "other"),
        manifest.params().algorithm(),
        manifest.params().block_size(),
        if manifest.params().salt().is_empty() { "" } else { ", salted" },
    );
    if args.list {
        for (path, kind, digest) in list(&manifest)? {
            let path = Shown::bytes(&path);
            said.push_str(&format!("{} {path}\n", digest.as_deref().unwrap_or(kind.name())));
        }
    }
    out.write_all(said.as_bytes()).map_err(|error| output_failure(&error))
}

/// A path, what exists, and its digest.
type Entry = (Vec<u8>, NodeKind, Option<String>);
type Listed = Vec<Entry>;

fn in_json((path, kind, digest): Entry) -> Value {
    let mut entry = Map::new();
    json::name(&mut entry, "path", OsStr::from_bytes(&path));
    entry.insert("kind".into(), kind.name().into());
    entry.insert("digest".into(), digest.into());
    Value::Object(entry)
}

fn list(manifest: &Manifest) -> Result<Listed, Failure> {
    let mut all = Vec::new();
    let mut walk = || -> Result<(), ManifestError> {
        let mut waiting = vec![(NodeIndex::ROOT, Vec::new())];
        while let Some((folder, path)) = waiting.pop() {
            for entry in manifest.entries(folder, 0)? {
                let entry = entry?;
                let node = manifest.node(entry.node)?;
                let path = if path.is_empty() { entry.name } else { [&path[..], b"/", &entry.name].concat() };
                if node.kind == NodeKind::Folder {
                    waiting.push((entry.node, path.clone()));
                }
                all.push((path, node.kind, node.digest().map(|digest| digest.to_string())));
            }
        }
        Ok(())
    };
    walk().map_err(|error| Failure::new(error.to_string()))?;
    all.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(all)
}
