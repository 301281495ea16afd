//! The order of things: set-up, checks, builds, tests, and a look at what is left.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::leftovers::Leftovers;
use super::libtest::Results;
use super::plan::Plan;
use super::shown::Shown;
use super::tally::Tally;
use super::{again, backstop, fuse, machine};
use crate::workspace::{Workspace, cargo};
use crate::{deny, layers, package, site, tidy, tools};

/// The crate of the tests that mount, which take turns.
const END_TO_END: &str = "shuntfs-tests";

/// One `cargo test` takes no longer; a hung mount must not hold the machine forever.
const TEST_LIMIT: Duration = Duration::from_mins(40);

/// How long servers may take to end after the last test.
const GRACE: Duration = Duration::from_secs(10);

const URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Runs everything that the arguments ask for.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode> {
    let plan = Plan::parse(arguments)?;
    if let Some(code) = fuse::again_apart(arguments)? {
        return Ok(code);
    }
    let mut runner =
        Runner { workspace, shunt: workspace.target.join("release/shunt"), tally: Tally::default() };
    if !plan.quick {
        machine::set_up();
    }
    let _put_back_at_the_end = fuse::set_up();
    backstop::start();
    let uring_before = std::fs::read_to_string(URING).ok();
    let before = Leftovers::look(&runner.shunt);
    if plan.filter.is_none() {
        runner.checks(&plan);
    }
    runner.tests(&plan)?;
    if let Some(filter) = &plan.filter {
        runner.tally.expect_tests(filter);
    }
    runner.leftovers(&before);
    put_back(uring_before);
    Ok(runner.tally.print())
}

struct Runner<'a> {
    workspace: &'a Workspace,
    /// The program under test.
    shunt: PathBuf,
    tally: Tally,
}

