//! A pool on a folder, whose servers are killed or replaced by another program.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shuntfs_sys::spawn::{Push, push};
use shuntfs_testkit::mounted::{enable_uring, shunt_binary};
use shuntfs_testkit::seeded::Random;
use tempfile::TempDir;

use crate::support::kept::{Kept, lower_folders_of, rules_in, with_state};
use crate::support::{can_mount, is_mounted, wait_until};

const KILLS: u64 = 12;
const UPGRADES: u64 = 2;
/// How long `shunt upgrade` may take.
const UPGRADE: Duration = Duration::from_secs(60);
/// How long a mount may live.
const LIVES: Duration = Duration::from_secs(1200);
/// Nodes that may stay known without a lookup. A server that dies between counting a lookup and noting its result leaves one, and a
/// READDIRPLUS as many as it had listed: over a hundred kills under PostgreSQL 182 were left.
const LEFT_PER_KILL: usize = 64;

/// How often nodes are counted that should be gone.
const TRIES: u32 = 5;

const PROGRAMS: [&str; 2] = ["one", "other"];

/// What happens to servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// They are killed, and another one follows.
    Kills,
    /// Another program takes their place.
    Upgrades,
}

impl Over {
    /// On which transports that can be survived.
    pub(crate) fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Kills => &["device", "cloned"],
            Self::Upgrades => &["uring", "device", "cloned"],
        }
    }

    /// How often it happens in a storm.
    pub(crate) fn count(self) -> u64 {
        match self {
            Self::Kills => number("SHUNTFS_TEST_KILLS").unwrap_or(KILLS),
            Self::Upgrades => number("SHUNTFS_TEST_UPGRADES").unwrap_or(UPGRADES),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kills => "kills",
            Self::Upgrades => "upgrades",
        }
    }
}

pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|number| number.parse().expect("a number"))
}

/// Servers of an ordinary user work there.
pub(crate) fn open_to_all(folder: &Path) {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("is ours");
}

/// What is shown: one folder or three branches, under rules or not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Folder,
    RuledFolder,
    Branches,
    RuledBranches,
}

impl Shape {
    pub(crate) fn has_branches(self) -> bool {
        matches!(self, Self::Branches | Self::RuledBranches)
    }

    pub(crate) fn is_ruled(self) -> bool {
        matches!(self, Self::RuledFolder | Self::RuledBranches)
    }
}

pub(crate) struct Stage {
    over: Over,
    kept: Kept,
    source: TempDir,
    /// Two programs, which replace each other.
    programs: TempDir,
    shape: Shape,
    kind: &'static str,
    server: u32,
    replaced: usize,
    /// The longest pause of a stat, and the longest time until a server was replaced.
    longest: Duration,
    longest_upgrade: Duration,
    /// How many nodes there were, and how many descriptors, before the work began, and how many servers had been replaced.
    nodes: usize,
    descriptors: (usize, usize),
    replaced_first: usize,
}

impl Stage {
    /// A pool with an empty folder to work in; `None`, and why, where there can be none.
    pub(crate) fn new(over: Over, kind: &'static str, flow: &str) -> Option<Self> {
        Self::of(over, kind, flow, Shape::Folder)
    }

