//! A file of rules, where it is and for which view.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use shuntfs_rules::{Known, Mistakes, Rules};
use shuntfs_sys::trusted::{self, Untrusted};
use shuntfs_sys::{regular, stat_of};

use super::accounts::Machine;
use crate::failure::{Failure, without_numbers};
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
    /// Where the working directory is gone and the path was relative to it.
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

    /// Reads it for a mount: whoever can change it decides who sees what, so nobody else may.
    ///
    /// # Errors
    /// Every mistake with its place, why it cannot be read, or who else could change it.
    pub(crate) fn read(&self) -> Result<(Rules, InForce), Failure> {
        let held = trusted::hold(&self.file).map_err(|why| match why {
            Untrusted::Os(_) => unreadable(why),
            why => Refused::Untrusted(why.to_string()),
        });
        let text = held.and_then(|held| text_of(&regular::open_held(&held).map_err(unreadable)?));
        let text = text.map_err(|refused| refused.failure(&self.file))?;
        let asked = Asked::default();
        let rules = self.taken(&text, &asked)?;
        let accounts = asked.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((rules, InForce { text, accounts }))
    }

    /// The rules that are in force already, as [`InForce::words`] gives them.
    ///
    /// # Errors
    /// As [`RuleSource::read`].
    pub(crate) fn again(&self, words: &[u8]) -> Result<(Rules, InForce), Failure> {
        let read = serde_json::from_slice::<InForce>(words);
        let in_force =
            read.map_err(|error| Failure::new(format!("the rules in force cannot be read: {error}")))?;
        let rules = self.taken(&in_force.text, &in_force)?;
        Ok((rules, in_force))
    }

    fn taken(&self, text: &str, known: &(dyn Known + Sync)) -> Result<Rules, Failure> {
        let rules = self.parse(text, known).map_err(|refused| refused.failure(&self.file))?;
        match rules.speaks_of_seals() {
            Some(rule) if !self.may_verify => Err(Failure::new(format!(
                "{}:{}: the rule `{}` says `verify`, and the mount has no seal",
                shown(&self.file),
                rule.line,
                rule.name
            ))
            .hint("mount with --verify=if-sealed --trust KEY.pub, or leave `verify` out")),
            _ => Ok(rules),
        }
    }

    /// What is probably not meant in it, for whoever mounts by it.
    pub(crate) fn warnings(&self, rules: &Rules) -> Vec<String> {
        let name = shown(&self.file);
        rules.warnings().iter().map(|warning| shown(format!("{name}:{warning}"))).collect()
    }

    /// Reads it to be looked at, whoever can change it.
    ///
    /// # Errors
    /// Every mistake with its place, or why it cannot be read.
    pub(super) fn look(&self) -> Result<Rules, Refused> {
        let text = text_of(&regular::open(&self.file).map_err(unreadable)?)?;
        self.parse(&text, &Machine)
    }

    /// Who else could change it, so that no mount of this user would take it.
    pub(super) fn untrusted(&self) -> Option<String> {
        trusted::hold(&self.file).err().map(|why| shown(why.to_string()))
    }

    fn parse(&self, text: &str, known: &(dyn Known + Sync)) -> Result<Rules, Refused> {
        let parsed = Rules::parse(text, &shown(&self.file), self.view.as_deref(), known);
        parsed.map_err(Refused::Mistakes)
    }
}

/// Rules as they were read, with the numbers that their accounts had: what is in force, whatever became of the file and of the accounts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct InForce {
    text: String,
    accounts: Accounts,
}

/// The numbers of users and groups, by their names.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct Accounts {
    users: BTreeMap<String, u32>,
    groups: BTreeMap<String, u32>,
}

impl InForce {
    /// For the next server.
    pub(crate) fn words(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a text and numbers are JSON")
    }
}

impl Known for InForce {
    fn user(&self, name: &str) -> Option<u32> {
        self.accounts.users.get(name).copied()
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.accounts.groups.get(name).copied()
    }

    fn policies(&self) -> &[&str] {
        Machine.policies()
    }
}

/// This machine, and which of its accounts were asked for.
#[derive(Default)]
struct Asked(Mutex<Accounts>);

impl Asked {
    fn note(
        &self,
        name: &str,
        id: Option<u32>,
        of: fn(&mut Accounts) -> &mut BTreeMap<String, u32>,
    ) -> Option<u32> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        of(&mut accounts).extend(id.map(|id| (name.to_owned(), id)));
        id
    }
}

impl Known for Asked {
    fn user(&self, name: &str) -> Option<u32> {
        self.note(name, Machine.user(name), |accounts| &mut accounts.users)
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.note(name, Machine.group(name), |accounts| &mut accounts.groups)
    }

    fn policies(&self) -> &[&str] {
        Machine.policies()
    }
}

/// Why a file of rules is not taken.
#[derive(Debug)]
pub(super) enum Refused {
    /// Somebody else could change it.
    Untrusted(String),
    /// It cannot be read, or is no file of rules.
    Unreadable(String),
    /// There are mistakes in it.
    Mistakes(Mistakes),
}

impl Refused {
    /// What is said where one file was asked for.
    pub(super) fn failure(self, file: &Path) -> Failure {
        let name = shown(file);
        match self {
            Self::Unreadable(why) => Failure::new(format!("cannot read the rules in {name}: {}", shown(why))),
            Self::Untrusted(why) => {
                Failure::new(format!("the rules in {name} are not trusted: {}", shown(why)))
                    .hint("who can change rules decides who sees what: only root and the server's user may")
            }
            Self::Mistakes(mistakes) => {
                let count = counted(mistakes.all.len());
                let lines = mistakes.all.iter().map(|mistake| shown(format!("{name}:{mistake}")));
                Failure::new(format!("there {count} in the rules")).details(lines)
            }
        }
    }
}

/// How many mistakes there are, in words.
pub(super) fn counted(mistakes: usize) -> String {
    if mistakes == 1 { "is a mistake".to_owned() } else { format!("are {mistakes} mistakes") }
}

fn unreadable(error: impl Display) -> Refused {
    Refused::Unreadable(without_numbers(&error.to_string()))
}

/// The text, where it stayed the same while it was read: half of a file can be rules that protect less.
fn text_of(file: &File) -> Result<String, Refused> {
    let known = || {
        let stat = stat_of(file).map_err(|error| unreadable(io::Error::from(error)))?;
        Ok((stat.size, stat.mtime, stat.ctime))
    };
    let before = known()?;
    let bytes = regular::read_all(file, BYTES_MAX).map_err(unreadable)?;
    if known()? != before {
        return Err(Refused::Unreadable("somebody is writing to it; try again".into()));
    }
    String::from_utf8(bytes).map_err(|_| Refused::Unreadable("it is not UTF-8".into()))
}
