//! The examples as programs, keeping a mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use shuntfs_sys::spawn::{Push, push};
use shuntfs_testkit::supervisor::Supervisor;
use tempfile::TempDir;

use super::{LIMIT, is_mounted, wait_until, wait_until_or_say};

/// What a user other than root sees of names that tests give, in whatever folder they are, and how a log grows. What concerns root is no pattern of every folder,
/// because folders in which such a name may be are not moved by whom it concerns.
const RULES: &str = "\
[[rule]]
basename = 'denied*'
uid = 65534
deny = 'EACCES'

[[rule]]
path = '**/denied*/**'
uid = 65534
deny = 'EACCES'

[[rule]]
basename = 'hidden*'
uid = 65534
hide = true

[[rule]]
basename = 'secret*'
uid = 65534
redact = { regex = 'key=[0-9]+', within = 4096 }

[[rule]]
path = '*/unread'
uid = 0
open = 'read'
deny = 'EACCES'

[[rule]]
path = '*/log'
append_only = true
";

/// The example, keeping a mount. Nothing of it is left when this is dropped.
pub(crate) struct Kept {
    pub(crate) keeper: Child,
    folder: TempDir,
    log: tempfile::NamedTempFile,
    _supervisor: Supervisor,
}

impl Kept {
    /// `None`, and why, where the example was not built.
    pub(crate) fn start(arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Option<Self> {
        Self::start_of("kept", arguments, LIMIT, prepare)
    }

    /// Another example than `kept`, whose mount may live so long.
    pub(crate) fn start_of(
        example: &str,
        arguments: &[&str],
        limit: Duration,
        prepare: impl FnOnce(&mut Command),
    ) -> Option<Self> {
        let program = program_of(example)?;
        Some(Self::start_by(limit, |folder| {
            let mut command = Command::new(program);
            command.arg(folder).args(arguments);
            prepare(&mut command);
            command
        }))
    }

    /// The same by another program, whose command line has the folder to mount on.
    pub(crate) fn start_by(limit: Duration, command: impl FnOnce(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = tempfile::NamedTempFile::new().expect("a file");
        let mut command = command(folder.path());
        command.stdin(Stdio::null()).stderr(log.reopen().expect("opens"));
        let mut keeper = command.spawn().expect("starts");
        // One that refuses has ended by then.
        wait_until("a mount", || {
            (is_mounted(folder.path()) || !matches!(keeper.try_wait(), Ok(None))).then_some(())
        });
        let supervisor = Supervisor::of(folder.path(), limit).expect("a supervisor");
        Self { keeper, folder, log, _supervisor: supervisor }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, number: u64) -> PathBuf {
        self.path().join(number.to_string())
    }

    /// Another keeper instead of this one, which is dead.
    pub(crate) fn replace(&mut self, mut command: Command) {
        assert!(matches!(self.keeper.try_wait(), Ok(Some(_))), "it lives");
        command.stdin(Stdio::null()).stderr(self.log.reopen().expect("opens"));
        self.keeper = command.spawn().expect("starts");
    }

    /// The living server; `None` between two.
    pub(crate) fn server(&self) -> Option<u32> {
        children(self.keeper.id()).into_iter().next()
    }

    /// Waits for a server that is another one than `last`.
    pub(crate) fn next_server(&self, last: Option<u32>) -> u32 {
        let next = || self.server().filter(|server| Some(*server) != last);
        wait_until_or_say("a server", next, || format!("its keeper said:\n{}", self.said()))
    }

    /// How many descriptors the keeper's table has, and how many of them lead to what is below `source`, where none is on its way: files of
    /// procfs are open for a moment.
    pub(crate) fn descriptors(&self, source: &Path) -> (usize, usize) {
        let looks = (0..50).map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            let links = links(self.keeper.id());
            (links.len(), links.iter().filter(|link| link.starts_with(source)).count())
        });
        looks.min_by_key(|(all, below)| all - below).expect("some")
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.log.path()).expect("a log")
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        let keeper = &mut self.keeper;
        wait_until("the keeper's end", || keeper.try_wait().expect("is a child"))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if is_mounted(self.path()) {
            // The server goes with the connection.
            let _best_effort = Command::new("umount").arg("-f").arg(self.path()).status();
        }
        if matches!(self.keeper.try_wait(), Ok(None)) {
            let _best_effort = push(self.keeper.id(), Push::Die);
            let _best_effort = self.keeper.wait();
        }
        if is_mounted(self.path()) {
            let _best_effort = Command::new("umount").arg("-l").arg(self.path()).status();
        }
    }
}

