//! Taking typed values out of a table; what does not fit is noted as a mistake with its place.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistake::Findings;

/// A value with its place in the source.
pub(super) type Value<'d> = Spanned<DeValue<'d>>;

/// One table, with the keys that it may have.
pub(super) struct Fields<'t, 'd> {
    table: &'t DeTable<'d>,
}

impl<'t, 'd> Fields<'t, 'd> {
    /// Notes every key that is not known.
    pub(super) fn new(
        table: &'t DeTable<'d>,
        what: &str,
        keys: &[&str],
        findings: &mut Findings<'_>,
    ) -> Self {
        for (key, _) in table.iter() {
            if !keys.contains(&key.get_ref().as_ref()) {
                findings.add_unknown(&key.span(), what, key.get_ref(), keys.iter().copied());
            }
        }
        Self { table }
    }

    /// Whether `test` holds for all keys that are there.
    pub(super) fn all(&self, test: impl Fn(&str) -> bool) -> bool {
        self.table.iter().all(|(key, _)| test(key.get_ref()))
    }

    pub(super) fn get(&self, key: &str) -> Option<&'t Value<'d>> {
        self.table.get(key)
    }

    /// Where a key stands.
    pub(super) fn place(&self, key: &str) -> Option<Range<usize>> {
        self.table.get_key_value(key).map(|(key, _)| key.span())
    }

    /// One string.
    pub(super) fn text(&self, key: &str, findings: &mut Findings<'_>) -> Option<(&'t str, Range<usize>)> {
        let value = self.get(key)?;
        string(value, key, findings)
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str, findings: &mut Findings<'_>) -> Option<bool> {
        let value = self.get(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            wrong(value, key, "true or false", findings);
        }
        flag
    }

    /// A value, or a list of them.
    pub(super) fn list(&self, key: &str, findings: &mut Findings<'_>) -> Vec<&'t Value<'d>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let Some(list) = value.get_ref().as_array() else { return vec![value] };
        if list.is_empty() {
            let text =
                format!("`{key}` is empty, so the rule matches nothing: leave it out to match everything");
            findings.add(&value.span(), text);
        }
        list.iter().collect()
    }

    /// A string, or a list of strings.
    pub(super) fn texts(&self, key: &str, findings: &mut Findings<'_>) -> Vec<(&'t str, Range<usize>)> {
        let list = self.list(key, findings);
        list.into_iter().filter_map(|value| string(value, key, findings)).collect()
    }
}

/// A string.
pub(super) fn string<'t>(
    value: &'t Value<'_>,
    key: &str,
    findings: &mut Findings<'_>,
) -> Option<(&'t str, Range<usize>)> {
    match value.get_ref() {
        DeValue::String(text) => Some((text.as_ref(), value.span())),
        _ => {
            wrong(value, key, "a string", findings);
            None
        }
    }
}

/// A number that is not negative; at most what every reader of TOML counts to.
pub(super) fn number(value: &Value<'_>, key: &str, findings: &mut Findings<'_>) -> Option<u64> {
    let number = match value.get_ref() {
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix()).ok(),
        _ => None,
    };
    let number = number.and_then(|number| u64::try_from(number).ok());
    if number.is_none() {
        wrong(value, key, "a number from 0 on", findings);
    }
    number
}

/// A table.
pub(super) fn table<'t, 'd>(
    value: &'t Value<'d>,
    key: &str,
    findings: &mut Findings<'_>,
) -> Option<&'t DeTable<'d>> {
    let table = value.get_ref().as_table();
    if table.is_none() {
        wrong(value, key, "a table", findings);
    }
    table
}

/// Notes that a value is of the wrong kind.
pub(super) fn wrong(value: &Value<'_>, key: &str, expected: &str, findings: &mut Findings<'_>) {
    let is = match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    let text = if is == expected || expected.starts_with(is) {
        format!("`{key}` must be {expected}")
    } else {
        format!("`{key}` must be {expected}, and this is {is}")
    };
    findings.add(&value.span(), text);
}
