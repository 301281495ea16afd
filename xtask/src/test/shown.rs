//! Which lines of a test program's output are worth a reader's time.
//!
//! What passed is counted, not told; what failed is told whole. The reasons of skipped tests are in the output of
//! tests that passed and come again in the summary.

/// Where in the output of one test program the reader is.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Part {
    /// Names of tests, one a line, each with its result.
    #[default]
    Names,
    /// What tests that passed have printed.
    Passed,
    /// What tests that failed have printed.
    Failed,
}

/// Looks at one line after the other.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    part: Part,
}

impl Shown {
    /// Whether the next line must be shown.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        match line {
            "successes:" => self.part = Part::Passed,
            "failures:" => self.part = Part::Failed,
            _ => {}
        }
        if line.starts_with("test result: ") {
            self.part = Part::Names;
            return true;
        }
        match self.part {
            Part::Names => !line.is_empty() && !line.starts_with("running ") && !line.ends_with(" ... ok"),
            Part::Passed => false,
            Part::Failed => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_failed_is_told_whole() {
        let output = "\nrunning 2 tests\ntest a ... ok\ntest b ... FAILED\n\nsuccesses:\n\n---- a stdout ----\nnoise\n\n\
                      successes:\n    a\n\nfailures:\n\n---- b stdout ----\nreason\n\n\
                      failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed\n\nrunning 1 test\ntest c ... ok\n\n\
                      successes:\n\nsuccesses:\n    c\n\ntest result: ok. 1 passed; 0 failed";
        let mut shown = Shown::default();
        let told = output.lines().filter(|line| shown.line(line)).collect::<Vec<_>>();
        assert_eq!(
            told,
            [
                "test b ... FAILED",
                "failures:",
                "",
                "---- b stdout ----",
                "reason",
                "",
                "failures:",
                "    b",
                "",
                "test result: FAILED. 1 passed; 1 failed",
                "test result: ok. 1 passed; 0 failed",
            ]
        );
    }

    #[test]
    fn words_of_a_crash_are_shown() {
        let mut shown = Shown::default();
        assert!(shown.line("memory allocation of 8 bytes failed"));
    }
}
