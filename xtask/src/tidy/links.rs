//! The documents' relative links lead somewhere: to a file, and to a heading if they name one. Source files that they
//! mention exist. Each page is in the table of contents.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// The table of contents of the site, below the workspace.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Checks one Markdown file.
pub(crate) fn check(path: &Path, name: &str, text: &str) -> Vec<String> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut faults = Vec::new();
    for (number, line) in prose(text) {
        for target in targets(line).into_iter().filter(|target| is_relative(target)) {
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { path.to_path_buf() } else { folder.join(file) };
            let is_page = to.extension().is_some_and(|extension| extension == "md");
            if !file.is_empty() && !to.exists() {
                faults.push(format!("{name}:{number}: `{target}` leads nowhere"));
            } else if is_page && !place.is_empty() {
                let page = if file.is_empty() {
                    text.to_owned()
                } else {
                    fs::read_to_string(&to).unwrap_or_default()
                };
                if !anchors(&page).contains(place) {
                    faults.push(format!("{name}:{number}: `{target}`: that page has no such heading"));
                }
            }
        }
    }
    faults
}

/// Names source files that a page mentions in code (`shuntfs/src/{a,b}.rs`) and that do not exist. What has changed may be gone.
pub(crate) fn missing_sources(root: &Path, name: &str, text: &str) -> Vec<String> {
    if name.ends_with("CHANGELOG.md") {
        return Vec::new();
    }
    // Paths begin at the top, or at the folder of all crates, whose names may be without their beginning.
    let exists = |path: &str| {
        // Of a pattern, the folder.
        let path =
            path.split_once('*').map_or(path, |(before, _)| before.rsplit_once('/').map_or("", |at| at.0));
        ["", "crates/", "crates/shuntfs-"].iter().any(|place| root.join(format!("{place}{path}")).exists())
    };
    let mut faults = Vec::new();
    for (number, line) in prose(text) {
        let spans = line.split('`').skip(1).step_by(2);
        for span in spans.filter(|span| !span.contains(' ')) {
            if !span.contains("/src/") && !span.starts_with("crates/") && !span.starts_with("xtask/") {
                continue;
            }
            let gone = expanded(span).into_iter().filter(|path| !exists(path));
            faults.extend(gone.map(|path| format!("{name}:{number}: there is no `{path}`")));
        }
    }
    faults
}

/// What a shell makes of `{a,b}` in a path.
fn expanded(path: &str) -> Vec<String> {
    let whole = || vec![path.to_owned()];
    let Some((before, rest)) = path.split_once('{') else { return whole() };
    let Some((inside, after)) = rest.split_once('}') else { return whole() };
    inside.split(',').flat_map(|part| expanded(&format!("{before}{part}{after}"))).collect()
}

/// Pages that the table of contents lacks.
pub(crate) fn unlisted(root: &Path) -> Vec<String> {
    let contents = fs::read_to_string(root.join(CONTENTS)).unwrap_or_default();
    let pages = fs::read_dir(root.join("docs")).into_iter().flatten().flatten();
    let mut pages: Vec<String> = pages.map(|page| page.file_name().to_string_lossy().into_owned()).collect();
    pages.retain(|page| {
        page.ends_with(".md") && page != "SUMMARY.md" && !contents.contains(&format!("]({page})"))
    });
    pages.sort();
    pages.iter().map(|page| format!("docs/{page}: {CONTENTS} does not list it")).collect()
}

/// The files that a text links to, without the places in them.
pub(crate) fn files(text: &str) -> BTreeSet<&str> {
    let targets = prose(text).flat_map(|(_, line)| targets(line)).filter(|target| is_relative(target));
    targets.filter_map(|target| target.split('#').next()).filter(|file| !file.is_empty()).collect()
}

fn is_relative(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:")
}

