//! `shunt seal trust`: folders of trusted keys and seen serials.

use std::io::Write;
use std::time::SystemTime;

use serde_json::json;
use shuntfs_seal::{StoredKey, TrustStore, shown, split_key_file};
use shuntfs_verity::sign::PublicKey;

use super::args::{TrustAddArgs, TrustListArgs, TrustStoreArgs, TrustWhat};
use super::files::{cannot, counted, read_text};
use super::trusting::of_store;
use crate::failure::Failure;
use crate::json;
use crate::run::output_failure;

/// Keeps a trust store.
///
/// # Errors
/// It cannot be read or written, or is not what it must be.
pub(super) fn run(args: &TrustStoreArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let said = match &args.what {
        TrustWhat::Add(args) => add(args)?,
        TrustWhat::List(args) => list(args)?,
        TrustWhat::Forget(args) => {
            let store = TrustStore::open(&args.dir).map_err(|error| of_store(&error))?;
            match store.forget(&args.tree).map_err(|error| of_store(&error))? {
                0 => {
                    return Err(Failure::new(format!(
                        "{}: nothing of tree {} was seen",
                        shown(&args.dir),
                        args.tree
                    )));
                }
                count => format!("{} of tree {} forgotten", counted(count as u64, "serial"), args.tree),
            }
        }
    };
    writeln!(out, "{said}").map_err(|error| output_failure(&error))
}

fn add(args: &TrustAddArgs) -> Result<String, Failure> {
    // Everything is examined before anything is written.
    let mut keys = Vec::new();
    for path in &args.keys {
        let text = read_text(path)?;
        let refused = |why: String| Failure::new(format!("{}: {why}", shown(path)));
        let (block, expires) = split_key_file(&text).map_err(refused)?;
        let key = PublicKey::from_pem(&block).map_err(|error| refused(error.to_string()))?;
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| cannot("add", path, "its name is no text"))?;
        keys.push(StoredKey::new(format!("{name}.pub"), key, expires));
    }
    let mut store = TrustStore::create(&args.dir).map_err(|error| of_store(&error))?;
    store.add(keys, args.threshold).map_err(|error| of_store(&error))?;
    let count = counted(store.keys().len() as u64, "key");
    Ok(format!("{}: {count}, {} must sign", shown(&args.dir), store.threshold()))
}

fn list(args: &TrustListArgs) -> Result<String, Failure> {
    let store = TrustStore::open(&args.dir).map_err(|error| of_store(&error))?;
    let seen = store.serials().map_err(|error| of_store(&error))?;
    let now = SystemTime::now();
    if args.json {
        let keys = store.keys().iter().map(|one| {
            json!({"name": one.name, "id": one.key.id().to_string(),
                "expires": one.expires.map(|day| day.to_string()),
                "is_expired": one.expires.is_some_and(|day| day.is_over(now))})
        });
        let seen = seen.iter().map(|one| {
            json!({"tree": one.tree.as_str(), "key": one.key.to_string(), "serial": one.serial,
                "digest": one.digest.to_string()})
        });
        let (keys, seen): (Vec<_>, Vec<_>) = (keys.collect(), seen.collect());
        return json::line(&json!({"threshold": store.threshold().get(), "keys": keys, "seen": seen}));
    }
    let mut lines = vec![format!("{} of these keys must sign:", store.threshold())];
    for one in store.keys() {
        let until = match one.expires {
            None => String::new(),
            Some(day) if day.is_over(now) => format!(", expired after {day}"),
            Some(day) => format!(", expires after {day}"),
        };
        lines.push(format!("  {} {}{until}", one.key.id(), shown(std::path::Path::new(&one.name))));
    }
    lines.push("highest serials seen:".to_owned());
    for one in &seen {
        lines.push(format!("  tree {}, serial {}, by {}, {}", one.tree, one.serial, one.key, one.digest));
    }
    if seen.is_empty() {
        lines.push("  none yet".to_owned());
    }
    Ok(lines.join("\n"))
}
