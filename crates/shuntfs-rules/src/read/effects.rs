//! What a rule decides.

use toml::de::DeValue;

use super::fields::{Fields, Value, number, string, wrong};
use super::moves;
use crate::decision::{
    ByteSpan, CacheWord, ErrorNumber, FlowWord, REGEX_WITHIN_MAX, Redact, RegexRedaction, VerifyWord,
};
use crate::errno;
use crate::known::Known;
use crate::mistake::Findings;
use crate::model::{AccessWord, Effects, Matchers, OpenWord};
use crate::placing::names_branch;

/// The keys of effects.
pub(super) const KEYS: &[&str] = &[
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

/// The word by which an effect is left to the mount.
pub(crate) const MOUNT: &str = "mount";
/// The word for the whole view.
pub(crate) const NOTHING: &str = "nothing";

/// The most ranges that one rule may redact.
const RANGES_MAX: usize = 10_000;

pub(super) fn read(
    fields: &Fields<'_, '_>,
    matchers: &Matchers,
    known: &dyn Known,
    findings: &mut Findings<'_>,
) -> Effects {
    let access = access(fields, matchers, findings);
    let (read_only, append_only) = (fields.flag("read_only", findings), fields.flag("append_only", findings));
    let (flow_read, flow_write) = flows(fields, findings);
    let cache = fields.text("cache", findings).and_then(|(word, at)| {
        let words = CacheWord::ALL.map(CacheWord::word);
        choice(word, &words, |index| CacheWord::ALL.get(index).copied()).or_else(|| {
            findings.add_unknown(&at, "cache mode", word, words.into_iter().chain([MOUNT]));
            None
        })
    });
    let redact = fields.get("redact").and_then(|value| redact(value, findings));
    if matches!(redact, Some(Some(_)))
        && !matchers.open.is_empty()
        && let Some(at) = fields.place("redact")
    {
        findings.add(
            &at,
            "what is seen of a file is settled before it is opened: `redact` does not go with `open`",
        );
    }
    let place = fields.text("place", findings).and_then(|(word, at)| {
        if names_branch(word) {
            return Some(Some(word.to_owned()));
        }
        let words = known.policies();
        choice(word, words, |index| words.get(index).map(|word| (*word).to_owned())).or_else(|| {
            findings.add_unknown(&at, "policy", word, words.iter().copied().chain([MOUNT]));
            None
        })
    });
    let verify = verify(fields, findings);
    let moves = moves::read(fields, matchers, known, findings);
    let effects = Effects {
        access,
        read_only,
        append_only,
        flow_read,
        flow_write,
        cache,
        redact,
        place,
        moves,
        verify,
    };
    check_place(fields, matchers, &effects, findings);
    effects
}

/// Notes a rule that would place what it never matches: when something is made nobody knows what it will hold.
fn check_place(fields: &Fields<'_, '_>, matchers: &Matchers, effects: &Effects, findings: &mut Findings<'_>) {
    // That what is made is empty is said of those that are for nothing else.
    let is_said = matchers.open == [OpenWord::Create];
    if !matches!(effects.place, Some(Some(_))) || effects.beyond_place().is_some() || is_said {
        return;
    }
    for (is_asked, key) in
        [(!matchers.types.is_empty(), "type"), (matchers.size.is_some_and(|size| size.min > 0), "size")]
    {
        if let Some(at) = fields.place(key).filter(|_| is_asked) {
            let text = format!(
                "what is placed is empty when it is made, so the rule places nothing: go by its name, not by `{key}`"
            );
            findings.add(&at, text);
        }
    }
}

/// The keys that `verify = "off"` goes with: what says which file it is, whoever asks.
const NAMING: [&str; 5] = ["name", "path", "basename", "view", "verify"];

fn verify(fields: &Fields<'_, '_>, findings: &mut Findings<'_>) -> Option<Option<VerifyWord>> {
    let (word, at) = fields.text("verify", findings)?;
    let words = VerifyWord::ALL.map(VerifyWord::word);
    let said = choice(word, &words, |index| VerifyWord::ALL.get(index).copied());
    if said.is_none() {
        findings.add_unknown(&at, "way to verify", word, words.into_iter().chain([MOUNT]));
    }
    let matchers = |key: &str| NAMING.contains(&key) || KEYS.contains(&key);
    if said == Some(Some(VerifyWord::Off)) && !fields.all(matchers) {
        findings.add(
            &at,
            "what one reads unchecked, others find in the page cache: `verify = \"off\"` goes with `path`, `basename` and `view` only",
        );
    }
    said
}

/// One of the words, or the mount's own choice.
fn choice<T>(word: &str, words: &[&str], at: impl Fn(usize) -> Option<T>) -> Option<Option<T>> {
    if word == MOUNT {
        return Some(None);
    }
    words.iter().position(|known| *known == word).and_then(at).map(Some)
}

fn access(fields: &Fields<'_, '_>, matchers: &Matchers, findings: &mut Findings<'_>) -> Option<AccessWord> {
    let mut said = Vec::new();
    for (key, word) in [("allow", AccessWord::Allow), ("hide", AccessWord::Hide)] {
        match (fields.flag(key, findings), fields.get(key)) {
            (Some(true), _) => said.push((key, word)),
            (Some(false), Some(value)) => {
                findings.add(&value.span(), format!("`{key} = false` says nothing: leave it out"));
            }
            _ => {}
        }
    }
    if let Some((name, at)) = fields.text("deny", findings) {
        match ErrorNumber::named(name) {
            Some(number) => said.push(("deny", AccessWord::Deny(number))),
            None => findings.add_unknown(&at, "error", name, errno::names()),
        }
    }
    if let [(first, _), (second, _), ..] = said[..]
        && let Some(at) = fields.place(second)
    {
        findings.add(&at, format!("a rule has one of `{first}` and `{second}`"));
    }
    let (key, word) = *said.first()?;
    if word == AccessWord::Hide
        && !matchers.open.is_empty()
        && let Some(at) = fields.place(key)
    {
        findings.add(&at, "a name is hidden or not before it is opened: `hide` does not go with `open`");
    }
    Some(word)
}

type Flow = Option<Option<FlowWord>>;

fn flows(fields: &Fields<'_, '_>, findings: &mut Findings<'_>) -> (Flow, Flow) {
    let Some(value) = fields.get("flow") else { return (None, None) };
    let of_word = |word: &str, at: &std::ops::Range<usize>, findings: &mut Findings<'_>| {
        let words = FlowWord::ALL.map(FlowWord::word);
        choice(word, &words, |index| FlowWord::ALL.get(index).copied()).or_else(|| {
            findings.add_unknown(at, "flow", word, words.into_iter().chain([MOUNT]));
            None
        })
    };
    match value.get_ref() {
        DeValue::String(word) => {
            let flow = of_word(word, &value.span(), findings);
            (flow, flow)
        }
        DeValue::Table(table) => {
            let fields = Fields::new(table, "key of `flow`", &["read", "write"], findings);
            let mut flow = |key| {
                let (word, at) = fields.text(key, findings)?;
                of_word(word, &at, findings)
            };
            (flow("read"), flow("write"))
        }
        _ => {
            wrong(value, "flow", "a flow, or a table of `read` and `write`", findings);
            (None, None)
        }
    }
}

