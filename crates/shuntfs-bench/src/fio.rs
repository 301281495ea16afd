//! Runs fio and reads what it says.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::case::{Amount, Engine, Fio, Pattern};
use crate::process;
use crate::stop::Stop;

/// The large file of a job; fio puts the job's number instead of its own word.
const LARGE_FILE_FORMAT: &str = "large.$jobnum";

/// Returns the name of the large file that a job works on.
pub(crate) fn large_file(job: u32) -> String {
    LARGE_FILE_FORMAT.replace("$jobnum", &job.to_string())
}

/// Makes the command of a data case; the folder has the large files, of which one may be shared by all jobs.
pub(crate) fn command(fio: &Fio, folder: &Path, shared: &Path, amount: &Amount) -> Command {
    let mut command = base();
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
    if fio.shared {
        command.arg(format!("--filename={}", shared.display()));
        command.arg(format!("--size={}", amount.file_len));
    } else {
        command.arg(format!("--directory={}", folder.display()));
        command.arg(format!("--filename_format={LARGE_FILE_FORMAT}"));
        command.arg(format!("--size={}", amount.file_len_of(fio.jobs)));
    }
    command.arg(format!("--runtime={}", amount.runtime.as_secs()));
    command.args(["--allow_file_create=0", "--randrepeat=1"]);
    command
}

/// Returns whether a case writes.
pub(crate) const fn writes(fio: &Fio) -> bool {
    matches!(fio.pattern, Pattern::Write | Pattern::RandWrite)
}

/// What a case wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// What fills each block; no other sample has the same.
    mark: [u8; Self::MARK_LEN],
    /// Bytes.
    pub(crate) len: u64,
}

impl Written {
    const MARK_LEN: usize = 8;

    /// Has a command fill what it writes with a new mark.
    pub(crate) fn by(command: &mut Command) -> Self {
        let mark = std::array::from_fn(|_| u8::try_from(fastrand::lowercase()).unwrap_or(b'x'));
        command.arg(format!("--buffer_pattern=\"{}\"", String::from_utf8_lossy(&mark)));
        // fio would put other bytes into each block.
        command.arg("--scramble_buffers=0");
        Self { mark, len: 0 }
    }

    /// Checks that the lower files have as many blocks of this mark as were written.
    ///
    /// # Errors
    /// When there are fewer, or more.
    pub(crate) fn verify(&self, fio: &Fio, folder: &Path) -> Result<()> {
        let block = self.mark.repeat(usize::try_from(fio.block.0)? * 1024 / Self::MARK_LEN);
        let files = if fio.shared { 1 } else { fio.jobs };
        let mut found = 0;
        for job in 0..files {
            found += blocks_like(&block, &folder.join(large_file(job)))?;
        }
        let written = self.len / u64::try_from(block.len())?;
        let depth = if let Engine::Libaio { depth } = fio.engine { depth } else { 1 };
        // Each job writes each block of a file once; what is in flight at its end may not be counted.
        let times = u64::from(if fio.shared { fio.jobs } else { 1 });
        let uncounted = u64::from(depth * fio.jobs);
        if found * times < written || found > written + uncounted {
            bail!("{found} blocks of the lower files have what was written, and {written} were written");
        }
        Ok(())
    }
}

