//! The smallest run of everything: it proves that each case works and that nothing is left, not how fast anything is.

#![expect(clippy::unwrap_used, reason = "a test ends where it finds the world not as it must be")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_shuntfs-bench");

fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Says why a test cannot run here.
fn skip_unless_root_with_fio() -> bool {
    let missing = if !have("fio") {
        "fio is not installed"
    } else if !rustix::process::geteuid().is_root() {
        "not root: no loop device, no bind mount"
    } else {
        return false;
    };
    println!("SKIPPED: {missing}");
    true
}

/// A run of the bench, which is killed should it hang.
struct Run {
    child: Child,
    log: File,
}

impl Run {
    fn start(arguments: &[&str]) -> Self {
        let log = tempfile::tempfile().unwrap();
        let mut command = Command::new(BENCH);
        command.args(arguments).stdin(Stdio::null());
        let child =
            command.stdout(log.try_clone().unwrap()).stderr(log.try_clone().unwrap()).spawn().unwrap();
        Self { child, log }
    }

    /// Waits for the end; the exit code and what was printed. Nothing may be left by then.
    fn end(mut self, limit: Duration) -> (Option<i32>, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > limit {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("the run does not end within {} s: {}", limit.as_secs(), self.said());
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        // The kernel lets the loop device go in its own time once nothing is mounted from it.
        let ended = Instant::now();
        while !left(self.child.id()).is_empty() {
            assert!(ended.elapsed() < Duration::from_secs(20), "left behind: {:?}", left(self.child.id()));
            std::thread::sleep(Duration::from_millis(100));
        }
        (status.code(), self.said())
    }

    fn said(&self) -> String {
        // The program writes through the same open file: its position must stay where it is.
        let mut bytes = vec![0; usize::try_from(self.log.metadata().unwrap().len()).unwrap()];
        let len = self.log.read_at(&mut bytes, 0).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}

/// Returns the mounts and loop devices of a run, which have its process id in their path.
fn left(id: u32) -> Vec<String> {
    let own = format!("shuntfs-bench-{id}-");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let images = fs::read_dir("/sys/block").unwrap().flatten();
    let images = images.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    mounts.lines().map(str::to_owned).chain(images).filter(|line| line.contains(&own)).collect()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// One test for all: runs at the same time would wait for each other's writes.
#[test]
fn smoke_as_root_measures_every_case_and_leaves_nothing() {
    if skip_unless_root_with_fio() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    every_case_has_a_figure(folder.path());
    a_broken_peer_fails_alone(folder.path());
    wrong_bytes_fail_every_data_case(folder.path());
    an_interrupt_takes_everything_down();
}

fn every_case_has_a_figure(folder: &Path) {
    let (json, markdown) = (folder.join("all.json"), folder.join("all.md"));
    let ours = std::env::var_os("SHUNT_BIN").is_some();
    let targets: &[&str] = if ours { &["bare", "bind", "shunt"] } else { &["bare", "bind"] };
    let asked = targets.join(",");
    let files = ["--json", json.to_str().unwrap(), "--markdown", markdown.to_str().unwrap()];
    let arguments = [&["--smoke", "--targets", asked.as_str()][..], &files].concat();
    let (code, said) = Run::start(&arguments).end(Duration::from_mins(5));
    assert_eq!(code, Some(0), "{said}");
    let report = read(&json);
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 24);
    for case in cases {
        for target in targets {
            assert!(case["cells"][target]["median"].as_f64().unwrap() > 0.0, "{case}");
        }
    }
    let text = fs::read_to_string(&markdown).unwrap();
    assert!(text.contains(&format!("| case | bare, ops/s | {} |", targets[1..].join(" | "))), "{text}");
}

/// Runs one case on a target that cannot succeed; the case's cells.
fn one_case(folder: &Path, case: &str, name: &str, template: &str) -> Value {
    let json = folder.join(format!("{name}.json"));
    let target = format!("{name}={template}");
    let asked = ["--smoke", "--case", case, "--targets", name, "--target", &target];
    let arguments = [&asked[..], &["--json", json.to_str().unwrap()]].concat();
    let (code, said) = Run::start(&arguments).end(Duration::from_mins(2));
    assert_eq!(code, Some(1), "{said}");
    read(&json)["cases"][0]["cells"].clone()
}

fn a_broken_peer_fails_alone(folder: &Path) {
    let cells = one_case(folder, "tree find cold", "broken", "ls {SRC}/absent {MNT}");
    assert!(cells["bare"]["median"].as_f64().unwrap() > 0.0);
    assert!(cells["broken"]["error"].as_str().unwrap().contains("No such file"), "{cells}");
}

/// A target that shows other bytes than the lower folder: a tmpfs with zeroes.
fn wrong_bytes_fail_every_data_case(folder: &Path) {
    let script = folder.join("wrong.sh");
    fs::write(&script, "mount -t tmpfs none \"$2\" && head -c 4M /dev/zero > \"$2/large.0\"\n").unwrap();
    let cells =
        one_case(folder, "seed0 read 4k", "wrong", &format!("sh {} {{SRC}} {{MNT}}", script.display()));
    assert!(cells["bare"]["error"].is_null(), "{cells}");
    assert!(cells["wrong"]["error"].as_str().unwrap().contains("differ"), "{cells}");
}

/// Once the run has a figure, an interrupt ends it with the report of what there is.
fn an_interrupt_takes_everything_down() {
    let run = Run::start(&["--rounds", "50", "--size", "8M", "--targets", "bind", "--case", "dio 4k"]);
    let started = Instant::now();
    while !run.said().contains("round 1/50") {
        assert!(started.elapsed() < Duration::from_mins(1), "{}", run.said());
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = Command::new("kill").arg("-INT").arg(run.child.id().to_string()).status().unwrap();
    assert!(status.success());
    let (code, said) = run.end(Duration::from_secs(60));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("- Interrupted:") && said.contains("| case | bare, ops/s | bind |"), "{said}");
}
