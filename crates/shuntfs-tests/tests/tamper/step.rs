//! What somebody does: to the folder and the store, or to get at bytes.

use shuntfs_testkit::seeded::Random;
use shuntfs_testkit::viewer::Way;

use crate::tree::{FILES, FOLDERS, LINKS, PROGRAM, SMALL};

/// How many files are held open at a time.
pub(crate) const SLOTS: usize = 4;

/// One step. Files, folders and links are named by their places in the lists of the tree.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Somebody below.
    Below(Below),
    /// Somebody in the store.
    Store(usize, InStore),
    /// Somebody on the mount.
    Look(Look),
}

/// What is done to the folder below.
#[derive(Clone, Debug)]
pub(crate) enum Below {
    Flip {
        file: usize,
        at: u64,
    },
    Overwrite {
        file: usize,
        at: u64,
        len: usize,
    },
    Cut {
        file: usize,
        len: u64,
    },
    Grow {
        file: usize,
        by: u64,
    },
    Punch {
        file: usize,
        at: u64,
        len: u64,
    },
    /// The same bytes again, in place.
    Mend {
        file: usize,
    },
    /// Another file in its place, with another content or the same one.
    Replace {
        file: usize,
        good: bool,
    },
    /// A symlink in its place, to another file or to what lies outside.
    ToSymlink {
        file: usize,
        to: Option<usize>,
    },
    ToFolder {
        file: usize,
    },
    ToPipe {
        file: usize,
    },
    ToLinkOf {
        file: usize,
        of: usize,
    },
    Swap {
        file: usize,
        with: usize,
    },
    Remove {
        file: usize,
    },
    /// Given another name that was not sealed, or taken back from there.
    MoveAway {
        file: usize,
    },
    MoveBack {
        file: usize,
    },
    SwapFolders {
        folder: usize,
        with: usize,
    },
    FolderToSymlink {
        folder: usize,
        to: usize,
    },
    FolderBack {
        folder: usize,
    },
    Redirect {
        link: usize,
        to: usize,
    },
    Chmod {
        file: usize,
        mode: u32,
    },
    Touch {
        file: usize,
        seconds: i64,
    },
    /// Something is mounted over a file or a folder, until all of that is unmounted.
    Cover {
        file: usize,
        with: Over,
    },
    CoverFolder {
        folder: usize,
        with: Over,
    },
    Uncover,
    Heal,
}

/// What is mounted over something.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over {
    /// A copy, made as it was sealed.
    Same,
    /// Something with another content.
    Outside,
    /// Another one of the tree.
    Other(usize),
}

/// What is done to a file of the store.
#[derive(Clone, Debug)]
pub(crate) enum InStore {
    Flip { at: u64 },
    Cut,
    Remove,
    ToSymlink,
    Mend,
}

/// What is done on the mount.
#[derive(Clone, Debug)]
pub(crate) enum Look {
    /// Opens a file and reads it.
    At {
        file: usize,
        way: Way,
    },
    /// Reads through a symlink.
    Through {
        link: usize,
        way: Way,
    },
    /// Where a symlink leads.
    Link {
        link: usize,
    },
    /// What kind a name is of, and how long.
    Stat {
        file: usize,
    },
    StatFolder {
        folder: usize,
    },
    List {
        folder: usize,
    },
    /// Opens a file and holds it, mapped or not.
    Hold {
        slot: usize,
        file: usize,
        mapped: bool,
    },
    /// Reads what is held.
    Held {
        slot: usize,
        way: Way,
    },
    Release {
        slot: usize,
    },
    /// Has the kernel drop its pages of what is held, and below.
    Forget {
        slot: usize,
    },
}

/// The next step.
pub(crate) fn next(random: &mut Random) -> Step {
    match random.below(100) {
        0..27 => change(random),
        _ => Step::Look(look(random)),
    }
}

/// The next change, below or in the store.
pub(crate) fn change(random: &mut Random) -> Step {
    if random.below(27) < 22 {
        return Step::Below(below(random));
    }
    let change = match random.below(8) {
        0 | 1 => InStore::Flip { at: random.number() },
        2 => InStore::Cut,
        3 => InStore::Remove,
        4 => InStore::ToSymlink,
        _ => InStore::Mend,
    };
    Step::Store(random.below(64), change)
}

fn below(random: &mut Random) -> Below {
    let file = random.below(FILES.len());
    let other = random.below(FILES.len());
    let (folder, with) = (random.below(FOLDERS.len()), random.below(FOLDERS.len()));
    let (at, small) = (random.number(), random.below(9000));
    let link = random.below(LINKS.len());
    match random.below(39) {
        0 | 1 => Below::Flip { file, at },
        2 => Below::Overwrite { file, at, len: small + 1 },
        3 => Below::Cut { file, len: at },
        4 => Below::Cut { file, len: at / 4096 * 4096 },
        5 => Below::Grow { file, by: small as u64 + 1 },
        6 => Below::Punch { file, at, len: small as u64 + 1 },
        7..10 => Below::Mend { file },
        10 => Below::Replace { file, good: false },
        11 | 12 => Below::Replace { file, good: true },
        13 => Below::ToSymlink { file, to: Some(other) },
        14 => Below::ToSymlink { file, to: None },
        15 => Below::ToFolder { file },
        16 => Below::ToPipe { file },
        17 | 18 => Below::ToLinkOf { file, of: other },
        19 | 20 => Below::Swap { file, with: other },
        21 => Below::Remove { file },
        22 => Below::MoveAway { file },
        23 => Below::MoveBack { file },
        24 => Below::SwapFolders { folder, with },
        25 => Below::FolderToSymlink { folder, to: with },
        26 | 27 => Below::FolderBack { folder },
        28 => Below::Redirect { link, to: other },
        29 => Below::Chmod { file, mode: u32::from(random.byte()) },
        30 => Below::Touch { file, seconds: small as i64 },
        31 | 32 => Below::Cover { file, with: over(random, other) },
        33 | 34 => Below::CoverFolder { folder, with: over(random, with) },
        35 => Below::Uncover,
        _ => Below::Heal,
    }
}

/// A file, mostly a small one: a look at a large one takes as long as many others.
fn file(random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.below(FILES.len()),
        _ => random.below(SMALL),
    }
}

fn over(random: &mut Random, other: usize) -> Over {
    match random.below(3) {
        0 => Over::Same,
        1 => Over::Outside,
        _ => Over::Other(other),
    }
}

/// The next look at the mount.
pub(crate) fn look(random: &mut Random) -> Look {
    let (file, slot) = (file(random), random.below(SLOTS));
    let way = way(random);
    match random.below(24) {
        0..9 => {
            // A program is run by its path; the others are none.
            let way = if way == Way::Run && file != PROGRAM { Way::Read } else { way };
            Look::At { file, way }
        }
        9 => Look::Through { link: random.below(LINKS.len()), way },
        10 => Look::Link { link: random.below(LINKS.len()) },
        11 => Look::Stat { file },
        12 => Look::StatFolder { folder: random.below(FOLDERS.len()) },
        13 => Look::List { folder: random.below(FOLDERS.len()) },
        14..17 => Look::Hold { slot, file, mapped: random.below(2) == 0 },
        17..22 => Look::Held { slot, way },
        22 => Look::Release { slot },
        _ => Look::Forget { slot },
    }
}

fn way(random: &mut Random) -> Way {
    let all = Way::ALL.len();
    match random.below(all + Way::FURTHER.len()) {
        index if index < all => Way::ALL[index],
        index => Way::FURTHER[index - all],
    }
}
