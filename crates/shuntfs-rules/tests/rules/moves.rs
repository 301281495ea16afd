//! Whether anybody may get more of a file by a change of its names.

use std::sync::Arc;

use crate::machine::{Caller, File, rules};

const RULES: &str = "\
    [[rule]]\nuid = 1000\nallow = true\n\
    [[rule]]\npath = 'masked/**'\nuid = 1001\nredact = 'whole'\n\
    [[rule]]\npath = 'masked/**'\ndeny = 'EACCES'\n\
    [[rule]]\npath = 'quick/**'\nflow = 'splice'\n\
    [[rule]]\nbasename = 'k*'\nuid = 1002\nread_only = true\n";

#[test]
fn a_name_stands_for_another_where_the_same_rules_match() {
    let rules = Arc::new(rules(RULES));
    let is_same = |one: &str, other: &str| rules.at(one.as_bytes()).is_same_as(&rules.at(other.as_bytes()));
    assert!(is_same("masked/a", "masked/sub/b") && is_same("a", "b") && is_same("ka", "kb"));
    assert!(!is_same("masked/a", "a") && !is_same("masked/a", "masked/k") && !is_same("a", "quick/a"));
    let restricts = |path: &str| rules.at(path.as_bytes()).restricts();
    assert!(restricts("masked/a") && restricts("k") && !restricts("quick/a") && !restricts("a"));
}

#[test]
fn a_condition_about_the_name_makes_each_name_another() {
    for condition in ["path.size() > 3", "basename == \"x\""] {
        let rules = Arc::new(rules(&format!("[[rule]]\nwhen = '{condition}'\nhide = true\n")));
        assert!(!rules.at(b"a").is_same_as(&rules.at(b"b")), "{condition}");
        assert!(rules.at(b"a").is_same_as(&rules.at(b"a")), "{condition}");
    }
    let rules = Arc::new(rules("[[rule]]\nwhen = 'size > 3'\nhide = true\n"));
    assert!(rules.at(b"a").is_same_as(&rules.at(b"b")));
}

#[test]
fn other_rules_are_never_the_same() {
    let (one, other) = (Arc::new(rules(RULES)), Arc::new(rules(RULES)));
    assert!(!one.at(b"a").is_same_as(&other.at(b"a")));
}

#[test]
fn whom_an_earlier_rule_allows_everything_no_later_one_concerns() {
    let concerns = |text: &str, uid| rules(text).concerns(&File::at("a"), &Caller::of(uid)).unwrap();
    assert!(!concerns(RULES, 1000));
    assert!(concerns(RULES, 1001) && concerns(RULES, 1002) && concerns(RULES, 1003));
    // Not where all rules count, and not by a rule about some files.
    assert!(concerns(&format!("match = 'all'\n{RULES}"), 1000));
    assert!(concerns("[[rule]]\npath = 'a/**'\nallow = true\n[[rule]]\nhide = true\n", 1000));
    assert!(!concerns("[[rule]]\nuid = 1\nhide = true\n", 1000));
}
