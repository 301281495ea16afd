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
}

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
    for place in ["{SRC}", "{MNT}"] {
        if !words.iter().any(|word| word.contains(place)) {
            bail!("the command of target `{name}` does not say where {place} goes");
        }
    }
    Ok(Target::new(name, Kind::Peer, Mounting::Server(words)))
}

/// Fills in the places of a template.
pub(crate) fn fill(words: &[String], places: &Places) -> Command {
    let values = [
        ("{SRC}", &places.source),
        ("{MNT}", &places.mount_point),
        ("{WORK}", &places.work),
        ("{EMPTY}", &places.empty),
    ];
    let fill = |word: &String| {
        values.iter().fold(word.clone(), |word, (place, path)| word.replace(place, &path.to_string_lossy()))
    };
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
    }

    #[test]
    fn places_are_filled_in() {
        let words = ["cp", "a={SRC}", "{MNT}", "{WORK}:{EMPTY}"].map(str::to_owned);
        let [source, mount_point, work, empty] = ["/s", "/m", "/w", "/e"].map(PathBuf::from);
        let command = fill(&words, &Places { source, mount_point, work, empty });
        let args: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert!(args.ends_with(&["a=/s".to_owned(), "/m".to_owned(), "/w:/e".to_owned()]), "{args:?}");
    }
}
