//! What a user does with many small files: unpack, walk, search, remove, build.

use super::{Setting, Table};
use crate::case::{Case, GitStep, TreeStep, Work};
use crate::report::Unit;
use crate::target::{Target, peers};

/// The column with the goals.
const COMPARED: &str = "passthrough";

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let mut targets = vec![
        Target::bare(),
        ours.mount("served", "--flow served"),
        ours.mount("passthrough", "--flow passthrough"),
        ours.mount("served-cloned", "--flow served --transport cloned"),
        ours.mount("passthrough-cloned", "--flow passthrough --transport cloned"),
    ];
    targets.extend(peers());
    Table {
        name: "smallfiles",
        about: "a source tree unpacked, walked, searched and removed, a git repository checked out, and a C project built",
        baseline: "bare",
        against: None,
        targets,
        cases: cases(),
        notes: Vec::new(),
        skipped: None,
    }
}

fn cases() -> Vec<Case> {
    let case = |name, step, ratio| Case::new(name, Work::Tree(step), Unit::Seconds).reach(COMPARED, ratio);
    let git = |name, step| Case::new(name, Work::Git(step), Unit::Seconds);
    vec![
        case("unpack", TreeStep::Untar, 0.5),
        case("walk cold", TreeStep::FindCold, 0.6),
        case("walk warm", TreeStep::FindWarm, 0.9),
        case("grep cold", TreeStep::GrepCold, 0.8),
        case("remove", TreeStep::Remove, 0.5),
        git("git checkout", GitStep::Checkout),
        git("git status", GitStep::Status),
        Case::new("build", Work::Build, Unit::Seconds).reach(COMPARED, 0.9),
    ]
}