fn redact(value: &Value<'_>, findings: &mut Findings<'_>) -> Option<Option<Redact>> {
    let table = match value.get_ref() {
        DeValue::String(word) => {
            return match word.as_ref() {
                "whole" => Some(Some(Redact::Whole)),
                "exif-gps" => Some(Some(Redact::ExifGps)),
                NOTHING => Some(None),
                _ => {
                    findings.add_unknown(&value.span(), "redaction", word, ["whole", "exif-gps", NOTHING]);
                    None
                }
            };
        }
        DeValue::Table(table) => table,
        _ => {
            wrong(value, "redact", "`whole`, `exif-gps`, or a table of `ranges` or `regex`", findings);
            return None;
        }
    };
    let fields = Fields::new(table, "key of `redact`", &["ranges", "regex", "within", "group"], findings);
    match (fields.get("ranges"), fields.get("regex")) {
        (Some(list), None) => {
            for key in ["within", "group"] {
                if let Some(at) = fields.place(key) {
                    findings.add(&at, format!("`{key}` belongs to `regex`"));
                }
            }
            ranges(list, findings).map(|ranges| Some(Redact::Ranges(ranges)))
        }
        (None, Some(pattern)) => regex(pattern, &fields, findings).map(|regex| Some(Redact::Regex(regex))),
        _ => {
            findings.add(&value.span(), "a redaction has one of `ranges` and `regex`");
            None
        }
    }
}

