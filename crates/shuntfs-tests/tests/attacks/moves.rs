//! A user has the kernel make by a move what it may not make, or moves a file away from a rule about one way to write it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions, hard_link, rename};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::stage::{ATTACKER, Ground, OWNER, Stage, by, folder, on_each_transport, put};

const RULES: &str = "\
    [[rule]]\nuid = [0, 4001]\nallow = true\n\
    [[rule]]\npath = 'closed/**'\nopen = 'create'\ndeny = 'EDQUOT'\n\
    [[rule]]\npath = 'whole/**'\nopen = 'truncate'\ndeny = 'EPERM'\n\
    [[rule]]\npath = 'still/**'\nopen = 'append'\ndeny = 'EPERM'\n";

fn prepare(source: &Path, beside: &Path) -> Result<Vec<OsString>> {
    for name in ["closed", "whole", "still", "open"] {
        folder(&source.join(name), OWNER, 0o777)?;
    }
    folder(&source.join("open/folder"), ATTACKER, 0o777)?;
    for name in ["closed/there", "whole/f", "still/f", "open/mine"] {
        put(&source.join(name), b"text", ATTACKER, 0o666)?;
    }
    fs::set_permissions(source, Permissions::from_mode(0o777))?;
    let file = beside.join("rules.toml");
    put(&file, RULES.as_bytes(), 0, 0o644)?;
    Ok(vec!["--rules".into(), file.into()])
}

fn refused(what: &str, outcome: std::io::Result<()>, expected: i32) -> Result<()> {
    let error = outcome.err().and_then(|error| error.raw_os_error());
    ensure!(error == Some(expected), "{what}: {error:?}");
    Ok(())
}

fn exchange(stage: &Stage, one: &str, other: &str) -> std::io::Result<()> {
    let (one, other) = (stage.at(one), stage.at(other));
    by(ATTACKER, || Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?))
}

#[test]
fn what_may_not_be_made_is_not_moved_there() -> Result<()> {
    on_each_transport(&Ground::default(), prepare, |stage| {
        let at = |name: &str| stage.at(name);
        let moved = |from: &str, to: &str| by(ATTACKER, || rename(at(from), at(to)));
        refused("made", by(ATTACKER, || File::create(at("closed/new")).map(drop)), libc::EDQUOT)?;
        refused("moved", moved("open/mine", "closed/new"), libc::EDQUOT)?;
        refused("moved over", moved("open/mine", "closed/there"), libc::EDQUOT)?;
        refused("a folder", moved("open/folder", "closed/folder"), libc::EDQUOT)?;
        refused("exchanged", exchange(stage, "open/mine", "closed/there"), libc::EDQUOT)?;
        refused("the other way", exchange(stage, "closed/there", "open/mine"), libc::EDQUOT)?;
        refused("linked", by(ATTACKER, || hard_link(at("open/mine"), at("closed/new"))), libc::EDQUOT)?;
        ensure!(fs::read_dir(stage.source.join("closed"))?.count() == 1, "something was made");
        Ok(())
    })
}

#[test]
fn no_move_leads_away_from_a_rule_about_one_way_to_write() -> Result<()> {
    on_each_transport(&Ground::default(), prepare, |stage| {
        for name in ["whole/f", "still/f"] {
            let (from, to) = (stage.at(name), stage.at("open/f"));
            refused(name, by(ATTACKER, || rename(&from, &to)), libc::EACCES)?;
            refused(name, by(ATTACKER, || hard_link(&from, &to)), libc::EACCES)?;
            refused(name, exchange(stage, name, "open/mine"), libc::EACCES)?;
            // To another name under the same rule it may.
            by(ATTACKER, || rename(&from, from.with_extension("moved")))?;
        }
        let cut =
            by(ATTACKER, || OpenOptions::new().write(true).truncate(true).open(stage.at("whole/f.moved")));
        refused("cut", cut.map(drop), libc::EPERM)?;
        let grown = by(ATTACKER, || OpenOptions::new().append(true).open(stage.at("still/f.moved")));
        refused("appended", grown.map(drop), libc::EPERM)
    })
}
