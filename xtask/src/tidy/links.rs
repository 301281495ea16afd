//! The documents' relative links lead somewhere.

use std::path::Path;

/// Checks one Markdown file.
pub(crate) fn check(path: &Path, name: &str, text: &str) -> Vec<String> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut faults = Vec::new();
    for (number, line) in prose(text) {
        for target in targets(line) {
            let file = target.split(['#', '?']).next().unwrap_or_default();
            let outside = target.contains("://") || target.starts_with("mailto:") || file.is_empty();
            if !outside && !folder.join(file).exists() {
                faults.push(format!("{name}:{number}: `{target}` leads nowhere"));
            }
        }
    }
    faults
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
        std::fs::write(folder.path().join("there.md"), "").unwrap();
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
    fn links_that_lead_somewhere_pass() {
        let text = "[a](there.md) [b](#here) [c](https://example.org/x) [d](there.md \"title\")\n```\n[e](gone)\n```\n";
        assert_eq!(faults(text), Vec::<String>::new());
    }
}
