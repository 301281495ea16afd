//! A file has at most 600 lines, its tests not counted.

const LINES_MAX: usize = 600;

/// Checks one file's length.
pub(crate) fn check(name: &str, code: &str) -> Option<String> {
    if is_test_file(name) {
        return None;
    }
    let lines = own_lines(code);
    (lines > LINES_MAX).then(|| format!("{name}: {lines} lines without tests; {LINES_MAX} are the limit"))
}

/// A file of tests alone is as long as its cases are many.
fn is_test_file(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/") || name.starts_with("tests/")
}

/// Counts the lines before the test module at the file's end.
fn own_lines(code: &str) -> usize {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let is_tests = |at: usize| {
        let next = lines[at + 1..].iter().find(|line| !line.is_empty() && !line.starts_with("#["));
        lines[at] == "#[cfg(test)]" && next.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    };
    (0..lines.len()).find(|&at| is_tests(at)).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_named() {
        let long = "fn a() {}\n".repeat(LINES_MAX + 1);
        assert!(check("crates/a/src/b.rs", &long).is_some());
        assert!(check("crates/a/src/b.rs", &long[10..]).is_none());
    }

    #[test]
    fn tests_do_not_count() {
        let tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", "// b\n".repeat(LINES_MAX));
        assert!(check("crates/a/src/b.rs", &tests).is_none());
        assert!(check("crates/a/tests/b.rs", &"a\n".repeat(LINES_MAX * 2)).is_none());
    }

    #[test]
    fn a_function_for_tests_alone_does_not_end_the_count() {
        let text = format!("#[cfg(test)]\nfn a() {{}}\n{}", "fn b() {}\n".repeat(LINES_MAX));
        assert!(check("crates/a/src/b.rs", &text).is_some());
    }
}
