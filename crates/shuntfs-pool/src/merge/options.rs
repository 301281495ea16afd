//! What is asked of a merge.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::numbers::InodeCalc;
use crate::policy::{BranchMode, Category, Function, Policy};

/// What must be left free on a branch, by default: as mergerfs has it.
const MIN_FREE: u64 = 4 << 30;

/// The longest identity of a branch.
const ID_MAX: usize = 64;

/// One branch of a merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BranchOptions {
    /// The folder.
    pub path: PathBuf,
    /// What may be done there. Default: everything.
    pub mode: BranchMode,
    /// How many bytes something new must leave free there. Default: what is said for all.
    pub min_free: Option<u64>,
    /// What it is called wherever it is mounted: inode numbers go by that then, and rules may name it. Default: nothing, and numbers go
    /// by the path.
    pub id: Option<String>,
}

impl BranchOptions {
    /// A branch with every default.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: BranchMode::default(), min_free: None, id: None }
    }
}

/// What is said of a branch behind its path: `MODE[,MINFREE][,id=NAME]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BranchWords<'t> {
    /// What may be done there.
    pub mode: BranchMode,
    /// What something new must leave free there, as it is written.
    pub min_free: Option<&'t str>,
    /// What it is called.
    pub id: Option<&'t str>,
}

impl<'t> BranchWords<'t> {
    /// Parts a branch as users write it, `PATH=MODE[,MINFREE][,id=NAME]`. A path may hold equals signs: it ends at the last one that a mode is
    /// behind. `None` where there is no mode.
    #[must_use]
    pub fn part(text: &'t [u8]) -> Option<(&'t [u8], Result<Self, String>)> {
        let mut ends = (0..text.len()).rev().filter(|at| text[*at] == b'=');
        ends.find_map(|end| {
            if text[..end].ends_with(b",id") {
                return None;
            }
            let words = std::str::from_utf8(&text[end + 1..]).ok()?;
            let mut words = words.split(',');
            let mode = BranchMode::of(words.next()?)?;
            Some((&text[..end], Self { mode, min_free: None, id: None }.with(words)))
        })
    }

    fn with(mut self, words: impl Iterator<Item = &'t str>) -> Result<Self, String> {
        for word in words {
            match word.strip_prefix("id=") {
                Some(id) if self.id.is_none() && is_id(id) => self.id = Some(id),
                Some(id) if self.id.is_none() => {
                    let what = "is no identity of a branch: letters, digits, dots, dashes and underscores";
                    return Err(format!("{id:?} {what}, {ID_MAX} at most"));
                }
                None if self.min_free.is_none() => self.min_free = Some(word),
                _ => return Err(format!("{word:?}: of a branch this was said before")),
            }
        }
        Ok(self)
    }
}

fn is_id(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=ID_MAX).contains(&text.len()) && text.bytes().all(is_part)
}

/// Whether a file is moved to another branch when its own is full, and by which policy: mergerfs's `moveonenospc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveOnFull(Option<&'static Policy>);

impl MoveOnFull {
    /// It is not moved.
    pub const OFF: Self = Self(None);

    /// As users write it: a policy, `true` for the default, or `false`. `None` for another word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "false" | "f" | "no" | "off" | "0" => Some(Self::OFF),
            "true" | "t" | "yes" | "on" | "1" => Some(Self::default()),
            name => Policy::of(name).map(|policy| Self(Some(policy))),
        }
    }

    /// The policy, where it is moved.
    #[must_use]
    pub fn policy(self) -> Option<&'static Policy> {
        self.0
    }

    /// What [`MoveOnFull::of`] takes for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.map_or("false", Policy::name)
    }
}

impl Default for MoveOnFull {
    fn default() -> Self {
        Self(Policy::of(Category::Create.default_policy()))
    }
}

