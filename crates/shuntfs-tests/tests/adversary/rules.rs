//! The rules of the mount, and what they mean, said a second time by hand.

use std::fmt;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;

/// May do everything.
pub(crate) const OWNER: u32 = 4001;
/// Sees some names not, and some files in part.
pub(crate) const SECOND: u32 = 4002;
/// Is refused more.
pub(crate) const THIRD: u32 = 4003;

/// All of them.
pub(crate) const USERS: [u32; 3] = [OWNER, SECOND, THIRD];

/// The bytes that a partial view hides: those before this place.
pub(crate) const HIDDEN_LEN: usize = 8;

/// One of the two sets of rules: with the second and the third user as they are, or with each in the other's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleSet {
    pub(crate) is_swapped: bool,
}

/// What is taken from a user at one name, or at all names of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) hide: bool,
    pub(crate) deny: bool,
    pub(crate) redact: bool,
    pub(crate) read_only: bool,
    pub(crate) append_only: bool,
}

impl Taken {
    /// Everything that either takes.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            hide: self.hide | other.hide,
            deny: self.deny | other.deny,
            redact: self.redact | other.redact,
            read_only: self.read_only | other.read_only,
            append_only: self.append_only | other.append_only,
        }
    }

    /// What is left: reading, reading the beginning, writing, appending, attributes. A hidden name is not met, but does not
    /// keep the attributes of a file from who meets it by another one.
    pub(crate) fn rights(self) -> [bool; 5] {
        let reads = !self.deny && !self.hide;
        let appends = reads && !self.redact && !self.read_only;
        let changes = !self.read_only && !self.append_only;
        [reads, reads && !self.redact, appends && !self.append_only, appends, changes]
    }

    /// Whether somebody with this gets something that the other does not leave.
    pub(crate) fn is_looser_than(self, other: Self) -> bool {
        self.rights().iter().zip(other.rights()).any(|(here, there)| *here && !there)
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            (self.hide, "hidden"),
            (self.deny, "denied"),
            (self.redact, "redacted"),
            (self.read_only, "read-only"),
            (self.append_only, "append-only"),
        ];
        let said: Vec<&str> = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
        out.write_str(if said.is_empty() { "free" } else { "" })?;
        out.write_str(&said.join(", "))
    }
}

impl RuleSet {
    fn second(self) -> u32 {
        if self.is_swapped { THIRD } else { SECOND }
    }

    fn third(self) -> u32 {
        if self.is_swapped { SECOND } else { THIRD }
    }

    /// Writes the file of rules, which nobody else may write: a server takes no others.
    pub(crate) fn put(self, path: &Path) -> Result<()> {
        fs::write(path, self.text())?;
        Ok(fs::set_permissions(path, Permissions::from_mode(0o644))?)
    }

    fn text(self) -> String {
        let (second, third) = (self.second(), self.third());
        format!(
            r#"
match = "first"

[[rule]]
uid = [0, {OWNER}]
allow = true

[[rule]]
path = "denied/**"
deny = "EACCES"

[[rule]]
path = "mixed/**"
uid = {third}
deny = "EPERM"

[[rule]]
path = "hidden/**"
uid = {second}
hide = true

[[rule]]
path = "masked/**"
uid = {second}
redact = {{ ranges = [[0, {HIDDEN_LEN}]] }}

[[rule]]
path = "masked/**"
deny = "EACCES"

[[rule]]
path = "fixed/**"
read_only = true

[[rule]]
path = "logs/**"
append_only = true

[[rule]]
when = 'path.startsWith("secret/")'
deny = "EACCES"

[[rule]]
basename = "*.key"
uid = {third}
deny = "EACCES"

[[rule]]
when = 'basename.startsWith("s_") && uid == {second}'
hide = true
"#
        )
    }

    /// What the first rule that matches takes from a user at one path.
    pub(crate) fn taken(self, uid: u32, path: &str) -> Taken {
        let none = Taken::default();
        if uid == OWNER || uid == 0 {
            return none;
        }
        let (is_second, is_third) = (uid == self.second(), uid == self.third());
        let top = path.split_once('/').map(|(top, _)| top);
        let name = path.rsplit('/').next().unwrap_or_default();
        let denied = Taken { deny: true, ..none };
        match top {
            Some("denied" | "secret") => return denied,
            Some("mixed") if is_third => return denied,
            Some("hidden") if is_second => return Taken { hide: true, ..none },
            Some("masked") if is_second => return Taken { redact: true, ..none },
            Some("masked") => return denied,
            Some("fixed") => return Taken { read_only: true, ..none },
            Some("logs") => return Taken { append_only: true, ..none },
            _ => {}
        }
        if name.ends_with(".key") && is_third {
            return denied;
        }
        Taken { hide: name.starts_with("s_") && is_second, ..none }
    }

    /// Whether a user may meet a name at all: no folder on the way is hidden, nor the name itself.
    pub(crate) fn shows(self, uid: u32, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        ends.into_iter().all(|end| path.get(..end).is_some_and(|part| !self.taken(uid, part).hide))
    }
}
