//! `shunt seal`.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use shuntfs_seal::{
    Belief, Enabled, Report, Seal, SealError, SealOptions, Side, StoreError, seal_file, seal_tree, shown,
};
use shuntfs_verity::sign::KeyPair;

use super::args::SealArgs;
use super::document;
use super::files::{cannot, counted, jobs, private_key};
use crate::bar::Bar;
use crate::failure::Failure;
use crate::json;
use crate::run::{complain, output_failure};

/// Seals folders and files.
///
/// # Errors
/// The first that cannot be sealed.
pub(super) fn run(args: &SealArgs, out: &mut dyn Write) -> Result<(), Failure> {
    if !args.attach.is_empty() {
        return super::detached::attach_to(args, out);
    }
    if args.key.len() > Seal::SIGNATURES_MAX {
        return Err(Failure::usage(format!("a seal has at most {} signatures", Seal::SIGNATURES_MAX)));
    }
    let keys =
        args.key.iter().map(|path| private_key(path, &args.passphrase)).collect::<Result<Vec<_>, _>>()?;
    if args.store.is_some() && args.paths.len() > 1 {
        return Err(Failure::usage("a store is of one folder alone").hint("seal the folders one by one"));
    }
    for path in &args.paths {
        let found = std::fs::metadata(path).map_err(|error| cannot("seal", path, error))?;
        if found.is_dir() {
            folder(args, &keys, path, out)?;
        } else {
            file(args, &keys, path, out)?;
        }
    }
    Ok(())
}

fn folder(args: &SealArgs, keys: &[KeyPair], path: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let options = SealOptions {
        params: args.hash.for_sealing()?,
        store: args.store.clone(),
        tree: args.tree.clone(),
        keys: keys.iter().collect(),
        enable: args.enable,
        belief: match (args.rehash, args.repair) {
            (true, _) => Belief::Nothing,
            (_, true) => Belief::Checked,
            _ => Belief::Known,
        },
        allowed: args.allowed(),
        ..SealOptions::new(jobs(args.jobs))
    };
    let bar = Bar::start("sealing");
    let report = seal_tree(path, &options, &bar).map_err(|error| not_sealed(path, &error))?;
    drop(bar);
    for note in &report.notes {
        complain(&format!("shunt: {note}"));
    }
    let said = if args.json { in_json(path, &report, keys)? } else { in_words(path, &report, keys) };
    writeln!(out, "{said}").map_err(|error| output_failure(&error))?;
    report.enabled.as_ref().map_or(Ok(()), |enabled| enabled_or_not(path, &report, enabled))
}

/// Says what came of turning fs-verity on; that no file has it is a failure, though the folder is sealed.
fn enabled_or_not(path: &Path, report: &Report, enabled: &Enabled) -> Result<(), Failure> {
    let lines = said_of_enabling(enabled);
    if enabled.now + enabled.before > 0 || report.counts.files == 0 {
        lines.iter().for_each(|line| complain(&format!("shunt: {line}")));
        return Ok(());
    }
    let failure =
        Failure::new(format!("{} is sealed, but fs-verity is on for none of its files", shown(path)));
    Err(failure.details(lines.into_iter().skip(1)))
}

fn file(args: &SealArgs, keys: &[KeyPair], path: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    if args.store.is_some() || args.enable {
        return Err(Failure::usage("--seal-store and --enable are for folders")
            .hint("a single file gets a FILE.fsv_meta; the tool fsverity turns fs-verity on for one"));
    }
    let key = match keys {
        [] => None,
        [key] => Some(key),
        _ => return Err(Failure::usage("the signature of a single file is by one key")),
    };
    if key.is_none() && !args.unsigned {
        check_unsigned(path)?;
    }
    let bar = Bar::start("sealing");
    let sealed = seal_file(path, &args.hash.for_sealing()?, key, jobs(args.jobs), &bar);
    drop(bar);
    let digest = sealed.map_err(|error| not_sealed(path, &error))?.digest();
    let (side, signer) = (Side::path_of(path), signer(keys));
    let said = if args.json {
        let mut document = document::of(path);
        document.insert("digest".into(), digest.to_string().into());
        json::name(&mut document, "side", &side);
        document.insert("signed_by".into(), ids(keys).into());
        json::line(&document)?
    } else {
        format!("{}: {digest}, {signer}", shown(&side))
    };
    writeln!(out, "{said}").map_err(|error| output_failure(&error))
}

/// Refuses to lose the signature of a single file.
fn check_unsigned(path: &Path) -> Result<(), Failure> {
    match Side::open(path) {
        Ok(side) if side.signature.is_some() => {
            let error = SealError::Signed { path: side.path, signers: "some key".into() };
            Err(not_sealed(path, &error))
        }
        // What cannot be read is not signed, and is replaced where it is a file.
        Ok(_) | Err(StoreError::NotSealed(_) | StoreError::Io { .. } | StoreError::Broken { .. }) => Ok(()),
        Err(error) => Err(not_sealed(path, &error.into())),
    }
}

