//! What a user does with many small files: unpack, walk, search, remove, build.

use super::{Setting, Table};
use crate::case::{Case, TreeStep, Work};
use crate::report::Unit;
use crate::target::{Target, peers};

const OURS: &[&str] = &["served", "passthrough"];

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let mut targets = vec![
        Target::bare(),
        ours.mount("served", "--flow served"),
        ours.mount("passthrough", "--flow passthrough"),
    ];
    targets.extend(peers());
    Table {
        name: "smallfiles",
        about: "a source tree unpacked, walked, searched and removed, and a C project built",
        baseline: "bare",
        against: None,
        targets,
        cases: cases(),
        notes: Vec::new(),
        skipped: None,
    }
}

fn cases() -> Vec<Case> {
    let case = |name, step, ratio| Case::new(name, Work::Tree(step), Unit::Seconds).reach(OURS, ratio);
    vec![
        case("unpack", TreeStep::Untar, 0.5).limit(
            "nine requests a file with GNU tar, eight of which it waits for; each is a round trip to another thread",
        ),
        case("walk cold", TreeStep::FindCold, 0.6)
            .limit("one OPENDIR, READDIRPLUS and RELEASEDIR a folder, and the lower file system's own reads"),
        case("walk warm", TreeStep::FindWarm, 0.9)
            .limit("an OPENDIR and a RELEASEDIR a folder, where bare has none"),
        case("grep cold", TreeStep::GrepCold, 0.8)
            .limit("an OPEN, a RELEASE and, where bytes are served, a READ for each file"),
        case("remove", TreeStep::Remove, 0.5)
            .limit("an UNLINK and a LOOKUP for each file, and FORGETs in the background"),
        Case::new("build", Work::Build, Unit::Seconds).reach(OURS, 0.9),
    ]
}
