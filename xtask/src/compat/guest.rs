//! A virtual machine that runs commands on a kernel, one after the other, each with a time limit.
//!
//! Its root is that of this machine, read-only, with changes in its memory. It tells by lines of its own, which start
//! with a control character, where a command begins and ends. A command that hangs its kernel, or makes it panic, ends the
//! machine; the commands after it run in the next one.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::cpio::Archive;
use super::kernel::Kernel;

const INIT: &str = include_str!("init.sh");

/// How long a machine may take to start; a calm host needs ten seconds.
const LIMIT_OF_START: Duration = Duration::from_secs(180);
/// How much longer than its limit a command may take to be killed.
const GRACE: Duration = Duration::from_secs(30);
/// How many lines of the kernel's log are shown where a machine ends by itself.
const SHOWN: usize = 15;

/// What the kernel logs where something is wrong with it.
const TROUBLE: [&str; 5] = ["WARNING: ", "BUG: ", "Oops: ", "blocked for more than", "Kernel panic"];

/// A command.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) folder: PathBuf,
    /// For sh.
    pub(crate) command: String,
    pub(crate) limit: Duration,
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Code(i32),
    /// Neither it nor the machine's own limit on it ended in time.
    Hung,
    /// The machine ended.
    Died,
}

/// A command that has run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) output: String,
    pub(crate) took: Duration,
}

/// What a line of the machine's output means.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Begins,
    Ends(i32),
    Done,
    Text,
}

/// Runs all commands, and tells of each when it has ended. Returns what is wrong with the kernel's log.
///
/// `room` is a folder for the files of the machine.
///
/// # Errors
/// Where a machine does not start.
pub(crate) fn run(
    kernel: &Kernel,
    jobs: &[Job],
    room: &Path,
    each: &mut dyn FnMut(Ran),
) -> Result<Vec<String>> {
    let (mut ended, mut trouble) = (0, Vec::new());
    let base = fs::read(&kernel.root).with_context(|| kernel.root.display().to_string())?;
    while ended < jobs.len() {
        let rest = &jobs[ended..];
        let mut first = Archive::default();
        first.file("init", INIT.as_bytes());
        first.file("job", script(rest).as_bytes());
        let (root, log) = (room.join("root.cpio"), room.join("kernel.log"));
        fs::write(&root, [base.as_slice(), &first.finish()].concat())?;
        let mut machine = Machine::start(&kernel.image, &root, &log)?;
        let ran = machine.watch(rest, each);
        drop(machine);
        let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
        match ran {
            Ok(count) if count > 0 => ended += count,
            Ok(_) => bail!("{} does not start:\n{}", kernel.release, last_lines(&text, SHOWN)),
            Err(error) => return Err(error),
        }
        trouble.extend(text.lines().filter(|line| is_trouble(line)).map(str::to_owned));
    }
    Ok(trouble)
}

fn is_trouble(line: &str) -> bool {
    TROUBLE.iter().any(|words| line.contains(words))
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// What the machine's shell runs. A command cannot change the shell, and gets no input.
fn script(jobs: &[Job]) -> String {
    let mut text = String::from("exec < /dev/null > /dev/ttyS1 2>&1\n");
    for (name, value) in environment() {
        let _always_works = writeln!(text, "export {name}={}", quoted(&value));
    }
    text += "check() {\n    printf '\\036begins\\n'\n    (cd \"$1\" && exec timeout -k 10 \"$2\" sh -c \"$3\")\n    \
             printf '\\n\\036ends %s\\n' $?\n}\n";
    for job in jobs {
        let folder = quoted(&job.folder.display().to_string());
        let _always_works = writeln!(text, "check {folder} {} {}", job.limit.as_secs(), quoted(&job.command));
    }
    text + "printf '\\036done\\n'\n/run/compat/busybox reboot -f\n"
}

fn environment() -> [(&'static str, String); 5] {
    let path = std::env::var("PATH").unwrap_or_default();
    [
        ("HOME", "/root".to_owned()),
        ("TERM", "dumb".to_owned()),
        ("RUST_BACKTRACE", "0".to_owned()),
        // Of the conformance list: a busy host makes a machine without KVM very slow.
        ("SHUNT_CASE_SECONDS", "240".to_owned()),
        ("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")),
    ]
}

/// One word of a shell.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn meaning(line: &str) -> Line {
    let Some(words) = line.strip_prefix('\u{1e}') else { return Line::Text };
    match words.split_once(' ') {
        None if words == "begins" => Line::Begins,
        None if words == "done" => Line::Done,
        Some(("ends", code)) => code.parse().map_or(Line::Text, Line::Ends),
        _ => Line::Text,
    }
}

