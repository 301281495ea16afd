//! From the words of a command line to a command, and from its end to an exit code.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, HelperArgs};
use crate::failure::{Failure, one_line};
use crate::mounts::shown;
use crate::{
    bench, branches, doctor, explain, export, list, man, metrics, migrate, mount, mover, rules, seal, status,
    top, trace, umount, upgrade, why,
};

/// Runs the command that these words ask for, the program's own name first.
#[must_use]
pub fn run(words: Vec<OsString>) -> ExitCode {
    if is_helper(words.first()) {
        return run_helper(&words);
    }
    if let [_, word] = &words[..]
        && word == upgrade::candidate::LAYOUTS_WORD
    {
        return match upgrade::candidate::print_layouts(&mut io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let words = with_command(words);
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return usage::<Cli>(error, &words, 2),
    };
    if let Command::Bench(args) = &cli.command {
        return bench::run(args);
    }
    let mut out = io::stdout().lock();
    let outcome =
        dispatch(cli.command, &mut out).and_then(|()| out.flush().map_err(|error| output_failure(&error)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            fail("shunt", &failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

/// The failure of a command whose output cannot be written.
pub(crate) fn output_failure(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        // `shunt list | head` is not worth a complaint.
        std::process::exit(0);
    }
    Failure::new(format!("cannot print: {error}"))
}

/// Writes one line to standard error, and ignores that it may be closed. Control characters are shown and not obeyed: the text may quote
/// file names, and what the server of another user says.
pub(crate) fn complain(text: &str) {
    let _closed = writeln!(io::stderr(), "{}", one_line(text));
}

/// Writes a failure, whose lines are clean, to standard error.
fn fail(program: &str, failure: &Failure) {
    let _closed = writeln!(io::stderr(), "{program}: {failure}");
}

fn dispatch(command: Command, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::Mount(args) => mount::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Umount(args) => umount::run(&args, out),
        Command::Upgrade(args) => upgrade::run(&args, out),
        Command::List(args) => list::run(&args, out),
        Command::Status(args) => status::run(&args, out),
        Command::Trace(args) => trace::run(&args, out),
        Command::Top(args) => top::run(&args, out),
        Command::Metrics(args) => metrics::run(&args, out),
        Command::Branches(args) => branches::run(&args, out),
        Command::Mover(args) => mover::run(&args, out),
        Command::Why(args) => why::run(&args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Migrate(args) => migrate::run(&args, out),
        Command::Rules(args) => rules::run(&args, out),
        Command::Seal(args) => seal::run(&args, out),
        Command::Doctor(args) => doctor::run(&args, out),
        // Handled before: it has an exit code of its own.
        Command::Bench(_) => Ok(()),
        Command::Completions(args) => man::completions(args.shell, out),
        Command::Man(args) => man::pages(args.out.as_deref(), out),
    }
}

fn run_helper(words: &[OsString]) -> ExitCode {
    let args = match HelperArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => return usage::<HelperArgs>(error, words, 1),
    };
    match mount::run_helper(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            fail("mount.fuse.shunt", &failure);
            ExitCode::from(failure.helper_exit_code())
        }
    }
}

/// Says what is wrong with words, or what was asked for. Words may be names that a shell found, and hold anything.
fn usage<P: Parser>(error: clap::Error, words: &[OsString], code: u8) -> ExitCode {
    let clean: Vec<OsString> = words.iter().map(|word| shown(word).into()).collect();
    if !error.use_stderr() {
        let _closed = error.print();
        return ExitCode::SUCCESS;
    }
    if clean == words {
        let _closed = error.print();
    } else {
        // With control characters written out they are wrong in the same way, or else the text is cleaned line by line.
        let error = P::try_parse_from(&clean).err().unwrap_or(error);
        error.render().to_string().lines().for_each(complain);
    }
    ExitCode::from(code)
}

/// Whether mount(8) called, by a link to the program at `/sbin/mount.fuse.shunt` or `/sbin/mount.shunt`.
fn is_helper(name: Option<&OsString>) -> bool {
    let name = name.and_then(|name| Path::new(name).file_name());
    name.is_some_and(|name| name == "mount.fuse.shunt" || name == "mount.shunt")
}

/// Commands of `shunt seal` that were commands of `shunt`, and still work as such.
const MOVED_TO_SEAL: [&str; 6] = ["verify", "show", "digest", "sign", "key", "trust"];

/// mount.fuse3(8) calls `shunt SRC MNT -o OPTIONS`, without a command. A first word with a slash in it is no
/// command, so it is taken for SRC. A command that has moved is looked up where it is now.
pub(crate) fn with_command(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_path = |word: &OsStr| word.as_bytes().contains(&b'/') && !word.as_bytes().starts_with(b"-");
    if words.get(1).is_some_and(|word| is_path(word)) {
        words.insert(1, "mount".into());
    }
    let at = if words.get(1).is_some_and(|word| word == "help") { 2 } else { 1 };
    if words.get(at).is_some_and(|word| MOVED_TO_SEAL.iter().any(|moved| word == moved)) {
        words.insert(at, "seal".into());
    }
    words
}

#[cfg(test)]
mod test {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_path_in_place_of_a_command_means_mount() {
        assert_eq!(with_command(words("shunt /a /b -o ro")), words("shunt mount /a /b -o ro"));
        assert_eq!(with_command(words("shunt ./a b")), words("shunt mount ./a b"));
        for line in ["shunt mount /a /b", "shunt", "shunt -o/x", "shunt mout /a /b", "shunt --help"] {
            assert_eq!(with_command(words(line)), words(line));
        }
    }

    #[test]
    fn commands_that_moved_are_found_where_they_are_now() {
        for moved in MOVED_TO_SEAL {
            let typed = format!("shunt {moved} a");
            assert_eq!(with_command(words(&typed)), words(&format!("shunt seal {moved} a")));
            assert_eq!(
                with_command(words(&format!("shunt help {moved}"))),
                words(&format!("shunt help seal {moved}"))
            );
            let definition = crate::cli::definition();
            let seal = definition.find_subcommand("seal").expect("is one");
            assert!(seal.find_subcommand(moved).is_some() && definition.find_subcommand(moved).is_none());
        }
        for line in ["shunt seal verify", "shunt mount verify key", "shunt help seal"] {
            assert_eq!(with_command(words(line)), words(line));
        }
    }

    #[test]
    fn the_mount_helper_is_known_by_its_name() {
        for (name, helper) in [
            ("/sbin/mount.fuse.shunt", true),
            ("mount.shunt", true),
            ("shunt", false),
            ("/x/mount.shunt/shunt", false),
        ] {
            assert_eq!(is_helper(Some(&name.into())), helper, "{name}");
        }
        assert!(!is_helper(None));
    }
}
