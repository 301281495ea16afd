//! Tests that failed beside others run again by themselves.
//!
//! Many tests have limits on time, and a busy machine may exceed one of them. A test that passes by itself each time is
//! reported as unsteady, not as failed: its name is in the summary, so that somebody looks for the cause.

use super::libtest::Results;

/// How often a test has to pass by itself.
const RUNS: usize = 3;

/// More failures than these are no accident.
const MOST: usize = 3;

/// Counts those failures as passed that `run` sees pass each time, by name, and remembers their names.
///
/// `run` gets a name, and says what came of the tests of exactly this name.
pub(crate) fn settle(results: &mut Results, mut run: impl FnMut(&str) -> Option<Results>) {
    if results.crashed > 0 || results.failures.len() > MOST || results.failures.len() != results.failed {
        return;
    }
    let mut passes = |name: &str| {
        (0..RUNS).all(|_| run(name).is_some_and(|again| again.failed == 0 && again.passed_for_sure() > 0))
    };
    let (unsteady, failures): (Vec<_>, Vec<_>) =
        std::mem::take(&mut results.failures).into_iter().partition(|name| passes(name));
    results.failed = failures.len();
    results.passed += unsteady.len();
    results.failures = failures;
    results.unsteady = unsteady;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(names: &[&str]) -> Results {
        let failures: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        Results { passed: 10, failed: failures.len(), failures, ..Results::default() }
    }

    fn one(passed: bool) -> Option<Results> {
        Some(Results { passed: usize::from(passed), failed: usize::from(!passed), ..Results::default() })
    }

    #[test]
    fn what_passes_each_time_is_unsteady_and_the_rest_has_failed() {
        let mut results = failed(&["steady", "shaky", "mostly"]);
        let mut runs = 0;
        settle(&mut results, |name| {
            runs += 1;
            one(match name {
                "steady" => false,
                "shaky" => true,
                _ => runs % 3 != 0,
            })
        });
        assert_eq!((results.unsteady.as_slice(), results.passed), (["shaky".to_owned()].as_slice(), 11));
        assert_eq!((results.failures, results.failed), (vec!["steady".to_owned(), "mostly".to_owned()], 2));
    }

    #[test]
    fn a_test_that_does_not_run_again_has_failed() {
        let skipped = Results { passed: 1, skipped: vec!["not root".to_owned()], ..Results::default() };
        for nothing in [None, Some(Results::default()), Some(skipped)] {
            let mut results = failed(&["a"]);
            let mut nothing = nothing;
            settle(&mut results, |_| nothing.take());
            assert_eq!((results.failed, results.unsteady.len()), (1, 0));
        }
    }

    #[test]
    fn many_failures_and_crashes_are_not_run_again() {
        let crash = Results { crashed: 1, ..failed(&["a"]) };
        for mut results in [failed(&["a", "b", "c", "d"]), crash] {
            let before = results.failed;
            settle(&mut results, |_| panic!("runs"));
            assert_eq!(results.failed, before);
        }
    }
}
