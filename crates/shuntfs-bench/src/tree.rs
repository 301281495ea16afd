//! Walks over a whole tree, by the programs that a user would run.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::case::{Amount, TreeStep};
use crate::process;
use crate::stop::Stop;

/// The tree's folder, below the folder that the target shows.
const FOLDER: &str = "tree";

/// Where the files of the tree come from, until there are enough: sources that about every machine has.
const SOURCES: &[&str] =
    &["/usr/include", "/usr/lib/python3", "/usr/lib/python3.*", "/usr/share", "/usr/lib"];

/// What `grep` looks for: a word of C and of Python.
const WORD: &str = "include";

/// A tar of many small files, with what a walk over it must find.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    tar: PathBuf,
    /// The files alone; folders come on top.
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    expected: Option<Expected>,
    /// Whether the lower folder holds the whole tree, unpacked on the bare file system.
    unpacked: bool,
}

#[derive(Debug, Clone, Copy)]
struct Expected {
    entries: usize,
    lines: u64,
    contents: u64,
}

impl Tree {
    /// Packs the tar into a work folder.
    pub(crate) fn pack(work: &Path, amount: &Amount, stop: &Stop) -> Result<Self> {
        let (paths, bytes) = collect(amount.tree_files);
        if paths.is_empty() {
            bail!("none of {} has a file to make a tree of", SOURCES.join(", "));
        }
        let tar = work.join("tree.tar");
        let list = work.join("tree.list");
        let mut names = Vec::new();
        for path in &paths {
            names.extend_from_slice(path.as_os_str().as_encoded_bytes());
            names.push(0);
        }
        fs::File::create(&list)?.write_all(&names)?;
        let mut command = Command::new("tar");
        command
            .arg("-cPf")
            .arg(&tar)
            .args(["--transform=s,^/,,", "--no-recursion", "--null", "-T"])
            .arg(&list);
        process::run_ok(&mut command, amount.limit, stop).context("cannot pack the tree")?;
        Ok(Self { tar, files: paths.len(), bytes, expected: None, unpacked: false })
    }

    /// Puts the lower folder into the state that the step starts from.
    pub(crate) fn prepare(
        &mut self,
        step: TreeStep,
        lower: &Path,
        amount: &Amount,
        stop: &Stop,
    ) -> Result<()> {
        let folder = lower.join(FOLDER);
        if step == TreeStep::Untar || !self.unpacked {
            self.clear(&folder)?;
        }
        if step == TreeStep::Untar && self.expected.is_some() {
            return Ok(());
        }
        if !self.unpacked {
            process::run_ok(&mut self.untar(&folder), amount.limit, stop)?;
            self.unpacked = true;
        }
        if self.expected.is_none() {
            let entries = walked(&process::run_ok(&mut find(&folder), amount.limit, stop)?.stdout);
            let lines = matched(&process::run(&mut grep(&folder), amount.limit, stop)?.stdout);
            let contents = contents(std::slice::from_ref(&folder))?;
            self.expected = Some(Expected { entries, lines, contents });
        }
        if step == TreeStep::Untar {
            self.clear(&folder)?;
        }
        Ok(())
    }

    /// Returns the same tree, to be unpacked elsewhere.
    pub(crate) fn elsewhere(&self) -> Self {
        Self { unpacked: false, ..self.clone() }
    }

    /// Puts several lower folders into the state that the step starts from: what exists is spread over all of them.
    pub(crate) fn prepare_on(
        &mut self,
        step: TreeStep,
        branches: &[PathBuf],
        amount: &Amount,
        stop: &Stop,
    ) -> Result<()> {
        let (first, others) = branches.split_first().context("no branch")?;
        let was_unpacked = self.unpacked;
        if step == TreeStep::Untar || !was_unpacked {
            for folder in others.iter().map(|branch| branch.join(FOLDER)).filter(|folder| folder.exists()) {
                fs::remove_dir_all(&folder).context("cannot clear the tree")?;
            }
        }
        self.prepare(step, first, amount, stop)?;
        if self.unpacked && !was_unpacked {
            spread(branches)?;
        }
        Ok(())
    }

