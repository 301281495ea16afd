//! Each row of the threat model names a test that is there, and each attack has its row.

use std::fs;
use std::path::Path;

/// The page, and the folder of attacks, of which it leaves out the path.
const PAGE: &str = "docs/threat-model.md";
const ATTACKS: &str = "crates/shuntfs-tests/tests";

/// Files of that folder that are no attacks.
const OTHERS: &[&str] = &["main.rs", "stage.rs"];

/// Checks the page of a workspace.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let Ok(page) = fs::read_to_string(root.join(PAGE)) else {
        return vec![format!("{PAGE}: there is none")];
    };
    let attacks = fs::read_dir(root.join(ATTACKS).join("attacks")).into_iter().flatten().flatten();
    let attacks = attacks.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let exists = |test: &str| {
        let beside = ["adversary", "tamper"].contains(&test) || test.starts_with("attacks/");
        let path = if beside { root.join(ATTACKS).join(test) } else { root.join(test) };
        path.exists()
    };
    let mut faults = rows(&page, &exists);
    faults.extend(unnamed(&page, attacks));
    faults
}

/// Rows without a test that exists. `the same` is the test of the row above.
fn rows(page: &str, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, _, _, tests, _] = cells.as_slice() else { continue };
        if *tests == "test" || tests.starts_with("---") || *tests == "the same" {
            continue;
        }
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            faults.push(format!("{PAGE}:{}: this row names no test", index + 1));
        }
        let missing = named.iter().filter(|test| !exists(test));
        faults.extend(missing.map(|test| format!("{PAGE}:{}: there is no test {test}", index + 1)));
    }
    faults
}

/// Attacks that no row names.
fn unnamed(page: &str, attacks: impl Iterator<Item = String>) -> Vec<String> {
    let attacks = attacks.filter(|name| !OTHERS.contains(&name.as_str()));
    let unnamed = attacks.filter(|name| !page.contains(&format!("attacks/{name}")));
    unnamed.map(|name| format!("{PAGE}: no row names attacks/{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_a_test_that_is_there() {
        let page = "| attack | what happens | test |\n|---|---|---|\n| a | b | `there.rs` |\n| c | d | the same |\n\
                    | e | f | `gone.rs` |\n| g | h | |\n";
        let faults = rows(page, &|test| test == "there.rs");
        assert_eq!(
            faults,
            [
                "docs/threat-model.md:5: there is no test gone.rs",
                "docs/threat-model.md:6: this row names no test"
            ]
        );
    }

    #[test]
    fn an_attack_has_a_row() {
        let attacks = ["main.rs", "links.rs", "flags.rs"].map(str::to_owned);
        assert_eq!(
            unnamed("`attacks/links.rs`", attacks.into_iter()),
            ["docs/threat-model.md: no row names attacks/flags.rs"]
        );
    }
}
