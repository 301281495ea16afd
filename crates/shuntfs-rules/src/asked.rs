//! One question to the rules: whether a rule's matchers hold. Everything is looked up when the first rule asks for it,
//! and once.

use std::cell::OnceCell;
use std::sync::Arc;

use cel::Value;

use crate::condition::Condition;
use crate::facts::{Attributes, CallerFacts, FileFacts, Unknown, Use};
use crate::model::{Account, Matchers};
use crate::pattern::Patterns;
use crate::rules::last_component;

type Once<T> = OnceCell<Result<T, Unknown>>;

/// A file, a caller and a use.
pub(crate) struct Asked<'q> {
    file: &'q dyn FileFacts,
    caller: &'q dyn CallerFacts,
    how: Use,
    programs: &'q Patterns,
    attributes: Once<Attributes>,
    kind: Once<&'static str>,
    groups: Once<Vec<u32>>,
    exe: Once<Vec<u8>>,
    /// The rules whose pattern of a program matches.
    by_exe: Once<Vec<usize>>,
}

fn once<T>(cell: &Once<T>, find: impl FnOnce() -> Result<T, Unknown>) -> Result<&T, Unknown> {
    cell.get_or_init(find).as_ref().map_err(Clone::clone)
}

impl<'q> Asked<'q> {
    pub(crate) fn new(
        file: &'q dyn FileFacts,
        caller: &'q dyn CallerFacts,
        how: Use,
        programs: &'q Patterns,
    ) -> Self {
        Self {
            file,
            caller,
            how,
            programs,
            attributes: OnceCell::new(),
            kind: OnceCell::new(),
            groups: OnceCell::new(),
            exe: OnceCell::new(),
            by_exe: OnceCell::new(),
        }
    }

    /// Whether a rule matches whose patterns of paths do. What is cheap to know comes first.
    pub(crate) fn matches(
        &self,
        rule: usize,
        matchers: &Matchers,
        condition: Option<&Condition>,
    ) -> Result<bool, Unknown> {
        if !matchers.open.is_empty() && !matchers.open.iter().any(|word| self.how.has(*word)) {
            return Ok(false);
        }
        if !self.caller_matches(rule, matchers)? || !self.file_matches(matchers)? {
            return Ok(false);
        }
        match condition {
            None => Ok(true),
            Some(condition) => {
                condition.holds(&|name| self.variable(name).map_err(|error| error.0)).map_err(Unknown)
            }
        }
    }

    /// Whether a rule may hold for this caller, whatever the file.
    pub(crate) fn may_concern(
        &self,
        rule: usize,
        matchers: &Matchers,
        condition: Option<&Condition>,
    ) -> Result<bool, Unknown> {
        let value = |name: &str| self.variable(name).map_err(|error| error.0);
        Ok(self.caller_matches(rule, matchers)?
            && condition.map_or(Ok(true), |condition| condition.may_hold_for(&value)).map_err(Unknown)?)
    }

    /// Whether what a rule says of callers holds.
    pub(crate) fn caller_matches(&self, rule: usize, matchers: &Matchers) -> Result<bool, Unknown> {
        if !matchers.uid.is_empty() && !lists(&matchers.uid, self.caller.uid()?) {
            return Ok(false);
        }
        if !matchers.gid.is_empty() && !lists(&matchers.gid, self.caller.gid()?) {
            return Ok(false);
        }
        if !matchers.groups.is_empty() && !self.groups()?.iter().any(|group| lists(&matchers.groups, *group))
        {
            return Ok(false);
        }
        if matchers.exe.is_empty() {
            return Ok(true);
        }
        let by_exe = once(&self.by_exe, || {
            let mut found = Vec::new();
            self.programs.matching(self.exe()?, |rule| found.push(rule));
            Ok(found)
        });
        Ok(by_exe?.contains(&rule))
    }

    fn file_matches(&self, matchers: &Matchers) -> Result<bool, Unknown> {
        let Matchers { owner, group, mode, size, types, .. } = matchers;
        let is_asked = !owner.is_empty() || !group.is_empty() || mode.is_some() || size.is_some();
        if is_asked {
            let file = self.attributes()?;
            let holds = (owner.is_empty() || lists(owner, file.owner))
                && (group.is_empty() || lists(group, file.group))
                && mode.is_none_or(|bits| bits.holds(file.mode))
                && size.is_none_or(|range| (range.min..=range.max).contains(&file.size));
            if !holds {
                return Ok(false);
            }
        }
        if types.is_empty() {
            return Ok(true);
        }
        let kind = self.kind()?;
        Ok(types.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(family) => kind.starts_with(family),
            None => kind == wanted,
        }))
    }

    fn attributes(&self) -> Result<&Attributes, Unknown> {
        once(&self.attributes, || self.file.attributes())
    }

    /// The type of the content; empty where its first bytes do not tell.
    fn kind(&self) -> Result<&'static str, Unknown> {
        let kind = once(&self.kind, || {
            let head = self.file.head()?;
            Ok(infer::get(&head).map_or("", |kind| kind.mime_type()))
        });
        kind.copied()
    }

    fn groups(&self) -> Result<&Vec<u32>, Unknown> {
        once(&self.groups, || self.caller.groups())
    }

    fn exe(&self) -> Result<&[u8], Unknown> {
        once(&self.exe, || self.caller.exe()).map(Vec::as_slice)
    }

    /// What a condition's variable is.
    fn variable(&self, name: &str) -> Result<Value, Unknown> {
        let text = |bytes: &[u8]| Value::String(Arc::new(String::from_utf8_lossy(bytes).into_owned()));
        let number = |number: u32| Value::Int(i64::from(number));
        Ok(match name {
            "path" => text(self.file.path()),
            "basename" => text(last_component(self.file.path())),
            "type" => text(self.kind()?.as_bytes()),
            "size" => Value::Int(i64::try_from(self.attributes()?.size).unwrap_or(i64::MAX)),
            "owner" => number(self.attributes()?.owner),
            "group" => number(self.attributes()?.group),
            "mode" => number(self.attributes()?.mode),
            "uid" => number(self.caller.uid()?),
            "gid" => number(self.caller.gid()?),
            "groups" => Value::List(Arc::new(self.groups()?.iter().copied().map(number).collect())),
            "exe" => text(self.exe()?),
            "open" => {
                let words = self.how.words().map(|word| text(word.word().as_bytes()));
                Value::List(Arc::new(words.collect()))
            }
            other => return Err(Unknown(format!("there is no variable `{other}`"))),
        })
    }
}

fn lists(accounts: &[Account], id: u32) -> bool {
    accounts.iter().any(|account| account.id == id)
}
