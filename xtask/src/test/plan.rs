//! What the command line asks for.

use anyhow::{Result, bail};

/// What to run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// No set-up, no end-to-end tests.
    pub(crate) quick: bool,
    /// The tests with this in their name, and no check.
    pub(crate) filter: Option<String>,
}

impl Plan {
    /// Reads the arguments after `test`.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut plan = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--quick" => plan.quick = true,
                option if option.starts_with('-') => bail!("no such option: {option} (there is --quick)"),
                filter if plan.filter.is_none() => plan.filter = Some(filter.to_owned()),
                more => bail!("one FILTER at most, and `{more}` is another"),
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Plan> {
        Plan::parse(&arguments.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_read() {
        assert_eq!(parse(&[]).unwrap(), Plan::default());
        assert_eq!(parse(&["--quick", "a"]).unwrap(), Plan { quick: true, filter: Some("a".to_owned()) });
        assert!(parse(&["--fast"]).is_err());
        assert!(parse(&["a", "b"]).is_err());
    }
}
