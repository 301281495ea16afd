//! What happens to one option of mergerfs.

use std::fmt::Write as _;

use shuntfs_pool::policy::Category;

use super::table::OPTIONS;

/// What an option of mergerfs, with one value, is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fate {
    /// The same word with the same meaning; where there is a text, but for this.
    Same(Option<&'static str>),
    /// The same meaning in these words, in which `{}` stands for the value.
    Ours(&'static str),
    /// It can be left out, for this reason; it is accepted and does nothing.
    NotNeeded(&'static str),
    /// There is something like it and it means something else: what, and what to do.
    Different(&'static str),
    /// There is nothing like it: what happens instead, and what to do.
    Missing(&'static str),
}

impl Fate {
    /// The word for it in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Same(_) => "same",
            Self::Ours(_) => "renamed",
            Self::NotNeeded(_) => "not needed",
            Self::Different(_) => "different",
            Self::Missing(_) => "missing",
        }
    }

    /// What there is to say of it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Same(text) => text.unwrap_or_default(),
            Self::Ours(text) | Self::NotNeeded(text) | Self::Different(text) | Self::Missing(text) => text,
        }
    }
}

/// Which values a case is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum When {
    /// All that no case before it is for.
    Always,
    /// `true` in one of mergerfs's spellings, or no value.
    On,
    /// As [`When::On`], where the create policy looks no further than at folders that are there (`ep..`, `msp..`).
    OnAndPathsAreKept,
    /// `false` in one of mergerfs's spellings.
    Off,
    /// The number 0.
    Zero,
    /// A number above 0.
    Above,
    /// One of these words.
    Is(&'static [&'static str]),
    /// The policy that this category has anyway, or the function that stands for it here.
    PolicyOf(Category),
}

impl When {
    fn holds(self, value: Option<&str>, policies: &Policies) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        let is_on = || value.is_none_or(|value| ["", "true", "t", "1", "on", "yes"].contains(&value));
        match self {
            Self::Always => true,
            Self::On => is_on(),
            Self::OnAndPathsAreKept => is_on() && policies.paths_are_kept(),
            Self::Off => value.is_some_and(|value| ["false", "f", "0", "off", "no"].contains(&value)),
            Self::Zero => number() == Some(0),
            Self::Above => number().is_some_and(|number| number > 0),
            Self::Is(words) => value.is_some_and(|value| words.contains(&value)),
            Self::PolicyOf(category) => value == Some(policies.of(category)),
        }
    }

    /// The values, as documentation shows them.
    fn shown(self) -> String {
        match self {
            Self::Always => "...".to_owned(),
            Self::On => "true".to_owned(),
            Self::OnAndPathsAreKept => "true with a create policy `ep..` or `msp..`".to_owned(),
            Self::Off => "false".to_owned(),
            Self::Zero => "0".to_owned(),
            Self::Above => "N".to_owned(),
            Self::Is(words) => words.join("\\|"),
            Self::PolicyOf(Category::Search) => "the policy of `func.getattr`".to_owned(),
            Self::PolicyOf(_) => "the policy of its category".to_owned(),
        }
    }
}

/// What happens to an option where its value is one of these.
pub type Case = (When, Fate);

/// How many cases an option has at most.
pub const CASES_MAX: usize = 4;

/// One option of mergerfs, or several.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name as mergerfs 2.42 spells it, with `_` for `-` in older ones; several, where all mean the same here.
    pub names: &'static [&'static str],
    /// The first that holds decides.
    pub cases: [Option<Case>; CASES_MAX],
}

/// The policies of the categories that a list of options sets, on which the meaning of other options hangs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Policies([String; 3]);

impl Policies {
    /// The last of each category among these options. One function stands for it: what is looked up is opened and read, too, and what
    /// moves goes by how files are made.
    pub(crate) fn among<'a>(options: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Self {
        let mut all = Category::ALL.map(|category| category.default_policy().to_owned());
        for (name, value) in options {
            let place = Category::ALL.into_iter().position(|category| options_of(category).contains(&name));
            if let (Some(place), Some(value)) = (place, value) {
                value.clone_into(&mut all[place]);
            }
        }
        Self(all)
    }

    fn of(&self, category: Category) -> &str {
        let place = Category::ALL.into_iter().position(|known| known == category);
        place.map_or("", |place| &self.0[place])
    }

    fn paths_are_kept(&self) -> bool {
        let policy = self.of(Category::Create);
        policy.starts_with("ep") || policy.starts_with("msp")
    }
}

/// With `_` in place of each `-`: mergerfs takes one for the other.
fn spelled(name: &str) -> String {
    name.replace('-', "_")
}

fn options_of(category: Category) -> &'static [&'static str] {
    match category {
        Category::Create => &["category.create", "func.create"],
        Category::Action => &["category.action"],
        _ => &["category.search", "func.getattr"],
    }
}

/// What happens to an option; `None` where mergerfs has none of this name, and an error where it has none of this value.
pub(crate) fn fate_of(name: &str, value: Option<&str>, policies: &Policies) -> Option<Result<Fate, ()>> {
    let name = spelled(name.trim());
    let row = OPTIONS.iter().find(|row| row.names.iter().any(|known| spelled(known) == name))?;
    let case = row.cases.iter().flatten().find(|(when, _)| when.holds(value.map(str::trim), policies));
    Some(case.map(|(_, fate)| *fate).ok_or(()))
}

/// The table as `docs/from-mergerfs.md` has it.
#[must_use]
pub fn documentation() -> String {
    let mut text = String::from("| option of mergerfs | value | here | |\n|---|---|---|---|\n");
    for row in OPTIONS {
        let names = row.names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        for (index, (when, fate)) in row.cases.iter().flatten().enumerate() {
            let names = if index == 0 { names.as_str() } else { "" };
            let what = match fate {
                Fate::Ours(words) => format!("`{}`", words.replace("{}", "N")),
                other => other.text().to_owned(),
            };
            let value = if row.cases[1].is_none() { String::new() } else { when.shown() };
            let _infallible = writeln!(text, "| {names} | {value} | {} | {what} |", fate.word());
        }
    }
    text
}
