//! What a rule matches.

use std::ops::Range;

use toml::de::DeValue;

use super::fields::{Fields, Value, number, string, table, wrong};
use crate::condition::Condition;
use crate::kinds;
use crate::known::Known;
use crate::mistake::Findings;
use crate::model::{Account, Matchers, ModeBits, OpenWord, SizeRange};
use crate::pattern;
use crate::units;

pub(super) fn read(fields: &Fields<'_, '_>, known: &dyn Known, findings: &mut Findings<'_>) -> Matchers {
    let user = |name: &str| known.user(name);
    let group = |name: &str| known.group(name);
    let matchers = Matchers {
        path: patterns(fields, "path", findings),
        basename: patterns(fields, "basename", findings),
        types: types(fields, findings),
        size: fields.get("size").and_then(|value| size(value, findings)),
        owner: accounts(fields, "owner", &user, findings),
        group: accounts(fields, "group", &group, findings),
        mode: fields.get("mode").and_then(|value| mode(value, findings)),
        uid: accounts(fields, "uid", &user, findings),
        gid: accounts(fields, "gid", &group, findings),
        groups: accounts(fields, "groups", &group, findings),
        exe: patterns(fields, "exe", findings),
        open: opens(fields, findings),
        view: views(fields, findings),
        when: when(fields, known, findings),
    };
    check_together(fields, &matchers, findings);
    matchers
}

/// Notes what cannot hold together, so that the rule would match nothing.
fn check_together(fields: &Fields<'_, '_>, matchers: &Matchers, findings: &mut Findings<'_>) {
    let Matchers { path, basename, types, size, open, .. } = matchers;
    let mut never = |key: &str, text: &str| {
        if let Some(at) = fields.place(key) {
            findings.add(&at, text);
        }
    };
    let meets = |path: &String| basename.iter().any(|basename| pattern::may_meet(path, basename));
    if !path.is_empty() && !basename.is_empty() && !path.iter().any(meets) {
        never("basename", "no path that matches `path` ends like this, so the rule matches nothing");
    }
    let (is_empty, is_large) =
        (size.is_some_and(|size| size.max == 0), size.is_some_and(|size| size.min > 0));
    if !types.is_empty() && is_empty {
        never("type", "an empty file has no type, so the rule matches nothing");
    }
    if *open == [OpenWord::Create] && !types.is_empty() {
        never("type", "what is being made is empty and has no type, so the rule matches nothing");
    }
    if *open == [OpenWord::Create] && is_large {
        never("size", "what is being made is empty, so the rule matches nothing");
    }
}

fn patterns(fields: &Fields<'_, '_>, key: &str, findings: &mut Findings<'_>) -> Vec<String> {
    let mut patterns = Vec::new();
    for (text, at) in fields.texts(key, findings) {
        match pattern::check(key, text) {
            Ok(()) => patterns.push(text.to_owned()),
            Err(error) => findings.add(&at, error),
        }
    }
    patterns
}

fn types(fields: &Fields<'_, '_>, findings: &mut Findings<'_>) -> Vec<String> {
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+._".contains(&byte))
    };
    let mut types = Vec::new();
    for (text, at) in fields.texts("type", findings) {
        match text.split_once('/') {
            Some((first, second)) if word(first) && (second == "*" || word(second)) => {
                match kinds::check(text) {
                    Ok(()) => types.push(text.to_owned()),
                    Err(error) => findings.add(&at, error),
                }
            }
            _ => findings.add(&at, format!("`{text}` is no type: `image/jpeg`, or `image/*`")),
        }
    }
    types
}

fn size(value: &Value<'_>, findings: &mut Findings<'_>) -> Option<SizeRange> {
    let table = table(value, "size", findings)?;
    let fields = Fields::new(table, "key of `size`", &["min", "max"], findings);
    let mut end = |key: &str| fields.get(key).map(|value| bytes(value, key, findings));
    let (min, max) = (end("min"), end("max"));
    let range = SizeRange { min: min.unwrap_or(Some(0))?, max: max.unwrap_or(Some(u64::MAX))? };
    if range.min > range.max {
        findings.add(&value.span(), "`min` is more than `max`, so no size fits");
        return None;
    }
    Some(range)
}

