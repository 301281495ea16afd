//! `shunt explain place`: which of several folders a policy picks, without a mount.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use shuntfs::Timestamp;
use shuntfs_pool::BranchOptions;
use shuntfs_pool::policy::{Candidate, Category, POLICIES, Pick, Policy, Space};
use shuntfs_sys::{filesystem_of, open_folder};

use crate::branches;
use crate::control::Verdict;
use crate::failure::Failure;
use crate::json;
use crate::list::print_table;
use crate::mounts::shown;
use crate::run::output_failure;
use crate::units::size;

/// Arguments of `shunt explain place`.
#[derive(Debug, Args)]
pub struct ExplainPlaceArgs {
    /// The folders, separated by colons, each with its mode (RW, RO, NC) and the space to be left free, if it has such: /a:/b=RO:/c=RW,10G.
    #[arg(value_name = "BRANCHES")]
    pub branches: OsString,
    /// The path below them.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// What is done with it.
    #[arg(long = "for", value_name = "CATEGORY", value_enum, default_value_t = CategoryChoice::Create)]
    pub category: CategoryChoice,
    /// The policy, by mergerfs's name for it [default: pfrd, epall or ff, as the category has it].
    #[arg(long, value_name = "POLICY", value_parser = clap::builder::PossibleValuesParser::new(POLICIES.iter().map(Policy::name)))]
    pub policy: Option<String>,
    /// Free space that new files must leave on a branch without its own setting.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4G")]
    pub minfreespace: u64,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// What is done, as mergerfs groups it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[non_exhaustive]
pub enum CategoryChoice {
    /// It is made: create, mkdir, mknod, symlink.
    Create,
    /// It is changed: chmod, link, rename, unlink and similar.
    Action,
    /// It is looked up: open, getattr and similar.
    Search,
}

impl From<CategoryChoice> for Category {
    fn from(choice: CategoryChoice) -> Self {
        match choice {
            CategoryChoice::Create => Self::Create,
            CategoryChoice::Action => Self::Action,
            CategoryChoice::Search => Self::Search,
        }
    }
}

/// One branch, and what was said of it.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    branch: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    branch_hex: Option<String>,
    mode: String,
    available: Option<u64>,
    min_free: u64,
    chosen: bool,
    why_not: Option<String>,
}

/// Which branches something would go to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(default)]
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    policy: String,
    /// The rule that says where it is made, and what it says.
    #[serde(default)]
    rule: Option<String>,
    #[serde(default)]
    place: Option<String>,
    /// Whether rules judge what is done there.
    #[serde(default, skip_serializing)]
    pub(super) under_rules: bool,
    /// What the operation would fail with.
    error: Option<String>,
    branches: Vec<Row>,
    /// What rules and permissions say of it, where there are rules that judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<Verdict>,
}

/// Says which branches a policy picks, and why not the others.
///
/// # Errors
/// Where a branch is no folder that can be asked, or the path is none below it.
pub(super) fn run(args: &ExplainPlaceArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let category = Category::from(args.category);
    let name = args.policy.as_deref().unwrap_or(category.default_policy());
    let policy = Policy::of(name).ok_or_else(|| Failure::usage(format!("there is no policy {name:?}")))?;
    let mut parts = components(&args.path)?;
    if category == Category::Create && parts.pop().is_none() {
        return Err(Failure::usage("the top is there already").hint("name what is to be made"));
    }
    let branches = branches::read(&args.branches)?.into_iter();
    let branches = branches.map(|branch| Branch::of(branch, args.minfreespace, &parts));
    let branches = branches.collect::<Result<Vec<_>, _>>()?;
    let candidates: Vec<Candidate> = branches.iter().map(|branch| branch.candidate).collect();
    let pick = policy.pick(category, parts.len(), &candidates, RandomState::new().build_hasher().finish());
    let rows = branches.iter().enumerate().map(|(place, branch)| branch.row(place, &pick)).collect();
    let error = pick.chosen().err().map(|error| error.to_string());
    let (path, path_hex) = (String::new(), None);
    let policy = policy.name().to_owned();
    let (rule, place, under_rules, verdict) = (None, None, false, None);
    let mut answer =
        Answer { path, path_hex, policy, rule, place, under_rules, error, branches: rows, verdict };
    answer.is_of(&args.path);
    answer.print(args.json, out)
}

impl Answer {
    /// Says what it is about.
    pub(super) fn is_of(&mut self, path: &Path) {
        (self.path, self.path_hex) = (json::text(path), json::hex(path));
    }

    /// Where something new would be made, and by whose word.
    pub(crate) fn in_a_line(&self) -> String {
        let chosen = self.branches.iter().filter(|row| row.chosen).map(|row| shown(&row.branch));
        let chosen = chosen.collect::<Vec<_>>().join(", ");
        let place = match &self.error {
            None => format!("on {chosen}"),
            Some(error) => format!("nowhere ({})", shown(error)),
        };
        match (&self.rule, &self.place) {
            (Some(rule), Some(said)) => {
                format!("{place}, as the rule `{}` says: {}", shown(rule), shown(said))
            }
            _ => format!("{place}, by the policy {}", shown(&self.policy)),
        }
    }

