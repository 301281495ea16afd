//! Users who are kept from something, and what they do in a mount.

use std::path::Path;
use std::process::Command;

use shuntfs_rules::{Nobody, Rules};

/// Users of these numbers exist nowhere else.
pub(crate) const ALICE: u32 = 71_001;
pub(crate) const BOB: u32 = 71_002;

/// Rules in which the two users have names.
pub(crate) fn rules(text: &str) -> Rules {
    let text = text.replace("ALICE", &ALICE.to_string()).replace("BOB", &BOB.to_string());
    Rules::parse(&text, "rules", None, &Nobody).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// What a script says that a user runs in a folder, with its errors.
pub(crate) fn says(folder: &Path, uid: u32, script: &str) -> String {
    let as_user = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()];
    let ran = Command::new("setpriv")
        .args(as_user)
        .args(["sh", "-c", script])
        .env("LC_ALL", "C")
        .current_dir(folder)
        .output()
        .unwrap();
    String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).trim().to_owned()
}

/// Fails unless the script says `expected`, or ends with it.
pub(crate) fn expect(folder: &Path, uid: u32, script: &str, expected: &str) {
    let said = says(folder, uid, script);
    let fits = if expected.is_empty() { said.is_empty() } else { said.ends_with(expected) };
    assert!(fits, "{uid}: {script}\nsaid `{said}` and not `{expected}`");
}