/// What the headings of a page are called in links, by the rule of GitHub and mdBook: lower case, spaces as dashes, no
/// punctuation, and a number for the second of a name.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let level = line.len() - line.trim_start_matches('#').len();
        let Some(heading) = line[level..].strip_prefix(' ').filter(|_| (1..=6).contains(&level)) else {
            continue;
        };
        let mut anchor = String::new();
        for letter in shown(heading.trim()).to_lowercase().chars() {
            match letter {
                ' ' => anchor.push('-'),
                '-' | '_' => anchor.push(letter),
                letter if letter.is_alphanumeric() => anchor.push(letter),
                _ => {}
            }
        }
        let count = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

/// A heading without the targets of its links.
fn shown(heading: &str) -> String {
    let mut parts = heading.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// Returns the lines that are not code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// Finds what is between `](` and `)`, and what follows `]: ` in a reference.
fn targets(line: &str) -> Vec<&str> {
    let mut found: Vec<&str> = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next()?.split_whitespace().next())
        .map(|target| target.trim_matches(['<', '>']))
        .collect();
    if line.starts_with('[')
        && let Some((_, rest)) = line.split_once("]: ")
    {
        found.extend(rest.split_whitespace().next());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let there = "# A `b_c`: (d) [e](f.md)\n## Twice\n## Twice\n```\n# code\n```\n";
        std::fs::write(folder.path().join("there.md"), there).unwrap();
        check(&folder.path().join("a.md"), "a.md", text)
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named() {
        assert_eq!(
            faults("see [x](gone.md#part) and\n[y](there.md)\n"),
            ["a.md:1: `gone.md#part` leads nowhere"]
        );
        assert_eq!(faults("[x]: gone.md\n").len(), 1);
    }

    #[test]
    fn a_heading_that_a_page_lacks_is_named() {
        assert_eq!(
            faults("[x](there.md#code) [y](#here)\n"),
            [
                "a.md:1: `there.md#code`: that page has no such heading",
                "a.md:1: `#here`: that page has no such heading"
            ]
        );
        assert_eq!(faults("# Here\n[a](#here) [b](there.md#a-b_c-d-e) [c](there.md#twice-1)\n"), [""; 0]);
        assert_eq!(faults("[a](there.md#twice-2)\n").len(), 1);
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text =
            "[a](there.md) [c](https://example.org/x#y) [d](there.md \"title\")\n```\n[e](gone)\n```\n";
        assert_eq!(faults(text), Vec::<String>::new());
        assert_eq!(files(text), ["there.md"].into());
    }

    #[test]
    fn a_source_file_that_is_gone_is_named() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("crates/shuntfs-a/src")).unwrap();
        std::fs::write(root.path().join("crates/shuntfs-a/src/b.rs"), "").unwrap();
        let faults = |text: &str| missing_sources(root.path(), "a.md", text);
        let there = "`crates/shuntfs-a/src/b.rs` `shuntfs-a/src/` `a/src/{b,b}.rs` `a/src/*.rs` `src/x` `let a = /src/`";
        assert_eq!(faults(there), [""; 0]);
        assert_eq!(
            faults("x\n`a/src/{b,c}.rs`, `crates/c`, `gone/src/*.rs`\n```\n`crates/d`\n```\n"),
            [
                "a.md:2: there is no `a/src/c.rs`",
                "a.md:2: there is no `crates/c`",
                "a.md:2: there is no `gone/src/*.rs`"
            ]
        );
        assert_eq!(missing_sources(root.path(), "CHANGELOG.md", "`crates/c`\n"), [""; 0]);
    }

    #[test]
    fn a_page_that_is_not_listed_is_named() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(root.path().join("docs").join(name), text).unwrap();
        std::fs::create_dir(root.path().join("docs")).unwrap();
        put("SUMMARY.md", "- [A](a.md)\n");
        put("a.md", "");
        put("b.md", "");
        put("c.svg", "");
        assert_eq!(unlisted(root.path()), ["docs/b.md: docs/SUMMARY.md does not list it"]);
    }
}