    pub(super) fn print(&self, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        if as_json {
            return json::print(self, out);
        }
        if let (Some(rule), Some(said)) = (&self.rule, &self.place) {
            writeln!(out, "the rule `{}` places it: {}", shown(rule), shown(said))
                .map_err(|error| output_failure(&error))?;
        }
        if let Some(error) = &self.error {
            writeln!(out, "none of them: {}", shown(error)).map_err(|error| output_failure(&error))?;
        }
        let mut lines =
            vec![["BRANCH", "MODE", "AVAILABLE", "MINFREE", &shown(&self.policy)].map(str::to_owned)];
        lines.extend(self.branches.iter().map(Row::cells));
        print_table(&lines, out)?;
        let verdict = self.verdict.as_ref().map_or(Ok(()), |verdict| super::print(verdict, out));
        verdict.map_err(|error| output_failure(&error))
    }
}

impl Row {
    fn cells(&self) -> [String; 5] {
        let why =
            self.why_not.as_ref().map_or_else(|| "chosen".to_owned(), |why| format!("not: {}", shown(why)));
        [
            shown(&self.branch),
            shown(&self.mode),
            self.available.map_or_else(String::new, |bytes| bytes.to_string()),
            self.min_free.to_string(),
            why,
        ]
    }
}

/// A folder, and what policies know of it.
#[derive(Debug)]
struct Branch {
    path: PathBuf,
    candidate: Candidate,
}

impl Branch {
    /// A branch, and how far the path is there.
    fn of(branch: BranchOptions, min_free: u64, parts: &[&OsStr]) -> Result<Self, Failure> {
        let BranchOptions { path, mode, min_free: own, .. } = branch;
        let min_free = own.unwrap_or(min_free);
        let failed =
            |error: &dyn std::fmt::Display| Failure::new(format!("cannot use {}: {error}", shown(&path)));
        let below = open_folder(&path).and_then(|fd| filesystem_of(&fd)).map_err(|error| failed(&error))?;
        let unit = u64::from(below.frsize);
        let space =
            Space { total: below.blocks.saturating_mul(unit), available: below.bavail.saturating_mul(unit) };
        let mut candidate =
            Candidate { mode, space, min_free, is_read_only: below.is_read_only(), ..Candidate::default() };
        let mut here = path.clone();
        let mut last = here.metadata().ok();
        for part in parts {
            here.push(part);
            last = here.symlink_metadata().ok();
            if last.is_none() {
                break;
            }
            candidate.depth += 1;
        }
        let nanos = |found: &std::fs::Metadata| u32::try_from(found.mtime_nsec()).unwrap_or(0);
        candidate.mtime = last.map(|found| Timestamp { secs: found.mtime(), nanos: nanos(&found) });
        Ok(Self { path, candidate })
    }

    fn row(&self, place: usize, pick: &Pick) -> Row {
        let Candidate { mode, space, min_free, .. } = self.candidate;
        let why_not = pick.why_not(place).map(|why| why.to_string());
        Row {
            branch: json::text(&self.path),
            branch_hex: json::hex(&self.path),
            mode: mode.word().to_owned(),
            available: Some(space.available),
            min_free,
            chosen: why_not.is_none(),
            why_not,
        }
    }
}

/// The components of a path below the branches.
fn components(path: &Path) -> Result<Vec<&OsStr>, Failure> {
    let part = |component| match component {
        Component::Normal(part) => Some(Ok(part)),
        Component::CurDir => None,
        _ => Some(Err(Failure::usage(format!("{} is no path below the branches", shown(path))))),
    };
    path.components().filter_map(part).collect()
}

#[cfg(test)]
mod test {
    use super::*;

    fn explain(words: &[&str]) -> Result<serde_json::Value, Failure> {
        let line = ["shunt", "explain", "place", "--json"].iter().chain(words);
        let cli = <crate::cli::Cli as clap::Parser>::try_parse_from(line).expect("it parses");
        let crate::cli::Command::Explain(args) = cli.command else { panic!("another command") };
        let crate::cli::ExplainWhat::Place(args) = args.what else { panic!("another question") };
        let mut out = Vec::new();
        run(&args, &mut out)?;
        Ok(serde_json::from_slice(&out).expect("JSON"))
    }

    #[test]
    fn folders_say_where_something_would_be_made() {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [a, b, c] = folders.each_ref().map(|folder| folder.path().to_str().unwrap());
        std::fs::create_dir(folders[2].path().join("d")).unwrap();
        let branches = format!("{a}:{b}=NC:{c}");
        let chosen = |words: &[&str]| -> Vec<bool> {
            let answer = explain(&[&[branches.as_str(), "--minfreespace", "0"], words].concat()).unwrap();
            answer["branches"].as_array().unwrap().iter().map(|row| row["chosen"] == true).collect()
        };
        assert_eq!(chosen(&["d/new", "--policy", "ff"]), [true, false, false]);
        assert_eq!(chosen(&["d/new", "--policy", "epff"]), [false, false, true]);
        assert_eq!(chosen(&["new", "--policy", "all"]), [true, false, true]);
        assert_eq!(chosen(&["d/e/new", "--policy", "mspmfs"]), [false, false, true]);
        assert_eq!(chosen(&["d", "--for", "search"]), [false, false, true]);
        let answer = explain(&[&branches, "d/e/new", "--policy", "epmfs", "--minfreespace", "0"]).unwrap();
        assert_eq!(answer["branches"][1]["why_not"], "its mode is NC");
        assert_eq!(answer["branches"][2]["why_not"], "the path is not there");
        assert!(answer["error"].is_string(), "{answer}");
        for bad in [["/nowhere", "a"], [a, "../b"], [a, "/b"], [a, "."]] {
            assert!(explain(&bad).is_err(), "{bad:?}");
        }
    }
}
