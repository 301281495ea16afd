//! One case, and the differences that are the kernel's.

use super::ctx::Ctx;
use super::observation::Observation;

/// The label of a [`Limit`] of a case whose remaining files differ by what the kernel makes different.
pub const TREE: &str = "tree";

/// What a case returns: what it saw, or why it could not be set up.
pub type Outcome = anyhow::Result<Observation>;

/// One case of the list.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// `family/what`.
    pub name: &'static str,
    /// Does it.
    pub run: fn(&Ctx) -> Outcome,
    /// What the kernel makes different on any FUSE mount.
    pub limits: &'static [Limit],
}

/// A difference that the kernel makes on every FUSE mount, or did before some version.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Label of the observation.
    pub label: &'static str,
    /// What a mount may show there besides what the bare file system shows.
    pub mounted: &'static str,
    /// The first Linux without this difference; `None` where all have it.
    pub until: Option<(u32, u32)>,
    /// Where this comes from.
    pub why: &'static str,
}

impl Limit {
    /// A difference of all kernels.
    pub(crate) const fn always(label: &'static str, mounted: &'static str, why: &'static str) -> Self {
        Self { label, mounted, until: None, why }
    }

    /// A difference of kernels before this one.
    pub(crate) const fn until(
        first: (u32, u32),
        label: &'static str,
        mounted: &'static str,
        why: &'static str,
    ) -> Self {
        Self { label, mounted, until: Some(first), why }
    }
}

impl Case {
    /// A case that must look the same everywhere.
    pub(crate) const fn new(name: &'static str, run: fn(&Ctx) -> Outcome) -> Self {
        Self { name, run, limits: &[] }
    }

    /// A case with differences that the kernel makes.
    pub(crate) const fn limited(
        name: &'static str,
        run: fn(&Ctx) -> Outcome,
        limits: &'static [Limit],
    ) -> Self {
        Self { name, run, limits }
    }

    /// Says whether the kernel may make this difference. What it shows does not matter for [`TREE`].
    pub(crate) fn may_differ(&self, label: &str, mounted: Option<&str>) -> bool {
        let kernel = kernel_version();
        self.limits.iter().any(|limit| {
            limit.label == label
                && mounted.is_none_or(|shown| limit.mounted == shown)
                && limit.until.is_none_or(|first| kernel < first)
        })
    }
}

/// Of this machine; (0, 0) where it calls itself something unreadable, so that each limit applies.
fn kernel_version() -> (u32, u32) {
    version(&rustix::system::uname().release().to_string_lossy()).unwrap_or_default()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_limit_of_old_kernels_is_none_of_new_ones() {
        let run = |_: &Ctx| -> Outcome { anyhow::bail!("is not run") };
        let case = Case::limited(
            "a/b",
            run,
            const {
                &[
                    Limit::always("all", "x", ""),
                    Limit::until((1, 0), "old", "x", ""),
                    Limit::until((u32::MAX, 0), "new", "x", ""),
                    Limit::until((1, 0), TREE, "", ""),
                ]
            },
        );
        assert!(case.may_differ("all", Some("x")) && case.may_differ("new", Some("x")));
        assert!(!case.may_differ("all", Some("y")) && !case.may_differ("old", Some("x")));
        assert!(!case.may_differ("other", None) && !case.may_differ(TREE, None));
        assert!(kernel_version() > (3, 0));
        assert_eq!(version("6.12.95+deb13-amd64"), Some((6, 12)));
        assert_eq!(version("odd"), None);
    }
}
