//! From what mergerfs was asked for to what shunt is asked for.

use std::ffi::OsStr;
use std::path::Path;

use serde::Serialize;
use shuntfs_pool::policy::BranchMode;

use super::fate::{Fate, Policies, fate_of};
use crate::failure::Failure;
use crate::options::{self, OptionError};

/// How deep files of options may name others, as in mergerfs.
const DEPTH_MAX: usize = 5;

/// What mergerfs was asked for.
#[derive(Clone, Default, Debug)]
pub(super) struct Asked {
    /// Lists of branches, one after the other.
    pub(super) branches: Vec<String>,
    pub(super) mountpoint: Option<String>,
    pub(super) options: Vec<Word>,
    /// Flags of a call.
    pub(super) flags: Vec<String>,
}

/// One option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Word {
    /// As it stands in a list, with the backslashes that protect its commas.
    escaped: String,
    name: String,
    value: Option<String>,
}

impl Word {
    /// A word of a list.
    pub(super) fn escaped(escaped: &str) -> Self {
        let mut plain = String::new();
        let mut letters = escaped.chars().peekable();
        while let Some(letter) = letters.next() {
            let protected = letters.next_if(|next| letter == '\\' && [',', '\\'].contains(next));
            plain.push(protected.unwrap_or(letter));
        }
        Self { escaped: escaped.to_owned(), ..Self::plain(&plain) }
    }

    /// A word that stands alone, as in a file of options.
    fn plain(text: &str) -> Self {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let (name, value) = (name.trim().to_owned(), value.map(|value| value.trim().to_owned()));
        let word = Self { escaped: String::new(), name, value };
        Self { escaped: word.shown().replace('\\', "\\\\").replace(',', "\\,"), ..word }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    fn shown(&self) -> String {
        self.value.as_ref().map_or_else(|| self.name.clone(), |value| format!("{}={value}", self.name))
    }
}

/// What became of one option.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Said {
    /// As it was written.
    pub(super) option: String,
    /// What it is here, in one word.
    pub(super) here: &'static str,
    /// The word for it in our line.
    pub(super) ours: Option<String>,
    /// What there is to say of it.
    pub(super) text: String,
    /// Whether it is not in our line and would do something.
    pub(super) lost: bool,
}

/// What shunt is asked for.
#[derive(Debug, Default)]
pub(super) struct Ours {
    pub(super) source: String,
    pub(super) mountpoint: String,
    pub(super) options: Vec<String>,
    pub(super) foreground: bool,
    pub(super) said: Vec<Said>,
    /// What is otherwise though no option says so.
    pub(super) notes: Vec<String>,
}

/// Translates.
///
/// # Errors
/// Where there are no branches, or no mount point.
pub(super) fn translate(asked: &Asked) -> Result<Ours, Failure> {
    let mut ours = Ours::default();
    let words = ours.with_files(&asked.options, 0);
    let mut branches = asked.branches.clone();
    let mut mountpoint = asked.mountpoint.clone();
    let policies = Policies::among(words.iter().map(|word| (word.name(), word.value())));
    for word in &words {
        match (word.name(), word.value()) {
            ("branches" | "srcmounts", Some(list)) => place(&mut branches, list),
            ("mountpoint" | "mount", Some(path)) => mountpoint = Some(path.to_owned()),
            _ => ours.take(word, &policies),
        }
    }
    for flag in &asked.flags {
        ours.take_flag(flag);
    }
    let no = |what: &str| {
        Failure::usage(format!("there {what} in it")).hint("a line of fstab, or -o OPTIONS BRANCHES MNT")
    };
    ours.mountpoint = mountpoint.filter(|path| !path.is_empty()).ok_or_else(|| no("is no mount point"))?;
    ours.source = source_of(&branches).ok_or_else(|| no("are no branches"))?;
    ours.add_defaults(&words);
    Ok(ours)
}

/// Sets or adds branches as mergerfs does: `+` and `+>` add at the end, `+<` before, anything else sets.
fn place(branches: &mut Vec<String>, list: &str) {
    match list.strip_prefix("+<") {
        Some(first) => branches.insert(0, first.to_owned()),
        None => match list.strip_prefix("+>").or_else(|| list.strip_prefix('+')) {
            Some(more) => branches.push(more.to_owned()),
            None => *branches = vec![list.strip_prefix('=').unwrap_or(list).to_owned()],
        },
    }
}

/// One list of all branches, sizes spelled as here. A single folder gets a mode, which makes it a branch.
fn source_of(lists: &[String]) -> Option<String> {
    let parts = lists.iter().flat_map(|list| list.split(':')).filter(|part| !part.is_empty());
    let mut parts: Vec<String> = parts.map(branch).collect();
    if let [only] = parts.as_mut_slice()
        && !only.contains(['=', '*', '?', '[', '{'])
    {
        only.push_str("=RW");
    }
    (!parts.is_empty()).then(|| parts.join(":"))
}

fn branch(text: &str) -> String {
    let with_size = text.rsplit_once('=').and_then(|(path, words)| Some((path, words.split_once(',')?)));
    match with_size {
        Some((path, (mode, free))) if BranchMode::of(mode).is_some() => {
            format!("{path}={mode},{}", size(free))
        }
        _ => text.to_owned(),
    }
}

