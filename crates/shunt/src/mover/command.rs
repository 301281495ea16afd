//! The command.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use shuntfs_pool::{MoverFacts, MoverFile, MoverNews};

use super::words;
use crate::bar::Bar;
use crate::failure::Failure;
use crate::json::{self, One};
use crate::mounts::Mounts;
use crate::run::output_failure;
use crate::{status, umount};

/// Arguments of `shunt mover`.
#[derive(Debug, Args)]
pub struct MoverArgs {
    /// What is done.
    #[command(subcommand)]
    pub what: MoverWhat,
}

/// What is done with the mover of a mount.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum MoverWhat {
    /// Moves the files that are due by the rules with `move`; Ctrl-C stops after the current file.
    Run {
        /// The mount point.
        #[command(flatten)]
        of: MoverOf,
        /// Moves nothing: reports which files would be moved, where to and by which rule, and why others would not.
        #[arg(long)]
        dry_run: bool,
        /// Prints only the totals at the end.
        #[arg(short, long, conflicts_with = "json")]
        quiet: bool,
    },
    /// Shows the progress of the mover, or how its last run ended.
    Status(MoverOf),
}

/// Which mount.
#[derive(Debug, Args)]
pub struct MoverOf {
    /// The mount point.
    #[arg(value_name = "MNT", value_hint = clap::ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Prints JSON; for a run one object per line, for each file and at the end.
    #[arg(long)]
    pub json: bool,
}

/// Has the mover run, or says how far it is.
///
/// # Errors
/// Where there is no such mount, its server does not answer or refuses, and where files could not be moved for an error.
pub(crate) fn run(args: &MoverArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let (MoverWhat::Run { of, .. } | MoverWhat::Status(of)) = &args.what;
    let mounts = Mounts::read()?;
    let mount = umount::find(&mounts, &of.mountpoint)?;
    let mut client = status::client_of(mount)?;
    let failed = |error| status::unanswered(mount, &error);
    match &args.what {
        MoverWhat::Status(of) => {
            let facts = client.mover().map_err(failed)?;
            if of.json {
                return json::print(&One("mover", &facts), out);
            }
            let text = facts.map_or_else(
                || "the mover did not run since the mount".to_owned(),
                |facts| words::of_status(&facts),
            );
            writeln!(out, "{text}").map_err(|error| output_failure(&error))
        }
        MoverWhat::Run { of, dry_run, quiet } => {
            let mut report =
                Report { out, json: of.json, quiet: *quiet, bar: Bar::start("searching"), broken: None };
            let ended = client.run_mover(*dry_run, &mut |news| report.hear(news)).map_err(failed);
            report.end(&ended?)
        }
    }
}

/// What is shown of a run.
struct Report<'o> {
    out: &'o mut dyn Write,
    json: bool,
    quiet: bool,
    bar: Bar,
    /// Why something could not be printed.
    broken: Option<Failure>,
}

impl Report<'_> {
    fn hear(&mut self, news: MoverNews) {
        match news {
            MoverNews::Progress(facts) => self.bar.of_mover(&facts),
            MoverNews::File(_) if self.quiet => {}
            MoverNews::File(file) => self.file(&file),
            // A newer server may say more.
            _ => {}
        }
    }

    fn file(&mut self, file: &MoverFile) {
        let text = || words::of_file(file);
        self.line(if self.json { json::line(&One("file", file)) } else { Ok(text()) });
    }

    fn line(&mut self, line: Result<String, Failure>) {
        let out = &mut *self.out;
        // Where nobody reads any more a failed write ends the program, and with it the run.
        let written = line.and_then(|line| {
            let written = self.bar.aside(|| writeln!(out, "{line}").and_then(|()| out.flush()));
            written.map_err(|error| output_failure(&error))
        });
        if let Err(failure) = written {
            self.broken.get_or_insert(failure);
        }
    }

    fn end(mut self, facts: &MoverFacts) -> Result<(), Failure> {
        self.bar.end();
        let text = || words::of_end(facts);
        self.line(if self.json { json::line(&One("end", facts)) } else { Ok(text()) });
        match (self.broken, facts.failures) {
            (Some(failure), _) => Err(failure),
            (None, 0) => Ok(()),
            (None, failures) => Err(Failure::new(format!("{failures} could not be moved or examined"))),
        }
    }
}