fn not_sealed(path: &Path, error: &SealError) -> Failure {
    let failure = Failure::new(format!("{} is not sealed: {error}", shown(path)));
    match error {
        SealError::Changed { paths, count } => name_all(failure, paths, *count, "changed")
            .hint("what was hashed is kept: try again when it is at rest"),
        SealError::Damaged { paths, count } => {
            name_all(failure, paths, *count, "damaged").hint("put it back, or seal it as it is with --rehash")
        }
        SealError::NotAStore(_) => failure.hint("name a folder that is new or empty"),
        SealError::OtherTree { .. } => {
            failure.hint("name another; or take it over, its seal goes, with --adopt")
        }
        SealError::InTree { .. } => failure.hint("what is in it would not be sealed: name a folder outside"),
        SealError::Shared { .. } => failure.hint(
            "chown and chmod go-w make it yours, --seal-store DIR names another, --shared-store takes it as it is",
        ),
        SealError::Signed { .. } => {
            failure.hint("sign again with --key KEY, or drop the signature with --unsigned")
        }
        SealError::OtherName { here, .. } => {
            failure.hint(format!("say which it is: --tree {here}, if it is still that tree"))
        }
        _ => failure,
    }
}

/// Adds a line for each of some paths.
fn name_all(failure: Failure, paths: &[PathBuf], count: usize, what: &str) -> Failure {
    let failure = failure.details(paths.iter().map(|path| format!("{what}: {}", shown(path))));
    let more = count.saturating_sub(paths.len());
    if more > 0 { failure.details([format!("and {more} more")]) } else { failure }
}

fn ids(keys: &[KeyPair]) -> Vec<String> {
    keys.iter().map(|key| key.public().id().to_string()).collect()
}

fn signer(keys: &[KeyPair]) -> String {
    if keys.is_empty() { "not signed".into() } else { format!("signed by {}", ids(keys).join(", ")) }
}

fn in_words(path: &Path, report: &Report, keys: &[KeyPair]) -> String {
    let Report { counts, digest, .. } = report;
    let mut hashed = format!("{} hashed, {} unchanged", report.hashed, report.unchanged);
    if report.resumed > 0 {
        hashed.push_str(&format!(", {} hashed by a run before that did not end", report.resumed));
    }
    format!(
        "{}: {digest}, {}\n{} of {} bytes, {}, {}: {hashed}",
        shown(path),
        signer(keys),
        counted(counts.files, "file"),
        counts.bytes,
        counted(counts.folders, "folder"),
        counted(counts.symlinks, "symlink"),
    )
}

fn in_json(path: &Path, report: &Report, keys: &[KeyPair]) -> Result<String, Failure> {
    let enabled = report.enabled.as_ref().map(|enabled| {
        let refused: u64 = enabled.refused.iter().map(|(_, count, _)| count).sum();
        json!({"now": enabled.now, "before": enabled.before, "other": enabled.other.len(), "refused": refused})
    });
    let mut document = document::of(path);
    json::name(&mut document, "store", &report.store);
    let rest = json!({
        "digest": report.digest.to_string(),
        "signed_by": ids(keys),
        "tree": report.issue.tree.as_str(),
        "serial": report.issue.serial,
        "files": report.counts.files,
        "folders": report.counts.folders,
        "symlinks": report.counts.symlinks,
        "others": report.counts.others,
        "bytes": report.counts.bytes,
        "hashed": report.hashed,
        "hashed_bytes": report.hashed_bytes,
        "unchanged": report.unchanged,
        "resumed": report.resumed,
        "pruned": report.pruned,
        "enabled": enabled,
    });
    document.extend(rest.as_object().cloned().unwrap_or_default());
    json::line(&document)
}

/// What came of turning fs-verity on, a line for each that needs saying.
fn said_of_enabling(enabled: &Enabled) -> Vec<String> {
    let mut lines = vec![format!(
        "fs-verity is on for {} ({} now)",
        counted(enabled.now + enabled.before, "file"),
        enabled.now
    )];
    if let Some(first) = enabled.other.first() {
        let count = enabled.other.len() as u64;
        lines.push(format!(
            "{} have it with other parameters, {} first",
            counted(count, "file"),
            shown(first)
        ));
    }
    for (error, count, first) in &enabled.refused {
        let why = std::io::Error::from(*error);
        lines.push(format!("not for {}, {} first: {why}", counted(*count, "file"), shown(first)));
    }
    lines
}
