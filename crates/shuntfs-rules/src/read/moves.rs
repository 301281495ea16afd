//! What a rule says of moving files.

use toml::de::{DeTable, DeValue};

use super::effects::MOUNT;
use super::fields::{Fields, Value, table, wrong};
use crate::condition::Condition;
use crate::known::Known;
use crate::mistake::Findings;
use crate::model::Matchers;
use crate::moving::{MoveStep, TimeWord};
use crate::placing::names_branch;
use crate::units;

/// The most steps of one rule.
const STEPS_MAX: usize = 16;

/// The keys of a step.
const KEYS: &[&str] = &["to", "from", "by", "after", "within", "when_fuller_than"];

/// What is asked of who uses a file, which nobody does when it is moved.
const OF_CALLERS: [&str; 5] = ["uid", "gid", "groups", "exe", "open"];

pub(super) fn read(
    fields: &Fields<'_, '_>,
    matchers: &Matchers,
    known: &dyn Known,
    findings: &mut Findings<'_>,
) -> Option<Vec<MoveStep>> {
    let value = fields.get("move")?;
    check_callers(fields, matchers, known, findings);
    match value.get_ref() {
        DeValue::String(word) if word == MOUNT => Some(Vec::new()),
        DeValue::Table(table) => Some(vec![step(value, table, findings)?]),
        DeValue::Array(list) if (1..=STEPS_MAX).contains(&list.len()) => {
            let one = |value: &Value<'_>| step(value, table(value, "move", findings)?, findings);
            let steps: Vec<Option<MoveStep>> = list.iter().map(one).collect();
            steps.into_iter().collect()
        }
        DeValue::Array(_) => {
            findings.add(&value.span(), format!("a rule has from 1 to {STEPS_MAX} steps in `move`"));
            None
        }
        _ => {
            wrong(value, "move", "a table with `to`, a list of them, or `mount`", findings);
            None
        }
    }
}

/// Notes what is asked of a caller.
fn check_callers(
    fields: &Fields<'_, '_>,
    matchers: &Matchers,
    known: &dyn Known,
    findings: &mut Findings<'_>,
) {
    for key in OF_CALLERS {
        if let Some(at) = fields.place(key) {
            findings.add(&at, format!("nobody asks when files are moved: `move` does not go with `{key}`"));
        }
    }
    let condition = matchers.when.as_deref().and_then(|text| Condition::compile(text, known).ok());
    let named = condition.iter().flat_map(Condition::types).find(|(name, _)| OF_CALLERS.contains(name));
    if let Some(((name, _), at)) = named.zip(fields.place("when")) {
        findings.add(
            &at,
            format!("nobody asks when files are moved: `move` does not go with a condition about `{name}`"),
        );
    }
}

fn step(value: &Value<'_>, table: &DeTable<'_>, findings: &mut Findings<'_>) -> Option<MoveStep> {
    let fields = Fields::new(table, "key of `move`", KEYS, findings);
    let mut branches = |key: &str| {
        let mut named = Vec::new();
        for (text, at) in fields.texts(key, findings) {
            if names_branch(text) {
                named.push(text.to_owned());
            } else {
                findings.add(&at, format!("`{text}` is no branch: its path, or `id=` and what it is called"));
            }
        }
        named
    };
    let (to, from) = (branches("to"), branches("from"));
    if fields.get("to").is_none() {
        findings.add(&value.span(), "`move` says where to: `to` is missing");
    }
    if let Some(both) = from.iter().find(|branch| to.contains(branch))
        && let Some(at) = fields.place("from")
    {
        findings.add(&at, format!("what is on `{both}` would be moved to where it is"));
    }
    let by = fields.text("by", findings).and_then(|(word, at)| {
        let found = TimeWord::ALL.into_iter().find(|time| time.word() == word);
        if found.is_none() {
            findings.add_unknown(&at, "time", word, TimeWord::ALL.map(TimeWord::word));
        }
        found
    });
    let mut age = |key: &str| {
        let (text, at) = fields.text(key, findings)?;
        // Days are meant more often than seconds, so a number alone is none; and ages are whole seconds.
        let has_unit = text.ends_with(|letter: char| letter.is_ascii_alphabetic());
        let age = units::duration(text).filter(|age| has_unit && age.subsec_nanos() == 0);
        if age.is_none() {
            findings.add(&at, format!("`{text}` is no time: a number with s, m, h, d or w, as in `30d`"));
        }
        age
    };
    let (after, within) = (age("after"), age("within"));
    if after.zip(within).is_some_and(|(after, within)| after > within)
        && let Some(at) = fields.place("within")
    {
        findings.add(&at, "`after` is more than `within`, so no age fits");
    }
    let fuller_than = fields.text("when_fuller_than", findings).and_then(|(text, at)| {
        let percent = units::percent(text);
        if percent.is_none() {
            findings.add(&at, format!("`{text}` is no share of a disk: from `1%` to `99%`"));
        }
        percent
    });
    (!to.is_empty()).then(|| MoveStep { to, from, by: by.unwrap_or_default(), after, within, fuller_than })
}
