//! The smallest run of everything: it proves that each case works and that nothing is left, not how fast anything is.

#![expect(clippy::unwrap_used, reason = "a test ends where it finds the world not as it must be")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
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

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "20", "240", BENCH, "--smoke"]).args(arguments).stdin(Stdio::null());
    command
}

/// Returns how many mounts and loop devices of the bench there are.
fn left() -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let images = fs::read_dir("/sys/block").unwrap().flatten().filter(|device| {
        let file = device.path().join("loop/backing_file");
        fs::read_to_string(file).is_ok_and(|path| path.contains("shuntfs-bench-"))
    });
    mounts.lines().filter(|line| line.contains("shuntfs-bench-")).count() + images.count()
}

fn wait_until_nothing_is_left() {
    let started = Instant::now();
    while left() > 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "mounts or loop devices are left");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// One test for all, because each run looks for what another would leave.
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
    let output =
        bench(&["--targets", "bind", "--json"]).arg(&json).arg("--markdown").arg(&markdown).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = read(&json);
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 24);
    for case in cases {
        for target in ["bare", "bind"] {
            assert!(case["cells"][target]["median"].as_f64().unwrap() > 0.0, "{case}");
        }
    }
    let text = fs::read_to_string(&markdown).unwrap();
    assert!(text.contains("| case | bare, ops/s | bind | goal | met |"), "{text}");
    wait_until_nothing_is_left();
}

fn a_broken_peer_fails_alone(folder: &Path) {
    let json = folder.join("broken.json");
    let output = bench(&["--case", "tree find cold", "--targets", "broken", "--json"])
        .arg(&json)
        .args(["--target", "broken=ls {SRC}/absent {MNT}"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let cells = read(&json)["cases"][0]["cells"].clone();
    assert!(cells["bare"]["median"].as_f64().unwrap() > 0.0);
    assert!(cells["broken"]["error"].as_str().unwrap().contains("No such file"), "{cells}");
    wait_until_nothing_is_left();
}

/// A target that shows nothing of the lower folder: an empty tmpfs over it.
fn wrong_bytes_fail_every_data_case(folder: &Path) {
    let json = folder.join("wrong.json");
    let script = folder.join("wrong.sh");
    fs::write(&script, "mount -t tmpfs none \"$2\" && head -c 4M /dev/zero > \"$2/large.0\"\n").unwrap();
    let template = format!("wrong=sh {} {{SRC}} {{MNT}}", script.display());
    let output = bench(&["--case", "seed0 read 4k", "--targets", "wrong", "--target", &template, "--json"])
        .arg(&json)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let cells = read(&json)["cases"][0]["cells"].clone();
    assert!(cells["bare"]["error"].is_null(), "{cells}");
    assert!(cells["wrong"]["error"].as_str().unwrap().contains("differ"), "{cells}");
    wait_until_nothing_is_left();
}

fn an_interrupt_takes_everything_down() {
    let mut command = Command::new(BENCH);
    command.args(["--rounds", "50", "--size", "64M", "--targets", "bind", "--case", "dio 4k"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let status = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(30) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("an interrupt does not end the run");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_until_nothing_is_left();
}
