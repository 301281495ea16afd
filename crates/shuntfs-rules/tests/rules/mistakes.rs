//! Every mistake in a file of rules is found, with its line and column, and the word that was meant.

use crate::machine::{Machine, parse};
use shuntfs_rules::Rules;

/// What is said of a file.
fn said(source: &str) -> String {
    parse(source).map(|rules| rules.show()).expect_err(source).to_string()
}

fn rule(lines: &str) -> String {
    format!("[[rule]]\nallow = true\n{lines}\n")
}

#[test]
fn what_is_no_toml_has_a_place() {
    for (source, place) in [
        ("match = ", "r.toml:1:"),
        ("[[rule]]\nname = \"x\nallow = true\n", "r.toml:2:"),
        ("[[rule]\n", "r.toml:1:"),
        ("a = 1\na = 2\n", "r.toml:2:1: "),
        ("\u{0}", "r.toml:1:1: "),
    ] {
        assert!(said(source).starts_with(place), "{source:?}: {}", said(source));
    }
}

#[test]
fn unknown_words_are_answered_with_the_nearest() {
    for (source, expected) in [
        ("mach = \"all\"\n".to_owned(), "r.toml:1:1: unknown key `mach`; did you mean `match`?"),
        ("match = \"any\"\n".to_owned(), "r.toml:1:9: unknown way to match `any`; there are: first, all"),
        (rule("  raed_only = true"), "r.toml:3:3: unknown key `raed_only`; did you mean `read_only`?"),
        (rule("flow = \"pasthrough\""), "r.toml:3:8: unknown flow `pasthrough`; did you mean `passthrough`?"),
        (rule("flow.raed = \"served\""), "r.toml:3:6: unknown key of `flow` `raed`; did you mean `read`?"),
        (rule("flow.read = \"mmap\""), "r.toml:3:13: unknown flow `mmap`"),
        (rule("place = \"two\""), "r.toml:3:9: unknown policy `two`; there are: one, mount"),
        (rule("place = \"id=\""), "r.toml:3:9: unknown policy `id=`"),
        (rule("type = \"image/*\"\nplace = \"one\""), "r.toml:3:1: what is placed is empty when it is made"),
        (rule("size = { min = 1 }\nplace = \"id=a\""), "r.toml:3:1: what is placed is empty when it is made"),
        (
            rule("move = { to = \"/b\", form = \"/a\" }"),
            "r.toml:3:21: unknown key of `move` `form`; did you mean `from`?",
        ),
        (
            rule("verify = \"requird\""),
            "r.toml:3:10: unknown way to verify `requird`; did you mean `required`?",
        ),
        (rule("uid = 0\nverify = \"off\""), "r.toml:4:10: what one reads unchecked"),
        (rule("cache = \"kep\""), "r.toml:3:9: unknown cache mode `kep`; did you mean `keep`?"),
        (rule("uid = \"alcie\""), "r.toml:3:7: there is no user `alcie` on this machine"),
        (rule("owner = [1, \"carol\"]"), "r.toml:3:13: there is no user `carol` on this machine"),
        (rule("groups = \"staf\""), "r.toml:3:10: there is no group `staf` on this machine"),
        (rule("open = \"raed\""), "r.toml:3:8: unknown way to open `raed`; did you mean `read`?"),
        (rule("redact = \"exif\""), "r.toml:3:10: unknown redaction `exif`; did you mean `exif-gps`?"),
        (
            "[[rule]]\ndeny = \"EACESS\"\n".to_owned(),
            "r.toml:2:8: unknown error `EACESS`; did you mean `EACCES`?",
        ),
        ("[[rule]]\ndeny = \"ENOSYS\"\n".to_owned(), "r.toml:2:8: unknown error `ENOSYS`"),
    ] {
        assert!(said(&source).starts_with(expected), "{source}: {}", said(&source));
    }
}

#[test]
fn conditions_are_checked_with_their_place() {
    for (lines, expected) in [
        ("when = 'uid == usr'", "r.toml:3:16: unknown variable `usr` in the condition"),
        ("when = 'uid ='", "r.toml:3:"),
        ("when = '''\nuid == 0 &&\n  ownr == 1'''", "r.toml:5:3: unknown variable `ownr`"),
        ("when = 7", "r.toml:3:8: `when` must be a string, and this is a number"),
        ("when = 'upper(path) == \"A\"'", "r.toml:3:9: unknown function `upper` in the condition"),
    ] {
        let source = rule(lines);
        assert!(said(&source).starts_with(expected), "{source}: {}", said(&source));
    }
}

