//! Parses the strings given to `-o`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use thiserror::Error;

use super::table::{Effect, OPTIONS, Row};
use crate::failure::Failure;
use crate::migrate::{Fate, Policies, fate_of};
use crate::settings::Settings;

/// What happens to an unknown option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unknown {
    /// It is an error.
    Refuse,
    /// It is noted and ignored: mount(8) called with `-s`.
    Ignore,
}

/// What is wrong with an option.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum OptionError {
    /// Nobody knows it.
    #[error("unknown mount option `{name}`{}", nearest.map(|known| format!("; did you mean `{known}`?")).unwrap_or_default())]
    Unknown {
        /// As it was typed.
        name: String,
        /// The known word that is nearest to it, where one is near.
        nearest: Option<&'static str>,
    },
    /// It is known and not available.
    #[error("mount option `{name}` is not offered: {why}")]
    NotOffered {
        /// As it was typed.
        name: String,
        /// Why, or what to do instead.
        why: &'static str,
    },
    /// mergerfs has it, and what it means there is not available.
    #[error("mergerfs's option `{word}` is {} here: {}", fate.word(), fate.text())]
    OfMergerfs {
        /// As it was typed, with its value.
        word: String,
        /// What happens to it.
        fate: Fate,
    },
    /// mergerfs has it, but not with this value.
    #[error("mergerfs's option `{name}` has no value `{value}`")]
    NoValueOfMergerfs {
        /// As it was typed.
        name: String,
        /// As it was typed.
        value: String,
    },
    /// It needs a value.
    #[error("mount option `{name}` needs a value: {name}={value}")]
    NeedsValue {
        /// As it was typed.
        name: String,
        /// What kind of value.
        value: &'static str,
    },
    /// It takes no value.
    #[error("mount option `{name}` takes no value")]
    TakesNoValue {
        /// As it was typed.
        name: String,
    },
    /// Its value makes no sense.
    #[error("mount option `{name}` has the value `{value}`, and needs {expected}")]
    BadValue {
        /// As it was typed.
        name: String,
        /// As it was typed.
        value: String,
        /// What it could be.
        expected: String,
    },
}

impl OptionError {
    fn is_of_mergerfs(&self) -> bool {
        matches!(self, Self::OfMergerfs { .. } | Self::NoValueOfMergerfs { .. })
    }

    /// Whether a sloppy mount can go on without it: it is none of ours.
    fn may_be_ignored(&self) -> bool {
        matches!(self, Self::Unknown { .. }) || self.is_of_mergerfs()
    }
}

/// All that is wrong, in one message.
fn failure_of(errors: &[OptionError]) -> Failure {
    let failure = match errors {
        [only] => Failure::usage(only.to_string()),
        some => Failure::usage(format!("{} mount options cannot be taken", some.len()))
            .details(some.iter().map(ToString::to_string)),
    };
    failure.hint(match errors.iter().any(OptionError::is_of_mergerfs) {
        true => "a whole line of mergerfs: shunt migrate mergerfs LINE",
        false => "all options: shunt mount --help",
    })
}

/// Settles every word of every `-o` into settings, later ones over earlier ones, and returns notes, too.
///
/// # Errors
/// Every option that is unknown, not offered, or has a wrong value.
pub fn parse(lists: &[OsString], unknown: Unknown) -> Result<(Settings, Vec<String>), Failure> {
    let words: Vec<OsString> = lists.iter().flat_map(|list| split(list)).collect();
    let shown: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let policies = Policies::among(shown.iter().map(|word| text_and_value(word)));
    let mut settings = Settings::default();
    let (mut notes, mut errors) = (Vec::new(), Vec::new());
    for word in &words {
        match apply(&mut settings, word, &policies) {
            Err(error) if unknown == Unknown::Ignore && error.may_be_ignored() => {
                notes.push(format!("ignored: {error}"));
            }
            Err(error) => errors.push(error),
            Ok(()) => {}
        }
    }
    if errors.is_empty() { Ok((settings, notes)) } else { Err(failure_of(&errors)) }
}

