//! What the command line asks for.

use std::fmt;

use anyhow::{Context as _, Result, bail};

/// Debian 12, Debian 13, and the newest of Debian unstable. Debian has no package of Ubuntu 24.04's 6.8.
const DEFAULT: [Wanted; 3] = [Wanted::Series(6, 1), Wanted::Series(6, 12), Wanted::Newest];

/// A kernel, as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The newest of a series: 6.12.
    Series(u32, u32),
    /// The newest of all.
    Newest,
}

impl Wanted {
    fn parse(word: &str) -> Option<Self> {
        if word == "newest" {
            return Some(Self::Newest);
        }
        let (major, minor) = word.split_once('.')?;
        let number =
            |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        Some(Self::Series(number(major)?, number(minor)?))
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Series(major, minor) => write!(out, "{major}.{minor}"),
            Self::Newest => out.write_str("newest"),
        }
    }
}

/// What to run.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    /// Whether to look for newer packages than those that were downloaded before.
    pub(crate) update: bool,
    /// The checks with this in their name; all where it is empty.
    pub(crate) only: String,
    pub(crate) kernels: Vec<Wanted>,
}

impl Plan {
    /// Reads the arguments after `compat`.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut plan = Self { update: false, only: String::new(), kernels: Vec::new() };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--update" {
                plan.update = true;
                continue;
            }
            if argument == "--only" {
                plan.only.clone_from(arguments.next().context("--only CHECK: which one?")?);
                continue;
            }
            let Some(wanted) = Wanted::parse(argument) else {
                bail!(
                    "`{argument}` is no kernel: give a series such as 6.12, or `newest` (options: --only CHECK, --update)"
                );
            };
            if !plan.kernels.contains(&wanted) {
                plan.kernels.push(wanted);
            }
        }
        if plan.kernels.is_empty() {
            plan.kernels = DEFAULT.to_vec();
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
    fn kernels_are_series_or_the_newest() {
        let plan =
            |kernels: &[Wanted]| Plan { update: false, only: String::new(), kernels: kernels.to_vec() };
        assert_eq!(parse(&[]).unwrap(), plan(&DEFAULT));
        let two = plan(&[Wanted::Series(6, 12), Wanted::Newest]);
        assert_eq!(parse(&["6.12", "newest", "6.12"]).unwrap(), two);
        assert!(parse(&["--update"]).unwrap().update);
        assert_eq!(parse(&["6.12", "--only", "umount"]).unwrap().only, "umount");
        assert!(parse(&["--only"]).is_err());
        for wrong in ["6", "6.", ".1", "6.1.0", "6.+1", "v6.1", "latest", "--fast", "", "6.99999999999"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_kernel_is_shown_as_it_is_asked_for() {
        for word in ["6.1", "newest"] {
            assert_eq!(Wanted::parse(word).unwrap().to_string(), word);
        }
    }
}
