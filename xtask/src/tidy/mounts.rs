//! A test whose own process serves a mount has somebody outside who ends it: such a process cannot be killed where it hangs.

const MOUNTS: [&str; 2] = ["Session::mount(", "Session::new("];

/// Tests that need nobody, and why.
const WITHOUT: [&str; 2] = [
    // The mount is refused.
    "crates/shuntfs/tests/privileged_asked_for.rs",
    // A process of its own serves, and is killed.
    "crates/shuntfs/tests/privileged_hostile_author.rs",
];

/// Checks one file.
pub(crate) fn check(name: &str, code: &str) -> Option<String> {
    let is_test = name.starts_with("crates/") && name.contains("/tests/") && !WITHOUT.contains(&name);
    let mounts = MOUNTS.iter().any(|call| code.contains(call));
    let is_alone = is_test && mounts && !code.contains("Supervisor::of(");
    is_alone.then(|| format!("{name}: mounts without a Supervisor (shuntfs-testkit)"))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn who_mounts_has_a_supervisor() {
        let name = "crates/a/tests/b.rs";
        let mounts = "let session = Session::mount(fs, at);";
        assert!(check(name, mounts).is_some());
        assert!(check(name, &format!("{mounts} Supervisor::of(at, LIMIT)")).is_none());
        assert!(check("crates/a/src/b.rs", mounts).is_none() && check(name, "let a = 1;").is_none());
    }
}
