//! The exit codes of `docs/options.md`, which are the same for all commands.

mod common;

use std::fs;
use std::process::Command;

use common::{Ran, SHUNT, run, shunt};

const DONE: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;

/// Every command, as the words that lead to it.
fn commands() -> Vec<Vec<String>> {
    fn walk(command: &clap::Command, path: &[String], all: &mut Vec<Vec<String>>) {
        for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
            let path = [path, &[one.get_name().to_owned()]].concat();
            walk(one, &path, all);
            all.push(path);
        }
    }
    let mut all = Vec::new();
    walk(&shunt::cli::definition(), &[], &mut all);
    all
}

#[test]
fn help_is_done_and_an_unknown_flag_is_a_wrong_command_line() {
    let all = commands();
    assert!(all.len() > 50, "{all:?}");
    // The bench is another program, which may not be built yet; words.rs has how it is started.
    for command in all.into_iter().filter(|command| *command != ["bench"]) {
        let with = |flag: &str| shunt(command.iter().map(String::as_str).chain([flag]));
        let help = with("--help");
        assert_eq!((help.code, help.err.as_str()), (Some(DONE), ""), "{command:?}: {help:?}");
        // The words of `migrate mergerfs` are another program's, so `-o` with nothing behind it is wrong there.
        let wrong = with("--no-such-flag");
        assert_eq!((wrong.code, wrong.out.as_str()), (Some(USAGE), ""), "{command:?}: {wrong:?}");
        assert!(!wrong.err.is_empty(), "{command:?}");
    }
}

/// What is run, and its code.
const TABLE: &[(i32, &str)] = &[
    // Done, and a question whose answer is yes.
    (DONE, "--version"),
    (DONE, "list"),
    (DONE, "list --json"),
    (DONE, "completions zsh"),
    (DONE, "man"),
    (DONE, "seal key new key"),
    (DONE, "seal plain/file"),
    (DONE, "seal digest plain/file"),
    (DONE, "seal sign plain/file --key key"),
    (DONE, "seal show sealed"),
    (DONE, "seal verify sealed"),
    (DONE, "seal trust add trust key.pub"),
    (DONE, "seal trust list trust"),
    (DONE, "verify sealed"),
    (DONE, "rules check good"),
    (DONE, "rules show good"),
    (DONE, "explain place --minfreespace 0 sealed:plain x"),
    (DONE, "metrics"),
    (DONE, "top --once -n 0.1s"),
    (DONE, "migrate mergerfs /a:/b /m mergerfs category.create=mfs 0 0"),
    // It could not be done, or the answer is no.
    (FAILED, "mount gone plain"),
    (FAILED, "export gone shown"),
    (FAILED, "umount plain"),
    (FAILED, "status plain"),
    (FAILED, "trace plain"),
    (FAILED, "top --once plain"),
    (FAILED, "metrics plain"),
    (FAILED, "branches list plain"),
    (FAILED, "mover status plain"),
    (FAILED, "why plain/file"),
    (FAILED, "explain read plain/file"),
    (FAILED, "explain place gone x"),
    (FAILED, "migrate mergerfs /a:/b /m mergerfs link_cow=true 0 0"),
    (FAILED, "rules check bad"),
    (FAILED, "rules check good bad"),
    (FAILED, "rules check gone"),
    (FAILED, "rules show bad"),
    (FAILED, "seal gone"),
    (FAILED, "seal plain --key gone"),
    (FAILED, "seal digest gone"),
    (FAILED, "seal sign gone --key key"),
    (FAILED, "seal show plain"),
    (FAILED, "seal verify changed"),
    (FAILED, "seal verify sealed plain"),
    (FAILED, "seal verify sealed --trust key.pub"),
    (FAILED, "seal key show plain/file"),
    (FAILED, "seal trust list gone"),
    (FAILED, "man --out /proc/no"),
    // The command line is wrong.
    (USAGE, "mount plain"),
    (USAGE, "mount sealed plain -o nonsense"),
    (USAGE, "mount sealed plain --minfreespace 4X"),
    (USAGE, "mount sealed plain --trust key.pub"),
    (USAGE, "export --format null a b"),
    (USAGE, "umount"),
    (USAGE, "explain place sealed ."),
    (USAGE, "seal"),
    (USAGE, "seal digest sealed --block-size 3"),
    (USAGE, "seal verify sealed --threshold 2"),
    (USAGE, "seal key"),
    (USAGE, "top -n 0"),
    (USAGE, "trace plain --slower-than fast"),
    (USAGE, "migrate mergerfs nonsense"),
    (USAGE, "completions tcsh"),
];

#[test]
fn each_command_has_the_codes_of_the_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let at =
        |words: &str| -> Ran { run(Command::new(SHUNT).args(words.split(' ')).current_dir(folder.path())) };
    for tree in ["sealed", "changed", "plain"] {
        fs::create_dir(folder.path().join(tree)).expect("makes");
        fs::write(folder.path().join(tree).join("file"), tree).expect("writes");
    }
    for (name, text) in [("good", "[[rule]]\npath = 'a'\nhide = true\n"), ("bad", "[[rule]]\npath = 1\n")] {
        fs::write(folder.path().join(name), text).expect("writes");
    }
    at("seal sealed").ok();
    at("seal changed").ok();
    fs::write(folder.path().join("changed/file"), "!").expect("writes");
    for &(code, words) in TABLE {
        let ran = at(words);
        assert_eq!(ran.code, Some(code), "{words}: {ran:?}");
        assert!(code == DONE || !ran.err.is_empty(), "{words}: {ran:?}");
    }
}

/// Who reads no further has read enough.
#[test]
fn output_that_is_not_read_is_done_and_output_that_cannot_be_written_is_not() {
    let script = format!("{SHUNT} completions bash | true; {SHUNT} completions bash > /dev/full; echo $?");
    let ran = run(Command::new("sh").arg("-c").arg(script));
    assert_eq!(ran.out, "1\n", "{ran:?}");
    assert!(ran.err.starts_with("shunt: cannot print: "), "{ran:?}");
    let piped = format!("set -o pipefail; {SHUNT} completions bash | head -n 1 > /dev/null");
    assert_eq!(run(Command::new("bash").arg("-c").arg(piped)).code, Some(DONE));
}
