//! Takes any bytes for a file of rules and, behind a NUL, for what somebody might do: what, who, and names. The guard judges it,
//! and nothing is done. It never panics, and is never more open than the rules are for the path alone, which are asked again here,
//! with facts of our own. Runs under libFuzzer and in the tests of `shuntfs-pool`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use shuntfs::NodeId;
use shuntfs_pool::{Attempt, Caller, Place, Pool, PoolOptions, RuleControl};
use shuntfs_rules::{
    Access, Attributes, Decision, FileFacts, HEAD_LEN, Known, OpenWord, Rules, Unknown, Use,
};

/// What exists: names of the top. The first two are one file.
const NAMES: [&str; 5] = ["a", "two", "b.jpg", "private", "secret.env"];
/// Operations of one run.
const STEPS_MAX: usize = 32;

/// Every name is somebody.
struct Anybody;

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

/// A folder, and a pool that shows it.
struct Room {
    folder: tempfile::TempDir,
    control: RuleControl,
    // Serves nobody; what it shows is asked for by the control.
    _pool: Pool,
}

impl Room {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "some text").expect("writes");
        fs::hard_link(at("a"), at("two")).expect("links");
        fs::write(at("b.jpg"), b"\xff\xd8\xff\xe0 and so on").expect("writes");
        fs::write(at("secret.env"), "x=1").expect("writes");
        fs::create_dir(at("private")).expect("makes");
        fs::write(at("private/c"), "more").expect("writes");
        let rules = parse("[[rule]]\npath = \"none\"\nread_only = true\n").expect("are rules");
        let pool = Pool::open_with_rules(&PoolOptions::new(folder.path()), rules).expect("opens");
        let control = pool.rule_control().expect("has rules");
        Self { folder, control, _pool: pool }
    }

    fn at(&self, name: &[u8]) -> PathBuf {
        self.folder.path().join(OsStr::from_bytes(name))
    }
}

thread_local! {
    static ROOM: Room = Room::new();
}

fn parse(text: &str) -> Option<Rules> {
    Rules::parse(text, "f", None, &Anybody).ok()
}

pub(crate) fn run(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let (Some(rules), Some(oracle)) = (parse(&text), parse(&text)) else { return };
    ROOM.with(|room| {
        if room.control.replace(rules).is_err() {
            return;
        }
        let mut input = Input(parts.next().unwrap_or_default());
        for _ in 0..STEPS_MAX {
            if input.0.is_empty() {
                break;
            }
            step(room, &oracle, &mut input);
        }
        let is_there = |name: &&str| room.at(name.as_bytes()).symlink_metadata().is_ok();
        let count = fs::read_dir(room.folder.path()).expect("is ours").count();
        assert!(NAMES.iter().all(is_there) && count == NAMES.len(), "nothing was done");
    });
}

/// What is left of the input; zeroes behind its end.
struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// A name that is there, or as many bytes as the first one says.
    fn name(&mut self) -> &'b [u8] {
        let choice = usize::from(self.byte());
        if let Some(name) = NAMES.get(choice) {
            return name.as_bytes();
        }
        let (name, rest) = self.0.split_at(choice.min(self.0.len()));
        self.0 = rest;
        name
    }

    fn caller(&mut self) -> Caller {
        let uid = [0, 4, 5, u32::MAX][usize::from(self.byte() & 3)];
        let exe = (self.byte() & 1 == 1).then(|| b"/bin/cat".to_vec());
        Caller { uid, gid: uid, groups: vec![5], exe }
    }
}

/// A file by one path.
struct Facts<'p> {
    path: &'p [u8],
    attributes: Attributes,
    head: Vec<u8>,
}

impl FileFacts for Facts<'_> {
    fn path(&self) -> &[u8] {
        self.path
    }
    fn attributes(&self) -> Result<Attributes, Unknown> {
        Ok(self.attributes)
    }
    fn head(&self) -> Result<Vec<u8>, Unknown> {
        Ok(self.head.clone())
    }
}

fn new_facts<'p>(path: &'p [u8], caller: &Caller, mode: u32) -> Facts<'p> {
    let attributes = Attributes { size: 0, owner: caller.uid, group: caller.gid, mode };
    Facts { path, attributes, head: Vec::new() }
}

/// What is at one path, under this or another one.
fn facts_of<'p>(at: &Path, path: &'p [u8]) -> Option<Facts<'p>> {
    let found = at.symlink_metadata().ok()?;
    let attributes =
        Attributes { size: found.len(), owner: found.uid(), group: found.gid(), mode: found.mode() & 0o7777 };
    let mut head = if found.is_file() { fs::read(at).ok()? } else { Vec::new() };
    head.truncate(HEAD_LEN);
    Some(Facts { path, attributes, head })
}

/// Whether rules that are asked for one path let pass what was let pass.
struct Oracle<'o> {
    rules: &'o Rules,
    caller: &'o Caller,
}

