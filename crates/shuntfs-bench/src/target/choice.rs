//! Which of a table's targets are measured.

use anyhow::{Result, bail};

use super::Target;
use crate::nearest::nearest;

/// Returns the targets that were asked for, or all, in the table's order, with the baseline in front.
pub(crate) fn choose(all: Vec<Target>, baseline: &str, asked: &[String]) -> Vec<Target> {
    if asked.is_empty() {
        return all;
    }
    all.into_iter().filter(|target| target.name == baseline || asked.contains(&target.name)).collect()
}

/// Checks that every name that was asked for is a target of some table.
///
/// # Errors
/// When one is not; the nearest known name is said.
pub(crate) fn check_names(known: &[&str], asked: &[String]) -> Result<()> {
    for name in asked {
        if !known.contains(&name.as_str()) {
            bail!("there is no target `{name}` here{}", nearest(name, known));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_always_measured() {
        let all = vec![Target::bare(), Target::pipe()];
        let chosen = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|&name| name.to_owned()).collect();
            choose(all.clone(), "bare", &asked).into_iter().map(|target| target.name).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[]), ["bare", "pipe"]);
        assert_eq!(chosen(&["absent"]), ["bare"]);
    }

    #[test]
    fn an_unknown_target_is_named_with_its_nearest() {
        let error = check_names(&["bare", "served"], &["serve".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("served"), "{error}");
        assert!(check_names(&["bare"], &["bare".to_owned()]).is_ok());
    }
}
