//! The file as a whole.

use toml::de::{DeTable, DeValue};

use super::fields::{Fields, Value, table, wrong};
use super::{effects, matchers};
use crate::known::Known;
use crate::mistake::{Findings, Mistake};
use crate::model::{Effects, MatchMode, Rule};

/// The most rules that one file may hold.
const RULES_MAX: usize = 10_000;
/// The longest file.
const BYTES_MAX: usize = 4 << 20;

/// A file of rules, read.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) mode: MatchMode,
    pub(crate) rules: Vec<Rule>,
}

/// Reads a file of rules.
pub(crate) fn read(source: &str, known: &dyn Known) -> Result<Document, Vec<Mistake>> {
    let mut findings = Findings::new(source);
    let document = if source.len() > BYTES_MAX {
        findings.add(&(BYTES_MAX..BYTES_MAX), format!("a file of rules has at most {BYTES_MAX} bytes"));
        None
    } else {
        parse(source, &mut findings).map(|table| of_table(&table, known, &mut findings))
    };
    let mistakes = findings.sorted();
    match document {
        Some(document) if mistakes.is_empty() => Ok(document),
        _ => Err(mistakes),
    }
}

/// The TOML itself. Where it does not parse, what it would mean is not looked at.
fn parse<'s>(source: &'s str, findings: &mut Findings<'_>) -> Option<DeTable<'s>> {
    let (parsed, errors) = DeTable::parse_recoverable(source);
    if errors.is_empty() {
        return Some(parsed.into_inner());
    }
    for error in errors {
        findings.add(&error.span().unwrap_or(0..0), error.message().trim());
    }
    None
}

fn of_table(top: &DeTable<'_>, known: &dyn Known, findings: &mut Findings<'_>) -> Document {
    let fields = Fields::new(top, "key", &["match", "rule"], findings);
    let mode = match fields.text("match", findings) {
        None | Some(("first", _)) => MatchMode::First,
        Some(("all", _)) => MatchMode::All,
        Some((word, at)) => {
            findings.add_unknown(&at, "way to match", word, ["first", "all"]);
            MatchMode::First
        }
    };
    let mut rules = Vec::new();
    match fields.get("rule").map(|value| (value, value.get_ref())) {
        None => {}
        Some((value, DeValue::Array(list))) => {
            if list.len() > RULES_MAX {
                findings.add(&value.span(), format!("a file has at most {RULES_MAX} rules"));
                return Document { mode, rules };
            }
            rules.extend(list.iter().filter_map(|value| rule(value, known, findings)));
        }
        Some((value, DeValue::Table(_))) => {
            findings.add(&value.span(), "a rule starts with `[[rule]]`, in two brackets");
        }
        Some((value, _)) => wrong(value, "rule", "a list of tables", findings),
    }
    if rules.is_empty() && findings.is_empty() {
        let text = "there is no rule, so nothing would be protected; a mount without rules has no --rules";
        findings.add(&(0..0), text);
    }
    check_names(&rules, top, findings);
    Document { mode, rules }
}

const KEYS: &[&str] = &[
    "name",
    "path",
    "basename",
    "type",
    "size",
    "owner",
    "group",
    "mode",
    "uid",
    "gid",
    "groups",
    "exe",
    "open",
    "view",
    "when",
    "allow",
    "deny",
    "hide",
    "read_only",
    "append_only",
    "flow",
    "cache",
    "redact",
    "place",
    "move",
    "verify",
];

fn rule(value: &Value<'_>, known: &dyn Known, findings: &mut Findings<'_>) -> Option<Rule> {
    let fields = Fields::new(table(value, "rule", findings)?, "key", KEYS, findings);
    let (line, _) = findings.place(value.span().start);
    let name = match fields.text("name", findings) {
        Some((name, at)) => {
            if name.is_empty() || name.chars().any(char::is_control) {
                findings.add(&at, "a name has at least one character, and none that controls a terminal");
            }
            name.to_owned()
        }
        None => format!("line {line}"),
    };
    let matchers = matchers::read(&fields, known, findings);
    let effects = effects::read(&fields, &matchers, known, findings);
    if effects == Effects::default() && fields.all(|key| KEYS.contains(&key) && !effects::KEYS.contains(&key))
    {
        findings.add(&value.span(), format!("the rule `{name}` decides nothing"));
    }
    Some(Rule { name, line, matchers, effects })
}

/// Two rules of one name could not be told apart in what is said of them.
fn check_names(rules: &[Rule], top: &DeTable<'_>, findings: &mut Findings<'_>) {
    let mut seen = std::collections::HashMap::new();
    let values = top.get("rule").and_then(|value| value.get_ref().as_array());
    let places: Vec<_> = values.into_iter().flatten().collect();
    for rule in rules {
        let Some(first) = seen.insert(rule.name.as_str(), rule.line) else { continue };
        let here = places.iter().find(|value| findings.place(value.span().start).0 == rule.line);
        if let Some(value) = here {
            let at = value
                .get_ref()
                .as_table()
                .and_then(|table| table.get("name"))
                .map_or_else(|| value.span(), |name| name.span());
            findings.add(&at, format!("the rule at line {first} is called `{}`, too", rule.name));
        }
    }
}