/// Several branches that are shown as one, and the policies that pick among them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergeOptions {
    /// The branches, in their order.
    pub branches: Vec<BranchOptions>,
    /// Where new things are made. Default: `pfrd`.
    pub create: &'static Policy,
    /// Where names are removed and moved. Default: `epall`. What is changed of a file is changed where the file is.
    pub action: &'static Policy,
    /// Which of several with one name is shown. Default: `ff`.
    pub search: &'static Policy,
    /// Policies of single functions, which go before that of their category; of two for one function the last holds. Default: none.
    pub functions: Vec<(Function, &'static Policy)>,
    /// How many bytes something new must leave free on branches that say nothing of it. Default: 4 GiB.
    pub min_free: u64,
    /// Whether a file is moved to another branch when there is no room for what is written to it, and to which. Default: by `pfrd`.
    /// Cost: whoever writes waits until the file is copied. Files in passthrough are not moved.
    pub move_on_full: MoveOnFull,
    /// How many bytes must be free on a branch for each file that is open for writing in passthrough there; an open for which they are not
    /// flows by the server, so that the file can be moved. Default: `None`, what something new must leave free there. Cost: near the mark
    /// writes go through the server. Danger: a file that grows by more while it is open in passthrough meets a full branch.
    pub passthrough_reserve: Option<u64>,
    /// What inode numbers go by. Default: what is below. Danger: numbers that go by paths change when something moves, so attributes are
    /// kept for a second at most, and those of 32 bits may be the same by chance.
    pub inode_calc: InodeCalc,
    /// How long a lower call may take before its branch is set aside: as if it were not there, until it answers again. Default: none, and
    /// whoever needs a disk waits for it. Danger: programs that compare take what is set aside for removed, and a disk that spins up may
    /// take 15 seconds.
    pub timeout: Option<Duration>,
    /// Whether a file that was opened for reading goes on with another copy of its path when it cannot be read. Default: no. Then such files
    /// are read by the server and not in passthrough. Danger: copies may differ.
    pub read_copies: bool,
}

impl MergeOptions {
    /// A merge of these folders with every default.
    ///
    /// # Panics
    /// Never: the policies of categories are there.
    #[must_use]
    pub fn new(branches: Vec<BranchOptions>) -> Self {
        let policy = |category: Category| {
            Policy::of(category.default_policy()).expect("the policies of categories are there")
        };
        Self {
            branches,
            create: policy(Category::Create),
            action: policy(Category::Action),
            search: policy(Category::Search),
            functions: Vec::new(),
            min_free: MIN_FREE,
            move_on_full: MoveOnFull::default(),
            passthrough_reserve: None,
            inode_calc: InodeCalc::default(),
            timeout: None,
            read_copies: false,
        }
    }

    /// The policy of a function.
    #[must_use]
    pub fn policy(&self, function: Function) -> &'static Policy {
        let own = self.functions.iter().rev().find(|(of, _)| *of == function);
        own.map_or_else(|| self.of_category(function.category()), |(_, policy)| *policy)
    }

    fn of_category(&self, category: Category) -> &'static Policy {
        match category {
            Category::Action => self.action,
            Category::Create => self.create,
            Category::Search => self.search,
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn files_are_moved_by_a_policy_or_not_at_all() {
        let name = |word| MoveOnFull::of(word).map(MoveOnFull::name);
        for word in ["true", "t", "yes", "on", "1", "pfrd"] {
            assert_eq!(name(word), Some("pfrd"), "{word}");
        }
        for word in ["false", "f", "no", "off", "0"] {
            assert_eq!(name(word), Some("false"), "{word}");
        }
        assert_eq!((name("epmfs"), name("most"), name("")), (Some("epmfs"), None, None));
        assert_eq!(MergeOptions::new(Vec::new()).move_on_full.name(), "pfrd");
        assert_eq!(MoveOnFull::OFF.policy(), None);
    }

    #[test]
    fn what_is_behind_a_path_is_read_in_any_order() {
        use BranchMode::{NoCreate, ReadOnly, ReadWrite};
        let part = |text: &'static str| {
            let (path, words) = BranchWords::part(text.as_bytes())?;
            let words = words.map(|words| (words.mode, words.min_free, words.id));
            Some((std::str::from_utf8(path).unwrap(), words.ok()))
        };
        for (text, path, words) in [
            ("/a=RW", "/a", (ReadWrite, None, None)),
            ("/a=RO,4G", "/a", (ReadOnly, Some("4G"), None)),
            ("/a=NC,id=photos", "/a", (NoCreate, None, Some("photos"))),
            ("/a=NC,4G,id=x.y-z_1", "/a", (NoCreate, Some("4G"), Some("x.y-z_1"))),
            ("/a=NC,id=RW,4G", "/a", (NoCreate, Some("4G"), Some("RW"))),
            ("/a=RW,b=c=RO,id=q", "/a=RW,b=c", (ReadOnly, None, Some("q"))),
        ] {
            assert_eq!(part(text), Some((path, Some(words))), "{text}");
        }
        for text in ["/a=RW,id=", "/a=RW,id=a/b", "/a=RW,id=a b", "/a=RW,id=a,id=b", "/a=RW,1G,2G"] {
            assert_eq!(part(text), Some(("/a", None)), "{text}");
        }
        assert!(is_id(&"x".repeat(ID_MAX)) && !is_id(&"x".repeat(ID_MAX + 1)));
        for text in ["/a", "/a=ro", "/a=b,RW", "/a="] {
            assert_eq!(part(text), None, "{text}");
        }
    }
}
