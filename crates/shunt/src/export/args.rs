//! Every argument and flag of `shunt export`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use shuntfs_image::Backing;

use crate::failure::Failure;
use crate::mounts::shown;
use crate::settings::{FlowChoice, LevelChoice, StallAfter, Switch, TakeoverChoice, TransportChoice};

/// What stands below the flags.
pub(crate) const HELP: &str = "An image may be exported over itself: name it twice. Unmount: shunt umount FILE\n\n\
    A disk with partitions: losetup --partscan --find --show FILE\n\
    A disk with one file system: mount -o loop FILE /mnt";

/// How it is called.
pub(crate) const USAGE: &str =
    "shunt export [OPTIONS] <IMAGE> <FILE>\n       shunt export [OPTIONS] --format null <FILE>";

/// Arguments of `shunt export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// The image (a file or a block device; omitted with `--format null`), and the file to show it as.
    #[arg(value_names = ["IMAGE", "FILE"], value_hint = clap::ValueHint::FilePath, required = true, num_args = 1..=2)]
    pub paths: Vec<PathBuf>,
    /// The image's format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "auto")]
    pub format: FormatChoice,
    /// The size of `--format null`, in bytes or with K, M, G, T, P [default: 1T].
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size)]
    pub size: Option<u64>,
    /// Makes the disk writable.
    #[arg(long, short = 'w')]
    pub writable: bool,
    /// Makes the disk read-only, which is the default.
    #[arg(long, conflicts_with = "writable")]
    pub read_only: bool,
    /// Enlarges the disk if a write goes beyond its end.
    #[arg(long, requires = "writable")]
    pub growable: bool,
    /// Shows this internal snapshot, by name or number, read-only.
    #[arg(long, value_name = "NAME", conflicts_with = "writable")]
    pub snapshot: Option<String>,
    /// Which backing files may be opened: `follow` (those that the image names), `none`, or FILE instead of the one that
    /// it names [default: none if root exports an image that others could have created, otherwise follow].
    #[arg(long, value_name = "WHICH|FILE")]
    pub backing: Option<OsString>,
    /// Number of queues, with one thread each [default: by the machine].
    #[arg(long, alias = "queues", value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Requests that one queue can serve at once [default: 32].
    #[arg(long, value_name = "N")]
    pub queue_depth: Option<NonZeroUsize>,
    /// Whether busy threads go to the scheduler's class SCHED_IDLE, so that callers are not woken on another CPU.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "on")]
    pub sched_idle: Switch,
    /// Whether bytes that the server need not see may move straight between the image and the caller, on io_uring of Linux 7.3 or newer. Turn
    /// it on only if no loop device is put on FILE: Linux 7.3.4 would crash.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "off")]
    pub zero_copy: Switch,
    /// How requests arrive.
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value = "auto")]
    pub transport: TransportChoice,
    /// Which flow opens of a raw image ask for.
    #[arg(long, value_enum, value_name = "FLOW", default_value = "auto")]
    pub flow: FlowChoice,
    /// If the server is killed: `off` breaks the export; `crash` starts another server that continues, and callers see a pause;
    /// `upgrade`, on io_uring, breaks the export, and only `shunt upgrade` continues it.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "off")]
    pub takeover: TakeoverChoice,
    /// Gives other users access, subject to the file's mode.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto", default_missing_value = "on", num_args = 0..=1, require_equals = true)]
    pub allow_other: AllowOther,
    /// The host's page cache of the image: used, or bypassed.
    #[arg(long, alias = "cache", value_enum, value_name = "CACHE", default_value = "writeback")]
    pub host_cache: HostCacheChoice,
    /// Stays in the foreground and logs to standard error; Ctrl-C unmounts.
    #[arg(short, long)]
    pub foreground: bool,
    /// How much is logged [default: info].
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub log: Option<LevelChoice>,
    /// Logs requests that take longer than this (100ms to 60m), and when they end; `off` logs none
    /// [default: 10s].
    #[arg(long, value_name = "DURATION|off", value_parser = crate::options::stall_after)]
    pub stall_after: Option<StallAfter>,
    /// Logs to this file, instead of standard error (foreground) or the system log.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub log_file: Option<PathBuf>,
    /// Serves metrics over HTTP at this address, to anyone who can connect. A port alone means 127.0.0.1.
    #[arg(long, value_name = "ADDR", value_parser = crate::metrics::listen_address)]
    pub metrics_listen: Option<SocketAddr>,
    /// Tells the waiting parent over standard output how the mount went.
    #[arg(long, hide = true)]
    pub ready_on_stdout: bool,
    /// The descriptor of a note: another program kept this export until now, in this process (`shuntfs_keeper::NOTE_WORD`).
    #[arg(long, hide = true)]
    pub takeover_note: Option<i32>,
    /// Only tries whether this program could continue (`shuntfs_keeper::TRIAL_WORD`).
    #[arg(long, hide = true, requires = "takeover_note")]
    pub takeover_trial: bool,
}

