//! Takes any bytes for a file of rules. What is refused has places inside of it; what is taken is shown as a file that
//! means the same, and decides nothing that was said to be impossible. What the checker of conditions takes never fails
//! for a type when it is evaluated. Runs under libFuzzer and in the tests of
//! `shuntfs-rules`.

use std::sync::Arc;

use shuntfs_rules::{
    Access, Attributes, CallerFacts, FileFacts, Known, Listing, OpenWord, Rules, Unknown, Use,
};

/// Every name is somebody.
pub(crate) struct Anybody;

impl Known for Anybody {
    fn user(&self, name: &str) -> Option<u32> {
        u32::try_from(name.len()).ok()
    }
    fn group(&self, name: &str) -> Option<u32> {
        u32::try_from(name.len()).ok()
    }
    fn policies(&self) -> &[&str] {
        &["ff"]
    }
}

struct File<'p>(&'p str);

impl FileFacts for File<'_> {
    fn path(&self) -> &[u8] {
        self.0.as_bytes()
    }
    fn attributes(&self) -> Result<Attributes, Unknown> {
        Ok(Attributes { size: 2000, owner: 4, group: 5, mode: 0o644 })
    }
    fn head(&self) -> Result<Vec<u8>, Unknown> {
        Ok(b"\xff\xd8\xff\xe0 and so on".to_vec())
    }
}

struct Caller(u32);

impl CallerFacts for Caller {
    fn uid(&self) -> Result<u32, Unknown> {
        Ok(self.0)
    }
    fn gid(&self) -> Result<u32, Unknown> {
        Ok(self.0)
    }
    fn groups(&self) -> Result<Vec<u32>, Unknown> {
        Ok(vec![self.0, 5])
    }
    fn exe(&self) -> Result<Vec<u8>, Unknown> {
        Err(Unknown("nobody runs".into()))
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    run_for(&text, None);
    run_for(&text, Some("web"));
}

fn run_for(text: &str, view: Option<&str>) {
    let rules = match Rules::parse(text, "f", view, &Anybody) {
        Ok(rules) => Arc::new(rules),
        Err(mistakes) => {
            assert!(!mistakes.all.is_empty());
            let lines = text.matches('\n').count() + 1;
            for mistake in &mistakes.all {
                assert!((1..=lines).contains(&mistake.line) && mistake.column >= 1, "{mistake}");
                assert!(!mistake.text.is_empty());
            }
            return;
        }
    };
    assert!(!rules.rules().is_empty());
    for warning in rules.warnings() {
        assert!(rules.rules().iter().any(|rule| rule.line == warning.line), "{warning}");
    }
    let shown = rules.show();
    let again = Rules::parse(&shown, "f", view, &Anybody);
    let again = again.unwrap_or_else(|mistakes| panic!("{mistakes}\nof\n{shown}"));
    assert_eq!(again.show(), shown);
    for path in ["", "a", "a.jpg", "photos/a.jpg", "log/x/y.log", "private/sub/.draft.env"] {
        for (uid, how) in [(0, Use::LOOK), (4, Use::of(OpenWord::Read)), (5, Use::of(OpenWord::Write))] {
            ask(&rules, &again, path, &Caller(uid), how);
        }
    }
}

/// What an interpreter says that met a type where it cannot be.
const TYPE_ERRORS: [&str; 9] = [
    "overload",
    "neither true nor false",
    "Undeclared",
    "upported",
    "Unexpected type",
    "compared",
    "Missing argument",
    "argument count",
    "gave up",
];

fn ask(rules: &Arc<Rules>, again: &Rules, path: &str, caller: &Caller, how: Use) {
    let file = File(path);
    let decided = rules.decide(&file, caller, how);
    let other = again.decide(&file, caller, how);
    assert_eq!(rules.at(file.path()).decide(&file, caller, how), decided);
    if let Err(failed) = &decided {
        let why = &failed.why.0;
        assert!(!TYPE_ERRORS.iter().any(|sign| why.contains(sign)), "{why}\nof\n{}", rules.show());
    }
    let moved = rules.concerns_below(&file, caller);
    assert!(moved != Ok(true) || rules.holds_below(file.path()));
    let (Ok(decision), Ok(other)) = (&decided, &other) else {
        assert_eq!(decided.is_err(), other.is_err());
        return;
    };
    assert!(decision.restricts_like(other) && decision.rules == other.rules);
    assert!(rules.touches(file.path()) || decision.rules.is_empty());
    let possible = rules.possible(file.path());
    assert!(possible.hide || decision.access != Access::Hide);
    assert!(possible.deny || !matches!(decision.access, Access::Deny(_)));
    assert!(possible.read_only || !decision.read_only);
    assert!(possible.append_only || !decision.append_only);
    assert!(possible.redact || decision.redact.is_empty());
    assert!(rules.restricts() || decision.is_open());
    if decision.access == Access::Hide && !path.is_empty() {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        assert_ne!(rules.listing(folder.as_bytes()), Listing::Whole, "{path}");
    }
}
