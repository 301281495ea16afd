//! Every command, argument and flag: the one definition behind parser, help, man pages and completions.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use shuntfs_pool::policy::{Category, Function, POLICIES, Policy};
use shuntfs_pool::{InodeCalc, MoveOnFull};

use crate::failure::Failure;
use crate::options;
pub use crate::seal::{
    DigestArgs, HashArgs, Ignored, KeyArgs, KeyFileArgs, KeyWhat, NewKeyArgs, PassphraseArgs, SealArgs,
    SealCommand, SealWhat, ShowArgs, SignArgs, TrustAddArgs, TrustArgs, TrustForgetArgs, TrustListArgs,
    TrustStoreArgs, TrustWhat, VerifyArgs,
};
use crate::settings::{
    CacheChoice, FlowChoice, LevelChoice, LocksChoice, PermissionsChoice, Settings, StallAfter, Switch,
    TakeoverChoice, TransportChoice, VerifyChoice,
};
use crate::units::duration_text;
pub use crate::wishes::VerifyWishes;

pub use crate::bench::BenchArgs;
pub use crate::branches::{BranchesArgs, BranchesOf, BranchesWhat};
pub use crate::explain::{
    CategoryChoice, ExplainArgs, ExplainOneArgs, ExplainPlaceArgs, ExplainTwoArgs, ExplainWhat,
};
pub use crate::metrics::{MetricsArgs, MetricsFormat};
pub use crate::migrate::{MigrateArgs, MigrateMergerfsArgs, MigrateWhat};
pub use crate::mover::{MoverArgs, MoverOf, MoverWhat};
pub use crate::top::TopArgs;
pub use crate::trace::TraceArgs;
pub use crate::upgrade::UpgradeArgs;

pub use crate::export::{AllowOther, ExportArgs, FormatChoice, HostCacheChoice};

/// Mounts folders through shuntfs, a FUSE server that lets the kernel move the bytes.
#[derive(Debug, Parser)]
#[command(name = "shunt", version, propagate_version = true, max_term_width = 110)]
#[command(after_help = "A first mount: shunt mount ~/photos /mnt/photos\n\
    What this machine supports: shunt doctor")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Mounts the folder SRC on MNT; returns when the mount answers.
    #[command(visible_alias = "m", after_long_help = options::help(), mut_args = options::described)]
    Mount(Box<MountArgs>),
    /// Exports the disk in IMAGE as the file FILE; returns when it answers.
    #[command(after_long_help = crate::export::HELP, override_usage = crate::export::USAGE)]
    Export(Box<ExportArgs>),
    /// Unmounts; if the mount is busy, reports who uses it.
    #[command(visible_alias = "unmount")]
    Umount(UmountArgs),
    /// Continues mounts with another version of shunt while files stay open; for mounts and exports with `--takeover crash` or `upgrade`.
    Upgrade(UpgradeArgs),
    /// Lists all mounts of shunt.
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Shows transport, flows, downgrades and counters of a mount.
    Status(StatusArgs),
    /// Shows each request of a mount as it is answered: its caller, operation, flow, result and duration.
    #[command(after_help = crate::trace::HELP)]
    Trace(TraceArgs),
    /// Shows live what mounts do: operations, bytes, latencies, queues, branches and errors.
    Top(TopArgs),
    /// Prints the counters and gauges of mounts for Prometheus.
    Metrics(MetricsArgs),
    /// Adds, removes and reconfigures the folders of a pool while it is mounted.
    Branches(BranchesArgs),
    /// Moves files between the folders of a pool, as its rules say.
    Mover(MoverArgs),
    /// Explains how a file's bytes flow, and which rules apply to it.
    Why(WhyArgs),
    /// Explains what an operation would do, without doing it.
    Explain(ExplainArgs),
    /// Converts the configuration of another program.
    Migrate(MigrateArgs),
    /// Checks and shows rules files.
    Rules(RulesArgs),
    /// Seals folders and files, so that every block can be verified as it is read; verifies, shows and signs seals.
    #[command(args_conflicts_with_subcommands = true, after_help = crate::seal::HELP)]
    Seal(Box<SealCommand>),
    /// Checks what this machine supports, and how to enable the rest.
    Doctor(DoctorArgs),
    /// Benchmarks shunt on this machine: starts the program `shunt-bench` with these arguments.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Bench(BenchArgs),
    /// Prints the completion script for a shell.
    Completions(CompletionsArgs),
    /// Prints the man page of shunt, or writes all man pages to a folder.
    Man(ManArgs),
}