impl Runner<'_> {
    fn checks(&mut self, plan: &Plan) {
        self.rules("layers", layers::check);
        self.rules("tidy", tidy::check);
        // Compiling mdbook takes minutes. The links of the pages, and the headings that they name, are checked in any case (tidy).
        if tools::MDBOOK.is_installed(self.workspace) {
            self.rules("site", site::build);
        } else {
            self.tally.skip("the site is not built without mdbook: `cargo xtask site` installs it");
        }
        if !plan.quick {
            self.rules("dependencies", deny::check);
        }
        let mut package = package::arguments(self.workspace);
        // Building each from its package takes long: `cargo xtask package`.
        package.push("--no-verify");
        self.cargo("packages", &package);
        self.cargo("format", &["fmt", "--all", "--", "--check"]);
        self.cargo("clippy", &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        self.cargo(
            "documentation",
            &["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"],
        );
    }

    fn tests(&mut self, plan: &Plan) -> Result<()> {
        self.cargo("release build", &["build", "--quiet", "--release", "-p", "shunt"]);
        let others = ["test", "--workspace", "--no-fail-fast", "--exclude", END_TO_END];
        self.cargo_test("tests of each crate", &others, plan, None)?;
        if !plan.quick && self.workspace.packages.iter().any(|package| package.name == END_TO_END) {
            let end_to_end = ["test", "--no-fail-fast", "-p", END_TO_END];
            self.cargo_test("end-to-end tests", &end_to_end, plan, Some("--test-threads=2"))?;
        }
        Ok(())
    }

    fn rules(&mut self, name: &str, check: fn(&Workspace) -> Result<Vec<String>>) {
        let started = announce(name);
        let faults = check(self.workspace).unwrap_or_else(|error| vec![format!("{error:#}")]);
        for fault in &faults {
            println!("{name}: {fault}");
        }
        self.tally.check(name, faults.is_empty(), started.elapsed());
    }

    fn cargo(&mut self, name: &str, arguments: &[&str]) {
        let started = announce(name);
        let mut command = cargo();
        command.args(arguments).current_dir(&self.workspace.root);
        if name == "documentation" {
            command.env("RUSTDOCFLAGS", "-D warnings");
        }
        let ok = command.status().is_ok_and(|status| status.success());
        self.tally.check(name, ok, started.elapsed());
    }

    /// Runs `cargo test`, shows what failed, and counts. Everything that was printed is kept in a file.
    fn cargo_test(
        &mut self,
        name: &str,
        arguments: &[&str],
        plan: &Plan,
        threads: Option<&str>,
    ) -> Result<()> {
        let started = announce(name);
        let mut command = self.test_command(arguments);
        // The output of tests that pass has the reasons of those that were skipped.
        command.arg("--show-output").args(threads).args(&plan.filter);
        let log = self.workspace.target.join(format!("{}.log", name.replace(' ', "-")));
        let mut kept = BufWriter::new(File::create(&log).with_context(|| log.display().to_string())?);
        let mut child = command.spawn().context("cannot start cargo test")?;
        let (mut results, mut shown) = (Results::default(), Shown::default());
        for line in BufReader::new(child.stdout.take().context("no output")?).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            writeln!(kept, "{line}")?;
            if plan.filter.is_some() || shown.line(&line) {
                println!("{line}");
            }
            results.line(&line);
        }
        kept.flush()?;
        println!("the whole output: {}", log.display());
        let status = child.wait()?;
        if status.code() == Some(124) {
            println!("{name}: took longer than {} minutes and was ended", TEST_LIMIT.as_secs() / 60);
        } else if !status.success() && plan.filter.is_none() {
            again::settle(&mut results, |test| self.by_itself(arguments, test));
        }
        let ok = status.success() || (results.failed == 0 && !results.unsteady.is_empty());
        self.tally.tests(name, results, ok, started.elapsed());
        Ok(())
    }

    /// Runs the tests of exactly this name.
    fn by_itself(&self, arguments: &[&str], test: &str) -> Option<Results> {
        let output = self.test_command(arguments).args(["--show-output", "--exact", test]).output().ok()?;
        let mut results = Results::default();
        String::from_utf8_lossy(&output.stdout).lines().for_each(|line| results.line(line));
        println!("again, by itself: {test}: {} passed, {} failed", results.passed, results.failed);
        output.status.success().then_some(results)
    }

    /// Makes a `cargo test` that waits for the arguments of the test programs.
    fn test_command(&self, arguments: &[&str]) -> Command {
        let mut command = limited();
        command.args(arguments).arg("--").current_dir(&self.workspace.root);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // Some tests let their server panic; a failure names its line without a trace.
        command.env("SHUNT_BIN", &self.shunt).env("RUST_BACKTRACE", "0");
        command.env("PATH", path().unwrap_or_default());
        command
    }

    fn leftovers(&mut self, before: &Leftovers) {
        let started = announce("nothing left behind");
        let mut left = Leftovers::look(&self.shunt).since(before);
        while !left.is_empty() && started.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(200));
            left = Leftovers::look(&self.shunt).since(before);
        }
        for thing in &left {
            println!("left behind: {thing}");
        }
        // Nothing of a failed run may hold the next one up.
        let is_left = |place: &str| left.contains(&Leftovers::mount_on(place));
        backstop::now().iter().filter(|mount| is_left(&mount.place)).for_each(backstop::Mount::end);
        self.tally.check("nothing left behind", left.is_empty(), started.elapsed());
    }
}

/// The tests find sbin, PostgreSQL and what we installed without asking the user's shell.
fn path() -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = machine::folders();
    std::env::join_paths(std::env::split_paths(&path).chain(known)).context("PATH")
}

fn announce(name: &str) -> Instant {
    println!("\n== {name}");
    Instant::now()
}

/// Makes a cargo command with a time limit. With a terminal, Ctrl-C must reach the tests as it does without the limit.
fn limited() -> Command {
    let mut command = Command::new("timeout");
    if std::io::stdin().is_terminal() {
        command.arg("--foreground");
    }
    command.args(["--kill-after", "30"]).arg(TEST_LIMIT.as_secs().to_string());
    command.arg(cargo().get_program());
    command
}

/// The tests turn FUSE over io_uring on; a machine that had it off has it off again.
fn put_back(before: Option<String>) {
    let now = std::fs::read_to_string(URING).ok();
    let Some(value) = before.filter(|before| Some(before) != now.as_ref()) else { return };
    match std::fs::write(Path::new(URING), value.trim()) {
        Ok(()) => println!("{URING} is {} again", value.trim()),
        Err(error) => println!("{URING} could not be put back to {}: {error}", value.trim()),
    }
}