/// A running machine, which ends with this.
struct Machine {
    process: Child,
    lines: Receiver<String>,
}

impl Machine {
    fn start(image: &Path, root: &Path, log: &Path) -> Result<Self> {
        // It ends with this program, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max,la57=off"]);
        command.args(["-m", "3072", "-smp", "2", "-nodefaults", "-no-user-config", "-display", "none"]);
        command.arg("-no-reboot").arg("-kernel").arg(image).arg("-initrd").arg(root);
        command.arg("-serial").arg(format!("file:{}", log.display()));
        command.args(["-chardev", "stdio,id=out,signal=off", "-serial", "chardev:out"]);
        command.args(["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"]);
        command.args(["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]);
        command.arg("-append").arg(format!(
            "console=ttyS0 quiet loglevel=5 panic=-1 mitigations=off audit=0 tsc=reliable{}",
            clock().map_or(String::new(), |khz| format!(" tsc_early_khz={khz}"))
        ));
        let errors = fs::File::create(log.with_extension("errors"))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut process = command.spawn().context("cannot start setpriv")?;
        let output = process.stdout.take().context("no output")?;
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n') {
                let Ok(line) = line else { return };
                let text = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if send.send(text).is_err() {
                    return;
                }
            }
        });
        Ok(Self { process, lines })
    }

    /// Waits for the commands. Returns how many ended, the one that ended the machine included.
    fn watch(&mut self, jobs: &[Job], each: &mut dyn FnMut(Ran)) -> Result<usize> {
        let (mut ended, mut since, mut output) = (0, None::<Instant>, String::new());
        let mut until = Instant::now() + LIMIT_OF_START;
        loop {
            let line = self.lines.recv_timeout(until.saturating_duration_since(Instant::now()));
            let end = match line.as_deref().map(|line| (meaning(line), line)) {
                Ok((Line::Begins, _)) => {
                    let job = jobs.get(ended).context("more commands than were asked for")?;
                    (since, until) = (Some(Instant::now()), Instant::now() + job.limit + GRACE);
                    output.clear();
                    continue;
                }
                Ok((Line::Text, line)) => {
                    output += line;
                    output.push('\n');
                    continue;
                }
                Ok((Line::Ends(code), _)) => End::Code(code),
                Ok((Line::Done, _)) => return Ok(ended),
                Err(RecvTimeoutError::Timeout) => End::Hung,
                Err(RecvTimeoutError::Disconnected) => End::Died,
            };
            let is_last = !matches!(end, End::Code(_));
            if let Some(since) = since.take() {
                each(Ran { end, output: std::mem::take(&mut output), took: since.elapsed() });
                ended += 1;
            }
            if is_last {
                return Ok(ended);
            }
            until = Instant::now() + GRACE;
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.process.kill();
        let _waited = self.process.wait();
    }
}