/// Arguments of `shunt mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// The folder to show; or several, shown as one, each with an optional mode (RW, RO, NC), minimum free space and identity:
    /// `/a:/b=RO:/mnt/disk*=NC,10G:/c=RW,id=photos`.
    #[arg(value_name = "SRC", value_hint = clap::ValueHint::DirPath)]
    pub source: PathBuf,
    /// The mount point; or `/dev/fd/N`, a FUSE device that is already mounted.
    #[arg(value_name = "MNT", value_hint = clap::ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// What is asked of the mount.
    #[command(flatten)]
    pub wishes: Wishes,
    /// Ignores unknown `-o` options, as mount(8) requests with `-s`.
    #[arg(long, hide = true)]
    pub sloppy: bool,
    /// Tells the waiting parent over standard output how the mount went.
    #[arg(long, hide = true)]
    pub ready_on_stdout: bool,
    /// The descriptor of a note: another program kept this mount until now, in this process (`shuntfs_keeper::NOTE_WORD`).
    #[arg(long, hide = true)]
    pub takeover_note: Option<i32>,
    /// Only tries whether this program could continue (`shuntfs_keeper::TRIAL_WORD`).
    #[arg(long, hide = true, requires = "takeover_note")]
    pub takeover_trial: bool,
}

/// The options of a mount; [`options::SECTIONS`] says what they do.
#[derive(Debug, Default, Args)]
pub struct Wishes {
    /// Mount options, comma-separated, as in fstab.
    #[arg(short = 'o', long = "options", value_name = "OPTION,..", action = ArgAction::Append)]
    pub options: Vec<OsString>,
    #[arg(long, value_enum, value_name = "TRANSPORT")]
    pub(crate) transport: Option<TransportChoice>,
    #[arg(long, value_enum, value_name = "FLOW")]
    pub(crate) flow: Option<FlowChoice>,
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) threads: Option<NonZeroUsize>,
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) queue_depth: Option<NonZeroUsize>,
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) takeover: Option<TakeoverChoice>,
    #[arg(long, value_name = "DURATION", value_parser = options::replace_hung)]
    pub(crate) replace_hung: Option<Duration>,
    #[arg(long, value_enum, value_name = "CACHE")]
    pub(crate) cache: Option<CacheChoice>,
    #[arg(long, value_enum, value_name = "LOCKS")]
    pub(crate) locks: Option<LocksChoice>,
    #[arg(long)]
    pub(crate) handles: bool,
    #[arg(long, value_enum, value_name = "WHO")]
    pub(crate) permissions: Option<PermissionsChoice>,
    #[arg(long, value_enum, value_name = "XATTRS")]
    pub(crate) xattrs: Option<Switch>,
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) sched_idle: Option<Switch>,
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) zero_copy: Option<Switch>,
    #[arg(long, short = 'r')]
    pub(crate) read_only: bool,
    #[arg(long)]
    pub(crate) allow_other: bool,
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) log: Option<LevelChoice>,
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) rules: Option<PathBuf>,
    #[arg(long, value_name = "NAME")]
    pub(crate) view: Option<String>,
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub(crate) create: Option<&'static Policy>,
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub(crate) action: Option<&'static Policy>,
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub(crate) search: Option<&'static Policy>,
    #[arg(long, value_name = "FUNC=POLICY", value_parser = policy_for, action = ArgAction::Append)]
    pub(crate) policy_for: Vec<(Function, &'static Policy)>,
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size)]
    pub(crate) minfreespace: Option<u64>,
    #[arg(long, value_name = "POLICY", value_parser = options::move_on_full)]
    pub(crate) move_on_full: Option<MoveOnFull>,
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size)]
    pub(crate) passthrough_reserve: Option<u64>,
    #[arg(long, value_name = "WAY", value_parser = options::inode_calc)]
    pub(crate) inode_calc: Option<InodeCalc>,
    #[arg(long, value_name = "DURATION", value_parser = crate::units::duration)]
    pub(crate) branches_wait: Option<Duration>,
    #[arg(long, value_name = "DURATION", value_parser = options::branch_timeout)]
    pub(crate) branch_timeout: Option<Duration>,
    #[arg(long)]
    pub(crate) read_copies: bool,
    /// What is asked about sealed files.
    #[command(flatten)]
    pub verify: VerifyWishes,
    #[arg(long, value_name = "DURATION|off", value_parser = options::stall_after)]
    pub(crate) stall_after: Option<StallAfter>,
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) log_file: Option<PathBuf>,
    #[arg(long, value_name = "ADDR", value_parser = crate::metrics::listen_address)]
    pub(crate) metrics_listen: Option<SocketAddr>,
}

