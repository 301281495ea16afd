//! From the options to what is measured, with everything that can be wrong said before anything is made.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::build;
use crate::case::{Amount, Case, Sealed, Work};
use crate::lower::Need;
use crate::nearest::nearest;
use crate::options::{Options, Scale, Size};
use crate::process;
use crate::tables::{Setting, Table, tables};
use crate::target::{Ours, Target, check_names, choose, parse};

/// What is measured.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) tables: Vec<Table>,
    pub(crate) scale: Scale,
    /// What a reader of any figure needs to know.
    pub(crate) notes: Vec<String>,
    pub(crate) need: Need,
}

impl Plan {
    /// Returns the figures that are taken.
    pub(crate) fn figures(&self) -> usize {
        self.tables.iter().map(|table| table.cases.len() * usable(table)).sum::<usize>() * self.scale.rounds
    }

    /// Returns how long the run takes about, should every data case take its time.
    pub(crate) fn about(&self) -> Duration {
        /// Mounting, dropping caches and starting a program.
        const BESIDES: Duration = Duration::from_millis(1500);
        let amount = &self.scale.amount;
        let each = |case: &Case| match case.work {
            Work::Calls(_) | Work::Turns(_) => amount.calling + BESIDES / 3,
            _ if amount.cold_each => amount.runtime + BESIDES,
            _ => BESIDES / 2,
        };
        let of = |table: &Table| {
            table.cases.iter().map(each).sum::<Duration>() * u32::try_from(usable(table)).unwrap_or(u32::MAX)
        };
        let round: Duration = self.tables.iter().map(of).sum();
        round * u32::try_from(self.scale.rounds).unwrap_or(u32::MAX)
    }
}

/// Returns how many columns of a table can be measured.
fn usable(table: &Table) -> usize {
    table.targets.iter().filter(|target| target.missing.is_none()).count()
}

const NOT_ROOT: &str = "Not root: in a folder instead of ext4 over RAM, without bind mounts; the caches are not dropped, so \
    that cold is not cold; and what wishes for passthrough gets what the mount falls back to.";

/// Settles what is measured.
///
/// # Errors
/// When the options name what does not exist, or a program is missing that every figure needs.
pub(crate) fn plan(options: &Options) -> Result<Plan> {
    let scale = options.scale()?;
    let setting = setting(options)?;
    let all = tables(&setting);
    check_targets(&all, options)?;
    let tables = tables_asked_for(all, options)?;
    require_programs(&tables)?;
    require_shunt(setting.ours.program())?;
    let mut notes = Vec::new();
    if let Some(why) = setting.ours.uring_off()
        && tables.iter().flat_map(|table| &table.targets).any(|target| target.missing.is_some())
    {
        notes.push(format!(
            "Columns on io_uring are not measured, and what chooses by itself is not on it: {why}."
        ));
    }
    if !rustix::process::geteuid().is_root() {
        notes.push(NOT_ROOT.to_owned());
    }
    let need = need(&tables, &scale.amount);
    Ok(Plan { tables, scale, notes, need })
}

/// Prints tables, cases and columns.
///
/// # Errors
/// When a target of the command line is none.
pub(crate) fn list(options: &Options) -> Result<()> {
    for table in tables(&setting(options)?) {
        println!("{}: {}", table.name, table.about);
        if let Some(why) = table.skipped {
            println!("  not measured: {why}");
            continue;
        }
        let names: Vec<&str> = table.cases.iter().map(|case| case.name.as_str()).collect();
        println!("  cases: {}", names.join(", "));
        for target in &table.targets {
            let missing = target.missing.as_ref().map_or(String::new(), |why| format!(" (missing: {why})"));
            println!("  {}: {}{missing}", target.name, target.about());
        }
    }
    Ok(())
}

fn setting(options: &Options) -> Result<Setting> {
    let shunt = options.shunt.clone().unwrap_or_else(|| beside(std::env::current_exe().ok().as_deref()));
    let templates: Vec<Target> = options.templates.iter().map(|text| parse(text)).collect::<Result<_>>()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Setting {
        ours: Ours::new(&shunt),
        templates,
        cpus: u32::try_from(cpus)?,
        smoke: options.size == Size::Smoke,
    })
}