/// Checks whether one word can be taken.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(word: &OsStr) -> Result<(), OptionError> {
    apply(&mut Settings::default(), word, &Policies::among(std::iter::empty()))
}

fn text_and_value(word: &str) -> (&str, Option<&str>) {
    word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)))
}

/// The same list with paths from the root on, for a server in the background, which leaves the folder of its caller.
///
/// # Errors
/// Where a path is relative and the working directory is gone.
pub fn absolute(list: &OsStr) -> std::io::Result<OsString> {
    let mut words = Vec::new();
    for word in split(list) {
        let (name, value) = name_and_value(&word);
        let row = find(&canonical(name));
        let path = value.filter(|_| row.is_some_and(|row| matches!(row.effect, Effect::Path(..))));
        // An empty one is as wrong there as it is here.
        words.push(match path.filter(|path| !path.is_empty()) {
            Some(path) => {
                let path = std::path::absolute(path)?;
                OsString::from_vec([name.as_bytes(), b"=", path.as_os_str().as_bytes()].concat())
            }
            None => word,
        });
    }
    let escaped = words.iter().map(|word| escape(word.as_bytes()));
    Ok(OsString::from_vec(escaped.collect::<Vec<_>>().join(&b',')))
}

fn escape(word: &[u8]) -> Vec<u8> {
    let escaped = word.iter().flat_map(|byte| match byte {
        b',' | b'\\' => vec![b'\\', *byte],
        other => vec![*other],
    });
    escaped.collect()
}

fn name_and_value(word: &OsStr) -> (&OsStr, Option<&OsStr>) {
    match word.as_bytes().iter().position(|byte| *byte == b'=') {
        None => (word, None),
        Some(at) => {
            let (name, value) = word.as_bytes().split_at(at);
            (OsStr::from_bytes(name), Some(OsStr::from_bytes(&value[1..])))
        }
    }
}

/// Command-line flags are spelled with dashes; nobody should have to remember which is which.
fn canonical(name: &OsStr) -> String {
    let shown = name.to_string_lossy();
    if shown.starts_with(['x', 'X']) { shown.into_owned() } else { shown.replace('-', "_") }
}

fn apply(settings: &mut Settings, word: &OsStr, policies: &Policies) -> Result<(), OptionError> {
    let (name, value) = name_and_value(word);
    let (shown, canonical) = (name.to_string_lossy().into_owned(), canonical(name));
    let Some(row) = find(&canonical) else { return apply_of_mergerfs(settings, word, policies) };
    match (row.effect, value) {
        (Effect::Flag(set), None) => set(settings),
        (Effect::Flag(_), Some(_)) => return Err(OptionError::TakesNoValue { name: shown }),
        (Effect::Value(_, set), Some(value)) => {
            set(settings, value).map_err(|expected| OptionError::BadValue {
                name: shown,
                value: value.to_string_lossy().into_owned(),
                expected,
            })?;
        }
        (Effect::Path(_, set), Some(value)) if !value.is_empty() => set(settings, value.into()),
        (Effect::Value(value, _) | Effect::Path(value, _), _) => {
            return Err(OptionError::NeedsValue { name: shown, value });
        }
        (Effect::Ignored, _) => {}
        (Effect::NotOffered, _) => return Err(OptionError::NotOffered { name: shown, why: row.help }),
    }
    Ok(())
}

