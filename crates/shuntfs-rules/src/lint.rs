//! Rules that never decide, because others stand in their way. Each may be meant, so they are said and not refused.

use std::collections::HashMap;

use crate::mistake::Mistake;
use crate::model::{Account, Effects, MatchMode, Matchers, Rule};
use crate::pattern;

/// How many rules that match much are held against all others.
const BROAD_MAX: usize = 256;

/// What must be said of these rules.
pub(crate) fn warnings(mode: MatchMode, rules: &[Rule]) -> Vec<Mistake> {
    // Rules that move files and those that say who may use them do not stand in each other's way. What does both is in neither's.
    let uses = || rules.iter().filter(|rule| !rule.effects.moves_alone());
    let moves = || rules.iter().filter(|rule| rule.effects.moves.is_some());
    let found: Vec<(&Rule, &Rule)> = match mode {
        MatchMode::First => overruled(uses()).chain(overruled(moves())).collect(),
        MatchMode::All => overruled(uses().rev()).chain(overruled(moves().rev())).collect(),
    };
    let is_told = |(rule, by): &(&Rule, &Rule)| {
        let does_both = rule.effects.moves.is_some() && !rule.effects.moves_alone();
        !does_both && (mode == MatchMode::First || replaces(&by.effects, &rule.effects))
    };
    let why = match mode {
        MatchMode::First => "decides before it on everything that it matches",
        MatchMode::All => "replaces all that it says, wherever it matches",
    };
    let told = found.into_iter().filter(is_told);
    let mut warnings: Vec<Mistake> = told.map(|(rule, by)| format_at(rule, by, why)).collect();
    warnings.sort();
    warnings
}

fn format_at(rule: &Rule, by: &Rule, why: &str) -> Mistake {
    let (name, by, line) = (&rule.name, &by.name, by.line);
    let text = format!("the rule `{name}` never decides: the rule `{by}` (line {line}) {why}");
    Mistake { line: rule.line, column: 1, text }
}

/// Rules, each with one that comes before it in this order and matches all that it matches.
fn overruled<'r>(rules: impl Iterator<Item = &'r Rule>) -> impl Iterator<Item = (&'r Rule, &'r Rule)> {
    let mut broad: Vec<&Rule> = Vec::new();
    let mut same: HashMap<String, &Rule> = HashMap::new();
    rules.filter_map(move |rule| {
        let key = format!("{:?}", rule.matchers);
        let by = broad.iter().find(|earlier| covers(&earlier.matchers, &rule.matchers)).or(same.get(&key));
        let found = by.map(|by| (rule, *by));
        if broad.len() < BROAD_MAX && is_broad(&rule.matchers) {
            broad.push(rule);
        }
        same.entry(key).or_insert(rule);
        found
    })
}

fn is_broad(matchers: &Matchers) -> bool {
    matchers.path.is_empty() || matchers.path.iter().any(|path| path.ends_with("**"))
}

/// Whether one matches wherever the other does. What is hard to tell is not.
fn covers(one: &Matchers, other: &Matchers) -> bool {
    let Matchers { path, basename, types, size, owner, group, mode, uid, gid, groups, exe, open, view, when } =
        one;
    let by_path = |wide: &String, narrow: &String| pattern::covers(wide, narrow);
    // What is dear to compare comes last.
    lists(basename, &other.basename, |one, other| one == other)
        && lists(types, &other.types, covers_type)
        && size
            .is_none_or(|size| other.size.is_some_and(|other| size.min <= other.min && other.max <= size.max))
        && accounts(owner, &other.owner)
        && accounts(group, &other.group)
        && (mode.is_none() || *mode == other.mode)
        && accounts(uid, &other.uid)
        && accounts(gid, &other.gid)
        && accounts(groups, &other.groups)
        && lists(exe, &other.exe, |one, other| one == other)
        && lists(open, &other.open, |one, other| one == other)
        && lists(view, &other.view, |one, other| one == other)
        && (when.is_none() || *when == other.when)
        && lists(path, &other.path, by_path)
}

/// Whether every entry of the second list is covered by one of the first; an empty list holds always.
fn lists<T>(one: &[T], other: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    one.is_empty()
        || !other.is_empty() && other.iter().all(|narrow| one.iter().any(|wide| covers(wide, narrow)))
}

fn accounts(one: &[Account], other: &[Account]) -> bool {
    lists(one, other, |one, other| one.id == other.id)
}

fn covers_type(wide: &String, narrow: &String) -> bool {
    wide == narrow || wide.strip_suffix('*').is_some_and(|family| narrow.starts_with(family))
}

/// Whether what the second says is all said anew by the first.
fn replaces(one: &Effects, other: &Effects) -> bool {
    let Effects {
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
    } = other;
    (access.is_none() || one.access.is_some())
        && (read_only.is_none() || one.read_only.is_some())
        && (append_only.is_none() || one.append_only.is_some())
        && (flow_read.is_none() || one.flow_read.is_some())
        && (flow_write.is_none() || one.flow_write.is_some())
        && (cache.is_none() || one.cache.is_some())
        && (redact.is_none() || one.redact.is_some())
        && (place.is_none() || one.place.is_some())
        && (moves.is_none() || one.moves.is_some())
        && (verify.is_none() || one.verify.is_some())
}
