//! A user takes a protecting name from a file that has another one, to get all of it there.
//!
//! A file with several names is judged by all of them. Whoever may write to a folder may remove the names in it, move them,
//! and rename other files over them; and may do so for somebody else, from whom less is taken elsewhere.

use std::ffi::OsString;
use std::fs::{self, Permissions, hard_link, read, remove_file, rename};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::stage::{ATTACKER, Ground, OWNER, Stage, by, folder, on_each_transport, put};

/// From whom everything is taken.
const ACCOMPLICE: u32 = 4003;

const SECRET: &[u8] = b"not for the attacker";

const RULES: &str = "\
    [[rule]]\nuid = [0, 4001]\nallow = true\n\
    [[rule]]\npath = 'masked/**'\nuid = 4002\nredact = 'whole'\n\
    [[rule]]\npath = 'masked/**'\ndeny = 'EACCES'\n\
    [[rule]]\npath = 'denied/**'\ndeny = 'EACCES'\n";

fn prepare(source: &Path, beside: &Path) -> Result<Vec<OsString>> {
    for name in ["masked", "denied", "public"] {
        folder(&source.join(name), OWNER, 0o777)?;
    }
    for name in ["replaced", "removed", "moved", "exchanged"] {
        put(&source.join("masked").join(name), SECRET, OWNER, 0o666)?;
        hard_link(source.join("masked").join(name), source.join("public").join(name))?;
    }
    put(&source.join("masked/alone"), SECRET, OWNER, 0o666)?;
    put(&source.join("denied/passed"), SECRET, OWNER, 0o666)?;
    for name in ["mine", "other"] {
        put(&source.join("public").join(name), b"mine", ATTACKER, 0o666)?;
    }
    fs::set_permissions(source, Permissions::from_mode(0o777))?;
    let file = beside.join("rules.toml");
    put(&file, RULES.as_bytes(), 0, 0o644)?;
    Ok(vec!["--rules".into(), file.into()])
}

/// No name of a file shows the attacker what is hidden.
fn nothing_is_read(stage: &Stage) -> Result<()> {
    for folder in ["masked", "public", "denied"] {
        for name in ["replaced", "removed", "moved", "exchanged", "passed", "mine"] {
            let path = stage.at(folder).join(name);
            let seen = by(ATTACKER, || read(&path)).unwrap_or_default();
            ensure!(seen != SECRET, "{} was read", path.display());
        }
    }
    Ok(())
}

fn refused(what: &str, outcome: std::io::Result<()>) -> Result<()> {
    let error = outcome.err().and_then(|error| error.raw_os_error());
    ensure!(error == Some(libc::EACCES), "{what}: {error:?}");
    Ok(())
}

#[test]
fn a_name_that_protects_is_not_taken_away() -> Result<()> {
    on_each_transport(&Ground::default(), prepare, |stage| {
        let at = |name: &str| stage.at(name);
        // Nobody has met the other name yet.
        refused("removed", by(ATTACKER, || remove_file(at("masked/removed"))))?;
        refused("replaced", by(ATTACKER, || rename(at("public/mine"), at("masked/replaced"))))?;
        refused("moved over", by(ATTACKER, || rename(at("public/moved"), at("masked/exchanged"))))?;
        refused("moved", by(ATTACKER, || rename(at("masked/moved"), at("public/elsewhere"))))?;
        let exchanged = by(ATTACKER, || {
            renameat_with(CWD, at("masked/exchanged"), CWD, at("public/mine"), RenameFlags::EXCHANGE)
        });
        refused("exchanged", exchanged.map_err(Into::into))?;
        nothing_is_read(stage)?;
        // The only name may go, and one that protects nothing.
        by(ATTACKER, || remove_file(at("masked/alone")))?;
        by(ATTACKER, || remove_file(at("public/removed")))?;
        nothing_is_read(stage)?;
        // Who sees everything may do what it likes.
        by(OWNER, || rename(at("masked/moved"), at("public/given")))?;
        ensure!(by(ATTACKER, || read(at("public/given")))? == SECRET, "what is given is read");
        Ok(())
    })
}

#[test]
fn nobody_moves_a_file_to_where_somebody_else_sees_more() -> Result<()> {
    on_each_transport(&Ground::default(), prepare, |stage| {
        // Nothing becomes of it for the accomplice, who is refused here and there.
        let (from, to) = (stage.at("denied/passed"), stage.at("masked/passed"));
        refused("passed on", by(ACCOMPLICE, || rename(&from, &to)))?;
        let linked = by(ACCOMPLICE, || hard_link(&from, &to));
        ensure!(linked.is_err(), "a second name was made");
        refused(
            "moved with its folder",
            by(ACCOMPLICE, || rename(stage.at("denied"), stage.at("public/sub"))),
        )?;
        nothing_is_read(stage)
    })
}
