//! How often the kernel calls its functions (kprobes, by tracefs).

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use shuntfs_testkit::skipped;

const FOLDER: &str = "/sys/kernel/tracing";
const GROUP: &str = "shuntfs_costs";

/// Functions that are counted until this is dropped.
pub(crate) struct Probes(Vec<String>);

impl Probes {
    /// `None` where this kernel cannot, and then the reason was said.
    pub(crate) fn set(functions: &[&str]) -> Result<Option<Self>> {
        if !file("kprobe_events").exists() && Path::new(FOLDER).is_dir() {
            Command::new("mount").args(["-t", "tracefs", "tracefs", FOLDER]).output()?;
        }
        if !file("kprobe_events").exists() {
            skipped("this kernel has no kprobes (CONFIG_KPROBE_EVENTS)");
            return Ok(None);
        }
        let mut probes = Self(Vec::new());
        for function in functions {
            let Some(symbol) = symbol(function)? else {
                skipped(&format!("this kernel shows no function {function}"));
                return Ok(None);
            };
            append("kprobe_events", &format!("p:{GROUP}/{function} {symbol}"))?;
            probes.0.push((*function).to_owned());
        }
        // Or the scheduler's code is patched, too, to note the names of processes.
        fs::write(file("options/record-cmd"), "0")?;
        fs::write(file(&format!("events/{GROUP}/enable")), "1")?;
        Ok(Some(probes))
    }

    /// How often each was called, by anybody.
    pub(crate) fn hits(&self) -> Result<BTreeMap<String, u64>> {
        let text = fs::read_to_string(file("kprobe_profile"))?;
        let mut hits = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, count, missed] = words[..] else { continue };
            if self.0.iter().any(|function| function == name) {
                ensure!(missed == "0", "{name} was missed {missed} times");
                hits.insert(name.to_owned(), count.parse().context("a count")?);
            }
        }
        ensure!(hits.len() == self.0.len(), "{:?} in {text}", self.0);
        Ok(hits)
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        drop(fs::write(file(&format!("events/{GROUP}/enable")), "0"));
        for function in &self.0 {
            drop(append("kprobe_events", &format!("-:{GROUP}/{function}")));
        }
    }
}

/// What the compiler named it: also `NAME.isra.0` and the like.
fn symbol(function: &str) -> Result<Option<String>> {
    let text = fs::read_to_string("/proc/kallsyms")?;
    let mut names = text.lines().filter_map(|line| line.split_whitespace().nth(2));
    let is_it = |name: &&str| name.split('.').next() == Some(function) && !name.contains(".cold");
    Ok(names.find(is_it).map(str::to_owned))
}

fn file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn append(name: &str, line: &str) -> Result<()> {
    let mut file = OpenOptions::new().append(true).open(file(name))?;
    Ok(writeln!(file, "{line}")?)
}