/// A number of bytes, with or without K, M, G or T, each 1024 times the one before.
fn bytes(value: &Value<'_>, key: &str, findings: &mut Findings<'_>) -> Option<u64> {
    let DeValue::String(text) = value.get_ref() else { return number(value, key, findings) };
    let parsed = units::size(text);
    if parsed.is_none() {
        findings.add(&value.span(), units::no_size(text));
    }
    parsed
}

fn mode(value: &Value<'_>, findings: &mut Findings<'_>) -> Option<ModeBits> {
    let fields =
        Fields::new(table(value, "mode", findings)?, "key of `mode`", &["all", "any", "none"], findings);
    let mut bits = ModeBits::default();
    for (key, place) in [("all", &mut bits.all), ("any", &mut bits.any), ("none", &mut bits.none)] {
        let Some((text, at)) = fields.text(key, findings) else { continue };
        match units::mode(text) {
            Some(parsed) => *place = parsed,
            None => findings.add(&at, units::no_mode(text)),
        }
    }
    if bits.all & bits.none != 0 || bits.any != 0 && bits.any & !bits.none == 0 {
        let text = "`none` has bits that `all` or `any` asks for, so no mode fits";
        findings.add(&value.span(), text);
    }
    Some(bits)
}

fn accounts(
    fields: &Fields<'_, '_>,
    key: &str,
    find: &dyn Fn(&str) -> Option<u32>,
    findings: &mut Findings<'_>,
) -> Vec<Account> {
    let mut accounts = Vec::new();
    for value in fields.list(key, findings) {
        match value.get_ref() {
            DeValue::Integer(_) => match number(value, key, findings).map(u32::try_from) {
                Some(Ok(id)) if id != u32::MAX => accounts.push(Account { id, name: None }),
                Some(_) => findings.add(&value.span(), "an id is at most 4294967294"),
                None => {}
            },
            DeValue::String(name) => match find(name) {
                Some(id) => accounts.push(Account { id, name: Some(name.to_string()) }),
                None => {
                    let what = if matches!(key, "owner" | "uid") { "user" } else { "group" };
                    findings.add(&value.span(), format!("there is no {what} `{name}` on this machine"));
                }
            },
            _ => wrong(value, key, "a name or a number, or a list of them", findings),
        }
    }
    accounts
}

fn opens(fields: &Fields<'_, '_>, findings: &mut Findings<'_>) -> Vec<OpenWord> {
    let mut opens = Vec::new();
    for (text, at) in fields.texts("open", findings) {
        match OpenWord::ALL.into_iter().find(|word| word.word() == text) {
            Some(word) => opens.push(word),
            None => findings.add_unknown(&at, "way to open", text, OpenWord::ALL.map(OpenWord::word)),
        }
    }
    opens
}

fn views(fields: &Fields<'_, '_>, findings: &mut Findings<'_>) -> Vec<String> {
    let texts = fields.texts("view", findings);
    let mut views = Vec::new();
    for (text, at) in texts {
        if text.is_empty() {
            findings.add(&at, "a view has a name");
        }
        views.push(text.to_owned());
    }
    views
}

fn when(fields: &Fields<'_, '_>, known: &dyn Known, findings: &mut Findings<'_>) -> Option<String> {
    let (text, at) = string(fields.get("when")?, "when", findings)?;
    if let Err(faults) = Condition::compile(text, known) {
        for fault in faults {
            let place = inside(findings.source(), &at, text, fault.offset);
            findings.add(&place, fault.text);
        }
    }
    Some(text.to_owned())
}

/// The place of a byte of a string's text, where the text stands in the source as it is; else the string's own.
fn inside(source: &str, at: &Range<usize>, text: &str, offset: usize) -> Range<usize> {
    let start = source.get(at.clone()).and_then(|written| written.find(text));
    match start {
        Some(start) if !text.is_empty() => {
            let place = at.start + start + offset.min(text.len());
            place..place
        }
        _ => at.clone(),
    }
}