/// What a process's descriptors lead to.
pub(crate) fn links(pid: u32) -> Vec<PathBuf> {
    let table = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    table.filter_map(|entry| fs::read_link(entry.path()).ok()).collect()
}

/// Where the example is.
pub(crate) fn program() -> Option<PathBuf> {
    program_of("kept")
}

fn program_of(example: &str) -> Option<PathBuf> {
    let tests = std::env::current_exe().ok()?;
    let program = tests.parent()?.parent()?.join("examples").join(example);
    if !program.exists() {
        println!("SKIPPED: {} was not built", program.display());
        return None;
    }
    Some(program)
}

/// The example with state: of the crate whose test this is.
pub(crate) fn with_state() -> &'static str {
    if env!("CARGO_PKG_NAME") == "shuntfs-tests" { "kept_pool" } else { "kept_folder" }
}

/// Whether the pool opens nodes by their handles: not for tests whose program is called so, where the next server gets descriptors.
pub(crate) fn has_handles() -> bool {
    !env!("CARGO_CRATE_NAME").ends_with("without_handles")
}

/// What is shown: a folder, or three branches for tests whose program is called so. How the example is told of them, and where they are.
pub(crate) fn lower_folders(source: &Path) -> (String, Vec<PathBuf>) {
    lower_folders_of(source, env!("CARGO_CRATE_NAME").starts_with("kept_branches"))
}

/// The same for who knows whether there are branches.
pub(crate) fn lower_folders_of(source: &Path, are_branches: bool) -> (String, Vec<PathBuf>) {
    let folders = if are_branches {
        let branches = ["a", "b", "c"].map(|name| source.join(name));
        branches.iter().for_each(|branch| fs::create_dir(branch).expect("makes a folder"));
        branches.to_vec()
    } else {
        vec![source.to_owned()]
    };
    let names: Vec<&str> = folders.iter().map(|folder| folder.to_str().expect("plain")).collect();
    (names.join(":"), folders)
}

/// Rules under which all of it is: for tests whose program is called so, and how the example is told of them. They are in a file at the top of `source`,
/// which is shown if that is the only folder.
pub(crate) fn ruled(source: &Path) -> Vec<String> {
    if env!("CARGO_CRATE_NAME").contains("ruled") { rules_in(source, "passthrough") } else { Vec::new() }
}

/// The same in any case, with a flow.
pub(crate) fn rules_in(source: &Path, flow: &str) -> Vec<String> {
    let file = source.join("rules.toml");
    fs::write(&file, RULES).expect("writes");
    vec![flow.into(), file.to_str().expect("plain").into()]
}

/// Every process that there is.
pub(crate) fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("procfs").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The living children of a process. Others are not looked at where the kernel tells of these alone (`CONFIG_PROC_CHILDREN`): to read of one that
/// begins a program from a mount that does not answer takes as long as that does.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let told = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let told = told.map(|told| told.split_whitespace().filter_map(|number| number.parse().ok()).collect());
    let parent = parent.to_string();
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let (state, its_parent) = (fields.next(), fields.next());
        state != Some("Z") && its_parent == Some(&*parent)
    };
    told.unwrap_or_else(|_| processes()).into_iter().filter(is_child).collect()
}
