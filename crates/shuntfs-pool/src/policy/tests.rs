//! What the documentation says, and, where it leaves something open, what mergerfs 2.42 was seen to do.

use shuntfs::{Errno, Timestamp};

use super::{BranchMode, Candidate, Category, POLICIES, Policy, Space, Why};

const MIB: u64 = 1 << 20;

/// A branch with so many MiB, of which so many are available, where so much of the path is.
fn branch(total: u64, available: u64, depth: usize) -> Candidate {
    let space = Space { total: total * MIB, available: available * MIB };
    Candidate { space, min_free: MIB, depth, mtime: None, ..Candidate::default() }
}

/// `a`, `b` and `c`; of the path `d/e`, `d` is on the last two, and all of it on the last.
fn three() -> [Candidate; 3] {
    [branch(64, 60, 0), branch(128, 120, 1), branch(96, 90, 2)]
}

fn set(mut branches: [Candidate; 3], modes: [&str; 3]) -> [Candidate; 3] {
    for (branch, mode) in branches.iter_mut().zip(modes) {
        match BranchMode::of(mode) {
            Some(mode) => branch.mode = mode,
            None if mode == "full" => branch.min_free = 1 << 40,
            None => branch.is_read_only = mode == "ro",
        }
    }
    branches
}

/// The names of those that are chosen, or the error.
fn pick(policy: &str, category: Category, components: usize, branches: &[Candidate]) -> String {
    let pick = Policy::of(policy).unwrap().pick(category, components, branches, 0);
    match pick.chosen() {
        Ok(chosen) => chosen.into_iter().map(|place| ["a", "b", "c"][place]).collect(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_policy_makes_new_things_where_it_is_documented_to() {
    for (policy, places) in [
        ("ff", ["a", "a", "a"]),
        ("all", ["abc", "abc", "abc"]),
        ("mfs", ["b", "b", "b"]),
        ("lfs", ["a", "a", "a"]),
        ("lus", ["a", "a", "a"]),
        ("lup", ["a", "a", "a"]),
        ("epff", ["a", "b", "c"]),
        ("epall", ["abc", "bc", "c"]),
        ("epmfs", ["b", "b", "c"]),
        ("eplfs", ["a", "c", "c"]),
        ("eplus", ["a", "c", "c"]),
        ("mspmfs", ["b", "b", "c"]),
        ("msplfs", ["a", "c", "c"]),
        ("msplus", ["a", "c", "c"]),
    ] {
        for (components, place) in places.into_iter().enumerate() {
            let mut branches = three();
            // The share that is used of the first is the smallest, too.
            branches[0].space.available = 61 * MIB;
            assert_eq!(pick(policy, Category::Create, components, &branches), place, "{policy} {components}");
        }
    }
}

#[test]
fn only_the_share_counts_for_the_least_used_percentage() {
    let branches = [branch(100, 50, 0), branch(1000, 600, 0), branch(10, 1, 0)];
    assert_eq!(pick("lup", Category::Create, 0, &branches), "b");
    assert_eq!(pick("lus", Category::Create, 0, &branches), "c");
    let nothing = [Candidate::default(), branch(10, 1, 0), branch(10, 1, 0)];
    assert_eq!(pick("lup", Category::Create, 0, &nothing), "b", "what has no space is full");
}

#[test]
fn of_equals_the_one_is_chosen_that_mergerfs_chooses() {
    let branches = [branch(64, 60, 0); 3];
    for (policy, place) in [
        ("ff", "a"),
        ("mfs", "c"),
        ("lfs", "c"),
        ("newest", "c"),
        ("lus", "a"),
        ("lup", "a"),
        ("epmfs", "c"),
        ("eplus", "a"),
        ("mspmfs", "c"),
        ("msplus", "a"),
    ] {
        assert_eq!(pick(policy, Category::Create, 0, &branches), place, "{policy}");
    }
}

#[test]
fn the_newest_is_looked_for_where_the_path_is() {
    let mut branches = three();
    for (branch, secs) in branches.iter_mut().zip([30, 20, 10]) {
        branch.mtime = Some(Timestamp { secs, nanos: 0 });
    }
    for (components, place) in ["a", "b", "c"].into_iter().enumerate() {
        for category in Category::ALL {
            assert_eq!(pick("newest", category, components, &branches), place);
        }
    }
    branches[1].mtime = Some(Timestamp { secs: 30, nanos: 1 });
    assert_eq!(pick("newest", Category::Search, 0, &branches), "b");
}

#[test]
fn each_category_leaves_out_what_it_is_documented_to() {
    for (mode, [action, create, search]) in [
        ("RW", ["b", "b", "b"]),
        ("RO", ["c", "c", "b"]),
        ("NC", ["b", "c", "b"]),
        ("ro", ["c", "c", "b"]),
        ("full", ["b", "c", "b"]),
    ] {
        let branches = set(three(), ["RW", mode, "RW"]);
        assert_eq!(pick("mfs", Category::Action, 0, &branches), action, "{mode}");
        assert_eq!(pick("mfs", Category::Create, 0, &branches), create, "{mode}");
        assert_eq!(pick("mfs", Category::Search, 0, &branches), search, "{mode}");
    }
}

#[test]
fn what_is_there_already_is_found_where_it_is() {
    for policy in &POLICIES {
        for category in [Category::Action, Category::Search] {
            let pick = policy.pick(category, 2, &three(), 1 << 63);
            assert_eq!(pick.chosen(), Ok(vec![2]), "{}", policy.name());
        }
    }
    assert_eq!(pick("ff", Category::Search, 3, &three()), Errno::NOENT.to_string());
    assert_eq!(pick("epall", Category::Action, 1, &three()), "bc");
    assert_eq!(pick("epall", Category::Action, 1, &set(three(), ["RW", "NC", "RO"])), "b");
}

#[test]
fn the_reason_why_there_is_none_is_the_error() {
    let (rofs, nospc) = (Errno::ROFS.to_string(), Errno::NOSPC.to_string());
    for (modes, error) in [
        (["RO", "NC", "RO"], &rofs),
        (["NC", "NC", "NC"], &rofs),
        (["ro", "ro", "ro"], &rofs),
        (["full", "full", "full"], &nospc),
        (["full", "RO", "RO"], &rofs),
        (["RO", "full", "RO"], &rofs),
        (["RO", "RO", "full"], &rofs),
    ] {
        for policy in &POLICIES {
            let picked = pick(policy.name(), Category::Create, 0, &set(three(), modes));
            assert_eq!(&picked, error, "{} {modes:?}", policy.name());
        }
    }
    for policy in ["epff", "epmfs", "eprand", "newest"] {
        for (modes, error) in [
            (["RW", "RW", "NC"], &rofs),
            (["RW", "RW", "full"], &nospc),
            (["RO", "RW", "full"], &rofs),
            (["ro", "ro", "full"], &nospc),
        ] {
            assert_eq!(&pick(policy, Category::Create, 2, &set(three(), modes)), error, "{policy} {modes:?}");
        }
    }
}

#[test]
fn most_shared_paths_go_up_where_no_branch_will_do() {
    for (modes, place) in [
        (["RW", "RW", "RW"], "c"),
        (["RW", "RW", "RO"], "b"),
        (["RW", "RW", "full"], "b"),
        (["RW", "NC", "ro"], "a"),
        (["RW", "RO", "full"], "a"),
    ] {
        assert_eq!(pick("mspmfs", Category::Create, 2, &set(three(), modes)), place, "{modes:?}");
    }
    let none =
        Policy::of("mspmfs").unwrap().pick(Category::Create, 2, &set(three(), ["NC", "full", "RO"]), 0);
    assert_eq!(none.chosen(), Err(Errno::ROFS));
    assert_eq!(
        [0, 1, 2].map(|branch| none.why_not(branch).unwrap().to_string()),
        [
            "its mode is NC",
            "125829120 bytes are available, and 1099511627776 are to be left",
            "its mode is RO",
        ]
    );
}

#[test]
fn every_branch_that_is_not_chosen_has_a_reason() {
    let pick = Policy::of("epmfs").unwrap().pick(Category::Create, 1, &set(three(), ["RW", "RW", "RW"]), 0);
    assert_eq!(pick.chosen(), Ok(vec![1]));
    assert_eq!(pick.why_not(0), Some(Why::NotThere { depth: 0 }));
    assert_eq!(pick.why_not(1), None);
    assert_eq!(pick.why_not(2), Some(Why::NotFirst));
}

#[test]
fn no_branch_at_all_is_no_entry() {
    for policy in &POLICIES {
        for category in Category::ALL {
            assert_eq!(policy.pick(category, 2, &[], 7).chosen(), Err(Errno::NOENT));
        }
    }
}

/// Seeds in equal steps stand for random ones.
#[test]
fn chance_is_even_or_by_what_is_free() {
    const ROUNDS: u64 = 2700;
    let branches = [branch(64, 60, 0), branch(128, 120, 0), branch(96, 90, 0)];
    for (policy, counts) in [("rand", [900; 3]), ("pfrd", [600, 1200, 900])] {
        let mut seen = [0; 3];
        for round in 0..ROUNDS {
            let seed = u64::MAX / ROUNDS * round;
            let pick = Policy::of(policy).unwrap().pick(Category::Create, 0, &branches, seed);
            seen[pick.chosen().unwrap()[0]] += 1;
        }
        assert!(
            seen.iter().zip(counts).all(|(seen, count)| i32::abs(seen - count) <= 2),
            "{policy} {seen:?}"
        );
    }
    for seed in [0, u64::MAX] {
        let nothing = [Candidate::default(); 3];
        let pick = Policy::of("pfrd").unwrap().pick(Category::Create, 0, &nothing, seed);
        assert_eq!(pick.chosen().map(|chosen| chosen.len()), Ok(1), "where nothing is free, too");
    }
}

#[test]
fn names_and_words_are_found_again() {
    for policy in &POLICIES {
        assert_eq!(Policy::of(policy.name()).map(Policy::name), Some(policy.name()));
    }
    for category in Category::ALL {
        assert!(Policy::of(category.default_policy()).is_some());
    }
    for word in ["RW", "RO", "NC"] {
        assert_eq!(BranchMode::of(word).map(BranchMode::word), Some(word));
    }
    assert!(Policy::of("EPMFS").is_none() && BranchMode::of("rw").is_none());
}