fn policy(name: &str) -> Result<&'static Policy, String> {
    let names = || POLICIES.iter().map(Policy::name).collect::<Vec<_>>().join(", ");
    Policy::of(name).ok_or_else(|| format!("one of {}", names()))
}

pub(crate) fn policy_for(text: &str) -> Result<(Function, &'static Policy), String> {
    let (function, name) = text.split_once('=').ok_or("a function and its policy: mkdir=epff")?;
    let names = || Function::ALL.map(Function::name).join(", ");
    let function = Function::of(function).ok_or_else(|| format!("a function is one of {}", names()))?;
    Ok((function, policy(name)?))
}

/// A number of things of which there is one at least.
pub(crate) fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "a number from 1 on is needed".to_owned())
}

impl Wishes {
    /// Settles `-o` and the flags into settings; a flag wins over `-o`. Returns notes for the user, too.
    ///
    /// # Errors
    /// An option that is unknown, not offered, or has a wrong value.
    pub fn settle(&self, unknown: options::Unknown) -> Result<(Settings, Vec<String>), Failure> {
        let (mut settings, notes) = options::parse(&self.options, unknown)?;
        fn override_with<T: Copy>(place: &mut T, flag: Option<T>) {
            *place = flag.unwrap_or(*place);
        }
        override_with(&mut settings.transport, self.transport);
        override_with(&mut settings.flow, self.flow);
        override_with(&mut settings.takeover, self.takeover);
        override_with(&mut settings.cache, self.cache);
        override_with(&mut settings.locks, self.locks);
        override_with(&mut settings.permissions, self.permissions);
        override_with(&mut settings.xattrs, self.xattrs);
        override_with(&mut settings.sched_idle, self.sched_idle);
        override_with(&mut settings.zero_copy, self.zero_copy);
        override_with(&mut settings.log, self.log);
        override_with(&mut settings.stall_after, self.stall_after);
        settings.metrics = self.metrics_listen.or(settings.metrics);
        settings.replace_hung = self.replace_hung.or(settings.replace_hung);
        settings.threads = self.threads.or(settings.threads);
        settings.queue_depth = self.queue_depth.or(settings.queue_depth);
        let categories = [
            (Category::Create, self.create),
            (Category::Action, self.action),
            (Category::Search, self.search),
        ];
        for (category, policy) in categories {
            policy.into_iter().for_each(|policy| settings.merge.set_category(category, policy));
        }
        for (function, policy) in &self.policy_for {
            settings.merge.set_function(*function, policy);
        }
        settings.merge.min_free = self.minfreespace.or(settings.merge.min_free);
        settings.merge.move_on_full = self.move_on_full.or(settings.merge.move_on_full);
        settings.merge.passthrough_reserve = self.passthrough_reserve.or(settings.merge.passthrough_reserve);
        settings.merge.wait = self.branches_wait.or(settings.merge.wait);
        settings.merge.inode_calc = self.inode_calc.or(settings.merge.inode_calc);
        settings.merge.timeout = self.branch_timeout.or(settings.merge.timeout);
        settings.merge.read_copies |= self.read_copies;
        settings.handles |= self.handles;
        settings.mount.read_only |= self.read_only;
        settings.mount.allow_other |= self.allow_other;
        if self.rules.is_some() {
            settings.rules.clone_from(&self.rules);
        }
        if self.view.is_some() {
            settings.view.clone_from(&self.view);
        }
        if settings.view.is_some() && settings.rules.is_none() {
            return Err(Failure::usage("a view is made by rules").hint("add --rules FILE"));
        }
        self.verify.settle(&mut settings)?;
        if settings.handles && settings.verify.what != VerifyChoice::Off {
            let failure = Failure::usage("seals go by names, and a handle leads to a file without one");
            return Err(failure.hint("leave out --handles, or --verify"));
        }
        settings.check_trust()?;
        if self.log_file.is_some() {
            settings.log_file.clone_from(&self.log_file);
        }
        Ok((settings, notes))
    }
}

