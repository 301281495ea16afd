//! The units for systemd, as systemd reads them. Nothing here starts or mounts anything.

mod common;

use std::fs;
use std::process::Command;

use common::{SHUNT, run};
use shuntfs_testkit::program::have;
use shuntfs_testkit::skipped;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/systemd");
const INSTALLED: &str = "/usr/local/bin/shunt";

struct Unit {
    name: String,
    text: String,
}

impl Unit {
    /// Whether a line is about it, or about an instance of it.
    fn is_named_in(&self, line: &str) -> bool {
        line.contains(self.name.split_inclusive('@').next().expect("has a name"))
    }
}

/// All of them, with the program where it is now.
fn units() -> Vec<Unit> {
    let names = fs::read_dir(FOLDER).expect("is there").map(|file| file.expect("is listed").file_name());
    let names = names.map(|name| name.into_string().expect("is text"));
    let units = names.filter(|name| [".service", ".timer", ".mount"].iter().any(|kind| name.ends_with(kind)));
    let read = |name: &String| fs::read_to_string(format!("{FOLDER}/{name}")).expect("reads");
    units.map(|name| Unit { text: read(&name).replace(INSTALLED, SHUNT), name }).collect()
}

/// What systemd says of them, and all that it says.
fn verify(units: &[Unit]) -> (Vec<String>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("systemd-analyze");
    // The man pages need not be installed.
    command.args(["verify", "--man=no"]);
    for unit in units {
        let path = folder.path().join(&unit.name);
        fs::write(&path, &unit.text).expect("writes");
        command.arg(path);
    }
    let ran = run(&mut command);
    let all = ran.out + &ran.err;
    let is_about_one = |line: &&str| units.iter().any(|unit| unit.is_named_in(line));
    (all.lines().filter(is_about_one).map(str::to_owned).collect(), all)
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if !have(&["systemd-analyze"]) {
        return;
    }
    let mut units = units();
    assert!(units.iter().any(|unit| unit.name == "shunt@.service"));
    let (said, all) = verify(&units);
    assert!(said.is_empty(), "{all}");
    // What is wrong is told of each, or nothing was looked at.
    for unit in &mut units {
        unit.text = unit.text.replace("\n[Unit]\n", "\n[Unit]\nMistake=yes\n");
    }
    let (said, all) = verify(&units);
    if said.is_empty() {
        skipped(&format!("systemd-analyze cannot read units here: {all}"));
        return;
    }
    for unit in &units {
        let is_told = said.iter().any(|line| unit.is_named_in(line) && line.contains("Mistake"));
        assert!(is_told, "{}: {all}", unit.name);
    }
}