impl Oracle<'_> {
    fn decide(&self, facts: &Facts<'_>, how: Use) -> Option<Decision> {
        self.rules.decide(facts, self.caller, how).ok()
    }

    fn may_read(&self, facts: &Facts<'_>) -> bool {
        let read = self.decide(facts, Use::of(OpenWord::Read));
        read.is_some_and(|decision| decision.access == Access::Allow)
    }

    fn may_come(&self, facts: &Facts<'_>, how: Use) -> bool {
        let comes = self.decide(facts, Use::of(OpenWord::Create).and(how));
        comes.is_some_and(|decision| decision.access == Access::Allow && !decision.read_only)
    }

    fn is_seen(&self, facts: &Facts<'_>) -> bool {
        self.decide(facts, Use::LOOK).is_none_or(|decision| decision.access != Access::Hide)
    }

    /// Its attributes and its name may change.
    fn may_change(&self, facts: &Facts<'_>) -> bool {
        let possible = self.rules.possible(facts.path);
        match self.decide(facts, Use::of(OpenWord::Write)) {
            Some(decision) => !decision.read_only && !decision.append_only,
            None => !possible.read_only && !possible.append_only,
        }
    }
}

fn step(room: &Room, rules: &Rules, input: &mut Input<'_>) {
    let what = input.byte() % 9;
    let caller = input.caller();
    let (name, other) = (input.name(), input.name());
    let to = Place { folder: NodeId::ROOT, name: other };
    let attempt = match what {
        0 => Attempt::List,
        1 => Attempt::Make(false),
        2 => Attempt::Make(true),
        3 => Attempt::Remove,
        4 => Attempt::SetAttributes,
        5 => Attempt::Rename(to),
        6 => Attempt::Link(to),
        7 => return new(room, rules, &caller, name, input),
        _ => {
            let how = any_use(input.byte());
            let said = room.control.of_node(NodeId::ROOT, &caller, how).expect("is known");
            assert!(!said.paths.is_empty());
            let _unseen = room.control.unseen(NodeId::ROOT, &caller);
            return;
        }
    };
    let judged = room.control.would(Place { folder: NodeId::ROOT, name }, attempt, &caller);
    let Ok(judgement) = judged else { return };
    if judgement.error.is_some() || name.is_empty() {
        return;
    }
    let oracle = Oracle { rules, caller: &caller };
    let shown = name.escape_ascii();
    assert!(may(room, &oracle, attempt, name), "{attempt:?} of `{shown}` by {caller:?}");
}

/// Whether it may be done, by the rules for the path alone.
fn may(room: &Room, oracle: &Oracle<'_>, attempt: Attempt<'_>, name: &[u8]) -> bool {
    const WRITE: Use = Use::of(OpenWord::Write);
    let made = |mode| new_facts(name, oracle.caller, mode);
    match attempt {
        Attempt::Make(true) => return oracle.may_come(&made(0o755), Use::LOOK),
        Attempt::Make(false) => {
            // What may only grow is made by who lets it only grow.
            let append = WRITE.and(Use::of(OpenWord::Append));
            return [WRITE, append].into_iter().any(|how| oracle.may_come(&made(0o644), how));
        }
        _ => {}
    }
    let at = room.at(name);
    // Where rules take nothing from anybody, names change without asking them.
    if !oracle.rules.restricts() {
        return true;
    }
    let Some(facts) = facts_of(&at, name) else { return false };
    let arrives = |path| facts_of(&at, path).is_some_and(|new| oracle.may_come(&new, Use::LOOK));
    match attempt {
        Attempt::List => oracle.is_seen(&facts) && oracle.may_read(&facts),
        Attempt::Remove | Attempt::SetAttributes => oracle.is_seen(&facts) && oracle.may_change(&facts),
        // A move from one name of a file to another does nothing.
        Attempt::Rename(to) if is_same(&at, &room.at(to.name)) => true,
        Attempt::Rename(to) | Attempt::Link(to) => {
            oracle.is_seen(&facts) && oracle.may_change(&facts) && arrives(to.name)
        }
        _ => true,
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| path.symlink_metadata().map(|found| (found.dev(), found.ino())).ok();
    number(one) == number(other)
}

/// A file of any path and mode, used in any way: as the rules say.
fn new(room: &Room, rules: &Rules, caller: &Caller, path: &[u8], input: &mut Input<'_>) {
    let mode = u32::from(input.byte()) << 4 | u32::from(input.byte() & 0xf);
    let how = any_use(input.byte());
    let said = room.control.of_new(Path::new(OsStr::from_bytes(path)), mode, caller, how);
    let decided = rules.decide(&new_facts(path, caller, mode), caller, how);
    match (said.decision, decided) {
        (Ok(said), Ok(decided)) => assert!(said.restricts_like(&decided), "{said:?}, and not {decided:?}"),
        (said, decided) => assert_eq!(said.is_err(), decided.is_err(), "what cannot be told is an error"),
    }
}

fn any_use(bits: u8) -> Use {
    let words = OpenWord::ALL.into_iter().enumerate().filter(|(at, _)| bits & 1 << at != 0);
    words.fold(Use::LOOK, |how, (_, word)| how.and(Use::of(word)))
}