impl Wishes {
    /// The same wishes as words of a command line, with absolute paths.
    ///
    /// # Errors
    /// Where the working directory is gone and a path was relative to it.
    pub fn words(&self) -> std::io::Result<Vec<OsString>> {
        fn name(choice: impl ValueEnum) -> OsString {
            choice.to_possible_value().map(|value| value.get_name().into()).unwrap_or_default()
        }
        let number = |number: NonZeroUsize| OsString::from(number.to_string());
        let absolute = |path: &Option<PathBuf>| path.as_ref().map(std::path::absolute).transpose();
        let (log_file, rules) = (absolute(&self.log_file)?, absolute(&self.rules)?);
        let valued = [
            ("--transport", self.transport.map(name)),
            ("--flow", self.flow.map(name)),
            ("--takeover", self.takeover.map(name)),
            ("--replace-hung", self.replace_hung.map(|time| duration_text(time).into())),
            ("--threads", self.threads.map(number)),
            ("--queue-depth", self.queue_depth.map(number)),
            ("--cache", self.cache.map(name)),
            ("--locks", self.locks.map(name)),
            ("--permissions", self.permissions.map(name)),
            ("--xattrs", self.xattrs.map(name)),
            ("--sched-idle", self.sched_idle.map(name)),
            ("--zero-copy", self.zero_copy.map(name)),
            ("--log", self.log.map(name)),
            ("--stall-after", self.stall_after.map(|after| after.to_string().into())),
            ("--log-file", log_file.map(OsString::from)),
            ("--rules", rules.map(OsString::from)),
            ("--create", self.create.map(|policy| policy.name().into())),
            ("--action", self.action.map(|policy| policy.name().into())),
            ("--search", self.search.map(|policy| policy.name().into())),
            ("--minfreespace", self.minfreespace.map(|size| size.to_string().into())),
            ("--move-on-full", self.move_on_full.map(|moves| moves.name().into())),
            ("--passthrough-reserve", self.passthrough_reserve.map(|size| size.to_string().into())),
            ("--inode-calc", self.inode_calc.map(|calc| calc.name().into())),
            ("--branches-wait", self.branches_wait.map(|time| duration_text(time).into())),
            ("--branch-timeout", self.branch_timeout.map(|time| duration_text(time).into())),
            ("--metrics-listen", self.metrics_listen.map(|address| address.to_string().into())),
            ("--view", self.view.as_ref().map(OsString::from)),
        ];
        let options = self.options.iter().map(|list| options::absolute(list));
        let options = options.collect::<std::io::Result<Vec<OsString>>>()?;
        let options = options.into_iter().flat_map(|list| ["-o".into(), list]);
        let valued = valued.into_iter().filter_map(|(flag, value)| Some([flag.into(), value?])).flatten();
        let functions = self.policy_for.iter().flat_map(|(function, policy)| {
            ["--policy-for".into(), OsString::from(format!("{}={}", function.name(), policy.name()))]
        });
        let flags = [
            ("--handles", self.handles),
            ("--read-copies", self.read_copies),
            ("--read-only", self.read_only),
            ("--allow-other", self.allow_other),
        ];
        let flags = flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag.into());
        Ok(options.chain(valued).chain(functions).chain(flags).chain(self.verify.words()?).collect())
    }
}

/// Arguments of `shunt umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mount point.
    #[arg(value_name = "MNT", value_hint = clap::ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Detaches the mount now; open files are served until their last close.
    #[arg(short, long)]
    pub lazy: bool,
    /// First ends the connection, so that callers waiting for a stuck server get an error, then detaches.
    #[arg(short, long)]
    pub force: bool,
}

/// Arguments of `shunt list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `shunt status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The mount point.
    #[arg(value_name = "MNT", value_hint = clap::ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `shunt why`.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// A file or folder on a mount.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    pub file: PathBuf,
    /// The user to check.
    #[command(flatten)]
    pub who: WhoArgs,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// The caller to check.
#[derive(Debug, Default, Args)]
pub struct WhoArgs {
    /// The user, by name or number, with all of their groups [default: you].
    #[arg(long = "as", value_name = "UID")]
    pub user: Option<String>,
    /// The path of the program, for rules that depend on it.
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::ExecutablePath)]
    pub exe: Option<PathBuf>,
}

