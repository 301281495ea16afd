//! Rules as a file again, with every default written out.

use std::fmt::Write as _;
use std::time::Duration;

use toml::Value;

use crate::condition::Condition;
use crate::decision::{CacheWord, FlowWord, Redact, VerifyWord};
use crate::model::{AccessWord, Account, Effects, MatchMode, Matchers, ModeBits, OpenWord, Rule, SizeRange};
use crate::moving::MoveStep;
use crate::read::{MOUNT, NOTHING};

/// The text of a file that means the same.
pub(crate) fn show<'r>(
    mode: MatchMode,
    rules: impl Iterator<Item = (&'r Rule, Option<&'r Condition>)>,
) -> String {
    let mut text = String::new();
    let word = match mode {
        MatchMode::First => "first",
        MatchMode::All => "all",
    };
    line(&mut text, "match", &Value::from(word));
    for (rule, condition) in rules {
        text.push_str("\n[[rule]]\n");
        line(&mut text, "name", &Value::from(rule.name.as_str()));
        matchers(&mut text, &rule.matchers);
        for (name, kind) in condition.into_iter().flat_map(Condition::types) {
            let _infallible = writeln!(text, "#   {name} is {kind}");
        }
        effects(&mut text, mode, &rule.effects);
    }
    text
}

fn line(text: &mut String, key: &str, value: &Value) {
    let _infallible = writeln!(text, "{key} = {value}");
}

/// A matcher; one that was not given stands there as a comment, because there is no value that says so.
fn matcher(text: &mut String, key: &str, value: Option<Value>) {
    match value {
        Some(value) => line(text, key, &value),
        None => {
            let _infallible = writeln!(text, "# {key}: any");
        }
    }
}

fn matchers(text: &mut String, matchers: &Matchers) {
    let Matchers { path, basename, types, size, owner, group, mode, uid, gid, groups, exe, open, view, when } =
        matchers;
    let accounts = |list: &[Account]| list_of(list.iter().map(account));
    let fields = [
        ("path", texts(path)),
        ("basename", texts(basename)),
        ("type", texts(types)),
        ("size", size.map(size_range)),
        ("owner", accounts(owner)),
        ("group", accounts(group)),
        ("mode", mode.map(mode_bits)),
        ("uid", accounts(uid)),
        ("gid", accounts(gid)),
        ("groups", accounts(groups)),
        ("exe", texts(exe)),
        ("open", list_of(open.iter().map(|word| Value::from(OpenWord::word(*word))))),
        ("view", texts(view)),
        ("when", when.as_deref().map(Value::from)),
    ];
    for (key, value) in fields {
        matcher(text, key, value);
    }
}

fn list_of(values: impl Iterator<Item = Value>) -> Option<Value> {
    let list: Vec<Value> = values.collect();
    (!list.is_empty()).then_some(Value::Array(list))
}

fn texts(list: &[String]) -> Option<Value> {
    list_of(list.iter().map(|text| Value::from(text.as_str())))
}

fn account(account: &Account) -> Value {
    match &account.name {
        Some(name) => Value::from(name.as_str()),
        None => Value::from(i64::from(account.id)),
    }
}

fn table<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Table(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A number of bytes: beyond what TOML counts to, as text.
fn bytes(number: u64) -> Value {
    i64::try_from(number).map_or_else(|_| Value::from(number.to_string()), Value::from)
}

fn size_range(range: SizeRange) -> Value {
    table([("min", bytes(range.min)), ("max", bytes(range.max))])
}

fn mode_bits(bits: ModeBits) -> Value {
    let octal = |bits: u32| Value::from(format!("{bits:04o}"));
    table([("all", octal(bits.all)), ("any", octal(bits.any)), ("none", octal(bits.none))])
}

/// Of a rule that only moves files nothing else is written: with anything else in it, it would say who may use them, too.
///
/// Where the first match decides, what a rule does not speak of has its default; where all do, it is what rules before
/// it said, and stays out.
fn effects(text: &mut String, mode: MatchMode, effects: &Effects) {
    if let Some(steps) = effects.moves.as_deref() {
        line(text, "move", &moves(steps));
        if effects.moves_alone() {
            return;
        }
    }
    let is_first = mode == MatchMode::First;
    match effects.access.or(is_first.then_some(AccessWord::Allow)) {
        Some(AccessWord::Allow) => line(text, "allow", &Value::from(true)),
        Some(AccessWord::Deny(number)) => line(text, "deny", &Value::from(number.name())),
        Some(AccessWord::Hide) => line(text, "hide", &Value::from(true)),
        None => {}
    }
    for (key, said) in [("read_only", effects.read_only), ("append_only", effects.append_only)] {
        if let Some(flag) = said.or(is_first.then_some(false)) {
            line(text, key, &Value::from(flag));
        }
    }
    for (key, said) in [("flow.read", effects.flow_read), ("flow.write", effects.flow_write)] {
        if let Some(flow) = said.or(is_first.then_some(None)) {
            line(text, key, &Value::from(flow.map_or(MOUNT, FlowWord::word)));
        }
    }
    if let Some(cache) = effects.cache.or(is_first.then_some(None)) {
        line(text, "cache", &Value::from(cache.map_or(MOUNT, CacheWord::word)));
    }
    if let Some(said) = effects.redact.as_ref().or(is_first.then_some(&None)) {
        line(text, "redact", &said.as_ref().map_or_else(|| Value::from(NOTHING), redact));
    }
    if let Some(place) = effects.place.as_ref().or(is_first.then_some(&None)) {
        line(text, "place", &Value::from(place.as_deref().unwrap_or(MOUNT)));
    }
    if let Some(verify) = effects.verify.or(is_first.then_some(None)) {
        line(text, "verify", &Value::from(verify.map_or(MOUNT, VerifyWord::word)));
    }
}

fn moves(steps: &[MoveStep]) -> Value {
    let step = |step: &MoveStep| {
        let age = |age: Duration| Value::from(format!("{}s", age.as_secs()));
        let fields = [
            ("to", texts(&step.to)),
            ("from", texts(&step.from)),
            ("by", Some(Value::from(step.by.word()))),
            ("after", step.after.map(age)),
            ("within", step.within.map(age)),
            ("when_fuller_than", step.fuller_than.map(|percent| Value::from(format!("{percent}%")))),
        ];
        let said = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Value::Table(said.collect())
    };
    list_of(steps.iter().map(step)).unwrap_or_else(|| Value::from(MOUNT))
}

fn redact(redact: &Redact) -> Value {
    match redact {
        Redact::Whole => Value::from("whole"),
        Redact::ExifGps => Value::from("exif-gps"),
        Redact::Ranges(spans) => {
            let span = |start: u64, end: Option<u64>| {
                Value::Array([Some(start), end].into_iter().flatten().map(bytes).collect())
            };
            table([(
                "ranges",
                spans.iter().map(|range| span(range.start, range.end)).collect::<Vec<_>>().into(),
            )])
        }
        Redact::Regex(regex) => table([
            ("regex", Value::from(regex.pattern.as_str())),
            ("within", bytes(regex.within)),
            ("group", bytes(regex.group as u64)),
        ]),
    }
}