fn check_targets(all: &[Table], options: &Options) -> Result<()> {
    let mut known: Vec<&str> = Vec::new();
    for target in all.iter().flat_map(|table| &table.targets) {
        if !known.contains(&target.name.as_str()) {
            known.push(&target.name);
        }
    }
    check_names(&known, &options.targets)
}

fn tables_asked_for(all: Vec<Table>, options: &Options) -> Result<Vec<Table>> {
    let names: Vec<&str> = all.iter().map(|table| table.name).collect();
    for name in &options.tables {
        if !names.contains(&name.as_str()) {
            bail!("there is no table `{name}`{}", nearest(name, &names));
        }
    }
    let cases: Vec<String> =
        all.iter().flat_map(|table| &table.cases).map(|case| case.name.clone()).collect();
    let mut tables = all;
    tables.retain(|table| options.tables.is_empty() || options.tables.iter().any(|name| name == table.name));
    for table in &mut tables {
        let is_named = |case: &Case| options.cases.iter().any(|text| case.name.contains(text.as_str()));
        table.cases.retain(|case| options.cases.is_empty() || is_named(case));
        table.targets = choose(std::mem::take(&mut table.targets), table.baseline, &options.targets);
    }
    // A table of which nothing was asked for is not part of the run.
    tables.retain(|table| table.skipped.is_some() || !table.cases.is_empty());
    tables.retain(|table| options.targets.is_empty() || asks_for(options, table));
    let has = |text: &str| tables.iter().flat_map(|table| &table.cases).any(|case| case.name.contains(text));
    if let Some(text) = options.cases.iter().find(|text| !has(text.as_str())) {
        let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
        bail!("no case of these tables has `{text}` in its name{}", nearest(text, &cases));
    }
    if tables.is_empty() {
        bail!("none of these tables has a column {}", options.targets.join(", "));
    }
    Ok(tables)
}

fn asks_for(options: &Options, table: &Table) -> bool {
    table.targets.iter().any(|target| options.targets.contains(&target.name))
}

/// Returns the `shunt` beside a program; else its name alone, which is looked up on the PATH.
fn beside(own: Option<&Path>) -> PathBuf {
    let beside = own.map(|own| own.with_file_name("shunt")).filter(|path| path.is_file());
    beside.unwrap_or_else(|| "shunt".into())
}

fn require_shunt(program: &str) -> Result<()> {
    let is_there =
        if program.contains('/') { Path::new(program).is_file() } else { process::on_path(program) };
    if !is_there {
        bail!("there is no `{program}` to measure: name one with --shunt FILE");
    }
    Ok(())
}

fn require_programs(tables: &[Table]) -> Result<()> {
    let works: Vec<&Work> = tables.iter().flat_map(|table| &table.cases).map(|case| &case.work).collect();
    let fio = works.iter().any(|work| matches!(work, Work::Fio(_) | Work::Meta(_) | Work::Sealed(_)));
    let tree = works.iter().any(|work| matches!(work, Work::Tree(_)));
    let root = rustix::process::geteuid().is_root();
    let wanted = [
        ("fio", "fio", fio),
        ("cmp", "diffutils", fio),
        ("tar", "tar", tree),
        ("find", "findutils", tree),
        ("grep", "grep", tree),
        ("mount", "mount", root),
        ("fusermount3", "fuse3", !root),
    ];
    for (program, package, needed) in wanted {
        if needed && !process::on_path(program) {
            bail!("`{program}` is not installed: apt install {package}");
        }
    }
    Ok(())
}

