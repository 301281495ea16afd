//! Runs fio and reads what it says.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::case::{Amount, Engine, Fio};
use crate::process;
use crate::stop::Stop;

/// The large file of a job; fio puts the job's number in the place of its own word.
const LARGE_FILE_FORMAT: &str = "large.$jobnum";

/// Returns the name of the large file that a job works on.
pub(crate) fn large_file(job: u32) -> String {
    LARGE_FILE_FORMAT.replace("$jobnum", &job.to_string())
}

/// Makes the command of a data case in a folder with the large files.
pub(crate) fn command(fio: &Fio, folder: &Path, amount: &Amount) -> Command {
    let mut command = base(folder);
    let (engine, depth) = match fio.engine {
        Engine::Psync => ("psync", 1),
        Engine::Mmap => ("mmap", 1),
        Engine::Libaio { depth } => ("libaio", depth),
    };
    command.arg("--name=data");
    command.arg(format!("--ioengine={engine}"));
    command.arg(format!("--iodepth={depth}"));
    command.arg(format!("--rw={}", fio.pattern.as_fio()));
    command.arg(format!("--bs={}k", fio.block.0));
    command.arg(format!("--direct={}", u8::from(fio.direct)));
    command.arg(format!("--numjobs={}", fio.jobs));
    command.arg(format!("--filename_format={LARGE_FILE_FORMAT}"));
    command.arg(format!("--size={}", amount.file_len));
    command.arg(format!("--runtime={}", amount.runtime.as_secs()));
    command.args(["--allow_file_create=0", "--randrepeat=1"]);
    command
}

/// Makes a command with what every case needs, in fio's own words.
pub(crate) fn base(folder: &Path) -> Command {
    let mut command = Command::new("fio");
    command.arg(format!("--directory={}", folder.display()));
    command.args(["--output-format=json", "--group_reporting", "--fallocate=none"]);
    command
}

/// What fio counted, all jobs together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counted {
    /// Operations a second.
    pub(crate) operations: f64,
    /// Bytes that were read.
    pub(crate) read_len: u64,
}

/// Runs fio and returns what it counted.
///
/// # Errors
/// When fio fails, exceeds its time limit, or says nothing that can be read.
pub(crate) fn run(command: &mut Command, amount: &Amount, stop: &Stop) -> Result<Counted> {
    let ended = process::run(command, amount.limit, stop)?;
    if !ended.status.success() {
        bail!("fio ended with {}: {}", ended.status, complaint(&ended.stdout, &ended.stderr));
    }
    counted(&ended.stdout)
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i32,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    iops: f64,
    io_bytes: u64,
}

/// fio complains on either stream, in lines that begin with its name, around its JSON.
fn complaint(stdout: &str, stderr: &str) -> String {
    let lines = stderr.lines().chain(stdout.lines()).filter(|line| line.starts_with("fio:"));
    process::last_lines(&lines.collect::<Vec<_>>().join("\n"), stderr)
}

fn counted(output: &str) -> Result<Counted> {
    // fio prints notes in front of the object.
    let from = output.find('{').context("fio printed no JSON")?;
    let output: Output = serde_json::from_str(&output[from..]).context("fio's JSON")?;
    let mut sum = Counted::default();
    for job in output.jobs {
        if job.error != 0 {
            bail!("fio: {}", std::io::Error::from_raw_os_error(job.error));
        }
        sum.operations += job.read.iops + job.write.iops;
        sum.read_len += job.read.io_bytes;
    }
    if sum.operations <= 0.0 {
        bail!("fio counted no operation");
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_all_jobs_are_added() {
        let text = r#"note: something
            {"jobs": [
                {"error": 0, "read": {"iops": 10.5, "io_bytes": 4096}, "write": {"iops": 0.0, "io_bytes": 0}},
                {"error": 0, "read": {"iops": 2.0, "io_bytes": 512}, "write": {"iops": 1.0, "io_bytes": 7}}]}"#;
        assert_eq!(counted(text).unwrap(), Counted { operations: 13.5, read_len: 4608 });
    }

    #[test]
    fn an_error_is_named() {
        let text = r#"{"jobs": [
            {"error": 28, "read": {"iops": 1, "io_bytes": 1}, "write": {"iops": 0, "io_bytes": 0}}]}"#;
        assert!(counted(text).unwrap_err().to_string().contains("No space left"));
        assert!(counted("nothing").is_err());
        assert!(counted(r#"{"jobs": []}"#).is_err());
    }

    #[test]
    fn complaints_are_found_around_the_json() {
        assert_eq!(complaint("fio: first\n{\n}\n", "noise\n"), "fio: first");
        assert_eq!(complaint("{\n}\n", "noise\n"), "noise");
    }
}
