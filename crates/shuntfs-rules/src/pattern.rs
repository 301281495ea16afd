//! Patterns of paths.
//!
//! `*` and `?` stop at a slash, `**` crosses any number of components, `[..]` is one character of several, `{a,b}` one
//! of several words, and a backslash takes the meaning from the character after it. A pattern of a path is anchored at
//! the source.

use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// The longest pattern.
const PATTERN_MAX: usize = 4096;

/// Says what is wrong with a pattern; `key` is where it was given.
pub(crate) fn check(key: &str, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("a pattern has at least one character".into());
    }
    if text.len() > PATTERN_MAX {
        return Err(format!("a pattern has at most {PATTERN_MAX} bytes"));
    }
    match key {
        "path" if text.starts_with('/') => {
            return Err("paths are below the source: without a slash in front".into());
        }
        "path" if text.ends_with('/') => {
            let folder = text.trim_end_matches('/');
            return Err(format!(
                "this matches nothing; `{folder}` is the folder, `{folder}/**` all that is in it"
            ));
        }
        "path" if text.split('/').any(|part| matches!(part, "" | "." | "..")) => {
            return Err("a path has no empty part, no `.` and no `..`, so this matches nothing".into());
        }
        "basename" if text.contains('/') => {
            return Err("a basename has no slash; patterns of paths belong to `path`".into());
        }
        "basename" if matches!(text, "." | "..") => {
            return Err("no file is called so, so this matches nothing".into());
        }
        "exe" if !text.starts_with('/') && !text.starts_with("**") => {
            return Err("the path of a program starts with a slash, or with `**`".into());
        }
        "exe" if text[1..].split('/').any(|part| matches!(part, "" | "." | "..")) => {
            return Err(
                "the path of a program has no empty part, no `.` and no `..`, so this matches nothing".into(),
            );
        }
        _ => {}
    }
    if key != "basename"
        && let Some(part) = text.split('/').find(|part| part.contains("**") && *part != "**")
    {
        let meant = part.replace("**", "*");
        return Err(format!(
            "`**` stands alone between slashes, so `{part}` would not cross any: `**/{meant}` is at any depth, \
            `{meant}` at this one"
        ));
    }
    match glob(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("`{text}` is no pattern: {}", error.kind())),
    }
}

fn glob(text: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build()
}

/// Patterns, each of a rule, matched in one pass.
#[derive(Debug)]
pub(crate) struct Patterns {
    set: GlobSet,
    /// The rule of each pattern.
    rules: Vec<usize>,
}

/// Collects patterns.
#[derive(Debug)]
pub(crate) struct PatternsBuilder {
    builder: GlobSetBuilder,
    rules: Vec<usize>,
}

impl Default for PatternsBuilder {
    fn default() -> Self {
        Self { builder: GlobSetBuilder::new(), rules: Vec::new() }
    }
}

impl PatternsBuilder {
    /// Adds a pattern that was checked.
    pub(crate) fn add(&mut self, text: &str, rule: usize) -> Result<(), String> {
        self.builder.add(glob(text).map_err(|error| error.to_string())?);
        self.rules.push(rule);
        Ok(())
    }

    pub(crate) fn build(self) -> Result<Patterns, String> {
        let set = self.builder.build().map_err(|error| format!("all patterns together: {error}"))?;
        Ok(Patterns { set, rules: self.rules })
    }
}

impl Patterns {
    /// Calls `found` with the rule of every pattern that matches; a rule may come more than once.
    pub(crate) fn matching(&self, path: &[u8], mut found: impl FnMut(usize)) {
        if self.rules.is_empty() {
            return;
        }
        let path = bytes_path(path);
        for pattern in self.set.matches_candidate(&Candidate::new(path)) {
            found(self.rules[pattern]);
        }
    }
}

/// Bytes as a path: on Unix the same.
fn bytes_path(bytes: &[u8]) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt;
    std::path::Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// The folders whose children a pattern of a path may match, as patterns; `None` is any folder.
///
/// Never too few: where a pattern is hard to take apart, it is any folder.
pub(crate) fn folders_of(text: &str) -> Option<Vec<String>> {
    let parts = parts(text)?;
    // `a/**` matches what is below `a`, and not `a` itself, which is why it stands beside it.
    let upto = parts.iter().position(|part| *part == "**");
    let folder = parts[..upto.unwrap_or(parts.len() - 1)].join("/");
    match upto {
        None => Some(vec![folder]),
        Some(_) if folder.is_empty() => None,
        Some(_) => Some(vec![format!("{folder}/**"), folder]),
    }
}

/// The folders somewhere below which a pattern of a path may match, as patterns; `None` is any folder.
pub(crate) fn ancestors_of(text: &str) -> Option<Vec<String>> {
    let parts = parts(text)?;
    let mut found = vec![String::new()];
    let mut so_far = String::new();
    for (place, part) in parts.iter().enumerate() {
        if *part == "**" {
            if so_far.is_empty() {
                return None;
            }
            found.push(format!("{so_far}/**"));
            break;
        }
        if place + 1 == parts.len() {
            break;
        }
        if !so_far.is_empty() {
            so_far.push('/');
        }
        so_far.push_str(part);
        found.push(so_far.clone());
    }
    Some(found)
}

/// Whether a pattern of a path says nothing but the last component.
pub(crate) fn is_floating(text: &str) -> bool {
    matches!(parts(text).as_deref(), Some(["**"] | ["**", _]))
}

