//! What rules say of moving files.

use std::time::Duration;

use crate::machine::{File, Machine, reads, rules};
use shuntfs_rules::{Access, Attributes, FileTimes, MoveStep, Rules, TimeWord};

const TIERS: &str = r#"
[[rule]]
name = "never the databases"
path = "db/**"
move = "mount"

[[rule]]
name = "films"
path = "films/**"
size = { min = "1M" }
move = [
    { to = "id=cold", after = "52w", by = "mtime" },
    { to = ["id=hdd", "/mnt/b"], from = "/mnt/ssd", after = "30d" },
]

[[rule]]
name = "the fast disk keeps room"
move = { to = "id=hdd", from = "/mnt/ssd", when_fuller_than = "80%" }
"#;

fn large(path: &'static str) -> File {
    File { attributes: Attributes { size: 1 << 20, ..Attributes::default() }, ..File::at(path) }
}

fn named(rules: &Rules, file: &File) -> Option<(String, usize)> {
    rules.moves_of(file).expect("the rule can be asked").map(|(rule, steps)| (rule.name.clone(), steps.len()))
}

#[test]
fn the_first_rule_that_speaks_of_moving_says_how() {
    let tiers = rules(TIERS);
    let of = |file: &File| named(&tiers, file).unwrap();
    assert_eq!(of(&large("films/a.mkv")), ("films".to_owned(), 2));
    assert_eq!(of(&File::at("films/a.txt")), ("the fast disk keeps room".to_owned(), 1));
    assert_eq!(of(&large("db/a")), ("never the databases".to_owned(), 0));
    let film = large("films/a.mkv");
    let (_, steps) = tiers.moves_of(&film).unwrap().unwrap();
    let days = |days: u64| Some(Duration::from_secs(days * 24 * 60 * 60));
    let text = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        steps,
        [
            MoveStep {
                to: text(&["id=cold"]),
                from: Vec::new(),
                by: TimeWord::Modification,
                after: days(364),
                within: None,
                fuller_than: None,
            },
            MoveStep {
                to: text(&["id=hdd", "/mnt/b"]),
                from: text(&["/mnt/ssd"]),
                by: TimeWord::Access,
                after: days(30),
                within: None,
                fuller_than: None,
            },
        ]
    );
    let read_today = FileTimes { access: 400 * 86400, modification: 0, birth: None };
    assert_eq!(
        steps.iter().map(|step| step.is_due(&read_today, 400 * 86400)).collect::<Vec<_>>(),
        [true, false]
    );
    // Shown, they mean the same.
    assert_eq!(rules(&tiers.show()).show(), tiers.show());
    let shown = rules(&tiers.show());
    let said = |rules: &Rules| {
        rules.moves().map(|(rule, steps)| (rule.name.clone(), steps.to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(said(&shown), said(&tiers));
}

#[test]
fn of_all_that_match_the_last_says_how() {
    let tiers = rules(&format!("match = 'all'\n{TIERS}"));
    assert_eq!(named(&tiers, &large("films/a.mkv")).unwrap().0, "the fast disk keeps room");
    assert_eq!(named(&tiers, &large("db/a")).unwrap().0, "the fast disk keeps room");
}

/// A rule that only moves, before one that denies, would have allowed what that one denies.
#[test]
fn rules_that_only_move_decide_nothing_else() {
    let both = rules(
        "[[rule]]\nname = 'moved'\npath = 'a/**'\nmove = { to = '/b' }\n\
         [[rule]]\nname = 'denied'\npath = 'a/**'\ndeny = 'EACCES'\n\
         [[rule]]\nname = 'both'\npath = 'c/**'\nread_only = true\nmove = { to = '/d' }\n",
    );
    let denied = reads(&both, &File::at("a/x"), 1000).unwrap();
    assert!(matches!(denied.access, Access::Deny(_)));
    assert_eq!(denied.rules, [1]);
    assert_eq!(named(&both, &File::at("a/x")).unwrap().0, "moved");
    assert_eq!(named(&both, &File::at("c/x")).unwrap().0, "both");
    assert!(reads(&both, &File::at("c/x"), 1000).unwrap().read_only);
    assert_eq!(both.warnings(), [], "neither stands in the other's way");
    let alone = rules(TIERS);
    assert!(!alone.touches(b"films/a.mkv") && !alone.restricts() && !alone.restricts_by_name());
    assert!(alone.beyond_places().is_none() && alone.places().next().is_none());
    // One of a view is not asked on other mounts.
    let of_view = rules("[[rule]]\nview = 'web'\nmove = { to = '/b' }\n[[rule]]\nallow = true\n");
    assert_eq!((of_view.moves().count(), named(&of_view, &File::at("a"))), (0, None));
}

#[test]
fn a_rule_that_never_moves_anything_is_told() {
    let some = rules(
        "[[rule]]\nname = 'all'\nmove = { to = '/b' }\n[[rule]]\nname = 'some'\npath = 'a/**'\nmove = { to = '/c' }\n",
    );
    let told: Vec<String> = some.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("the rule `some` never decides: the rule `all` (line 1)"), "{told:?}");
    let mixed = rules(
        "[[rule]]\nname = 'all'\nallow = true\n[[rule]]\nname = 'some'\nread_only = true\nmove = { to = '/c' }\n",
    );
    assert_eq!(mixed.warnings(), [], "it moves files");
}

#[test]
fn what_cannot_be_evaluated_has_the_file_stay() {
    let some = rules("[[rule]]\nname = 'odd'\nowner = 'bob'\nmove = { to = '/b' }\n");
    let failed = some.moves_of(&File { is_broken: true, ..File::at("a") }).unwrap_err();
    assert_eq!((failed.rule, failed.why.0.as_str()), (0, "EIO"));
    // Where no pattern matches, nothing is examined.
    let elsewhere = rules("[[rule]]\npath = 'x/**'\nowner = 'bob'\nmove = { to = '/b' }\n");
    let file = File { is_broken: true, ..File::at("a") };
    assert!(elsewhere.moves_of(&file).unwrap().is_none());
    assert_eq!((file.stats.get(), file.heads.get()), (0, 0));
}

#[test]
fn what_a_mover_cannot_mean_is_a_mistake() {
    for (line, words) in [
        ("move = { after = '1d' }", "3:8: `move` says where to: `to` is missing"),
        ("move = { to = 'mfs' }", "3:15: `mfs` is no branch"),
        ("move = { to = 'id=' }", "3:15: `id=` is no branch"),
        ("move = { to = ['/a', '/b'], from = '/b' }", "3:29: what is on `/b` would be moved to where it is"),
        ("move = { to = '/a', after = '1y' }", "3:29: `1y` is no time"),
        ("move = { to = '/a', after = '3' }", "3:29: `3` is no time"),
        ("move = { to = '/a', after = '2d', within = '1d' }", "3:35: `after` is more than `within`"),
        ("move = { to = '/a', when_fuller_than = '100%' }", "3:40: `100%` is no share of a disk"),
        ("move = { to = '/a', by = 'ctime' }", "3:26: unknown time `ctime`"),
        ("move = []", "3:8: a rule has from 1 to 16 steps in `move`"),
        ("move = 'no'", "3:8: `move` must be a table with `to`"),
        (
            "uid = 0\nmove = { to = '/a' }",
            "3:1: nobody asks when files are moved: `move` does not go with `uid`",
        ),
        ("open = 'read'\nmove = { to = '/a' }", "3:1: nobody asks when files are moved"),
        ("when = 'size > 3 && uid == 0'\nmove = { to = '/a' }", "does not go with a condition about `uid`"),
    ] {
        let source = format!("[[rule]]\nname = 'x'\n{line}\n");
        let said = Rules::parse(&source, "r.toml", None, &Machine).unwrap_err().to_string();
        assert!(said.contains(words), "{line}: {said}");
    }
}
