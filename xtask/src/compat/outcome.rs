//! What a command's output means for a check.

use std::time::Duration;

use super::guest::{End, Ran};
use crate::test::libtest::Results;

/// Words that are in the reason of each test that is skipped because of the kernel.
const BECAUSE_OF_IT: &str = "this kernel";

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is as it must be; with a word about what ran.
    Ok(String),
    /// The kernel lacks what is checked, and why that is known.
    NotHere(String),
    Failed(String),
}

impl Outcome {
    /// Judges test programs that were to run this many tests.
    pub(crate) fn of_tests(ran: &Ran, count: usize, limit: Duration) -> Self {
        if let Some(failed) = Self::unfinished(ran, limit) {
            return failed;
        }
        let mut results = Results::default();
        ran.output.lines().for_each(|line| results.line(line));
        results.skipped.dedup();
        if ran.end != End::Code(0) || results.failed > 0 || results.crashed > 0 {
            let colon = if results.failures.is_empty() { "" } else { ": " };
            let names = results.failures.join(", ");
            return Self::Failed(format!("{} of {count} tests failed{colon}{names}", results.failed));
        }
        if results.passed != count {
            return Self::Failed(format!("{} tests ran, not {count}", results.passed));
        }
        let reasons = results.skipped.join("; ");
        match results.skipped.as_slice() {
            [] if count == 1 => Self::Ok("1 test".to_owned()),
            [] => Self::Ok(format!("{count} tests")),
            // A program that is missing on the host is no property of the kernel.
            skipped if !skipped.iter().all(|reason| reason.contains(BECAUSE_OF_IT)) => {
                Self::Failed(format!("skipped: {reasons}"))
            }
            _ if count == 1 => Self::NotHere(reasons),
            _ => Self::Ok(format!("{count} tests; skipped in part: {reasons}")),
        }
    }

    /// Judges a script by its code; what it prints last says why.
    pub(crate) fn of_script(ran: &Ran, limit: Duration) -> Self {
        if let Some(failed) = Self::unfinished(ran, limit) {
            return failed;
        }
        let last = ran.output.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
        match ran.end {
            End::Code(0) => Self::Ok(last.to_owned()),
            _ => Self::Failed(last.to_owned()),
        }
    }

    fn unfinished(ran: &Ran, limit: Duration) -> Option<Self> {
        let why = match ran.end {
            End::Code(124) => format!("took longer than {} s and was ended", limit.as_secs()),
            // By its limit, if it did not end when it was asked to, or because memory was short.
            End::Code(137) => format!("was killed (its limit is {} s)", limit.as_secs()),
            End::Code(_) => return None,
            End::Hung => format!("took longer than {} s and could not be ended", limit.as_secs()),
            End::Died => "the virtual machine ended".to_owned(),
        };
        Some(Self::Failed(why))
    }

    /// A cell of the table.
    pub(crate) fn cell(&self) -> &'static str {
        match self {
            Self::Ok(_) => "ok",
            Self::NotHere(_) => "no",
            Self::Failed(_) => "FAILED",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn ran(end: End, output: &str) -> Ran {
        Ran { end, output: output.to_owned(), took: LIMIT }
    }

    fn of_tests(code: i32, output: &str, count: usize) -> Outcome {
        Outcome::of_tests(&ran(End::Code(code), output), count, LIMIT)
    }

    fn is_failed(outcome: &Outcome, words: &str) -> bool {
        matches!(outcome, Outcome::Failed(why) if why.contains(words))
    }

    const TWO: &str = "running 2 tests\ntest a ... ok\ntest b ... ok\n\
        test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 30 filtered out; finished in 0.00s\n";

    #[test]
    fn tests_that_pass_are_ok_if_all_of_them_ran() {
        assert_eq!(of_tests(0, TWO, 2), Outcome::Ok("2 tests".to_owned()));
        assert!(is_failed(&of_tests(0, TWO, 3), "2 tests ran, not 3"));
        assert!(is_failed(&of_tests(0, "", 2), "0 tests ran"));
        assert!(is_failed(&of_tests(101, TWO, 2), "failed"));
        assert!(is_failed(&of_tests(0, &format!("{TWO}running 1 test\n"), 2), "failed"));
    }

    #[test]
    fn failures_are_named() {
        let text = "running 2 tests\ntest a ... FAILED\ntest b ... ok\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        assert_eq!(of_tests(101, text, 2), Outcome::Failed("1 of 2 tests failed: a".to_owned()));
    }

    #[test]
    fn only_a_kernel_excuses() {
        let one = |reason: &str| {
            let text = TWO.replace('2', "1").replace("test b ... ok\n", "");
            of_tests(0, &text.replace("a ... ok", &format!("a ... SKIPPED: {reason}\nok")), 1)
        };
        let reason = "this kernel has no FUSE passthrough";
        assert_eq!(one(reason), Outcome::NotHere(reason.to_owned()));
        assert!(is_failed(&one("mkfs.ext4 is not installed"), "mkfs.ext4"));
        let in_part = of_tests(0, &format!("SKIPPED: {reason}\nSKIPPED: {reason}\n{TWO}"), 2);
        assert_eq!(in_part, Outcome::Ok(format!("2 tests; skipped in part: {reason}")));
    }

    #[test]
    fn what_does_not_end_has_failed() {
        for (end, words) in [
            (End::Code(124), "longer than 60 s and was ended"),
            (End::Code(137), "was killed"),
            (End::Hung, "could not be ended"),
            (End::Died, "machine ended"),
        ] {
            let ran = ran(end, TWO);
            assert!(is_failed(&Outcome::of_tests(&ran, 2, LIMIT), words));
            assert!(is_failed(&Outcome::of_script(&ran, LIMIT), words));
        }
    }

    #[test]
    fn a_script_is_judged_by_its_code() {
        let text = "first\nlast\n\n";
        assert_eq!(Outcome::of_script(&ran(End::Code(0), text), LIMIT), Outcome::Ok("last".to_owned()));
        for code in [1, 2] {
            assert_eq!(
                Outcome::of_script(&ran(End::Code(code), text), LIMIT),
                Outcome::Failed("last".to_owned())
            );
        }
    }
}
