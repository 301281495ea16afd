//! A user moves the folder that a condition of a rule is about, to have what is in it from under the rule.
//!
//! Whoever may write to a folder and to its parent may rename it. A rule that is about the place only by its condition
//! (`when = 'path.startsWith("private/")'`) says nothing about the new place, and nobody asked it about what is in the
//! folder.

use std::ffi::OsString;
use std::fs::{self, read, rename};
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::stage::{ATTACKER, Ground, OWNER, Stage, by, folder, on_each_transport, put};

const SECRET: &[u8] = b"not for the attacker";

fn under(rules: &'static str) -> impl Fn(&Path, &Path) -> Result<Vec<OsString>> {
    move |source, beside| {
        for name in ["private", "private/deep", "open"] {
            folder(&source.join(name), OWNER, 0o777)?;
        }
        put(&source.join("private/secret"), SECRET, OWNER, 0o644)?;
        put(&source.join("private/deep/secret"), SECRET, OWNER, 0o644)?;
        fs::set_permissions(source, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
        let file = beside.join("rules.toml");
        put(&file, rules.as_bytes(), 0, 0o644)?;
        Ok(vec!["--rules".into(), file.into()])
    }
}

/// Nobody reads a secret by whatever name it has now.
fn nothing_is_read(stage: &Stage) -> Result<()> {
    let names = ["private", "private/deep", "open", "open/deep", "moved", "moved/deep", "deep", "open/moved"];
    for name in names {
        let path = stage.at(name).join("secret");
        ensure!(by(ATTACKER, || read(&path)).is_err(), "{} was read", path.display());
    }
    Ok(())
}

fn attack(stage: &Stage) -> Result<()> {
    nothing_is_read(stage)?;
    for (from, to) in [
        ("private", "moved"),
        ("private", "open/moved"),
        ("private/deep", "deep"),
        ("private/deep", "open/deep"),
    ] {
        let (from, to) = (stage.at(from), stage.at(to));
        let moved = by(ATTACKER, || rename(&from, &to));
        ensure!(moved.is_err(), "{} was moved to {}", from.display(), to.display());
        nothing_is_read(stage)?;
    }
    let (private, open) = (stage.at("private"), stage.at("open"));
    let exchanged = by(ATTACKER, || renameat_with(CWD, &private, CWD, &open, RenameFlags::EXCHANGE));
    ensure!(exchanged.is_err(), "the folders were exchanged");
    nothing_is_read(stage)?;
    // Of whom the condition says that it is not about them, it does not hold up.
    by(OWNER, || rename(stage.at("private"), stage.at("moved")))?;
    ensure!(by(OWNER, || read(stage.at("moved/secret")))? == SECRET, "the owner reads what it moved");
    Ok(())
}

#[test]
fn a_folder_that_a_condition_is_about_is_not_moved() -> Result<()> {
    const RULES: &str = "[[rule]]\nwhen = 'path.startsWith(\"private/\") && uid != 4001'\ndeny = 'EACCES'\n";
    on_each_transport(&Ground::default(), under(RULES), attack)
}

#[test]
fn nor_where_the_condition_says_where_it_does_not_hold() -> Result<()> {
    const RULES: &str = "[[rule]]\nwhen = '!path.startsWith(\"open/\") && path.contains(\"/\") && uid != 4001'\n\
        deny = 'EACCES'\n";
    on_each_transport(&Ground::default(), under(RULES), attack)
}
