//! Programs that say that they can continue a mount of shunt, and then do not, each in a way of its own: the tests of `shunt upgrade` make
//! copies of this one, and the name of the copy is the way.

use std::fs::DirEntry;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use shunt::control::answer_upgrade;
use shuntfs_keeper::{Attendant, Layouts, Limits, NOTE_WORD, Passed, SUITS, Seat, TRIAL_WORD, keep_passed};
use shuntfs_sys::event::wait_readable;
use shuntfs_sys::spawn::inherited_fd;

/// Longer than anybody waits.
const LONG: Duration = Duration::from_secs(120);

/// Tells whoever asked for it that it serves, once it says so, and does nothing besides.
struct Polite;

impl Attendant for Polite {
    fn answer(&mut self, asker: OwnedFd, outcome: Result<(), String>) {
        let _nobody_waits = answer_upgrade(asker, outcome);
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let program = std::env::current_exe().unwrap_or_default();
    let way = program.file_name().unwrap_or_default().to_string_lossy();
    let note = words.iter().find_map(|word| word.strip_prefix(NOTE_WORD)?.strip_prefix('=')?.parse().ok());
    let is_trial = words.iter().any(|word| word == TRIAL_WORD);
    match (note, is_trial, &*way) {
        (None, _, "newer") => say(r#"{"notes":[1],"handovers":[1],"states":[77]}"#),
        (None, ..) => say(&serde_json::to_string(&Layouts::here()).unwrap_or_default()),
        (_, true, "exits") => ExitCode::from(7),
        (_, true, "hangs") => {
            sleep(LONG);
            ExitCode::SUCCESS
        }
        (_, true, "lies") => say("it works"),
        (_, true, "looks") => say(&open_files()),
        (_, true, _) => say(SUITS.trim_end()),
        (Some(note), false, way) => go_on(note, way),
    }
}

fn say(line: &str) -> ExitCode {
    let _best_effort = writeln!(io::stdout(), "{line}");
    ExitCode::SUCCESS
}

/// What its descriptors lead to.
fn open_files() -> String {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.map(|link| link.display().to_string()).collect::<Vec<_>>().join(" ")
}

/// Says that it serves, and dies of the first request. It does not read that: a FORGET that was read is not sent again.
fn crash(seat: &Seat<'_>) -> ! {
    let said = seat.ready();
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let is_device =
        |entry: &DirEntry| std::fs::read_link(entry.path()).is_ok_and(|to| to == Path::new("/dev/fuse"));
    let number = entries.filter(is_device).find_map(|entry| entry.file_name().to_str()?.parse().ok());
    if let (Ok(()), Some(device)) = (said, number.and_then(|number| inherited_fd(number).ok())) {
        while !wait_readable(&[device.as_fd()], None).is_ok_and(|is_readable| is_readable) {}
    }
    std::process::abort()
}

/// It has taken the place of the program before, and callers wait.
fn go_on(note: i32, way: &str) -> ExitCode {
    let Ok(passed) = Passed::take(note) else { return ExitCode::from(2) };
    if way == "begins-not" {
        let _no_way_back = passed.returns("it does not want to");
        return ExitCode::from(3);
    }
    let limits = Limits { ready: Duration::from_secs(1), ..Limits::default() };
    let serve = |seat: &Seat<'_>| -> Result<(), String> {
        match way {
            "fails" => Err("its server does not want to".to_owned()),
            "late" => {
                sleep(LONG);
                Ok(())
            }
            "crashes" => crash(seat),
            _ => std::process::abort(),
        }
    };
    let _no_way_back = keep_passed(passed, &limits, &mut Polite, serve);
    ExitCode::from(4)
}