    /// The same of another shape.
    pub(crate) fn of(over: Over, kind: &'static str, flow: &str, shape: Shape) -> Option<Self> {
        if !can_mount() || kind == "uring" && !enable_uring() {
            return None;
        }
        let source = tempfile::tempdir().expect("a folder");
        let programs = tempfile::tempdir().expect("a folder");
        open_to_all(source.path());
        let (shown, below) = lower_folders_of(source.path(), shape.has_branches());
        let kept = match over {
            Over::Kills => {
                let rules =
                    if shape.is_ruled() { rules_in(source.path(), flow) } else { vec![flow.to_owned()] };
                let words: Vec<&str> =
                    [&*shown, kind, "100000"].into_iter().chain(rules.iter().map(|word| &**word)).collect();
                Kept::start_of(with_state(), &words, LIVES, |_| ())?
            }
            Over::Upgrades => {
                let mut command = mounting(programs.path(), kind, flow);
                if shape.is_ruled() {
                    command.arg("--rules").arg(rules_in(source.path(), flow).remove(1));
                }
                if shape.has_branches() {
                    command.args(["-o", "minfreespace=0"]);
                }
                command.arg(shown);
                Kept::start_by(LIVES, |folder| {
                    command.arg(folder);
                    command
                })
            }
        };
        let server = kept.next_server(None);
        let mut stage = Self {
            over,
            kept,
            source,
            programs,
            shape,
            kind,
            server,
            replaced: 0,
            longest: Duration::ZERO,
            longest_upgrade: Duration::ZERO,
            nodes: 0,
            descriptors: (0, 0),
            replaced_first: 0,
        };
        // What begins with the first takeover is there from then on. A program is replaced as soon as it has begun.
        match over {
            Over::Kills => stage.replace(),
            Over::Upgrades => wait_until("the first upgrade", || match stage.tries_upgrade() {
                Ok(()) => Some(()),
                Err(why) if why.contains("not served yet") || why.contains("not ready yet") => None,
                Err(why) => panic!("the first upgrade fails: {why}\n{}", stage.kept.said()),
            }),
        }
        (stage.nodes, stage.descriptors) = (stage.count_nodes(), stage.kept.descriptors(stage.source.path()));
        stage.replaced_first = stage.replaced;
        below.iter().for_each(|folder| fs::create_dir(folder.join("work")).expect("makes"));
        wait_until("the folder to work in", || fs::metadata(stage.work()).ok());
        Some(stage)
    }

    /// The folder to work in, on the mount.
    pub(crate) fn work(&self) -> PathBuf {
        self.kept.path().join("work")
    }

    /// Has servers replaced so many times, one every 50 to 500 ms, in the way of this storm. `ended` tells how the work has ended, which it must not.
    pub(crate) fn rages(&mut self, name: &str, count: u64, mut ended: impl FnMut() -> Option<String>) {
        let mut random = Random::new(std::process::id().into());
        for round in 0..count {
            std::thread::sleep(Duration::from_millis(50 + random.number() % 450));
            if let Some(ended) = ended() {
                panic!("{name} ended before round {round}: {ended}\n{}", self.kept.said());
            }
            self.replace();
        }
    }

    /// Has another server follow, and waits until it answers.
    fn replace(&mut self) {
        match self.over {
            Over::Kills => self.kill(),
            Over::Upgrades => {
                let done = self.tries_upgrade();
                assert_eq!(done, Ok(()), "the upgrade fails\n{}", self.kept.said());
            }
        }
    }

    fn kill(&mut self) {
        push(self.server, Push::Die).expect("it is there");
        let killed = Instant::now();
        let name = self.kept.path().join(format!("none{}", self.replaced));
        fs::metadata(name).expect_err("there is none");
        self.longest = self.longest.max(killed.elapsed());
        self.server = self.kept.next_server(Some(self.server));
        self.replaced += 1;
    }

