//! What rules decide.

use std::sync::Arc;

use crate::machine::{Caller, File, Machine, reads, rules};
use shuntfs_rules::{
    Access, Attributes, Decision, ErrorNumber, FlowWord, Listing, OpenWord, Redact, Rules, Use, VerifyWord,
};

const THREE: &str = r#"
match = "first"

[[rule]]
name = "owners see all"
path = "photos/**"
uid = "alice"
allow = true

[[rule]]
name = "friends see no places"
path = "photos/**"
type = "image/jpeg"
uid = "bob"
redact = "exif-gps"

[[rule]]
name = "nobody else"
path = "photos/**"
deny = "EACCES"

[[rule]]
name = "logs grow"
path = ["log/*.log", "log/*.txt"]
append_only = true
flow.write = "served"
"#;

const JPEG: &[u8] = &[0xff, 0xd8, 0xff, 0xe0, 0, 16, b'J', b'F', b'I', b'F'];

#[test]
fn three_users_see_one_photo_in_three_ways() {
    let rules = rules(THREE);
    let photo = File { head: JPEG, ..File::at("photos/a/b.jpg") };
    let decided = |uid| reads(&rules, &photo, uid).unwrap();
    assert_eq!(decided(1000), Decision { rules: vec![0], ..Decision::default() });
    assert_eq!(
        decided(1001),
        Decision { redact: vec![Redact::ExifGps], rules: vec![1], ..Decision::default() }
    );
    let denied = Access::Deny(ErrorNumber::ACCES);
    assert_eq!(decided(1002), Decision { access: denied, rules: vec![2], ..Decision::default() });
    // Whatever is no photo is nobody else's.
    assert_eq!(reads(&rules, &File::at("photos/list.txt"), 1001).unwrap().access, denied);
    assert_eq!(reads(&rules, &File::at("other/a.jpg"), 1002).unwrap(), Decision::default());
    let log = reads(&rules, &File::at("log/a.txt"), 0).unwrap();
    assert!(log.append_only && log.flow_write == Some(FlowWord::Served) && log.flow_read.is_none());
}

const SEALS: &str = r#"
[[rule]]
name = "caches are nobody's business"
path = ["cache/**", "*.tmp"]
verify = "off"

[[rule]]
name = "programs are sealed"
path = "bin/**"
uid = "alice"
verify = "required"

[[rule]]
path = "bin/**"
verify = "if-sealed"
"#;

#[test]
fn rules_say_what_must_be_sealed() {
    let first = rules(SEALS);
    let of = |path, uid| reads(&first, &File::at(path), uid).unwrap().verify;
    assert_eq!(of("cache/a", 0), Some(VerifyWord::Off));
    assert_eq!(of("bin/a", 1000), Some(VerifyWord::Required));
    assert_eq!(of("bin/a", 1001), Some(VerifyWord::IfSealed));
    assert_eq!(of("etc/a", 1000), None);
    assert!(first.restricts());
    assert_eq!(first.speaks_of_seals().unwrap().name, "caches are nobody's business");
    assert!(rules(THREE).speaks_of_seals().is_none());
    // Of two names, the stricter; a mount with a seal checks what no rule speaks of.
    let words = [Some(VerifyWord::Off), None, Some(VerifyWord::IfSealed), Some(VerifyWord::Required)];
    let rank = |word: Option<VerifyWord>| word.unwrap_or(VerifyWord::IfSealed);
    for (one, other) in words.iter().flat_map(|one| words.map(|other| (*one, other))) {
        let with = |verify| Decision { verify, ..Decision::default() };
        let both = with(one).strictest(with(other)).verify;
        assert_eq!(rank(both), rank(one).max(rank(other)), "{one:?} {other:?}");
        assert_eq!(with(one).is_open(), one != Some(VerifyWord::Required));
    }
}

#[test]
fn nothing_is_unchecked_for_one_and_checked_for_another() {
    let first = rules(SEALS);
    assert!(first.unchecked(b"cache/a") && first.unchecked(b"x.tmp"));
    assert!(!first.unchecked(b"bin/a") && !first.unchecked(b"bin/x.tmp") && !first.unchecked(b"etc/a"));
    // A rule before it that holds for some.
    let some = rules(&SEALS.replacen("[[rule]]", "[[rule]]\nuid = \"bob\"\nallow = true\n[[rule]]", 1));
    assert!(!some.unchecked(b"cache/a"));
    let all = rules(&format!("match = \"all\"\n{SEALS}"));
    assert!(all.unchecked(b"cache/a") && !all.unchecked(b"bin/a"));
    let later = format!("match = \"all\"\n{SEALS}\n[[rule]]\nuid = \"bob\"\nverify = \"mount\"\n");
    assert!(!rules(&later).unchecked(b"cache/a"));
    let silent = format!("match = \"all\"\n{SEALS}\n[[rule]]\nuid = \"bob\"\nread_only = true\n");
    assert!(rules(&silent).unchecked(b"cache/a"));
}