fn need(tables: &[Table], amount: &Amount) -> Need {
    /// So many bytes a file, in the tar and wherever it is unpacked.
    const TREE_FILE: u64 = 24 * 1024;
    /// The small project.
    const BUILD: u64 = 64 << 20;
    let mut need = Need::default();
    let (mut names, mut git, mut unpacked) = (0, 0, 0_u64);
    if tables.iter().flat_map(|table| &table.targets).any(Target::copies_the_large_file) {
        need.copy = amount.file_len;
    }
    for Case { work, branches, .. } in tables.iter().flat_map(|table| &table.cases) {
        // What is made on several branches is made on the one folder, too.
        let copies = if *branches > 1 { 2_u64 } else { 1 };
        match work {
            Work::Fio(fio) => {
                // One file of full length for each of two jobs, then half of that for two more, and so on.
                let doublings = u64::from(if fio.shared { 0 } else { fio.jobs.next_power_of_two().ilog2() });
                need.large = need.large.max(amount.file_len * (1 + doublings));
            }
            Work::Meta(meta) => {
                need.files = need.files.max(amount.files_of(meta.jobs) * u64::from(meta.jobs) * copies);
            }
            Work::Tree(_) => unpacked = unpacked.max(copies),
            // A part of them on each branch, and all on one.
            Work::List(_) => need.links = amount.entries * 2,
            Work::Build if build::is_large(amount) => need.build = build::Project::LEN_MAX,
            Work::Build => need.build = need.build.max(BUILD),
            // Its tree takes a part in 128 more.
            Work::Sealed(_) => {
                let len = Sealed::amount(amount).file_len;
                need.sealed = len + len / 64;
            }
            // Once to be looked up, once created.
            Work::Calls(_) | Work::Turns(_) => names = amount.names * 2,
            Work::Git(_) => git = u64::from(amount.git_files),
            Work::RoundTrip => {}
        }
    }
    need.kept_files = names + git;
    if unpacked > 0 {
        let files = u64::try_from(amount.tree_files).unwrap_or(u64::MAX / TREE_FILE / 4);
        need.tree = TREE_FILE * files * (1 + unpacked);
    }
    need
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::tests::setting;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn asked(words: &[&str]) -> Result<Vec<Table>> {
        let line = <Line as clap::Parser>::parse_from([&["bench"][..], words].concat());
        tables_asked_for(tables(&setting(2)), &line.options)
    }

    #[test]
    fn all_tables_are_measured_where_none_is_named() {
        assert_eq!(asked(&[]).unwrap().len(), 11);
        let named = asked(&["--table", "uring,queues"]).unwrap();
        assert_eq!(named.iter().map(|table| table.name).collect::<Vec<_>>(), ["uring", "queues"]);
    }

    #[test]
    fn what_is_mistyped_is_named_with_its_nearest() {
        let error = asked(&["--table", "passthru"]).unwrap_err().to_string();
        assert!(error.contains("did you mean `passthrough`"), "{error}");
        let error = asked(&["--case", "unpakc"]).unwrap_err().to_string();
        assert!(error.contains("did you mean `unpack`"), "{error}");
        let line = <Line as clap::Parser>::parse_from(["bench", "--targets", "urin"]);
        let error = check_targets(&tables(&setting(2)), &line.options).unwrap_err().to_string();
        assert!(error.contains("did you mean `uring`"), "{error}");
    }

    #[test]
    fn several_cases_may_be_named_and_each_must_be_there() {
        let named = asked(&["--table", "smallfiles", "--case", "walk,unpack"]).unwrap();
        let names: Vec<&str> = named[0].cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["unpack", "walk cold", "walk warm"]);
        let error = asked(&["--table", "smallfiles", "--case", "walk,create j9"]).unwrap_err().to_string();
        assert!(error.contains("`create j9`"), "{error}");
    }

    #[test]
    fn a_table_without_the_column_is_left_out() {
        let named = asked(&["--targets", "null q1"]).unwrap();
        assert_eq!(named.iter().map(|table| table.name).collect::<Vec<_>>(), ["queues"]);
        assert_eq!(named[0].targets.len(), 2);
        assert!(asked(&["--table", "uring", "--targets", "null q1"]).is_err());
    }

    #[test]
    fn the_shunt_beside_is_measured_or_else_the_one_on_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("shunt-bench");
        assert_eq!(beside(Some(&own)), Path::new("shunt"));
        let shunt = folder.path().join("shunt");
        std::fs::write(&shunt, "").unwrap();
        assert_eq!(beside(Some(&own)), shunt);
        assert_eq!(beside(None), Path::new("shunt"));
        assert!(require_shunt(&shunt.to_string_lossy()).is_ok() && require_shunt("sh").is_ok());
        let error = require_shunt("/no/shunt").unwrap_err().to_string();
        assert!(error.contains("`/no/shunt`") && error.contains("--shunt"), "{error}");
    }

    #[test]
    fn more_jobs_need_more_room() {
        let of = |cpus| need(&tables(&setting(cpus)), &Amount { file_len: 1 << 30, ..Amount::TINY }).large;
        assert_eq!(of(1), 2 << 30);
        assert_eq!(of(2), 3 << 30);
        assert_eq!(of(64), 8 << 30);
    }
}