#[test]
fn values_of_the_wrong_kind_or_size_are_refused() {
    for (lines, expected) in [
        ("path = 7", "3:8: `path` must be a string, and this is a number"),
        ("path = \"/a\"", "3:8: paths are below the source"),
        ("path = []", "3:8: `path` is empty, so the rule matches nothing"),
        ("path = \"a[\"", "3:8: `a[` is no pattern"),
        ("basename = \"a/b\"", "3:12: a basename has no slash"),
        ("type = \"jpeg\"", "3:8: `jpeg` is no type"),
        ("size = { min = \"1X\" }", "3:16: `1X` is no size"),
        ("size = { min = 5, max = 4 }", "3:8: `min` is more than `max`"),
        ("size = { min = \"99999999T\" }", "3:16: `99999999T` is no size"),
        ("mode = { any = \"9\" }", "3:16: `9` is no mode"),
        ("uid = 4294967295", "3:7: an id is at most"),
        ("uid = -1", "3:7: `uid` must be a number from 0 on"),
        ("read_only = \"yes\"", "3:13: `read_only` must be true or false, and this is a string"),
        ("hide = true", "3:1: a rule has one of `allow` and `hide`"),
        ("redact = { }", "3:10: a redaction has one of `ranges` and `regex`"),
        ("redact = { ranges = [] }", "3:21: `ranges` must be a list of `[start, end]`"),
        ("redact = { ranges = [[4, 4]] }", "3:22: a range ends after it starts"),
        ("redact = { ranges = [[1, 2, 3]] }", "3:22: `ranges` must be"),
        ("redact = { regex = \"a\" }", "3:20: a regular expression needs `within`"),
        ("redact = { regex = \"(\", within = 9 }", "3:20: the regular expression is not one: unclosed group"),
        ("redact = { regex = \"a\", within = 0 }", "3:34: `within` is from 1 to"),
        ("redact = { regex = \"(a)\", within = 9, group = 2 }", "3:47: the expression has no group 2"),
        ("redact = { ranges = [[1]], within = 3 }", "3:28: `within` belongs to `regex`"),
        ("name = \"\"", "3:8: a name has at least one character"),
    ] {
        let (source, expected) = (rule(lines), format!("r.toml:{expected}"));
        assert!(said(&source).starts_with(&expected), "{source}: {}", said(&source));
    }
    assert!(said("[[rule]]\nname = \"x\"\n").starts_with("r.toml:1:1: the rule `x` decides nothing"));
    assert!(said("[rule]\nallow = true\n").contains("a rule starts with `[[rule]]`"));
    assert!(said("rule = 5\n").starts_with("r.toml:1:8: `rule` must be a list of tables"));
    let twice = "[[rule]]\nname = \"a\"\nallow = true\n[[rule]]\nname = \"a\"\nallow = true\n";
    assert!(said(twice).starts_with("r.toml:5:8: the rule at line 1 is called `a`, too"), "{}", said(twice));
    let hide = "[[rule]]\nopen = \"read\"\nhide = true\n";
    assert!(said(hide).starts_with("r.toml:3:1: a name is hidden or not before it is opened"));
    let redact = "[[rule]]\nopen = \"read\"\nredact = \"whole\"\n";
    assert!(said(redact).starts_with("r.toml:3:1: what is seen of a file is settled before it is opened"));
}

#[test]
fn all_mistakes_are_said_at_once_and_in_order() {
    let source = "match = \"frist\"\n[[rule]]\nuid = \"carol\"\nfoo = 1\ndeny = \"EWHAT\"\n[[rule]]\nwhen = 'x'\n\
        redact = 'x'\n";
    let text = said(source);
    let places: Vec<&str> = text.lines().map(|line| &line[..10]).collect();
    assert_eq!(places, ["r.toml:1:9", "r.toml:3:7", "r.toml:4:1", "r.toml:5:8", "r.toml:7:9", "r.toml:8:1"]);
}

#[test]
fn what_would_exhaust_the_reader_is_refused() {
    let deep = format!("[[rule]]\nallow = true\nwhen = '{}1 == 1'\n", "(".repeat(2000));
    assert!(said(&deep).contains("nested deeper"), "{}", said(&deep));
    let wide = format!("x = {}\n", "[".repeat(100_000));
    assert!(said(&wide).starts_with("r.toml:1:"));
    let many = "[[rule]]\nallow = true\n".repeat(10_001);
    assert!(said(&many).contains("at most 10000 rules"));
    let long = "#".repeat(5 << 20);
    assert!(said(&long).contains("at most"));
    let huge = rule("redact = { regex = '(?:a{1000}){1000}', within = 1 }");
    assert!(said(&huge).contains("the regular expression is not one"), "{}", said(&huge));
}

/// Once such a file mounted, and took all rules away when it was read again.
#[test]
fn a_file_without_a_rule_is_a_mistake() {
    for source in ["", "# nothing\n", "match = \"all\"\n", "rule = []\n"] {
        assert!(said(source).starts_with("r.toml:1:1: there is no rule"), "{source}: {}", said(source));
    }
}