#[test]
fn what_no_rule_needs_is_not_looked_at() {
    let rules = rules(THREE);
    let photo = File { head: JPEG, ..File::at("photos/b.jpg") };
    let caller = Caller::of(1000);
    rules.decide(&photo, &caller, Use::of(OpenWord::Read)).unwrap();
    assert_eq!((photo.heads.get(), photo.stats.get(), caller.looks.get()), (0, 0, 0));
    let caller = Caller::of(1001);
    rules.decide(&photo, &caller, Use::of(OpenWord::Read)).unwrap();
    assert_eq!((photo.heads.get(), photo.stats.get(), caller.looks.get()), (1, 0, 0));
}

#[test]
fn what_is_asked_twice_is_looked_at_once() {
    let text = "[[rule]]\ngroups = 7\nsize.min = 1\ntype = 'image/*'\nexe = '/x'\nhide = true\n".to_owned()
        + "[[rule]]\ngroups = 50\nexe = '/bin/*'\nsize.min = 2\nmode.any = '4000'\nallow = true\n"
        + "[[rule]]\nwhen = '50 in groups && size == 2 && mode == \"4000\" && owner == 3'\nread_only = true\n";
    let rules = rules(&text);
    let attributes = Attributes { size: 2, owner: 3, group: 4, mode: 0o4000 };
    let file = File { attributes, ..File::at("a") };
    let caller = Caller { groups: Some(vec![7, 50]), ..Caller::of(9) };
    let decision = rules.decide(&file, &caller, Use::LOOK).unwrap();
    assert_eq!(decision.rules, [1]);
    assert_eq!((file.heads.get(), file.stats.get(), caller.looks.get()), (0, 1, 2));
}

#[test]
fn of_all_that_match_the_later_replace_field_by_field() {
    let text = "match = 'all'\n[[rule]]\nflow = 'served'\nread_only = true\nredact = 'whole'\n\
        [[rule]]\nbasename = '*.jpg'\nflow.read = 'splice'\nredact = 'nothing'\n\
        [[rule]]\nuid = 'bob'\ndeny = 'EPERM'\n[[rule]]\nbasename = 'b*'\nallow = true\nread_only = false\n";
    let rules = rules(text);
    let one = reads(&rules, &File::at("d/a.jpg"), 1001).unwrap();
    assert_eq!(one.access, Access::Deny(ErrorNumber::named("EPERM").unwrap()));
    assert_eq!((one.flow_read, one.flow_write), (Some(FlowWord::Splice), Some(FlowWord::Served)));
    assert!(one.read_only && one.redact.is_empty() && one.rules == [0, 1, 2]);
    let two = reads(&rules, &File::at("d/b"), 1001).unwrap();
    assert!(two.access == Access::Allow && !two.read_only && two.redact == [Redact::Whole]);
}