/// The format of an image.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum FormatChoice {
    /// Detected from the first bytes: `qcow2` or `raw`.
    #[default]
    Auto,
    /// The bytes of the disk, one after the other.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
    /// No image: reads as zeroes, discards writes.
    Null,
}

/// Whether other users have access.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum AllowOther {
    /// Only the user who exports it.
    Off,
    /// Others, too.
    On,
    /// Others, too, if that is allowed.
    #[default]
    Auto,
}

/// How the host's page cache of an image is used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum HostCacheChoice {
    /// It is used; `fsync` makes its contents durable.
    #[default]
    Writeback,
    /// It is bypassed; a raw image is then not in passthrough.
    None,
}

impl ExportArgs {
    /// The image and the file; one path is the file of a null image.
    ///
    /// # Errors
    /// Where there is one too few, or one too many.
    pub fn image_and_file(&self) -> Result<(PathBuf, PathBuf), Failure> {
        match (self.format == FormatChoice::Null, self.paths.as_slice()) {
            (true, [file]) => Ok((PathBuf::from("null"), file.clone())),
            (true, [image, _]) => {
                Err(Failure::usage(format!("--format null shows no IMAGE: {}", shown(image)))
                    .hint("name the FILE alone, or leave out --format null"))
            }
            (false, [image, file]) => Ok((image.clone(), file.clone())),
            _ => Err(Failure::usage("an image and the file to show it as are needed")
                .hint("to show it over itself, name it twice")),
        }
    }

    /// Which backing files may be opened.
    #[must_use]
    pub fn backing(&self) -> Backing {
        match &self.backing {
            None => Backing::Auto,
            Some(word) if word == "auto" => Backing::Auto,
            Some(word) if word == "follow" => Backing::Follow,
            Some(word) if word == "none" => Backing::None,
            Some(file) => Backing::File(std::path::absolute(file).unwrap_or_else(|_| file.into())),
        }
    }

