//! A file of rules, where it is and for which view.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use shuntfs_rules::Rules;

use super::accounts::Machine;
use crate::failure::Failure;
use crate::mounts::shown;

/// More is not read: whatever is named, it is no file of rules.
const BYTES_MAX: u64 = 8 << 20;

/// A file of rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RuleSource {
    file: PathBuf,
    view: Option<String>,
    /// Whether rules may speak of seals: not on a mount without one.
    may_verify: bool,
}

impl RuleSource {
    /// A file, and the view that its rules are asked for.
    ///
    /// # Errors
    /// Where the working folder is gone and the path was relative to it.
    pub(crate) fn new(file: &Path, view: Option<String>) -> Result<Self, Failure> {
        let file = std::path::absolute(file)
            .map_err(|error| Failure::new(format!("cannot find {}: {error}", shown(file))))?;
        Ok(Self { file, view, may_verify: true })
    }

    /// The same for a mount that has a seal, or has none.
    pub(crate) fn with_seal(self, has_seal: bool) -> Self {
        Self { may_verify: has_seal, ..self }
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Reads it.
    ///
    /// # Errors
    /// Every mistake with its place, or why it cannot be read.
    pub(crate) fn read(&self) -> Result<Rules, Failure> {
        let name = shown(&self.file);
        let text = text_of(&self.file)
            .map_err(|error| Failure::new(format!("cannot read the rules in {name}: {error}")))?;
        let parsed = Rules::parse(&text, &name, self.view.as_deref(), &Machine);
        let rules = parsed.map_err(|mistakes| {
            let count = mistakes.all.len();
            let what = if count == 1 { "is a mistake".to_owned() } else { format!("are {count} mistakes") };
            let lines = mistakes.all.iter().map(|mistake| shown(format!("{name}:{mistake}")));
            Failure::new(format!("there {what} in the rules")).details(lines)
        })?;
        match rules.speaks_of_seals() {
            Some(rule) if !self.may_verify => Err(Failure::new(format!(
                "{name}:{}: the rule `{}` says `verify`, and the mount has no seal",
                rule.line, rule.name
            ))
            .hint("mount with --verify=if-sealed --trust KEY.pub, or leave `verify` out")),
            _ => Ok(rules),
        }
    }
}

fn text_of(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