    /// Runs the step below a folder and returns how long it took.
    pub(crate) fn run(
        &mut self,
        step: TreeStep,
        root: &Path,
        amount: &Amount,
        stop: &Stop,
    ) -> Result<Duration> {
        let folder = root.join(FOLDER);
        let mut command = match step {
            TreeStep::Untar => self.untar(&folder),
            TreeStep::FindCold | TreeStep::FindWarm => find(&folder),
            TreeStep::GrepCold => grep(&folder),
            TreeStep::Remove => remove(&folder),
        };
        if matches!(step, TreeStep::Untar | TreeStep::Remove) {
            self.unpacked = false;
        }
        // The program itself shall not be what is read from the disk.
        let mut warm_up = Command::new(command.get_program());
        process::run(warm_up.arg("--version"), amount.limit, stop)?;
        if step == TreeStep::FindWarm {
            process::run_ok(&mut find(&folder), amount.limit, stop)?;
        }
        let ended = if step == TreeStep::GrepCold {
            // Status 1 only says that some file does not match.
            process::run(&mut command, amount.limit, stop)?
        } else {
            process::run_ok(&mut command, amount.limit, stop)?
        };
        self.check_output(step, &ended.stdout)?;
        Ok(ended.elapsed)
    }

    /// Checks on several lower folders that the step did what it was timed for.
    pub(crate) fn verify_on(&self, step: TreeStep, branches: &[PathBuf]) -> Result<()> {
        let folders: Vec<PathBuf> = branches.iter().map(|branch| branch.join(FOLDER)).collect();
        let mut all = BTreeSet::new();
        for folder in folders.iter().filter(|folder| folder.exists()) {
            let below = |path: PathBuf| path.strip_prefix(folder).map(Path::to_path_buf);
            for path in everything(folder)? {
                all.insert(below(path)?);
            }
        }
        let expected = match (step, self.expected) {
            (TreeStep::Untar, Some(expected)) => expected.entries,
            (TreeStep::Remove, _) => 0,
            _ => return Ok(()),
        };
        if all.len() != expected {
            bail!("{} entries are on all branches, not {expected}", all.len());
        }
        if step == TreeStep::Untar { self.check_contents(&folders) } else { Ok(()) }
    }

    /// Checks on the lower folder that the step did what it was timed for.
    pub(crate) fn verify(&self, step: TreeStep, lower: &Path, amount: &Amount, stop: &Stop) -> Result<()> {
        let folder = lower.join(FOLDER);
        match step {
            TreeStep::Untar => {
                let walk = process::run_ok(&mut find(&folder), amount.limit, stop)?;
                self.check_output(TreeStep::FindCold, &walk.stdout)?;
                self.check_contents(&[folder])
            }
            TreeStep::Remove if folder.exists() => bail!("the tree is still there after it was removed"),
            _ => Ok(()),
        }
    }

    fn check_output(&self, step: TreeStep, stdout: &str) -> Result<()> {
        let Some(expected) = self.expected else { return Ok(()) };
        match step {
            TreeStep::FindCold | TreeStep::FindWarm if walked(stdout) != expected.entries => {
                bail!("the walk found {} entries, not {}", walked(stdout), expected.entries)
            }
            TreeStep::GrepCold if matched(stdout) != expected.lines => {
                bail!("grep found {} lines, not {}", matched(stdout), expected.lines)
            }
            _ => Ok(()),
        }
    }

    fn check_contents(&self, folders: &[PathBuf]) -> Result<()> {
        match self.expected {
            Some(expected) if contents(folders)? != expected.contents => {
                bail!("the unpacked files have other names or contents than those of the bare folder")
            }
            _ => Ok(()),
        }
    }

    fn clear(&mut self, folder: &Path) -> Result<()> {
        self.unpacked = false;
        if folder.exists() {
            fs::remove_dir_all(folder).context("cannot clear the tree")?;
        }
        fs::create_dir(folder).context("cannot make the tree's folder")
    }

    fn untar(&self, folder: &Path) -> Command {
        let mut command = Command::new("tar");
        command.arg("-xf").arg(&self.tar).arg("-C").arg(folder);
        command
    }
}

/// Moves the files of the first branch's tree to all branches in turn, with the folders that they are in.
fn spread(branches: &[PathBuf]) -> Result<()> {
    let first = branches.first().context("no branch")?.join(FOLDER);
    let mut files = everything(&first)?;
    files.retain(|path| !path.is_dir());
    files.sort();
    for (path, branch) in files.iter().zip(branches.iter().cycle()) {
        let to = branch.join(FOLDER).join(path.strip_prefix(&first)?);
        if to == *path {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        fs::rename(path, to).context("cannot spread the tree")?;
    }
    Ok(())
}

/// Returns a folder and everything in it.
fn everything(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut all, mut folders) = (vec![folder.to_path_buf()], vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
            all.push(entry.path());
        }
    }
    Ok(all)
}

/// Returns a number that names and contents of all files below the folders give, whichever of the folders a file is in.
fn contents(folders: &[PathBuf]) -> Result<u64> {
    let mut sum = 0_u64;
    for folder in folders.iter().filter(|folder| folder.exists()) {
        for path in everything(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // Marks of a union file system are no files of the tree.
            if !path.is_file() || name.starts_with(".wh.") {
                continue;
            }
            let mut hasher = DefaultHasher::new();
            path.strip_prefix(folder)?.hash(&mut hasher);
            fs::read(&path)?.hash(&mut hasher);
            sum = sum.wrapping_add(hasher.finish());
        }
    }
    Ok(sum)
}