fn blocks_like(block: &[u8], path: &Path) -> Result<u64> {
    /// Read at once.
    const PIECE: usize = 1 << 20;
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut piece = vec![0; block.len() * (PIECE / block.len()).max(1)];
    let mut found = 0;
    loop {
        match file.read_exact(&mut piece) {
            Ok(()) => {}
            // Large files are whole numbers of MiB, as pieces are.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(found),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
        found += u64::try_from(piece.chunks_exact(block.len()).filter(|chunk| *chunk == block).count())?;
    }
}

/// Makes a command with what every case needs, in fio's own words.
pub(crate) fn base() -> Command {
    let mut command = Command::new("fio");
    command.args(["--output-format=json", "--group_reporting", "--fallocate=none"]);
    command
}

/// Gives fio a folder for the file that it writes its prerun command's output to.
pub(crate) fn in_scratch<T>(
    command: &mut Command,
    work: impl FnOnce(&mut Command) -> Result<T>,
) -> Result<T> {
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    work(command.current_dir(scratch.path()))
}

/// What fio counted, all jobs together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counted {
    /// Operations a second.
    pub(crate) operations: f64,
    /// Bytes a second.
    pub(crate) bytes_per_sec: f64,
    /// Bytes that were read.
    pub(crate) read_len: u64,
    /// Bytes that were read or written.
    pub(crate) len: u64,
    /// Processor time of fio's jobs, in seconds.
    pub(crate) cpu_s: f64,
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
    /// Milliseconds of all processes of the job.
    #[serde(default)]
    job_runtime: f64,
    /// Percent of that.
    #[serde(default)]
    usr_cpu: f64,
    #[serde(default)]
    sys_cpu: f64,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    iops: f64,
    bw_bytes: f64,
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
        sum.bytes_per_sec += job.read.bw_bytes + job.write.bw_bytes;
        sum.read_len += job.read.io_bytes;
        sum.len += job.read.io_bytes + job.write.io_bytes;
        sum.cpu_s += job.job_runtime / 1e3 * (job.usr_cpu + job.sys_cpu) / 1e2;
    }
    if sum.operations <= 0.0 {
        bail!("fio counted no operation");
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Block;

    #[test]
    fn operations_of_all_jobs_are_added() {
        let text = r#"note: something
            {"jobs": [
                {"error": 0, "job_runtime": 2000, "usr_cpu": 10.0, "sys_cpu": 40.0,
                 "read": {"iops": 10.5, "bw_bytes": 43008, "io_bytes": 4096},
                 "write": {"iops": 0.0, "bw_bytes": 0, "io_bytes": 0}},
                {"error": 0,
                 "read": {"iops": 2.0, "bw_bytes": 8192, "io_bytes": 512},
                 "write": {"iops": 1.0, "bw_bytes": 4096, "io_bytes": 7}}]}"#;
        let sum = Counted { operations: 13.5, bytes_per_sec: 55296.0, read_len: 4608, len: 4615, cpu_s: 1.0 };
        assert_eq!(counted(text).unwrap(), sum);
    }

    #[test]
    fn what_was_written_is_counted_on_the_lower_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(large_file(0));
        let fio = Fio::new(Engine::Psync, Pattern::Write, Block(4));
        let mut command = Command::new("fio");
        let mut written = Written::by(&mut command);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let mark = String::from_utf8(written.mark.to_vec()).unwrap();
        assert_eq!(words[0], format!("--buffer_pattern=\"{mark}\""));
        assert_ne!(Written::by(&mut Command::new("fio")).mark, written.mark);
        let mut bytes = vec![0; 2 << 20];
        bytes[8192..8192 + 4 * 4096].copy_from_slice(&written.mark.repeat(4 * 512));
        std::fs::write(&path, &bytes).unwrap();
        written.len = 4 * 4096;
        written.verify(&fio, folder.path()).unwrap();
        let error = Written { len: 5 * 4096, ..written }.verify(&fio, folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("4 blocks"), "{error}");
        assert!(
            Written { len: 2 * 4096, ..written }.verify(&fio, folder.path()).is_err(),
            "more than were written"
        );
        Written { len: 7 * 4096, ..written }.verify(&fio.clone().jobs(2).shared(), folder.path()).unwrap();
        bytes[8192 + 4095] = 0;
        std::fs::write(&path, &bytes).unwrap();
        assert!(written.verify(&fio, folder.path()).is_err(), "a byte is another");
    }

    #[test]
    fn an_error_is_named() {
        let text = r#"{"jobs": [
            {"error": 28, "read": {"iops": 1, "bw_bytes": 1, "io_bytes": 1},
             "write": {"iops": 0, "bw_bytes": 0, "io_bytes": 0}}]}"#;
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