/// Arguments of `shunt rules`.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: RulesWhat,
}

/// What to do with a rules file.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum RulesWhat {
    /// Reports every mistake with its line and column; prints nothing if there is none.
    Check(RulesCheckArgs),
    /// Prints the rules as they are understood, with every default written out.
    Show(RulesFileArgs),
}

/// Rules files to check.
#[derive(Debug, Args)]
pub struct RulesCheckArgs {
    /// The files.
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Treats warnings (rules that never decide) as mistakes.
    #[arg(long)]
    pub strict: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// A rules file.
#[derive(Debug, Args)]
pub struct RulesFileArgs {
    /// The file.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Arguments of `shunt doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `shunt completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Arguments of `shunt man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Writes shunt.1 and a page for each command to this folder.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

/// How mount(8) calls a helper: `mount.fuse.shunt SRC MNT [-sfnv] [-N NS] [-o OPTIONS] [-t TYPE]`.
#[derive(Debug, Parser)]
#[command(name = "mount.fuse.shunt", version, about = "The mount helper of shunt, for mount(8) and fstab")]
#[command(after_help = "See shunt mount --help for the options. Exit codes: 1 wrong call, 32 failed mount.")]
pub struct HelperArgs {
    /// The folder to show.
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// The mount point.
    #[arg(value_name = "MNT")]
    pub mountpoint: PathBuf,
    /// Ignores unknown options.
    #[arg(short = 's')]
    pub sloppy: bool,
    /// Checks everything but mounts nothing.
    #[arg(short = 'f')]
    pub fake: bool,
    /// Ignored: there is no mtab to write.
    #[arg(short = 'n')]
    pub no_mtab: bool,
    /// Prints what was mounted.
    #[arg(short = 'v', action = ArgAction::Count)]
    pub verbose: u8,
    /// Ignored: mount(8) has already entered the mount namespace.
    #[arg(short = 'N', value_name = "NS")]
    pub namespace: Option<OsString>,
    /// Mount options, comma-separated.
    #[arg(short = 'o', value_name = "OPTION,..", action = ArgAction::Append)]
    pub options: Vec<OsString>,
    /// Ignored: the file system type.
    #[arg(short = 't', value_name = "TYPE")]
    pub kind: Option<OsString>,
}

/// The definition of `shunt`, for man pages and completions.
#[must_use]
pub fn definition() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        definition().debug_assert();
        HelperArgs::command().debug_assert();
    }

    #[test]
    fn wishes_survive_being_written_as_words() {
        let line = "shunt mount -o ro,log_file=/x --transport uring --flow splice --threads 3 --queue-depth 4 --cache none \
            --locks lower --read-only --allow-other --log debug --log-file /tmp/log --rules /r --view v --sched-idle off --zero-copy off --branch-timeout 1500ms --metrics-listen 9101 -o nosuid /a /b";
        let wishes = |words: Vec<OsString>| match Cli::try_parse_from(words).expect("parses").command {
            Command::Mount(mount) => mount.wishes,
            other => panic!("not a mount: {other:?}"),
        };
        let first = wishes(line.split_ascii_whitespace().map(OsString::from).collect());
        let mut words = vec!["shunt".into(), "mount".into()];
        words.extend(first.words().expect("absolute"));
        words.extend(["/a".into(), "/b".into()]);
        let second = wishes(words);
        let settle = |wishes: &Wishes| wishes.settle(options::Unknown::Refuse).expect("settles");
        assert_eq!(settle(&first), settle(&second));
        assert_eq!(second.log_file, Some("/tmp/log".into()));
    }

    /// A value for an argument, by what help calls it.
    fn sample(argument: &clap::Arg) -> Option<String> {
        if !argument.get_action().takes_values() {
            return None;
        }
        let values = argument.get_possible_values();
        let usual = if argument.get_long() == Some("verify") { "off" } else { "on" };
        if let Some(value) = values.iter().rev().find(|value| value.get_name() != usual) {
            return Some(value.get_name().to_owned());
        }
        let name = argument.get_value_names().and_then(|names| names.first()).expect("has a name").as_str();
        let value = match name {
            "N" => "3",
            "SIZE" => "7M",
            "DURATION" | "DURATION|off" => "7s",
            "FILE" | "DIR" | "KEY.pub" => "/x",
            "POLICY" => "mfs",
            "FUNC=POLICY" => "mkdir=mfs",
            "WAY" => "path-hash",
            "NAME" => "name",
            "ADDR" => "9101",
            "HEX" => return Some("ab".repeat(32)),
            other => panic!("no sample of {other}"),
        };
        Some(value.to_owned())
    }