/// Whether the first pattern of a path matches wherever the second does. What is hard to tell is not.
pub(crate) fn covers(wide: &str, narrow: &str) -> bool {
    if wide == narrow || wide == "**" {
        return true;
    }
    let (Some(wide), Some(narrow)) = (parts(wide), parts(narrow)) else { return false };
    let Some((&"**", folder)) = wide.split_last() else { return false };
    !folder.contains(&"**") && narrow.len() > folder.len() && narrow.starts_with(folder)
}

/// Whether a file with a path of the one pattern may have a last component of the other. Never `false` where it may.
pub(crate) fn may_meet(path: &str, basename: &str) -> bool {
    const SIGNS: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];
    let Some(last) = parts(path).and_then(|parts| parts.last().copied()) else { return true };
    let is_literal = |text: &str| !text.contains(SIGNS);
    let matches =
        |pattern: &str, text: &str| glob(pattern).map_or(true, |glob| glob.compile_matcher().is_match(text));
    if last == "**" {
        return true;
    }
    match (is_literal(last), is_literal(basename)) {
        (true, _) => matches(basename, last),
        (_, true) => matches(last, basename),
        (false, false) => {
            let start = |text: &str| text.split(SIGNS).next().unwrap_or_default().to_owned();
            let end = |text: &str| text.rsplit(SIGNS).next().unwrap_or_default().to_owned();
            let (starts, ends) = ((start(last), start(basename)), (end(last), end(basename)));
            (starts.0.starts_with(&starts.1) || starts.1.starts_with(&starts.0))
                && (ends.0.ends_with(&ends.1) || ends.1.ends_with(&ends.0))
        }
    }
}

/// The components; `None` where slashes may be inside of words or classes.
fn parts(text: &str) -> Option<Vec<&str>> {
    let mut depth = 0_usize;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'/' if depth > 0 => return None,
            _ => {}
        }
    }
    Some(text.split('/').collect())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_covers_and_what_cannot_meet_is_told_on_the_safe_side() {
        for (wide, narrow, expected) in [
            ("**", "a", true),
            ("a/**", "a/b", true),
            ("a/**", "a/*/c", true),
            ("a/**", "a/**", true),
            ("a/**", "a", false),
            ("a/*", "a/b", false),
            ("**/a", "b/a", false),
            ("*/**", "a/b", false),
        ] {
            assert_eq!(covers(wide, narrow), expected, "{wide} {narrow}");
        }
        for (path, basename, expected) in [
            ("a/*.jpg", "*.png", false),
            ("a/*.jpg", "b*", true),
            ("a/*.jpg", "*g", true),
            ("a/x.jpg", "*.png", false),
            ("a/x.jpg", "x*", true),
            ("a/x*", "y*", false),
            ("a/*.{jpg,png}", "*.gif", true),
            ("a/**", "x", true),
            ("a/{b/c,d}", "x", true),
        ] {
            assert_eq!(may_meet(path, basename), expected, "{path} {basename}");
        }
    }

    fn matches(pattern: &str, path: &str) -> bool {
        let mut builder = PatternsBuilder::default();
        builder.add(pattern, 7).unwrap();
        let mut found = false;
        builder.build().unwrap().matching(path.as_bytes(), |rule| {
            assert_eq!(rule, 7);
            found = true;
        });
        found
    }

    #[test]
    fn stars_stop_at_slashes_and_double_stars_do_not() {
        for (pattern, path, expected) in [
            ("*.jpg", "a.jpg", true),
            ("*.jpg", "a/b.jpg", false),
            ("**/*.jpg", "a.jpg", true),
            ("**/*.jpg", "a/b/c.jpg", true),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("a/*/c", "a/b/c", true),
            ("a/*/c", "a/b/b/c", false),
            ("{x,y}/*.[jp]*", "y/a.png", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("\\*", "*", true),
            ("\\*", "b", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
        assert!(matches("**/*.jpg", "d\u{fffd}/x.jpg"));
    }

    #[test]
    fn what_can_match_nothing_is_refused() {
        for (key, text) in [
            ("path", ""),
            ("path", "/a"),
            ("path", "a/"),
            ("path", "a//b"),
            ("path", "a/../b"),
            ("path", "[a"),
            ("path", "{a"),
            ("basename", "a/b"),
            ("exe", "bin/cat"),
        ] {
            assert!(check(key, text).is_err(), "{key} {text}");
        }
        for (key, text) in [("path", "a/**"), ("basename", "*.jpg"), ("exe", "/usr/bin/*"), ("exe", "**/cat")]
        {
            assert_eq!(check(key, text), Ok(()), "{key} {text}");
        }
    }

    #[test]
    fn folders_of_children_are_never_too_few() {
        let any: Option<Vec<String>> = None;
        let some = |list: &[&str]| Some(list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(folders_of("a/b/*.jpg"), some(&["a/b"]));
        assert_eq!(folders_of("*.jpg"), some(&[""]));
        assert_eq!(folders_of("a/**"), some(&["a/**", "a"]));
        assert_eq!(folders_of("a/**/b"), some(&["a/**", "a"]));
        assert_eq!(folders_of("**/x"), any);
        assert_eq!(folders_of("{a/b,c}/x"), any);
        assert_eq!(folders_of("**"), any);
    }

    #[test]
    fn ancestors_are_never_too_few() {
        let some = |list: &[&str]| Some(list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(ancestors_of("a/b/c"), some(&["", "a", "a/b"]));
        assert_eq!(ancestors_of("a/**/c"), some(&["", "a", "a/**"]));
        assert_eq!(ancestors_of("**/c"), None);
        assert_eq!(ancestors_of("c"), some(&[""]));
        assert!(is_floating("**/*.jpg") && is_floating("**"));
        assert!(!is_floating("a/*.jpg") && !is_floating("**/a/*.jpg") && !is_floating("**/{a,b/c}"));
    }
}
