//! The highest serial seen of each tree, by each key that signed it: the file `seen` of a trust store.
//!
//! ```text
//! shunt serials 1
//! photos 3f2a9c...32 digits 1732261265 sha256:...
//! end 1
//! ```
//!
//! Lines are sorted by tree and key, and the last one says how many they are: a file that was cut off is not read as one in which
//! less was seen.

use std::fmt::Write as _;

use shuntfs_verity::Digest;
use shuntfs_verity::sign::KeyId;

use super::TreeName;
use crate::{Issue, StoreError};

const FIRST: &str = "shunt serials 1";
const LAST: &str = "end";

/// What was seen of a tree with a key's signature.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SeenSerial {
    /// The tree.
    pub tree: TreeName,
    /// Who signed.
    pub key: KeyId,
    /// The highest serial.
    pub serial: u64,
    /// The digest of the manifest that had it.
    pub digest: Digest,
}

/// All that was seen.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Seen {
    pub(crate) serials: Vec<SeenSerial>,
}

/// A seal that is older than what was seen, or another one of the same serial.
pub(crate) enum Stale {
    Older { seen: u64 },
    Another { digest: Digest },
}

impl Seen {
    /// Reads the file, of which there is one form.
    ///
    /// # Errors
    /// The line that makes no sense, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        if lines.next().is_none_or(|(_, line)| line != FIRST) {
            return Err(format!("line 1 is not `{FIRST}`"));
        }
        let mut seen = Self::default();
        let wrong = |at: usize, why: &str| Err(format!("line {at}: {why}"));
        while let Some((at, line)) = lines.next() {
            if let Some(count) = line.strip_prefix(LAST) {
                let is_end = count == format!(" {}", seen.serials.len()) && seen.to_text() == text;
                return match lines.next() {
                    None if is_end => Ok(seen),
                    None => wrong(at, "there are more or fewer lines than it says"),
                    Some((at, _)) => wrong(at, "something stands behind the end"),
                };
            }
            let Some(serial) = parse_line(line) else {
                return wrong(at, "not `TREE KEY SERIAL DIGEST`");
            };
            let follows = seen.serials.last().is_none_or(|last| place(last) < place(&serial));
            if !follows {
                return wrong(at, "out of order, or there twice");
            }
            seen.serials.push(serial);
        }
        Err(format!("it ends at line {} without `{LAST}`: it was cut off", text.lines().count()))
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{FIRST}\n");
        for one in &self.serials {
            let _infallible = writeln!(text, "{}", format_line(one));
        }
        let _infallible = writeln!(text, "{LAST} {}", self.serials.len());
        text
    }

    /// Whether a seal is as new as what was seen of its tree by any of these keys. Of all of them, not only of those that signed
    /// it: else the last seal of one key would stay good after others by the next key.
    pub(crate) fn judge(&self, issue: &Issue, digest: &Digest, keys: &[KeyId]) -> Result<(), Stale> {
        let of_tree = self.serials.iter().filter(|one| one.tree == issue.tree && keys.contains(&one.key));
        for one in of_tree {
            if issue.serial < one.serial {
                return Err(Stale::Older { seen: one.serial });
            }
            if issue.serial == one.serial && *digest != one.digest {
                return Err(Stale::Another { digest: one.digest });
            }
        }
        Ok(())
    }

    /// Takes note of a seal; says whether there was anything to note.
    pub(crate) fn note(&mut self, issue: &Issue, digest: &Digest, signers: &[KeyId]) -> bool {
        let mut is_new = false;
        for key in signers {
            let now =
                SeenSerial { tree: issue.tree.clone(), key: *key, serial: issue.serial, digest: *digest };
            match self.serials.binary_search_by(|one| place(one).cmp(&place(&now))) {
                Ok(at) => {
                    if let Some(one) = self.serials.get_mut(at).filter(|one| one.serial < now.serial) {
                        *one = now;
                        is_new = true;
                    }
                }
                Err(at) => {
                    self.serials.insert(at, now);
                    is_new = true;
                }
            }
        }
        is_new
    }
}

impl Stale {
    pub(crate) fn into_error(self, path: &std::path::Path, issue: &Issue) -> StoreError {
        let (path, tree, serial) = (path.to_owned(), issue.tree.to_string(), issue.serial);
        match self {
            Self::Older { seen } => StoreError::Rollback { path, tree, serial, seen },
            Self::Another { digest } => {
                StoreError::SameSerial { path, tree, serial, digest: Box::new(digest) }
            }
        }
    }
}

