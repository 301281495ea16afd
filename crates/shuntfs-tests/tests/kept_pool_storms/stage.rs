//! A pool on a folder, whose servers are killed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shuntfs_sys::spawn::{Push, push};
use shuntfs_testkit::seeded::Random;
use tempfile::TempDir;

use crate::support::kept::{Kept, lower_folders_of, rules_in, with_state};
use crate::support::{can_mount, is_mounted, wait_until};

const KILLS: u64 = 12;
/// How long a mount may live.
const LIVES: Duration = Duration::from_secs(1200);
/// Nodes that may stay known without a lookup. A server that dies between counting a lookup and noting its result leaves one, and a
/// READDIRPLUS as many as it had listed: over a hundred kills under PostgreSQL 182 were left.
const LEFT_PER_KILL: usize = 64;

pub(crate) fn kills() -> u64 {
    number("SHUNTFS_TEST_KILLS").unwrap_or(KILLS)
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
    kept: Kept,
    source: TempDir,
    shape: Shape,
    kind: &'static str,
    server: u32,
    killed: usize,
    longest: Duration,
    /// How many nodes there were, and how many descriptors, before the work began.
    nodes: usize,
    descriptors: (usize, usize),
}

impl Stage {
    /// A pool with an empty folder to work in; `None`, and why, where there can be none.
    pub(crate) fn new(kind: &'static str, flow: &str) -> Option<Self> {
        Self::of(kind, flow, Shape::Folder)
    }

    /// The same of another shape.
    pub(crate) fn of(kind: &'static str, flow: &str, shape: Shape) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let source = tempfile::tempdir().expect("a folder");
        open_to_all(source.path());
        let (shown, below) = lower_folders_of(source.path(), shape.has_branches());
        let rules = if shape.is_ruled() { rules_in(source.path(), flow) } else { vec![flow.to_owned()] };
        let words: Vec<&str> =
            [&*shown, kind, "100000"].into_iter().chain(rules.iter().map(|word| &**word)).collect();
        let kept = Kept::start_of(with_state(), &words, LIVES, |_| ())?;
        let server = kept.next_server(None);
        let (longest, descriptors) = (Duration::ZERO, (0, 0));
        let mut stage = Self { kept, source, shape, kind, server, killed: 0, longest, nodes: 0, descriptors };
        // What begins with the first takeover is there from then on.
        stage.kill();
        (stage.nodes, stage.descriptors) = (stage.count_nodes(), stage.kept.descriptors(stage.source.path()));
        below.iter().for_each(|folder| fs::create_dir(folder.join("work")).expect("makes"));
        wait_until("the folder to work in", || fs::metadata(stage.work()).ok());
        Some(stage)
    }

    /// The folder to work in, on the mount.
    pub(crate) fn work(&self) -> PathBuf {
        self.kept.path().join("work")
    }

    /// Kills servers every 50 to 500 ms. `ended` tells how the work has ended, which it must not.
    pub(crate) fn kills(&mut self, name: &str, count: u64, mut ended: impl FnMut() -> Option<String>) {
        let mut random = Random::new(std::process::id().into());
        for kill in 0..count {
            std::thread::sleep(Duration::from_millis(50 + random.number() % 450));
            if let Some(ended) = ended() {
                panic!("{name} ended before kill {kill}: {ended}\n{}", self.kept.said());
            }
            self.kill();
        }
    }

    /// Kills the server, and waits until the next one answers.
    fn kill(&mut self) {
        push(self.server, Push::Die).expect("it is there");
        let killed = Instant::now();
        let name = self.kept.path().join(format!("none{}", self.killed));
        fs::metadata(name).expect_err("there is none");
        self.longest = self.longest.max(killed.elapsed());
        self.server = self.kept.next_server(Some(self.server));
        self.killed += 1;
    }

    /// How many nodes the last server that took over found: it logs that.
    fn count_nodes(&mut self) -> usize {
        self.kill();
        let said = self.kept.said();
        let last = said.rsplit_once("nodes=").expect("it has said so").1;
        let digits: String = last.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    }

    /// Removes what the work left on the mount after `look` was taken at it there and below, where one folder has all of it, checks that neither nodes nor descriptors have
    /// gathered, prints `said`, and unmounts. The folder below, with a copy of the work, is the result.
    pub(crate) fn ends(mut self, said: &str, look: impl Fn(&Path)) -> TempDir {
        look(&self.work());
        if !self.shape.has_branches() {
            look(&self.source.path().join("work"));
            let mut copy = std::process::Command::new("cp");
            copy.args(["-a", "work", "copy"]).current_dir(self.source.path());
            assert!(copy.status().expect("starts").success());
        }
        fs::remove_dir_all(self.work()).expect("removes");
        // The kernel tells a little later which nodes it has forgotten.
        std::thread::sleep(Duration::from_millis(200));
        let nodes = self.count_nodes();
        let held = || self.kept.descriptors(self.source.path());
        // Removed folders are kept by descriptors. After three seconds the last server asks the kernel about those that nobody has looked up since.
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while held() != self.descriptors && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        let descriptors = held();
        println!(
            "{said}; the longest pause of a stat {:?}; nodes {}, then {nodes}; descriptors {:?}, then {descriptors:?}",
            self.longest, self.nodes, self.descriptors
        );
        let kind = self.kind;
        assert!(nodes <= self.nodes + self.killed * LEFT_PER_KILL, "on {kind}: nodes gather");
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