    /// A flag, the option of the same name, what they come to, and the words for the server were kept in step by hand.
    #[test]
    fn each_flag_is_an_option_and_survives_the_way_to_the_server() {
        let wishes = |words: &[String]| {
            let all = ["shunt", "mount"].map(str::to_owned).into_iter().chain(words.iter().cloned());
            match Cli::try_parse_from(all.chain(["/a".into(), "/b".into()])).expect("parses").command {
                Command::Mount(mount) => mount.wishes,
                other => panic!("not a mount: {other:?}"),
            }
        };
        let settle = |words: &[String]| wishes(words).settle(options::Unknown::Refuse).expect("settles").0;
        let definition = definition();
        let mount = definition.find_subcommand("mount").expect("is one");
        let mut count = 0;
        for argument in mount.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let Some(flag) = argument.get_long().filter(|flag| !["options", "foreground"].contains(flag))
            else {
                continue;
            };
            let beside: &[&str] = match flag {
                "view" => &["--rules=/r"],
                "threshold" | "tree" => &["--verify=if-sealed", "--trust=/k"],
                "trust" | "digest" | "trust-store" | "seal-store" => &["--verify=if-sealed"],
                _ => &[],
            };
            let beside: Vec<String> = beside.iter().map(|&word| word.to_owned()).collect();
            let value = sample(argument).map(|value| format!("={value}")).unwrap_or_default();
            let by_flag = [beside.as_slice(), &[format!("--{flag}{value}")]].concat();
            let settled = settle(&by_flag);
            assert_ne!(settled, settle(&beside), "--{flag} does nothing");
            let by_option = ["-o".to_owned(), format!("{}{value}", flag.replace('-', "_"))];
            assert_eq!(settle(&[beside.as_slice(), &by_option].concat()), settled, "-o of --{flag}");
            let words = wishes(&by_flag).words().expect("absolute");
            let words: Vec<String> =
                words.into_iter().map(|word| word.into_string().expect("text")).collect();
            assert_eq!(settle(&words), settled, "--{flag} on the way to the server: {words:?}");
            count += 1;
        }
        assert!(count > 35, "{count}");
    }

    #[test]
    fn handles_that_last_are_refused_beside_what_goes_by_names() {
        let settle = |words: &[&str]| {
            let all = ["shunt", "mount"].iter().chain(words).chain(&["/a", "/b"]);
            let Command::Mount(mount) = Cli::try_parse_from(all).expect("parses").command else {
                panic!("not a mount")
            };
            let again = mount.wishes.words().expect("absolute").contains(&"--handles".into());
            mount.wishes.settle(options::Unknown::Refuse).map(|(settings, _)| (settings.handles, again))
        };
        assert_eq!(settle(&["--handles"]).ok(), Some((true, true)));
        assert_eq!(settle(&["-o", "handles"]).ok(), Some((true, false)));
        assert_eq!(settle(&[]).ok(), Some((false, false)));
        for beside in [["--verify", "if-sealed"], ["--verify", "required"]] {
            let error = settle(&["-o", "handles", beside[0], beside[1]]).expect_err("refused");
            assert!(error.to_string().contains("go by names"), "{error}");
        }
    }

    #[test]
    fn a_flag_wins_over_an_option() {
        let cli = Cli::try_parse_from([
            "shunt",
            "mount",
            "/a",
            "/b",
            "-o",
            "transport=device,ro,threads=7",
            "--transport",
            "cloned",
        ]);
        let Command::Mount(mount) = cli.expect("parses").command else { panic!("not a mount") };
        let (settings, notes) = mount.wishes.settle(options::Unknown::Refuse).expect("settles");
        assert_eq!(settings.transport, TransportChoice::Cloned);
        assert_eq!(settings.threads.map(NonZeroUsize::get), Some(7));
        assert!(settings.mount.read_only && notes.is_empty());
    }
}