/// A size as we read it: mergerfs looks at the first letter behind the number and at no more (`50GB`).
fn size(text: &str) -> String {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).map_or(text.len(), |place| place + 1);
    text.get(..end).unwrap_or(text).to_owned()
}

impl Ours {
    /// The same options, those of files instead of the file's name.
    fn with_files(&mut self, words: &[Word], depth: usize) -> Vec<Word> {
        let mut all = Vec::new();
        for word in words {
            let file = word.value().filter(|_| word.name() == "config");
            let Some(file) = file else {
                all.push(word.clone());
                continue;
            };
            match std::fs::read_to_string(Path::new(file)) {
                Ok(text) if depth < DEPTH_MAX => {
                    let lines = text.lines().map(str::trim);
                    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
                    let words: Vec<Word> = lines.map(Word::plain).collect();
                    all.extend(self.with_files(&words, depth + 1));
                }
                Ok(_) => self.lose(word, "unknown", "its files name each other".to_owned()),
                Err(error) => {
                    self.lose(
                        word,
                        "unknown",
                        format!("its options are not here: it cannot be read: {error}"),
                    );
                }
            }
        }
        all
    }

    fn lose(&mut self, word: &Word, here: &'static str, text: String) {
        self.said.push(Said { option: word.shown(), here, ours: None, text, lost: true });
    }

    /// Takes a word over, by mergerfs's meaning of it; words that mergerfs leaves to others, by ours.
    fn take(&mut self, word: &Word, policies: &Policies) {
        match fate_of(word.name(), word.value(), policies) {
            None => self.take_of_others(word),
            Some(Err(())) => self.lose(word, "unknown", "mergerfs has no such value".to_owned()),
            Some(Ok(fate @ (Fate::Different(text) | Fate::Missing(text)))) => {
                self.lose(word, fate.word(), text.to_owned());
            }
            Some(Ok(fate @ Fate::NotNeeded(text))) => {
                let text = text.to_owned();
                self.said.push(Said {
                    option: word.shown(),
                    here: fate.word(),
                    ours: None,
                    text,
                    lost: false,
                });
            }
            Some(Ok(fate @ Fate::Ours(words))) => {
                self.keep(word, &words.replace("{}", word.value().unwrap_or_default()), fate);
            }
            Some(Ok(fate @ Fate::Same(_))) => match (word.name(), word.value()) {
                ("minfreespace", Some(text)) => {
                    self.keep(word, &format!("minfreespace={}", size(text)), fate)
                }
                _ => self.keep(word, &word.escaped.clone(), fate),
            },
        }
    }

    /// Words of mount(8), systemd and the kernel.
    fn take_of_others(&mut self, word: &Word) {
        match options::check(OsStr::new(&word.shown())) {
            Ok(()) => self.keep(word, &word.escaped.clone(), Fate::Same(None)),
            Err(OptionError::Unknown { .. }) => {
                self.lose(word, "unknown", "neither mergerfs nor shunt has it".to_owned());
            }
            Err(OptionError::NotOffered { why, .. }) => self.lose(word, "different", why.to_owned()),
            Err(other) => self.lose(word, "unknown", other.to_string()),
        }
    }

    fn keep(&mut self, word: &Word, ours: &str, fate: Fate) {
        let plain = Word::escaped(ours).shown();
        if let Err(error) = options::check(OsStr::new(&plain)) {
            return self.lose(word, "unknown", error.to_string());
        }
        if !self.options.iter().any(|there| there == ours) {
            self.options.push(ours.to_owned());
        }
        let text = if let Fate::Same(Some(text)) = fate { text } else { "" }.to_owned();
        let ours = Some(ours.to_owned());
        self.said.push(Said { option: word.shown(), here: fate.word(), ours, text, lost: false });
    }

    fn take_flag(&mut self, flag: &str) {
        match flag {
            "-f" | "-d" => self.foreground = true,
            other => {
                self.lose(&Word::plain(other), "unknown", "neither mergerfs nor shunt has it".to_owned())
            }
        }
    }

    /// What mergerfs does where nothing is said.
    fn add_defaults(&mut self, words: &[Word]) {
        let says = |name: &str| words.iter().any(|word| word.name().replace('-', "_") == name);
        if !says("allow_other") {
            self.options.push("allow_other".to_owned());
            self.notes
                .push("allow_other: added, because mergerfs as root lets others in from 2.35 on".to_owned());
        }
        let is_on = |name: &str| {
            let off = ["false", "f", "0", "off", "no"];
            let last = words.iter().rfind(|word| word.name().replace('-', "_") == name);
            last.is_some_and(|word| word.value().is_none_or(|value| !off.contains(&value)))
        };
        if is_on("branches_mount_timeout") && !is_on("branches_mount_timeout_fail") {
            self.notes.push(
                "branches-mount-timeout: mergerfs mounts without a disk that is not there by then; here it is an error, and nothing is \
                 mounted"
                    .to_owned(),
            );
        }
        if !says("category.create") {
            self.notes.push(
                "category.create: pfrd here and in mergerfs from 2.41 on; epmfs before: add category.create=epmfs to keep it".to_owned(),
            );
        }
        if !says("moveonenospc") {
            self.notes.push(
                "moveonenospc: pfrd here and in mergerfs from 2.41 on; false before: add moveonenospc=false to keep it".to_owned(),
            );
        }
    }
}