/// Once a mount for a view with a mistake in its name showed what the view leaves out.
#[test]
fn a_view_that_no_rule_names_is_a_mistake() {
    let of = |source: &str, view| Rules::parse(source, "r.toml", Some(view), &Machine);
    let source = "[[rule]]\nview = [\"web\", \"print\"]\nhide = true\n";
    assert!(of(source, "web").is_ok() && of(source, "print").is_ok());
    for (source, view, expected) in [
        (source, "wbe", "r.toml:1:1: unknown view `wbe`; did you mean `web`?"),
        (source, "x", "r.toml:1:1: unknown view `x`; there are: print, web"),
        (
            "[[rule]]\nhide = true\n",
            "web",
            "r.toml:1:1: no rule is for a view, and the mount is for the view `web`",
        ),
    ] {
        assert_eq!(of(source, view).unwrap_err().to_string(), expected);
    }
}

#[test]
fn what_can_never_match_is_a_mistake() {
    for (lines, expected) in [
        ("type = \"text/plain\"", "3:8: no file is `text/plain`, so this never matches"),
        ("type = [\"image/png\", \"font/*\"]", "3:22: no file is `font/*`"),
        (
            "path = \"**.key\"",
            "3:8: `**` stands alone between slashes, so `**.key` would not cross any: `**/*.key`",
        ),
        ("path = \"a/b**/c\"", "3:8: `**` stands alone"),
        ("exe = \"/usr/bin/\"", "3:7: the path of a program has no empty part"),
        ("exe = \"/usr/../bin/x\"", "3:7: the path of a program has no empty part"),
        ("basename = \"..\"", "3:12: no file is called so"),
        ("path = \"a/*.jpg\"\nbasename = \"*.png\"", "4:1: no path that matches `path` ends like this"),
        ("mode = { all = \"0600\", none = \"0400\" }", "3:8: `none` has bits that `all` or `any` asks for"),
        ("mode = { any = \"0022\", none = \"0066\" }", "3:8: `none` has bits"),
        ("type = \"image/png\"\nopen = \"create\"", "3:1: what is being made is empty"),
        ("size.min = 1\nopen = \"create\"", "3:1: what is being made is empty"),
        ("type = \"image/png\"\nsize.max = 0", "3:1: an empty file has no type"),
        ("when = 'uid == \"carol\"'", "3:16: there is no user `carol` on this machine"),
        ("when = 'size'", "3:9: a condition is true or false, and `size` is a number of bytes"),
    ] {
        let (source, expected) = (rule(lines), format!("r.toml:{expected}"));
        assert!(said(&source).starts_with(&expected), "{source}: {}", said(&source));
    }
    for lines in ["mode = { any = \"0022\", none = \"0020\" }", "path = \"a/*\"\nbasename = \"*.png\""] {
        assert!(parse(&rule(lines)).is_ok(), "{lines}");
    }
}

#[test]
fn rules_that_never_decide_are_warned_of() {
    let warned = |source: &str| -> Vec<String> {
        parse(source).expect(source).warnings().iter().map(ToString::to_string).collect()
    };
    let first =
        |text: &str| format!("{text}[[rule]]\nname = 'last'\npath = 'a/b*'\nuid = [1, 2]\ndeny = 'EPERM'\n");
    for (text, is_warned) in [
        ("[[rule]]\npath = '**'\nallow = true\n", true),
        ("[[rule]]\nallow = true\n", true),
        ("[[rule]]\npath = ['x', 'a/**']\nuid = [3, 2, 1]\nallow = true\n", true),
        ("[[rule]]\npath = 'a/b*'\nuid = [1, 2]\nallow = true\n", true),
        ("[[rule]]\npath = 'a/**'\nuid = 1\nallow = true\n", false),
        ("[[rule]]\npath = '**'\nopen = 'read'\nallow = true\n", false),
        ("[[rule]]\npath = '**'\nview = 'web'\nallow = true\n", false),
        ("[[rule]]\npath = '**'\nwhen = 'uid == 1'\nallow = true\n", false),
        ("[[rule]]\npath = 'a/*'\nallow = true\n", false),
    ] {
        let warned = warned(&first(text));
        assert_eq!(!warned.is_empty(), is_warned, "{text}: {warned:?}");
    }
    assert_eq!(
        warned(&first("[[rule]]\nname = 'all'\npath = '**'\nallow = true\n")),
        [
            "5:1: the rule `last` never decides: the rule `all` (line 1) decides before it on everything that it matches"
        ]
    );
    let all =
        |text: &str| format!("match = 'all'\n[[rule]]\nname = 'first'\nuid = 1\nread_only = true\n{text}");
    assert_eq!(warned(&all("[[rule]]\nname = 'all'\nread_only = false\n")).len(), 1);
    assert!(warned(&all("[[rule]]\nallow = true\n")).is_empty());
    assert!(warned(&all("[[rule]]\nuid = 2\nread_only = false\n")).is_empty());
}

/// As many as a file may have, each matching much.
#[test]
fn many_rules_are_compared_in_bounded_time() {
    let rule = |number: usize| format!("[[rule]]\npath = 'f{number}/**'\nuid = {number}\nhide = true\n");
    let source: String = (0..10_000).map(rule).collect();
    assert!(parse(&source).expect("is right").warnings().is_empty());
}