    /// Has another program take the place.
    ///
    /// # Errors
    /// What `shunt upgrade` said.
    fn tries_upgrade(&mut self) -> Result<(), String> {
        let program = self.programs.path().join(PROGRAMS[(self.replaced + 1) % 2]);
        let mut command = Command::new(&program);
        command.arg("upgrade").arg(self.kept.path()).arg("--binary").arg(&program);
        let start = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let status = loop {
            let asked = Instant::now();
            let name =
                self.kept.path().join(format!("none{}-{}", self.replaced, start.elapsed().as_micros()));
            fs::metadata(name).expect_err("there is none");
            self.longest = self.longest.max(asked.elapsed());
            if let Some(status) = child.try_wait().expect("is a child") {
                break status;
            }
            if start.elapsed() > UPGRADE {
                let _gone = child.kill();
                panic!("the upgrade does not end\n{}", self.kept.said());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        if !status.success() {
            let mut said = child.stderr.take().expect("was piped");
            return Err(std::io::read_to_string(&mut said).expect("reads"));
        }
        self.longest_upgrade = self.longest_upgrade.max(start.elapsed());
        let keeper = self.kept.keeper.id();
        let runs = fs::read_link(format!("/proc/{keeper}/exe")).expect("is there");
        assert_eq!(runs, program);
        self.server = self.kept.next_server(Some(self.server));
        self.replaced += 1;
        Ok(())
    }

    /// How many nodes the last server that took over found: it logs that.
    fn count_nodes(&mut self) -> usize {
        self.replace();
        let said = self.kept.said();
        let last = said.rsplit_once("nodes=").unwrap_or_else(|| panic!("it has not said so: {said}")).1;
        let digits: String = last.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    }

    /// Removes what the work left on the mount after `look` was taken at it there and below, where one folder has all of it, checks that neither nodes nor descriptors have
    /// gathered, prints `said`, and unmounts. The folder below, with a copy of the work, is the result.
    pub(crate) fn ends(mut self, said: &str, look: impl Fn(&Path)) -> TempDir {
        look(&self.work());
        if !self.shape.has_branches() {
            look(&self.source.path().join("work"));
            let mut copy = Command::new("cp");
            copy.args(["-a", "work", "copy"]).current_dir(self.source.path());
            assert!(copy.status().expect("starts").success());
        }
        fs::remove_dir_all(self.work()).expect("removes");
        // The kernel tells a little later which nodes it has forgotten.
        std::thread::sleep(Duration::from_millis(200));
        let mut nodes = self.count_nodes();
        // Nothing is lost where a server is replaced as planned; a busy machine may need longer.
        for _ in 0..TRIES {
            if self.over == Over::Kills || nodes <= self.nodes {
                break;
            }
            std::thread::sleep(Duration::from_secs(1));
            nodes = self.count_nodes();
        }
        // A program that has not proved itself has a descriptor of the one before, if that is another one: it must be the one that was looked at first.
        if self.over == Over::Upgrades && (self.replaced - self.replaced_first) % 2 == 1 {
            self.replace();
        }
        let held = || self.kept.descriptors(self.source.path());
        // Removed folders are kept by descriptors. After three seconds the last server asks the kernel about those that nobody has looked up since.
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while held() != self.descriptors && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        let descriptors = held();
        println!(
            "{said}; the longest pause of a stat {:?}, the longest upgrade {:?}; nodes {}, then {nodes}; descriptors {:?}, then {descriptors:?}",
            self.longest, self.longest_upgrade, self.nodes, self.descriptors
        );
        let kind = self.kind;
        assert!(nodes <= self.nodes + self.replaced * LEFT_PER_KILL, "on {kind}: nodes gather");
        assert_eq!(descriptors, self.descriptors, "on {kind}: descriptors gather");
        push(self.kept.keeper.id(), Push::End).expect("it is there");
        assert!(self.kept.ended().success(), "{}", self.kept.said());
        assert!(!is_mounted(self.kept.path()));
        if !self.shape.has_branches() {
            fs::rename(self.source.path().join("copy"), self.source.path().join("work")).expect("renames");
        }
        self.source
    }
}

/// Makes two copies of `shunt` in a folder; how the first one mounts, but for what and where.
fn mounting(programs: &Path, kind: &str, flow: &str) -> Command {
    for name in PROGRAMS {
        // By another process: one that is started meanwhile would inherit our descriptor for writing.
        let mut copy = Command::new("cp");
        copy.arg(shunt_binary().expect("is built")).arg(programs.join(name));
        assert!(copy.status().expect("starts").success());
    }
    let mut command = Command::new(programs.join(PROGRAMS[0]));
    let takeover = if kind == "uring" { "upgrade" } else { "crash" };
    command.args(["mount", "-f", "--takeover", takeover, "--transport", kind]);
    command.args(["--flow", flow, "--allow-other"]);
    command
}
