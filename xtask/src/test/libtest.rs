//! Reads what `cargo test` prints.

/// What the test programs of one `cargo test` said.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Results {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// The names of tests that failed.
    pub(crate) failures: Vec<String>,
    /// The names of tests that failed once and then passed by themselves.
    pub(crate) unsteady: Vec<String>,
    /// Test programs that have begun and did not say what came of them: they crashed.
    pub(crate) crashed: usize,
    /// Why tests did not run.
    pub(crate) skipped: Vec<String>,
}

impl Results {
    /// Takes one line of output.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some((_, reason)) = line.split_once("SKIPPED:") {
            self.skipped.push(reason.trim().to_owned());
        }
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.crashed += 1;
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.crashed = self.crashed.saturating_sub(1);
            self.passed += count(counts, " passed");
            self.failed += count(counts, " failed");
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failures.push(name.to_owned());
        }
    }

    /// A test that says `SKIPPED:` ends well for its harness, but it did not pass.
    pub(crate) fn passed_for_sure(&self) -> usize {
        self.passed.saturating_sub(self.skipped.len())
    }
}

/// Returns the number in front of a word.
fn count(counts: &str, word: &str) -> usize {
    let Some((before, _)) = counts.split_once(word) else { return 0 };
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_programs_add_up() {
        let mut results = Results::default();
        for line in [
            "running 3 tests",
            "test a::b ... ok",
            "test a::c ... FAILED",
            "test a::d ... SKIPPED: not root",
            "ok",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            results.line(line);
        }
        assert_eq!(results.passed, 12);
        assert_eq!(results.passed_for_sure(), 11);
        assert_eq!(results.failed, 1);
        assert_eq!(results.failures, ["a::c"]);
        assert_eq!(results.skipped, ["not root"]);
        assert_eq!(results.crashed, 0);
        results.line("running 1 test");
        assert_eq!(results.crashed, 1);
    }
}
