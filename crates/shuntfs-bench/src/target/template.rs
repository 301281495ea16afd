//! Commands with places to be filled in.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{Mounting, Target};
use crate::process;
use crate::report::Kind;

/// What the places of a command stand for.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// `{SRC}`: the folder to show.
    pub(crate) source: PathBuf,
    /// `{MNT}`: where to show it.
    pub(crate) mount_point: PathBuf,
    /// `{WORK}`: an empty folder on the lower file system, beside the one to show.
    pub(crate) work: PathBuf,
    /// `{EMPTY}`: a folder that stays empty.
    pub(crate) empty: PathBuf,
    /// `{BRANCHES}`: the folders to show as one, separated by colons; the one to show where there is one.
    pub(crate) branches: Vec<PathBuf>,
}

/// Where the folders go that are shown as one.
pub(super) const BRANCHES: &str = "{BRANCHES}";

/// Reads `NAME=COMMAND`.
///
/// # Errors
/// When it is not that, or does not say where the folders go.
pub(crate) fn parse(text: &str) -> Result<Target> {
    let (name, command) = text.split_once('=').with_context(|| format!("`{text}` is not NAME=COMMAND"))?;
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    if name.is_empty() || name.contains(',') {
        bail!("`{name}` cannot be the name of a target");
    }
    let names = |place: &str| words.iter().any(|word| word.contains(place));
    let missing = [("{SRC}", names("{SRC}") || names(BRANCHES)), ("{MNT}", names("{MNT}"))];
    if let Some((place, _)) = missing.into_iter().find(|(_, is_there)| !is_there) {
        bail!("the command of target `{name}` does not say where {place} goes");
    }
    Ok(Target::new(name, Kind::Peer, Mounting::Server(words)))
}

/// Fills in the places of a template.
pub(crate) fn fill(words: &[String], places: &Places) -> Command {
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    let values = [
        ("{SRC}", text(&places.source)),
        ("{MNT}", text(&places.mount_point)),
        ("{WORK}", text(&places.work)),
        ("{EMPTY}", text(&places.empty)),
        (BRANCHES, places.branches.iter().map(text).collect::<Vec<_>>().join(":")),
    ];
    let fill =
        |word: &String| values.iter().fold(word.clone(), |word, (place, value)| word.replace(place, value));
    process::bound(words.iter().map(fill))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_must_say_where_the_folders_go() {
        for wrong in ["bindfs", "x=bindfs {SRC}", "=a {SRC} {MNT}", "a,b=c {SRC} {MNT}"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let target = parse("x=bindfs -f {SRC} {MNT}").unwrap();
        assert_eq!((target.about().as_str(), target.kind), ("bindfs -f {SRC} {MNT}", Kind::Peer));
        let merges = parse("x=mergerfs -f {BRANCHES} {MNT}").unwrap();
        assert!(merges.shows_branches() && !target.shows_branches());
    }

    #[test]
    fn places_are_filled_in() {
        let words = ["cp", "a={SRC}", "{MNT}", "{WORK}:{EMPTY}", "{BRANCHES}"].map(str::to_owned);
        let [source, mount_point, work, empty] = ["/s", "/m", "/w", "/e"].map(PathBuf::from);
        let branches = ["/b", "/c"].map(PathBuf::from).to_vec();
        let command = fill(&words, &Places { source, mount_point, work, empty, branches });
        let args: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert!(args.ends_with(&["a=/s", "/m", "/w:/e", "/b:/c"].map(str::to_owned)), "{args:?}");
    }
}
