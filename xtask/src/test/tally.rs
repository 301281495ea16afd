//! What came of a run, summed up.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use super::libtest::Results;

/// Everything that was run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Tests that ran, whatever came of them.
    tests: usize,
    passed: usize,
    failed: usize,
    steps: Vec<String>,
    failures: Vec<String>,
    unsteady: Vec<String>,
    skipped: Vec<String>,
}

impl Tally {
    /// Enters a check, which counts as one.
    pub(crate) fn check(&mut self, name: &str, ok: bool, took: Duration) {
        self.passed += usize::from(ok);
        self.failed += usize::from(!ok);
        let word = if ok { "ok" } else { "FAILED" };
        self.steps.push(format!("{name}: {word} ({} s)", took.as_secs()));
        if !ok {
            self.failures.push(name.to_owned());
        }
    }

    /// Enters what is not done, and why.
    pub(crate) fn skip(&mut self, reason: &str) {
        self.skipped.push(reason.to_owned());
    }

    /// Enters the tests of one `cargo test`.
    pub(crate) fn tests(&mut self, name: &str, results: Results, ok: bool, took: Duration) {
        let (passed, skipped) = (results.passed_for_sure(), results.skipped.len());
        // A program that does not compile, or crashes, has no result line.
        let failed = if ok { results.failed } else { results.failed.max(1) };
        self.tests += results.passed + results.failed;
        self.passed += passed;
        self.failed += failed;
        self.steps.push(format!(
            "{name}: {passed} passed, {failed} failed, {skipped} skipped ({} s)",
            took.as_secs()
        ));
        if failed > 0 && results.failures.is_empty() {
            self.failures.push(format!("{name}: does not build, or a test program crashed"));
        }
        self.failures.extend(results.failures);
        self.unsteady.extend(results.unsteady);
        self.skipped.extend(results.skipped);
    }

    /// A filter that no test has in its name is a mistyped one.
    pub(crate) fn expect_tests(&mut self, filter: &str) {
        if self.tests == 0 {
            self.failed += 1;
            self.failures.push(format!("no test has `{filter}` in its name"));
        }
    }

    /// Prints the summary, whose last line is the sum.
    pub(crate) fn print(&self) -> ExitCode {
        print!("{}", self.text());
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn text(&self) -> String {
        let mut lines = vec![String::new(), "summary".to_owned()];
        lines.extend(self.steps.iter().map(|step| format!("  {step}")));
        if !self.skipped.is_empty() {
            lines.push("skipped, because".to_owned());
            let mut reasons = BTreeMap::<&str, usize>::new();
            for reason in &self.skipped {
                *reasons.entry(reason).or_default() += 1;
            }
            lines.extend(reasons.iter().map(|(reason, count)| format!("  {reason} ({count})")));
        }
        if !self.unsteady.is_empty() {
            lines.push("unsteady: failed once, and passed by themselves each time since".to_owned());
            lines.extend(self.unsteady.iter().map(|name| format!("  {name}")));
        }
        if !self.failures.is_empty() {
            lines.push("failed".to_owned());
            lines.extend(self.failures.iter().map(|name| format!("  {name}")));
        }
        lines.push(format!(
            "{} passed, {} failed, {} skipped\n",
            self.passed,
            self.failed,
            self.skipped.len()
        ));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(passed: usize, failed: usize, skipped: &[&str]) -> Results {
        let skipped = skipped.iter().map(|&reason| reason.to_owned()).collect();
        Results { passed, failed, failures: vec!["a::b".to_owned(); failed], skipped, ..Results::default() }
    }

    #[test]
    fn the_last_line_is_the_sum() {
        let mut tally = Tally::default();
        tally.check("tidy", true, Duration::ZERO);
        tally.tests("unit tests", results(10, 0, &["not root", "not root"]), true, Duration::ZERO);
        tally.tests("end-to-end tests", results(5, 1, &[]), false, Duration::ZERO);
        let text = tally.text();
        assert!(text.ends_with("\n14 passed, 1 failed, 2 skipped\n"), "{text}");
        assert!(text.contains("not root (2)") && text.contains("  a::b"), "{text}");
    }

    #[test]
    fn a_filter_that_finds_nothing_is_a_failure() {
        let mut tally = Tally::default();
        tally.check("release build", true, Duration::ZERO);
        tally.tests("unit tests", results(0, 0, &[]), true, Duration::ZERO);
        tally.expect_tests("typo");
        assert!(tally.text().ends_with("\n1 passed, 1 failed, 0 skipped\n"), "{}", tally.text());
    }

    #[test]
    fn an_unsteady_test_is_named() {
        let mut tally = Tally::default();
        let results = Results { unsteady: vec!["a::b".to_owned()], ..results(5, 0, &[]) };
        tally.tests("unit tests", results, true, Duration::ZERO);
        let text = tally.text();
        assert!(
            text.contains("since\n  a::b") && text.ends_with("\n5 passed, 0 failed, 0 skipped\n"),
            "{text}"
        );
    }

    /// Every filter was called a mistyped one.
    #[test]
    fn a_filter_that_finds_tests_is_none() {
        for found in [results(2, 0, &[]), results(1, 0, &["not root"]), results(0, 1, &[])] {
            let mut tally = Tally::default();
            let failed = found.failed;
            tally.tests("unit tests", found, failed == 0, Duration::ZERO);
            tally.tests("end-to-end tests", results(0, 0, &[]), true, Duration::ZERO);
            tally.expect_tests("name");
            assert!(!tally.text().contains("`name`") && tally.failed == failed, "{}", tally.text());
        }
    }

    #[test]
    fn a_crash_without_a_result_line_is_a_failure() {
        let mut tally = Tally::default();
        tally.tests("unit tests", results(3, 0, &[]), false, Duration::ZERO);
        assert!(tally.text().ends_with("\n3 passed, 1 failed, 0 skipped\n"));
    }
}
