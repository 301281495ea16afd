//! A program that is to go on with a mount: whether it may be run, and whether it can.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use shuntfs_keeper::{Layouts, SUITS};
use shuntfs_sys::program::Program;
use shuntfs_sys::{FsMagic, filesystem_of, memory, stat_of, trusted};

use crate::failure::Failure;
use crate::mounts::shown;
use crate::run::output_failure;

/// The word that asks a program which layouts it reads. It looks like an option, so that a program that is none of ours does nothing.
pub(crate) const LAYOUTS_WORD: &str = "--takeover-layouts";

/// How long it may take to say so.
const LIMIT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);
/// More is no answer of ours.
const ANSWER_MAX: usize = 4096;

const EXECUTABLE: u32 = 0o111;
const SET_IDS: u32 = 0o6000;

/// Prints which layouts this program reads.
///
/// # Errors
/// Those of printing.
pub(crate) fn print_layouts(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", serde_json::to_string(&Layouts::here())?)
}

/// Prints what a trial that went well prints, and nothing else.
///
/// # Errors
/// Those of printing.
pub(crate) fn print_suits() -> Result<(), Failure> {
    let mut out = io::stdout();
    out.write_all(SUITS.as_bytes()).and_then(|()| out.flush()).map_err(|error| output_failure(&error))
}

/// Takes hold of the program at `path`, which nobody but root and the user of this process can change, and asks which layouts it reads.
///
/// # Errors
/// Why it is not run.
pub(crate) fn hold(path: &Path) -> Result<OwnedFd, String> {
    let name = shown(path);
    let of = |why: &str| format!("{name} is not used: {why}");
    if !path.is_absolute() {
        return Err(of("its path does not begin at the root"));
    }
    let file = trusted::hold(path).map_err(|error| of(&error.to_string()))?;
    let stat = stat_of(&file).map_err(|error| of(&io::Error::from(error).to_string()))?;
    if !stat.is_file() {
        return Err(of("it is not a file"));
    }
    if stat.mode & EXECUTABLE == 0 {
        return Err(of("it is not executable"));
    }
    if stat.mode & SET_IDS != 0 {
        return Err(of("it is set-uid or set-gid"));
    }
    // A user may have mounted it. While no server lives, this very mount would have to supply the program.
    match filesystem_of(&file) {
        Ok(on) if on.magic == FsMagic::FUSE => return Err(of("it is on a FUSE file system")),
        Ok(_) => {}
        Err(error) => return Err(of(&io::Error::from(error).to_string())),
    }
    let program = Program::of(file);
    let layouts = layouts(&program).map_err(|why| of(&why))?;
    layouts.missing().map_or_else(|| Ok(program.into_fd()), |missing| Err(of(&missing)))
}

/// Which layouts a program reads, as it says.
fn layouts(program: &Program) -> Result<Layouts, String> {
    let failed = |error: io::Error| format!("it cannot be started: {error}");
    let said = memory::file_in_memory(c"shunt-layouts").map_err(|error| failed(error.into()))?;
    let words = ["shunt", LAYOUTS_WORD].map(Into::into);
    let mut child = program.start(&words, Vec::new(), &said).map_err(failed)?;
    if !ends_well(&mut child) {
        return Err("it does not say which mounts it can continue, so it is no such version of shunt".into());
    }
    let mut answer = vec![0; ANSWER_MAX];
    let len = said.read_at(&mut answer, 0).map_err(failed)?;
    serde_json::from_slice(&answer[..len]).map_err(|_| "it is not shunt".into())
}

fn ends_well(child: &mut Child) -> bool {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(LOOK),
            Err(_) => break,
        }
    }
    let _gone = child.kill();
    let _gone = child.wait();
    false
}

#[cfg(test)]
mod test {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_others_can_change_or_is_no_program_of_ours_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, "text").expect("writes");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("is ours");
            path
        };
        let refused = |path: &Path, words: &str| {
            let why = hold(path).expect_err(words);
            assert!(why.contains(words), "{why}");
            assert!(why.starts_with(&shown(path)), "{why}");
        };
        refused(Path::new("shunt"), "does not begin at the root");
        refused(&folder.path().join("none"), "No such file");
        refused(folder.path(), "not a file");
        refused(&make("plain", 0o644), "not executable");
        refused(&make("open", 0o777), "others may write to");
        refused(&make("set", 0o4755), "set-uid");
        refused(&make("text", 0o755), "cannot be started");
        let others = folder.path().join("others");
        fs::create_dir(&others).expect("makes");
        fs::set_permissions(&others, fs::Permissions::from_mode(0o777)).expect("is ours");
        symlink("/bin/true", others.join("link")).expect("links");
        refused(&others.join("link"), "others may write to");
        let link = folder.path().join("link");
        symlink("/bin/true", &link).expect("links");
        // Ours to name; what it leads to is none of ours.
        refused(&link, "not shunt");
        refused(Path::new("/bin/false"), "no such version of shunt");
    }
}