    /// The same as words of a command line, with absolute paths.
    ///
    /// # Errors
    /// Where the working directory is gone and a path was relative to it.
    pub fn words(&self) -> std::io::Result<Vec<OsString>> {
        fn name(choice: impl ValueEnum) -> Option<OsString> {
            choice.to_possible_value().map(|value| value.get_name().into())
        }
        let number = |number: NonZeroUsize| OsString::from(number.to_string());
        let backing = match self.backing() {
            Backing::File(path) => Some(path.into()),
            _ => self.backing.clone(),
        };
        let log_file = self.log_file.as_ref().map(std::path::absolute).transpose()?;
        let valued = [
            ("--format", name(self.format)),
            ("--size", self.size.map(|size| size.to_string().into())),
            ("--snapshot", self.snapshot.as_ref().map(OsString::from)),
            ("--backing", backing),
            ("--threads", self.threads.map(number)),
            ("--queue-depth", self.queue_depth.map(number)),
            ("--sched-idle", name(self.sched_idle)),
            ("--zero-copy", name(self.zero_copy)),
            ("--transport", name(self.transport)),
            ("--flow", name(self.flow)),
            ("--takeover", name(self.takeover)),
            ("--allow-other", name(self.allow_other)),
            ("--host-cache", name(self.host_cache)),
            ("--log", self.log.and_then(name)),
            ("--stall-after", self.stall_after.map(|after| after.to_string().into())),
            ("--log-file", log_file.map(OsString::from)),
            ("--metrics-listen", self.metrics_listen.map(|address| address.to_string().into())),
        ];
        let joined = |flag: &str, value: OsString| {
            let mut word = OsString::from(flag);
            word.push("=");
            word.push(value);
            word
        };
        let mut words: Vec<OsString> =
            valued.into_iter().filter_map(|(flag, value)| Some(joined(flag, value?))).collect();
        for (flag, given) in [("--writable", self.writable), ("--growable", self.growable)] {
            words.extend(given.then(|| flag.into()));
        }
        words.push("--".into());
        for path in &self.paths {
            words.push(std::path::absolute(path)?.into());
        }
        Ok(words)
    }
}

#[cfg(test)]
mod test {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn arguments_survive_being_written_as_words() {
        let parse = |words: Vec<OsString>| match Cli::try_parse_from(words).expect("parses").command {
            Command::Export(args) => args,
            other => panic!("no export: {other:?}"),
        };
        let line = "shunt export --format qcow2 -w --growable --queues 3 --queue-depth 4 --sched-idle off --zero-copy on --transport uring --flow served --takeover crash \
            --allow-other --cache none --backing follow --log debug --stall-after 2s --log-file /tmp/log --metrics-listen [::1]:9101 /a /b";
        let first = parse(line.split_ascii_whitespace().map(OsString::from).collect());
        assert_eq!(first.allow_other, AllowOther::On);
        let mut words = vec!["shunt".into(), "export".into()];
        words.extend(first.words().expect("absolute"));
        let second = parse(words);
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        assert!(Cli::try_parse_from(["shunt", "export", "--growable", "/a", "/b"]).is_err());
        assert!(Cli::try_parse_from(["shunt", "export", "-w", "--snapshot", "s", "/a", "/b"]).is_err());
    }

    #[test]
    fn what_an_image_stands_on_is_a_word_or_a_file() {
        let backing = |line: &str| match Cli::try_parse_from(line.split(' ')).expect("parses").command {
            Command::Export(args) => (args.backing(), args.words().expect("absolute")),
            other => panic!("no export: {other:?}"),
        };
        assert_eq!(backing("shunt export /a /b").0, Backing::Auto);
        assert_eq!(backing("shunt export --backing none /a /b").0, Backing::None);
        assert_eq!(backing("shunt export --backing follow /a /b").0, Backing::Follow);
        let (file, words) = backing("shunt export --backing ./none /a /b");
        let here = std::path::absolute("./none").expect("is somewhere");
        assert_eq!(file, Backing::File(here.clone()));
        assert!(words.contains(&format!("--backing={}", here.display()).into()), "{words:?}");
    }

    #[test]
    fn one_path_is_enough_for_nothing() {
        let args = |line: &str| match Cli::try_parse_from(line.split(' ')).expect("parses").command {
            Command::Export(args) => args.image_and_file(),
            other => panic!("no export: {other:?}"),
        };
        assert!(args("shunt export /a").is_err());
        assert_eq!(args("shunt export --format null /a"), Ok(("null".into(), "/a".into())));
        assert_eq!(args("shunt export /a /a"), Ok(("/a".into(), "/a".into())));
        let said = args("shunt export --format null /image /a").expect_err("is not ignored").to_string();
        assert!(said.contains("/image"), "{said}");
    }
}