pub(crate) fn find(folder: &Path) -> Command {
    let mut command = Command::new("find");
    command.arg(folder).arg("-ls");
    command
}

fn grep(folder: &Path) -> Command {
    let mut command = Command::new("grep");
    command.args(["-rch", WORD]).arg(folder);
    command
}

fn remove(folder: &Path) -> Command {
    let mut command = Command::new("rm");
    command.arg("-r").arg(folder);
    command
}

/// Counts entries, without the marks that a union file system leaves in its upper folder.
pub(crate) fn walked(stdout: &str) -> usize {
    stdout.lines().filter(|line| !line.contains("/.wh.")).count()
}

fn matched(stdout: &str) -> u64 {
    stdout.lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum()
}

/// Chooses regular files in a stable order, with their bytes.
fn collect(files_max: usize) -> (Vec<PathBuf>, u64) {
    let mut found = Vec::new();
    let mut bytes = 0;
    for source in SOURCES {
        for root in expand(source) {
            gather(&root, files_max, &mut found, &mut bytes);
        }
    }
    (found, bytes)
}

/// Expands a trailing `*` in a source's last component.
fn expand(source: &str) -> Vec<PathBuf> {
    let Some(pattern) = source.strip_suffix('*') else { return vec![PathBuf::from(source)] };
    let Some((parent, prefix)) = pattern.rsplit_once('/') else { return Vec::new() };
    let mut roots: Vec<PathBuf> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    roots.sort();
    roots
}

fn gather(root: &Path, files_max: usize, found: &mut Vec<PathBuf>, bytes: &mut u64) {
    /// Larger files are not what this walk is about, and make it a test of the disk.
    const LEN_MAX: u64 = 1 << 20;
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = fs::read_dir(&folder).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                folders.push(entry.path());
            } else if meta.is_file() && meta.len() <= LEN_MAX && fs::File::open(entry.path()).is_ok() {
                if found.len() >= files_max {
                    return;
                }
                *bytes += meta.len();
                found.push(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_union_file_system_are_no_entries() {
        assert_eq!(
            walked("1 4 drwxr-xr-x 2 /a\n2 0 -rw-r--r-- 1 /a/.wh..wh..opq\n3 4 -rw-r--r-- 1 /a/b\n"),
            2
        );
    }

    #[test]
    fn counts_of_grep_are_added() {
        assert_eq!(matched("1\n0\n41\n"), 42);
    }

    #[test]
    fn a_tree_is_spread_over_branches_and_found_whole() {
        let top = tempfile::tempdir().unwrap();
        let branches = ["a", "b", "c"].map(|name| top.path().join(name)).to_vec();
        let folder = branches[0].join(FOLDER);
        fs::create_dir_all(folder.join("d/e")).unwrap();
        for number in 0..7 {
            fs::write(folder.join(format!("d/e/{number}")), "").unwrap();
        }
        spread(&branches).unwrap();
        let files = |branch: &PathBuf| fs::read_dir(branch.join(FOLDER).join("d/e")).unwrap().count();
        assert_eq!(branches.iter().map(files).collect::<Vec<_>>(), [3, 2, 2]);
        let folders: Vec<PathBuf> = branches.iter().map(|branch| branch.join(FOLDER)).collect();
        let expected = Some(Expected { entries: 10, lines: 0, contents: contents(&folders).unwrap() });
        let tree = Tree { tar: PathBuf::new(), files: 7, bytes: 0, expected, unpacked: true };
        tree.verify_on(TreeStep::Untar, &branches).unwrap();
        assert!(tree.verify_on(TreeStep::Remove, &branches).is_err());
        fs::write(branches[1].join(FOLDER).join("d/e/1"), "other").unwrap();
        let error = tree.verify_on(TreeStep::Untar, &branches).unwrap_err().to_string();
        assert!(error.contains("contents"), "{error}");
        fs::remove_file(branches[1].join(FOLDER).join("d/e/1")).unwrap();
        assert!(tree.verify_on(TreeStep::Untar, &branches).is_err());
        branches.iter().for_each(|branch| fs::remove_dir_all(branch.join(FOLDER)).unwrap());
        tree.verify_on(TreeStep::Remove, &branches).unwrap();
    }

    #[test]
    fn the_choice_of_files_is_bounded_and_stable() {
        let (first, bytes) = collect(20);
        assert!(first.len() <= 20);
        assert_eq!((first, bytes), collect(20));
    }
}