fn place(one: &SeenSerial) -> (&TreeName, KeyId) {
    (&one.tree, one.key)
}

fn format_line(SeenSerial { tree, key, serial, digest }: &SeenSerial) -> String {
    format!("{tree} {key} {serial} {digest}")
}

fn parse_line(line: &str) -> Option<SeenSerial> {
    let mut words = line.split(' ');
    let (tree, key) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (serial, digest) = (words.next()?, words.next()?.parse().ok()?);
    let serial = serial.parse().ok().filter(|number: &u64| *number > 0)?;
    let one = SeenSerial { tree, key, serial, digest };
    (format_line(&one) == line).then_some(one)
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_verity::Algorithm;

    fn key(byte: u8) -> KeyId {
        KeyId([byte; 16])
    }

    fn digest(byte: u8) -> Digest {
        Digest::new(Algorithm::Sha256, &[byte; 32]).unwrap()
    }

    fn issue(tree: &str, serial: u64) -> Issue {
        Issue { tree: tree.parse().unwrap(), serial, time: 0 }
    }

    fn some() -> Seen {
        let mut seen = Seen::default();
        for (tree, serial, by) in [("b", 7, 2), ("a", 9, 1), ("a", 3, 2), ("b", 5, 1)] {
            assert!(seen.note(&issue(tree, serial), &digest(1), &[key(by)]));
        }
        seen
    }

    #[test]
    fn what_was_written_is_read() {
        for seen in [Seen::default(), some()] {
            assert_eq!(Seen::parse(&seen.to_text()), Ok(seen));
        }
        let places: Vec<_> = some().serials.iter().map(|one| (one.tree.to_string(), one.key.0[0])).collect();
        assert_eq!(places, [("a".into(), 1), ("a".into(), 2), ("b".into(), 1), ("b".into(), 2)]);
    }

    /// Neither a file that was cut off nor one with a mistake is read as less.
    #[test]
    fn a_mistake_is_named_with_its_line() {
        let text = some().to_text();
        for len in 0..text.len() {
            assert!(Seen::parse(&text[..len]).is_err(), "{len}");
        }
        let lines: Vec<&str> = text.lines().collect();
        for gone in 0..lines.len() {
            let rest: Vec<&str> =
                lines.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, line)| *line).collect();
            assert!(Seen::parse(&(rest.join("\n") + "\n")).is_err(), "{gone}");
        }
        for (from, to, what) in [
            (" 9 ", " x ", "line 2"),
            (" 9 ", " 09 ", "line 2"),
            (" 9 ", " 0 ", "line 2"),
            ("a 02", "b 03", "line 4"),
            ("sha256:", "sha1:", "line 2"),
            ("end 4", "end 3", "line 6"),
            ("end 4", "end  4", "line 6"),
            ("\n", "\r\n", "line 6"),
            ("sha256:01", "sha256:0A", "line 2"),
            ("end 4\n", "end 4\nx\n", "line 7"),
            ("serials 1", "serials 2", "line 1"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Seen::parse(&text.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn an_older_seal_is_stale_whichever_key_saw_the_newer() {
        let seen = some();
        let both = [key(1), key(2)];
        let judged =
            |tree, serial, by, keys: &[KeyId]| match seen.judge(&issue(tree, serial), &digest(by), keys) {
                Ok(()) => "good",
                Err(Stale::Older { .. }) => "older",
                Err(Stale::Another { .. }) => "another",
            };
        assert_eq!(judged("a", 9, 1, &both), "good");
        assert_eq!(judged("a", 9, 2, &both), "another");
        assert_eq!(judged("a", 10, 2, &both), "good");
        assert_eq!(judged("a", 8, 1, &both), "older");
        // Signed by key 2 alone, say, whose highest is 3: key 1 is trusted, too, and has seen 9.
        assert_eq!(judged("a", 8, 2, &both), "older");
        // A key that is not trusted any more does not count.
        assert_eq!(judged("a", 8, 2, &[key(2)]), "good");
        assert_eq!(judged("c", 1, 1, &both), "good");
    }

    #[test]
    fn serials_only_rise() {
        let mut seen = some();
        assert!(!seen.note(&issue("a", 9), &digest(1), &[key(1)]));
        assert!(!seen.note(&issue("a", 8), &digest(1), &[key(1)]));
        assert!(seen.note(&issue("a", 9), &digest(1), &[key(1), key(2)]));
        assert_eq!(seen.serials.iter().map(|one| one.serial).collect::<Vec<_>>(), [9, 9, 5, 7]);
    }
}