fn ranges(value: &Value<'_>, findings: &mut Findings<'_>) -> Option<Vec<ByteSpan>> {
    let Some(list) = value.get_ref().as_array().filter(|list| !list.is_empty()) else {
        wrong(value, "ranges", "a list of `[start, end]`", findings);
        return None;
    };
    if list.len() > RANGES_MAX {
        findings.add(&value.span(), format!("a rule has at most {RANGES_MAX} ranges"));
        return None;
    }
    let spans: Vec<Option<ByteSpan>> = list.iter().map(|range| span(range, findings)).collect();
    spans.into_iter().collect()
}

fn span(value: &Value<'_>, findings: &mut Findings<'_>) -> Option<ByteSpan> {
    let numbers: Vec<Option<u64>> = match value.get_ref() {
        DeValue::Array(list) if matches!(list.len(), 1 | 2) => {
            list.iter().map(|end| number(end, "ranges", findings)).collect()
        }
        _ => {
            wrong(
                value,
                "ranges",
                "a list of `[start, end]`, or of `[start]` for all that follows",
                findings,
            );
            return None;
        }
    };
    let start = (*numbers.first()?)?;
    let end = match numbers.get(1) {
        None => None,
        Some(end) => Some((*end)?),
    };
    if end.is_some_and(|end| end <= start) {
        findings.add(&value.span(), "a range ends after it starts; the end is the first byte that stays");
        return None;
    }
    Some(ByteSpan { start, end })
}

fn regex(value: &Value<'_>, fields: &Fields<'_, '_>, findings: &mut Findings<'_>) -> Option<RegexRedaction> {
    let (pattern, at) = string(value, "regex", findings)?;
    let within = match fields.get("within") {
        Some(value) => {
            let within = number(value, "within", findings)?;
            if !(1..=REGEX_WITHIN_MAX).contains(&within) {
                findings.add(&value.span(), format!("`within` is from 1 to {REGEX_WITHIN_MAX} bytes"));
            }
            within
        }
        None => {
            findings.add(&at, "a regular expression needs `within`: how many bytes are searched");
            return None;
        }
    };
    let group = match fields.get("group") {
        Some(value) => usize::try_from(number(value, "group", findings)?).unwrap_or(usize::MAX),
        None => 0,
    };
    let compiled = regex::bytes::RegexBuilder::new(pattern).size_limit(REGEX_SIZE).build();
    match compiled {
        Ok(regex) if group < regex.captures_len() => {
            Some(RegexRedaction { pattern: pattern.to_owned(), within, group })
        }
        Ok(regex) => {
            let groups = regex.captures_len() - 1;
            let at = fields.get("group").map_or(at, |value| value.span());
            findings.add(&at, format!("the expression has no group {group}; its last one is {groups}"));
            None
        }
        Err(error) => {
            findings.add(&at, format!("the regular expression is not one: {}", short(&error)));
            None
        }
    }
}

/// The most memory that a compiled expression may take.
const REGEX_SIZE: usize = 1 << 20;

/// The reason alone: the crate's own message shows the expression over several lines.
fn short(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}
