//! Names of trees.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;

/// What a tree is called by who seals it: signed with the seal, so that one tree is not taken for another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TreeName(String);

/// A text that is no name of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a tree's name has 1 to 64 characters, each a letter (a to z), a digit or one of . _ - + @ : /")]
pub struct TreeNameError;

impl TreeName {
    /// The most bytes of a name.
    pub const LEN_MAX: usize = 64;

    /// The name that a folder's own gives: the last part of its path, with `_` for what no name has.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Self {
        let last = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let last = last.file_name().unwrap_or_default().to_string_lossy();
        let name: String =
            last.chars().map(|char| if is_allowed(char) { char } else { '_' }).take(Self::LEN_MAX).collect();
        Self(if name.is_empty() { "root".to_owned() } else { name })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// No space, so that it is one word in a file and a message; no letters that look like others.
fn is_allowed(char: char) -> bool {
    char.is_ascii_alphanumeric() || "._-+@:/".contains(char)
}

impl FromStr for TreeName {
    type Err = TreeNameError;

    fn from_str(text: &str) -> Result<Self, TreeNameError> {
        let is_one = (1..=Self::LEN_MAX).contains(&text.len()) && text.chars().all(is_allowed);
        if is_one { Ok(Self(text.to_owned())) } else { Err(TreeNameError) }
    }
}

impl fmt::Display for TreeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_are_one_word() {
        for good in ["a", "photos-2027", "images/debian:13", &"x".repeat(64)] {
            assert_eq!(good.parse::<TreeName>().unwrap().as_str(), good);
        }
        for wrong in ["", "a b", "a\n", "é", &"x".repeat(65), "a\0"] {
            assert_eq!(wrong.parse::<TreeName>(), Err(TreeNameError), "{wrong:?}");
        }
    }

    #[test]
    fn every_folder_gives_a_name() {
        for (path, name) in [
            ("/gone/photos", "photos"),
            ("/gone/My Photos é", "My_Photos__"),
            ("/", "root"),
            ("/gone/", "gone"),
            (&format!("/gone/{}", "é".repeat(100)), &"_".repeat(64)),
        ] {
            let made = TreeName::of_folder(Path::new(path));
            assert_eq!(made.as_str(), name);
            assert_eq!(name.parse(), Ok(made));
        }
    }
}