#[test]
fn ways_to_open_are_told_apart() {
    let rules = rules("[[rule]]\nopen = ['append', 'exec']\ndeny = 'EPERM'\n");
    let decide = |how| rules.decide(&File::at("a"), &Caller::of(0), how).unwrap().rules.len();
    let (write, append) = (Use::of(OpenWord::Write), Use::of(OpenWord::Append));
    assert_eq!(decide(write), 0);
    assert_eq!(decide(write.and(append)), 1);
    assert_eq!(decide(Use::of(OpenWord::Exec)), 1);
    assert_eq!(decide(Use::LOOK), 0);
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_an_error_and_never_a_pass() {
    let broken = File { is_broken: true, ..File::at("a") };
    let nobody = Caller { groups: None, exe: None, ..Caller::of(7) };
    for (rule, file, caller) in [
        ("size.min = 1", &broken, &Caller::of(7)),
        ("type = 'image/png'", &broken, &Caller::of(7)),
        ("groups = 'staff'", &File::at("a"), &nobody),
        ("exe = '/bin/cat'", &File::at("a"), &nobody),
        ("when = 'size > 1'", &broken, &Caller::of(7)),
        ("when = 'uid / 0 == 1'", &File::at("a"), &Caller::of(7)),
        ("when = 'groups[1] == 5'", &File::at("a"), &Caller::of(7)),
        ("when = 'int(basename) == 5'", &File::at("a"), &Caller::of(7)),
        ("when = '\"staff\" in groups'", &File::at("a"), &nobody),
    ] {
        let rules =
            rules(&format!("[[rule]]\nallow = true\nbasename = 'zzz'\n[[rule]]\n{rule}\ndeny = 'EPERM'\n"));
        let failed = rules.decide(file, caller, Use::of(OpenWord::Read)).expect_err(rule);
        assert_eq!(failed.rule, 1, "{rule}");
        assert!(!failed.why.0.is_empty());
    }
}

#[test]
fn rules_of_another_view_are_not_there() {
    let text = "[[rule]]\nview = ['web', 'tv']\nredact = 'whole'\n";
    for (view, count) in [(None, 0), (Some("web"), 1), (Some("tv"), 1)] {
        let rules = Rules::parse(text, "r", view, &Machine).unwrap();
        assert_eq!(reads(&rules, &File::at("a"), 0).unwrap().rules.len(), count);
        assert_eq!(rules.possible(b"a").redact, count == 1);
        assert_eq!(rules.restricts(), count == 1);
    }
}

#[test]
fn what_is_possible_counts_callers_as_unknown_and_paths_as_known() {
    let three = rules(THREE);
    let possible = three.possible(b"photos/a.jpg");
    assert!(possible.redact && possible.deny && !possible.append_only && !possible.hide);
    assert!(three.possible(b"log/a.log").append_only);
    assert_eq!(three.possible(b"other"), Default::default());
    let shielded = rules("[[rule]]\npath = 'a/**'\nallow = true\n[[rule]]\nhide = true\n");
    assert!(!shielded.possible(b"a/b").hide);
    assert!(shielded.possible(b"b").hide && !shielded.possible(b"b").varies);
    let by_open = rules("[[rule]]\nopen = 'write'\nallow = true\n[[rule]]\nbasename = '.*'\nhide = true\n");
    assert!(by_open.possible(b"a/.b").hide && !by_open.possible(b"a/.b").varies);
    let by_user = rules("[[rule]]\nuid = 'alice'\nallow = true\n[[rule]]\nbasename = '.*'\nhide = true\n");
    assert!(by_user.possible(b"a/.b").varies && !by_user.possible(b"a/b").hide);
}

#[test]
fn listings_are_touched_only_where_names_may_be_hidden() {
    let rules = rules(
        "[[rule]]\npath = 'a/*.bak'\nhide = true\n[[rule]]\npath = 'b/**'\nuid = 'bob'\nhide = true\n\
        [[rule]]\npath = 'c/**'\nuid = 'bob'\ndeny = 'EPERM'\n",
    );
    for (folder, expected) in [
        ("", Listing::Whole),
        ("a", Listing::Fixed),
        ("a/x", Listing::Whole),
        ("b", Listing::Varies),
        ("b/c/d", Listing::Varies),
        ("c", Listing::Whole),
    ] {
        assert_eq!(rules.listing(folder.as_bytes()), expected, "{folder}");
    }
    let everywhere = crate::machine::rules("[[rule]]\nbasename = '.*'\nhide = true\n");
    assert_eq!(everywhere.listing(b""), Listing::Fixed);
    assert_eq!(crate::machine::rules("[[rule]]\npath = '*'\nhide = true\n").listing(b""), Listing::Fixed);
}

#[test]
fn a_move_of_a_folder_concerns_who_is_named() {
    let rules = rules(
        "[[rule]]\npath = 'a/private/**'\nuid = 'bob'\ndeny = 'EPERM'\n\
        [[rule]]\nbasename = '*.jpg'\nuid = 'bob'\nredact = 'exif-gps'\n",
    );
    let concerns = |path, uid| rules.concerns_below(&File::at(path), &Caller::of(uid)).unwrap();
    assert!(concerns("a", 1001) && concerns("a/private", 1001) && concerns("a/private/x", 1001));
    assert!(!concerns("b", 1001) && !concerns("a/public", 1001));
    assert!(!concerns("a", 1000));
}

/// A condition that names the path is about a place as much as a pattern is, and which place is not taken apart. Once
/// only patterns counted: whoever moved the folder that a condition was about took everything in it from under the rule.
#[test]
fn a_condition_about_the_path_holds_every_folder() {
    let concerns = |source: &str, path, uid| {
        let rules = rules(source);
        let concerns = rules.concerns_below(&File::at(path), &Caller::of(uid)).unwrap();
        assert!(rules.holds_below(path.as_bytes()) || !concerns, "{source} {path}");
        concerns
    };
    let hide = |matchers: &str| format!("[[rule]]\n{matchers}\nhide = true\n");
    for (matchers, path, uid, expected) in [
        ("when = 'path.startsWith(\"private/\")'", "private", 1001, true),
        ("when = 'path.startsWith(\"private/\")'", "x/y", 1001, true),
        ("when = '!path.startsWith(\"public/\")'", "public", 1001, true),
        ("when = 'uid == 1001 || path == \"a/b\"'", "a", 1000, true),
        ("when = '[path].exists(p, p == \"a/b\")'", "a", 1000, true),
        // Of whom it says that it is not about them, it does not hold up.
        ("when = 'path.startsWith(\"a/\") && uid != 1000'", "a", 1000, false),
        ("when = 'path.startsWith(\"a/\") && uid != 1000'", "a", 1001, true),
        ("when = 'size > 5 && (uid == 0 && path != \"\")'", "a", 1000, false),
        ("uid = 0\nwhen = 'path != \"\"'", "a", 1000, false),
        // With a pattern it is about what the pattern is about.
        ("path = 'a/**'\nwhen = 'path.endsWith(\"x\")'", "b", 1001, false),
        ("path = 'a/**'\nwhen = 'path.endsWith(\"x\")'", "a", 1001, true),
        ("path = '**/x'\nwhen = 'path.startsWith(\"a/\")'", "b", 1001, true),
        // What a move leaves as it is.
        ("when = 'basename == \"x\" && size > 5 && uid != owner'", "a", 1001, false),
        ("basename = 'x'\ntype = 'image/*'\nexe = '/bin/cat'", "a", 1001, false),
    ] {
        assert_eq!(concerns(&hide(matchers), path, uid), expected, "{matchers} {path} {uid}");
    }
    // What allows before others deny is lost with its place, too.
    let allows = "[[rule]]\nwhen = 'path.startsWith(\"public/\")'\nallow = true\n[[rule]]\ndeny = 'EACCES'\n";
    assert!(concerns(allows, "private", 1001));
}

/// One user is denied keys, wherever they are, and another all that is in one folder. Together they must not get what each
/// alone does not: the first moves the folder, the second reads it.
#[test]
fn nobody_moves_a_folder_for_another() {
    let rules = rules(
        "[[rule]]\nbasename = '*.key'\nuid = 'bob'\ndeny = 'EACCES'\n\
        [[rule]]\npath = 'private/**'\nuid = 'alice'\ndeny = 'EACCES'\n",
    );
    let concerns = |path, uid| rules.concerns_below(&File::at(path), &Caller::of(uid)).unwrap();
    assert!(concerns("private", 1001) && concerns("private", 1000));
    assert!(!concerns("open", 1001), "nothing there is about a place");
    assert!(!concerns("private", 1002), "who reads all of it could copy it");
}

#[test]
fn a_condition_that_fails_refuses_a_move() {
    let rules = rules("[[rule]]\nwhen = 'groups[5] == 1 && path != \"\"'\nhide = true\n");
    assert!(rules.concerns_below(&File::at("a"), &Caller::of(1000)).is_err());
}

#[test]
fn two_names_allow_what_both_allow() {
    let rules = rules(THREE);
    let photo = |path| File { head: JPEG, ..File::at(path) };
    let decide = |path| reads(&rules, &photo(path), 1001).unwrap();
    let both = decide("other/x.jpg").strictest(decide("photos/x.jpg"));
    assert_eq!((both.redact, both.rules), (vec![Redact::ExifGps], vec![1]));
    assert!(decide("other/x").is_open() && !decide("photos/x").is_open());
    assert!(!decide("other/x").restricts_like(&decide("photos/x")));
}

#[test]
fn what_is_shown_means_the_same_and_shows_the_same() {
    let rich = r#"
match = "all"
[[rule]]
name = 'quotes " and \ and ü'
path = ["a/**", "b\\*"]
basename = "*.{jpg,png}"
type = "image/*"
size = { min = "1K", max = "16777215T" }
owner = ["alice", 7]
group = "staff"
mode = { all = "0400", none = "22" }
uid = 5
gid = "staff"
groups = [1, 2]
exe = "/usr/bin/*"
open = ["read", "exec"]
view = "web"
when = 'size(groups) > 1 && path.startsWith("a")'
deny = "EBUSY"
read_only = false
append_only = true
flow = { read = "splice", write = "mount" }
cache = "direct"
place = "one"
verify = "required"
[[rule]]
redact = { regex = '\d+\.(\d+)', within = 100, group = 1 }
[[rule]]
redact = { ranges = [[0, 16], [100]] }
[[rule]]
hide = true
redact = "nothing"
"#;
    for source in [THREE, rich] {
        let first = rules(source);
        let shown = first.show();
        let second = rules(&shown);
        assert_eq!(second.show(), shown);
        assert_eq!((second.mode(), second.rules().len()), (first.mode(), first.rules().len()));
        for (one, other) in first.rules().iter().zip(second.rules()) {
            assert_eq!((&one.name, &one.matchers), (&other.name, &other.matchers));
        }
    }
    let photo = File { head: JPEG, ..File::at("photos/b.jpg") };
    let (first, second) = (rules(THREE), rules(&rules(THREE).show()));
    for uid in [0, 1000, 1001] {
        assert_eq!(reads(&first, &photo, uid), reads(&second, &photo, uid));
    }
    assert!(first.show().contains("cache = \"mount\"\n"), "defaults are written out: {}", first.show());
}

/// What is looked up once for a request says the same as asking anew, and keeps its rules when others take their place.
#[test]
fn what_is_looked_up_once_says_the_same() {
    let mut here = Arc::new(rules(THREE));
    for path in ["photos/a/b.jpg", "photos", "log/a.txt", "log/a/b.log", ""] {
        let at = here.at(path.as_bytes());
        assert_eq!((at.path(), at.is_touched()), (path.as_bytes(), here.touches(path.as_bytes())), "{path}");
        assert_eq!(at.possible(), here.possible(path.as_bytes()), "{path}");
        assert_eq!(at.unchecked(), here.unchecked(path.as_bytes()), "{path}");
        for uid in [1000, 1001, 1002] {
            let (caller, how) = (Caller::of(uid), Use::of(OpenWord::Write));
            let file = File { head: JPEG, ..File::at(path) };
            assert_eq!(at.decide(&file, &caller, how), here.decide(&file, &caller, how), "{path} {uid}");
        }
    }
    let at = here.at(b"photos/a");
    here = Arc::new(rules("[[rule]]\nhide = true\n"));
    assert!(here.at(b"photos/a").possible().hide);
    let decided = at.decide(&File::at("photos/a"), &Caller::of(1002), Use::of(OpenWord::Read)).unwrap();
    assert_eq!(decided.access, Access::Deny(ErrorNumber::ACCES));
    assert_eq!(at.rules().rules().len(), 4);
}

#[test]
fn rules_that_only_place_are_told_from_others() {
    let places = "
        [[rule]]\nname = 'photos'\npath = 'photos/**'\nplace = 'id=fast'\n\
        [[rule]]\nname = 'big'\nbasename = '*.mkv'\nallow = true\nread_only = false\ncache = 'mount'\nplace = '/mnt/a'\n\
        [[rule]]\nname = 'web'\nview = 'web'\nhide = true\n\
        [[rule]]\nname = 'others'\nplace = 'mount'\n\
        [[rule]]\nname = 'last'\nplace = 'one'\n";
    let some = rules(places);
    let named: Vec<_> = some.places().map(|(rule, place)| (rule.name.as_str(), place)).collect();
    assert_eq!(named, [("photos", "id=fast"), ("big", "/mnt/a"), ("last", "one")]);
    assert!(some.beyond_places().is_none(), "the rule of a view is not for this mount");
    let new = |path: &'static str| {
        let how = Use::of(OpenWord::Create).and(Use::of(OpenWord::Write));
        some.decide(&File::at(path), &Caller::of(1000), how).unwrap().place
    };
    assert_eq!(new("photos/a.mkv").as_deref(), Some("id=fast"));
    assert_eq!(new("a.mkv").as_deref(), Some("/mnt/a"));
    assert_eq!(new("b"), None, "as the mount does");
    assert_eq!(rules(&some.show()).show(), some.show());
    for (effect, key) in [
        ("deny = 'EPERM'", "deny"),
        ("hide = true", "hide"),
        ("read_only = true", "read_only"),
        ("append_only = true", "append_only"),
        ("flow.read = 'served'", "flow"),
        ("cache = 'drop'", "cache"),
        ("redact = 'whole'", "redact"),
        ("verify = 'if-sealed'", "verify"),
    ] {
        let more = rules(&format!("{places}[[rule]]\nname = 'more'\nbasename = 'x'\n{effect}\n"));
        let found = more.beyond_places().map(|(rule, key)| (rule.name.as_str(), key));
        assert_eq!(found, Some(("more", key)));
    }
}
