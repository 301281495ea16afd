//! Programs that are run by a descriptor: what was checked is what runs, whatever its path leads to by then.
//!
//! # Safety
//! The words and the environment of execveat(2) are strings with a NUL at their end, in arrays with a null pointer at theirs, and
//! live until the call returns. What runs between fork and exec makes system calls alone.
#![expect(unsafe_code, reason = "a program takes the place of this one, with descriptors that stay open")]

use std::ffi::{CString, OsString, c_char};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::ptr;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::{OsError, Result, raw};

/// A program, held by a descriptor that is closed on exec.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// The program of a descriptor, which may be `O_PATH`.
    #[must_use]
    pub fn of(file: OwnedFd) -> Self {
        Self(file)
    }

    /// The one that this process runs, whether its file has a name yet or not.
    ///
    /// # Errors
    /// ENOENT where procfs is not mounted, EMFILE.
    pub fn running() -> Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, c"/proc/self/exe", flags, Mode::empty()).map(Self)
    }

    /// Starts it as a child with these words, its own name first, and with the descriptors `kept` beyond those that are not closed on
    /// exec. Nothing comes to its input, and what it prints goes to `output`.
    ///
    /// # Errors
    /// ENOEXEC for what is no program, EACCES, and those of fork(2).
    pub fn start(&self, words: &[OsString], kept: Vec<RawFd>, output: &File) -> io::Result<Child> {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        if let Some((name, words)) = words.split_first() {
            command.arg0(name).args(words);
        }
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        // The child is not to speak for this process.
        command.env_remove("NOTIFY_SOCKET");
        // Without descriptors to pass on it is started without a copy of this process: after one, all of its pages have to be touched again
        // before they can be written to, and a kernel that copies a request into one of a server that is being killed fails that request.
        if !kept.is_empty() {
            let pass =
                move || -> io::Result<()> { Ok(kept.iter().try_for_each(|number| pass_on(*number, true))?) };
            // SAFETY: it makes one system call for each number, on the table of the child alone, which is a copy.
            unsafe { command.pre_exec(pass) };
        }
        command.spawn()
    }

    /// Runs it instead of this process, with these words, its own name first. Descriptors that are not closed on exec stay open. Blocked
    /// signals stay blocked, those that wait included. Returns only where that fails, and nothing has happened then.
    ///
    /// The process must have one thread: others would be ended.
    #[must_use]
    pub fn replace_this(&self, words: Vec<OsString>) -> OsError {
        let environment = std::env::vars_os().map(|(name, value)| {
            let mut pair = name;
            pair.push("=");
            pair.push(value);
            pair
        });
        let (Some(words), Some(environment)) = (strings(words), strings(environment.collect())) else {
            return OsError::INVAL;
        };
        let (words, environment) = (pointers(&words), pointers(&environment));
        let (number, empty, flags) = (self.0.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH);
        let (argv, envp) = (words.as_ptr(), environment.as_ptr());
        // SAFETY: both arrays and their strings live until the call returns, if it does.
        let returned = unsafe { libc::syscall(libc::SYS_execveat, number, empty, argv, envp, flags) };
        raw::check(returned).err().unwrap_or(OsError::IO)
    }

    /// Whether both are the same file. Where that cannot be asked, they are not.
    #[must_use]
    pub fn is_same_file(&self, other: &Self) -> bool {
        let file = |program: &Self| {
            let found = rustix::fs::fstat(&program.0).ok()?;
            Some((found.st_dev, found.st_ino))
        };
        file(self).is_some_and(|own| file(other) == Some(own))
    }

    /// Its descriptor.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `None` where one has a NUL in it.
fn strings(words: Vec<OsString>) -> Option<Vec<CString>> {
    words.into_iter().map(|word| CString::new(word.into_vec()).ok()).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Has an open descriptor stay open in a program that takes the place of this one, or not.
///
/// # Errors
/// EBADF where it is not open.
pub fn pass_on(number: RawFd, is_passed: bool) -> Result<()> {
    if number < 0 {
        return Err(OsError::BADF);
    }
    // SAFETY: the number is not -1, and the borrow ends within this function, which changes only what an exec does with it.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(fd, if is_passed { FdFlags::empty() } else { FdFlags::CLOEXEC })
}

#[cfg(test)]
mod test {
    use std::io::{Read, Seek, SeekFrom};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::memory::file_in_memory;

    fn program(path: &str) -> Program {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Program::of(rustix::fs::openat(CWD, path, flags, Mode::empty()).expect("is there"))
    }

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn text_of(mut file: &File) -> String {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).expect("reads");
        text
    }

    #[test]
    fn a_program_is_known_by_its_file() {
        let running = Program::running().expect("procfs");
        let own = std::env::current_exe().expect("is known");
        assert!(running.is_same_file(&program(own.to_str().expect("UTF-8"))), "by another descriptor");
        assert!(!running.is_same_file(&program("/bin/sh")));
    }

    #[test]
    fn a_child_has_what_it_is_given() {
        let output = file_in_memory(c"output").expect("memory");
        let (open, closed) =
            (File::open("/dev/null").expect("opens"), File::open("/dev/null").expect("opens"));
        let is_open = |file: &File| format!("test -e /proc/$$/fd/{}; echo $?", file.as_raw_fd());
        let script = format!("echo $0; {}; {}", is_open(&open), is_open(&closed));
        let kept = vec![open.as_raw_fd()];
        let started = program("/bin/sh").start(&words(&["name", "-c", &script, "zero"]), kept, &output);
        assert!(started.expect("starts").wait().expect("ends").success());
        drop(closed);
        assert_eq!(text_of(&output), "zero\n0\n1\n");
    }

    #[test]
    fn what_is_no_program_is_not_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("text");
        std::fs::write(&path, "no program").expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("is ours");
        let output = file_in_memory(c"output").expect("memory");
        let started = program(path.to_str().expect("plain")).start(&words(&["name"]), Vec::new(), &output);
        assert_eq!(started.expect_err("is refused").raw_os_error(), Some(OsError::NOEXEC.raw_os_error()));
        assert_eq!(pass_on(-1, true), Err(OsError::BADF));
        assert_eq!(pass_on(999_999, true), Err(OsError::BADF));
    }

    /// In a process of its own: it becomes another one.
    #[test]
    fn a_process_becomes_another_program_with_its_descriptors() {
        let output = file_in_memory(c"output").expect("memory");
        let number = output.as_raw_fd();
        let shell = program("/bin/sh");
        // SAFETY: the child makes system calls and allocates, which a fork of the C library allows, and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let passed = pass_on(number, true);
            let script = format!("echo $0 > /proc/$$/fd/{number}");
            let failed = shell.replace_this(words(&["name", "-c", &script, "other"]));
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(passed.is_ok() && failed == OsError::IO) + 1) };
        }
        let mut status = 0;
        // SAFETY: `status` is an int, and the child is ours.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status), (child, 0));
        assert_eq!(text_of(&output), "other\n");
    }
}
