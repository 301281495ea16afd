//! Steps from a seed: mostly at names that are there, in a folder so small that everything meets everything.

use shuntfs_testkit::seeded::Random;

use crate::model::Model;
use crate::rules::{OWNER, SECOND, THIRD};
use crate::step::{Action, Hold, Step, Way};

/// The folders that the rules speak of, and one that they do not.
pub(crate) const TOPS: [&str; 8] = ["free", "denied", "mixed", "hidden", "masked", "fixed", "logs", "secret"];
const NAMES: [&str; 6] = ["a", "b", "c", "d.key", "s_e", "f"];
const FOLDERS: [&str; 2] = ["sub", "s_sub"];
/// How many files can be kept open.
pub(crate) const SLOTS: usize = 6;

const WAYS: [Way; 5] = [Way::Read, Way::Direct, Way::Map, Way::Splice, Way::Sendfile];
const HOLDS: [Hold; 5] = [Hold::Path, Hold::Read, Hold::Write, Hold::Append, Hold::Both];

fn one<T: Copy>(random: &mut Random, list: &[T]) -> T {
    list[random.below(list.len())]
}

/// A path that may be there or not.
fn any_path(random: &mut Random) -> String {
    let top = one(random, &TOPS);
    let name = if random.below(6) == 0 { one(random, &FOLDERS) } else { one(random, &NAMES) };
    match random.below(12) {
        0 => top.to_owned(),
        1..=3 => format!("{top}/{}/{name}", one(random, &FOLDERS)),
        4 => format!("{top}/{}", one(random, &FOLDERS)),
        _ => format!("{top}/{name}"),
    }
}

/// Mostly a path of a file that is there.
fn file(random: &mut Random, model: &Model) -> String {
    if !model.files.is_empty() && random.below(8) != 0 {
        let at = random.below(model.files.len());
        return model.files.keys().nth(at).cloned().unwrap_or_default();
    }
    any_path(random)
}

/// Mostly a path of a folder that is there.
fn folder(random: &mut Random, model: &Model) -> String {
    if !model.folders.is_empty() && random.below(8) != 0 {
        let at = random.below(model.folders.len());
        return model.folders.iter().nth(at).cloned().unwrap_or_default();
    }
    any_path(random)
}

fn file_or_folder(random: &mut Random, model: &Model) -> String {
    if random.below(5) == 0 { folder(random, model) } else { file(random, model) }
}

/// The next step where others change the folder below the mount meanwhile.
///
/// What is opened once more by a descriptor is left out: it goes by no name, and so meets none that has changed.
pub(crate) fn step_with_changes_below(random: &mut Random, model: &Model) -> Step {
    let action = match random.below(60) {
        0..=2 => Action::LinkBelow(file(random, model), any_path(random)),
        3..=5 => Action::RenameBelow(file_or_folder(random, model), any_path(random)),
        6 => Action::UnlinkBelow(file(random, model)),
        _ => loop {
            let step = step(random, model);
            if !step.action.goes_by_descriptor() {
                return step;
            }
        },
    };
    Step { uid: 0, action }
}

/// The next step.
pub(crate) fn step(random: &mut Random, model: &Model) -> Step {
    let uid = one(random, &[OWNER, SECOND, SECOND, THIRD, THIRD]);
    let slot = random.below(SLOTS);
    let action = match random.below(1000) {
        0..=59 => Action::Look(file_or_folder(random, model)),
        60..=99 => Action::List(folder(random, model)),
        100..=259 => Action::Read(file(random, model), one(random, &WAYS)),
        260..=289 => Action::Write(file(random, model)),
        290..=309 => Action::Append(file(random, model)),
        310..=324 => Action::OpenTruncating(file(random, model)),
        325..=344 => Action::Truncate(file(random, model)),
        345..=359 => Action::Punch(file(random, model)),
        360..=449 => Action::Create(any_path(random)),
        450..=479 => Action::MakeFolder(any_path(random)),
        480..=529 => Action::Unlink(file(random, model)),
        530..=544 => Action::RemoveFolder(folder(random, model)),
        545..=644 => Action::Link(file(random, model), any_path(random)),
        645..=729 => Action::Rename(file_or_folder(random, model), any_path(random)),
        730..=749 => Action::Rename(file(random, model), file(random, model)),
        750..=764 => Action::Move(file_or_folder(random, model), any_path(random)),
        765..=789 => Action::Exchange(file_or_folder(random, model), file_or_folder(random, model)),
        790..=804 => Action::Attribute(file_or_folder(random, model)),
        805..=819 => Action::Touch(file_or_folder(random, model)),
        820..=839 => Action::Copy(file(random, model), file(random, model)),
        840..=899 => Action::Hold(file(random, model), one(random, &HOLDS), slot),
        900..=919 => Action::ReadHeld(slot),
        920..=929 => Action::WriteHeld(slot),
        930..=934 => Action::TruncateHeld(slot),
        935..=959 => Action::ReadAgain(slot),
        960..=969 => Action::WriteAgain(slot),
        970..=979 => Action::TruncateAgain(slot),
        980..=988 => Action::LinkHeld(slot, any_path(random)),
        989..=997 => Action::Drop(slot),
        _ => match random.below(8) {
            0 => Action::Reload,
            1 => Action::ForgetNames,
            _ => Action::Look(any_path(random)),
        },
    };
    Step { uid, action }
}