/// A word that is none of ours.
fn apply_of_mergerfs(settings: &mut Settings, word: &OsStr, policies: &Policies) -> Result<(), OptionError> {
    let word = word.to_string_lossy();
    let (name, value) = text_and_value(&word);
    match fate_of(name, value, policies) {
        None => {
            let nearest = nearest(&canonical(OsStr::new(name)));
            Err(OptionError::Unknown { nearest, name: name.to_owned() })
        }
        Some(Err(())) => {
            let value = value.unwrap_or_default().to_owned();
            Err(OptionError::NoValueOfMergerfs { name: name.to_owned(), value })
        }
        Some(Ok(Fate::NotNeeded(_))) => Ok(()),
        Some(Ok(Fate::Ours(ours))) => {
            apply(settings, OsStr::new(&ours.replace("{}", value.unwrap_or_default())), policies)
        }
        Some(Ok(fate)) => Err(OptionError::OfMergerfs { word: word.into_owned(), fate }),
    }
}

fn find(name: &str) -> Option<&'static Row> {
    OPTIONS.iter().find(|row| match row.name.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => row.name == name,
    })
}

/// The known word at the least edit distance, if that is small for the length of the word.
fn nearest(name: &str) -> Option<&'static str> {
    let close = 1 + name.chars().count() / 3;
    OPTIONS
        .iter()
        .filter(|row| !row.name.ends_with('*') && !matches!(row.effect, Effect::NotOffered))
        .map(|row| (strsim::damerau_levenshtein(name, row.name), row.name))
        .filter(|(distance, _)| *distance <= close)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Splits at commas that no backslash protects; `\,` is a comma and `\\` a backslash, as in fstab's fsname.