/// The clock that the guest's processor counts, in kHz: the guest's own measurement of it is wrong on a busy host.
fn clock() -> Option<u64> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("bogomips"))?;
    let (whole, rest) = line.split_once(':')?.1.trim().split_once('.')?;
    // Twice the clock in MHz, with two decimal places.
    let hundredths: u64 = format!("{whole}{}", rest.get(..2)?).parse().ok()?;
    Some(hundredths * 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(command: &str, seconds: u64) -> Job {
        Job { folder: "/".into(), command: command.to_owned(), limit: Duration::from_secs(seconds) }
    }

    #[test]
    fn lines_mean_what_the_machine_says() {
        assert_eq!(meaning("\u{1e}begins"), Line::Begins);
        assert_eq!(meaning("\u{1e}ends 124"), Line::Ends(124));
        assert_eq!(meaning("\u{1e}done"), Line::Done);
        for text in ["begins", "ends 1", "", " \u{1e}done", "\u{1e}ends x", "\u{1e}other", "\u{1e}"] {
            assert_eq!(meaning(text), Line::Text, "{text:?}");
        }
    }

    /// The shell of this machine stands for that of a guest.
    fn by_sh(jobs: &[Job]) -> Vec<(i32, String)> {
        let text = script(jobs).replace("> /dev/ttyS1", "").replace("/run/compat/busybox reboot -f", "");
        let output = Command::new("sh").arg("-c").arg(text).output().unwrap();
        let (mut ended, mut said) = (Vec::new(), String::new());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.ends_with("\u{1e}done\n"), "{text}");
        for line in text.lines() {
            match meaning(line) {
                Line::Begins => said.clear(),
                Line::Ends(code) => ended.push((code, said.trim().to_owned())),
                Line::Text => said += line,
                Line::Done => {}
            }
        }
        ended
    }

    #[test]
    fn each_command_has_its_code_its_output_and_its_limit() {
        let folder = tempfile::Builder::new().prefix("it's ").tempdir().unwrap();
        let mut here = job("pwd; cat", 10);
        here.folder = folder.path().to_owned();
        let odd = "printf '%s' \"a'b\"; exit 3";
        let ended = by_sh(&[here, job(odd, 10), job("sleep 60", 1), job("echo err >&2; kill -9 $$", 10)]);
        assert_eq!(ended[0], (0, folder.path().display().to_string()));
        assert_eq!(ended[1], (3, "a'b".to_owned()));
        assert_eq!(ended[2].0, 124);
        assert_eq!(ended[3].0, 137);
        assert_eq!(ended.len(), 4);
    }

    /// A shell stands for the machine.
    fn watch(text: &str, jobs: &[Job]) -> (usize, Vec<Ran>) {
        let mut command = Command::new("sh");
        command.arg("-c").arg(text).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = process.stdout.take().unwrap();
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let mut seen = Vec::new();
        let ended = Machine { process, lines }.watch(jobs, &mut |ran| seen.push(ran)).unwrap();
        (ended, seen)
    }

    #[test]
    fn a_machine_that_ends_ends_its_command() {
        let jobs = [job("", 5), job("", 5)];
        let (ended, seen) = watch("printf 'x\\n\\036begins\\na\\n\\036ends 0\\n\\036begins\\nb\\n'", &jobs);
        assert_eq!(ended, 2);
        assert_eq!((&seen[0].end, seen[0].output.as_str()), (&End::Code(0), "a\n"));
        assert_eq!((&seen[1].end, seen[1].output.as_str()), (&End::Died, "b\n"));
        let (ended, seen) = watch("echo 'no root'", &jobs);
        assert_eq!((ended, seen.len()), (0, 0));
        let (ended, seen) = watch("printf '\\036begins\\n\\036ends 1\\n'", &jobs);
        assert_eq!((ended, seen.len()), (1, 1));
    }

    #[test]
    fn trouble_in_the_kernel_s_log_is_found() {
        assert!(is_trouble("[    4.1] WARNING: CPU: 0 PID: 1 at fs/fuse/dev.c:1 fuse_x+0x1/0x2"));
        assert!(is_trouble("[    4.1] BUG: kernel NULL pointer dereference, address: 0"));
        assert!(!is_trouble("[    0.1] Warning: unmaintained hardware"));
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
    }

    #[test]
    fn the_clock_is_read() {
        if fs::read_to_string("/proc/cpuinfo").unwrap().contains("bogomips") {
            assert!((100_000..20_000_000).contains(&clock().unwrap()));
        }
    }
}