fn split(list: &OsStr) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word = Vec::new();
    let mut bytes = list.as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b',' => words.push(std::mem::take(&mut word)),
            b'\\' => match bytes.next() {
                Some(escaped @ (b',' | b'\\')) => word.push(escaped),
                Some(other) => word.extend([b'\\', other]),
                None => word.push(b'\\'),
            },
            other => word.push(other),
        }
    }
    words.push(word);
    words.into_iter().filter(|word| !word.is_empty()).map(OsString::from_vec).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::settings::{CacheChoice, FlowChoice, LocksChoice, TransportChoice};
    use shuntfs_pool::AccessTime;

    fn settle(list: &str) -> Result<Settings, String> {
        parse(&[OsString::from(list)], Unknown::Refuse)
            .map(|(settings, _)| settings)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn the_words_of_fstab_are_understood() {
        let settings = settle(
            "defaults,nofail,x-systemd.requires=/disk,_netdev,ro,nosuid,nodev,noexec,noatime,allow_other,\
             fsname=a\\,b,subtype=pool,max_read=65536,max_readahead=262144,transport=uring,flow=relay,threads=3,queue-depth=8,\
             cache=none,locks=lower,entry_timeout=0,attr_timeout=0.0,comment=x,nonempty",
        )
        .expect("all known");
        let mount = &settings.mount;
        assert!(
            mount.read_only
                && mount.nosuid
                && mount.nodev
                && mount.noexec
                && mount.access_times.kept == Some(AccessTime::Never)
                && mount.allow_other
        );
        assert_eq!(mount.fsname.as_deref(), Some(OsStr::new("a,b")));
        assert_eq!(mount.subtype.as_deref(), Some(OsStr::new("pool")));
        assert_eq!((mount.max_read, mount.max_readahead), (Some(65536), Some(262_144)));
        assert_eq!(settings.transport, TransportChoice::Uring);
        assert_eq!(settings.flow, FlowChoice::Relay);
        assert_eq!(settings.cache, CacheChoice::None);
        assert_eq!(settings.locks, LocksChoice::Lower);
        assert_eq!(
            (settings.threads.map(usize::from), settings.queue_depth.map(usize::from)),
            (Some(3), Some(8))
        );
    }

    #[test]
    fn what_mount_fuse3_passes_on_is_understood_and_the_last_word_wins() {
        let settings = settle("nosuid,nodev,ro,rw,suid,dev,exec,nouser,async,,").expect("all known");
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn errors_name_the_option_and_what_would_do() {
        let cases = [
            ("allow_othr", "unknown mount option `allow_othr`; did you mean `allow_other`?"),
            ("transprot=uring", "unknown mount option `transprot`; did you mean `transport`?"),
            ("kernal_cache", "unknown mount option `kernal_cache`; did you mean `kernel_cache`?"),
            ("zzzzqqqq", "unknown mount option `zzzzqqqq` ("),
            ("threads", "mount option `threads` needs a value: threads=N"),
            ("threads=0", "mount option `threads` has the value `0`, and needs a number from 1 on"),
            ("ro=1", "mount option `ro` takes no value"),
            ("flow=fast", "needs one of auto, passthrough, relay, splice, served"),
            ("entry_timeout=2", "needs 0 or 1; leave it out"),
            ("negative_timeout=1", "needs 0; leave it out"),
            ("max_read=1", "a size from 4K to less than 4G"),
            ("max_readahead=far", "a size of less than 4G"),
            ("tree_cache=64", "a size from 1M on, such as 64M"),
            ("allow_root", "is not offered: access can only be given to all other users: allow_other"),
            ("context=system_u:object_r:x", "is not offered: files keep their labels"),
        ];
        for (list, expected) in cases {
            let error = settle(list).expect_err(list);
            assert!(error.contains(expected), "{list}: {error}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_in_one_message() {
        let error = settle("threads=x,ro,allow_othr,allow_root").expect_err("is refused");
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines[0], "3 mount options cannot be taken (all options: shunt mount --help)");
        for (line, word) in lines[1..].iter().zip(["`threads`", "`allow_othr`", "`allow_root`"]) {
            assert!(line.contains(word), "{line}");
        }
        assert_eq!(lines.len(), 4, "{error}");
    }

    #[test]
    fn a_sloppy_mount_notes_what_is_unknown_and_still_refuses_what_is_wrong() {
        let (_, notes) = parse(&["mystery,ro".into()], Unknown::Ignore).expect("ignored");
        assert_eq!(notes, ["ignored: unknown mount option `mystery`"]);
        assert!(parse(&["threads=x".into()], Unknown::Ignore).is_err());
    }

    /// A server in the background leaves its caller's folder: `-o rules=e.toml` was read as `/e.toml`.
    #[test]
    fn paths_are_taken_from_the_folder_of_the_caller() {
        let here = std::env::current_dir().expect("a folder").to_string_lossy().into_owned();
        let list = "rules=a\\,b,ro,seal-store=/s/x,fsname=c\\\\d,log_file=../l,trust=k.pub,trust=,mystery=e";
        let absolute = absolute(OsStr::new(list)).expect("has a folder");
        let expected = format!(
            "rules={here}/a\\,b,ro,seal-store=/s/x,fsname=c\\\\d,log_file={here}/../l,trust={here}/k.pub,trust=,mystery=e"
        );
        assert_eq!(absolute, OsString::from(expected));
        let settings =
            settle(&absolute.to_string_lossy().replace(",trust=,mystery=e", "")).expect("is sound");
        assert_eq!(settings.mount.fsname.as_deref(), Some(OsStr::new("c\\d")));
        assert_eq!(settings.rules, Some(format!("{here}/a,b").into()));
        let error = settle("log_file=").expect_err("is empty");
        assert!(error.contains("needs a value: log_file=FILE"), "{error}");
    }

    #[test]
    fn what_looks_like_a_path_is_one() {
        for row in OPTIONS {
            if let Effect::Value(word, _) = row.effect {
                assert!(!["FILE", "DIR", "PATH", "KEY.pub"].contains(&word), "{}", row.name);
            }
        }
    }

    #[test]
    fn no_word_stands_twice_and_every_ordinary_word_finds_itself() {
        for (index, row) in OPTIONS.iter().enumerate() {
            assert!(OPTIONS[..index].iter().all(|earlier| earlier.name != row.name), "{}", row.name);
            if !row.name.ends_with('*') {
                assert_eq!(find(row.name).map(|found| found.name), Some(row.name));
            }
        }
    }
}
