//! What programs that make many small files send for each of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use shuntfs_testkit::mounted::{Flow, Transport};
use shuntfs_testkit::say;

use crate::stage::Stage;

/// Folders of the tree, and files in each.
const FOLDERS: u64 = 10;
const FILES: u64 = 30;

/// A tree of small files: 1 to 9 KiB each, as those of a source tree.
struct Tree {
    home: tempfile::TempDir,
}

impl Tree {
    fn make() -> Result<Self> {
        let home = tempfile::tempdir()?;
        for folder in 0..FOLDERS {
            let path = home.path().join(format!("tree/{folder}"));
            fs::create_dir_all(&path)?;
            for file in 0..FILES {
                let len = 1024 + usize::try_from(file * 277)?;
                fs::write(path.join(format!("file-{file}")), vec![b'a' + u8::try_from(file % 26)?; len])?;
            }
        }
        Ok(Self { home })
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("tree")
    }

    fn archive(&self) -> Result<PathBuf> {
        let archive = self.home.path().join("tree.tar");
        run(Command::new("tar").arg("-C").arg(self.home.path()).arg("-cf").arg(&archive).arg("tree"))?;
        Ok(archive)
    }

    /// A repository with the tree in it, and nothing checked out.
    fn repository(&self) -> Result<PathBuf> {
        let path = self.home.path().join("repository");
        let git = |args: &[&str], at: &Path| -> Result<()> {
            let config = ["-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "gc.auto=0"];
            run(Command::new("git").arg("-C").arg(at).args(config).args(args))
        };
        git(&["init", "-q", "tree"], self.home.path())?;
        git(&["add", "."], &self.path())?;
        git(&["commit", "-q", "-m", "all"], &self.path())?;
        fs::rename(self.path().join(".git"), &path)?;
        Ok(path)
    }
}

fn run(command: &mut Command) -> Result<()> {
    let ran = command.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", "/nonexistent").output();
    let ran = ran.with_context(|| format!("{command:?}"))?;
    ensure!(
        ran.status.success(),
        "{command:?} ended with {}: {}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    );
    Ok(())
}

/// The requests for each file, by operation, rounded to tenths of it and shown as `CREATE 1`. What is sent once for several files is left
/// out: it is for folders.
fn for_each_file(seen: &BTreeMap<String, u64>) -> String {
    let tenths =
        seen.iter().map(|(name, count)| (name, (count * 10 + FOLDERS * FILES / 2) / (FOLDERS * FILES)));
    let shown = tenths.filter(|(_, tenths)| *tenths >= 3).map(|(name, tenths)| match tenths % 10 {
        0 => format!("{name} {}", tenths / 10),
        rest => format!("{name} {}.{rest}", tenths / 10),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// All of them for each file, in hundredths, those for folders included.
fn hundredths(seen: &BTreeMap<String, u64>) -> u64 {
    seen.values().sum::<u64>() * 100 / (FOLDERS * FILES)
}

/// As cargo, npm and most others write what they make: one file after another, in one write each.
fn write_all(tree: &Tree, to: &Path) -> Result<()> {
    for folder in 0..FOLDERS {
        fs::create_dir_all(to.join(folder.to_string()))?;
        for file in 0..FILES {
            let name = format!("{folder}/file-{file}");
            let bytes = fs::read(tree.path().join(&name))?;
            File::create(to.join(&name))?.write_all(&bytes)?;
        }
    }
    Ok(())
}

/// What a program sends, on each transport: the table in `docs/requests.md`.
fn sends(
    (flow, args): (Flow, &[&str]),
    expected: &str,
    prepare: impl Fn(&Tree, &Path) -> Result<()>,
    act: impl Fn(&Tree, &Path) -> Result<()>,
) -> Result<u64> {
    let mut most = 0;
    for transport in Transport::ALL {
        let Some(stage) = Stage::make_with(transport, flow, args)? else { continue };
        let (tree, names) = (Tree::make()?, stage.path("names"));
        prepare(&tree, &names)?;
        let seen = stage.requests(|| act(&tree, &names))?;
        let sent = for_each_file(&seen);
        say(&format!("{transport:?} {flow:?} {args:?}: {} for each file: {sent}", hundredths(&seen)));
        ensure!(sent == expected, "{transport:?} {flow:?} {args:?}: {sent}; all: {seen:?}");
        most = most.max(hundredths(&seen));
        stage.end()?;
    }
    Ok(most)
}

fn nothing(_: &Tree, _: &Path) -> Result<()> {
    Ok(())
}

fn unpack(tree: &Tree, to: &Path) -> Result<()> {
    run(Command::new("tar").arg("-C").arg(to).arg("-xf").arg(tree.archive()?))
}

/// A name is looked up because the creation is exclusive. The folder's attributes are asked for because it changed, and the file
/// capability before the first write, and before the owner is set.
#[test]
fn what_tar_sends() -> Result<()> {
    let pass = Flow::Passthrough;
    let expected = "CREATE 1, GETATTR 1, GETXATTR 2, LOOKUP 1, RELEASE 1, SETATTR 3.1";
    sends((pass, &[]), expected, nothing, unpack)?;
    let cached = "CREATE 1, GETATTR 1, GETXATTR 2, LOOKUP 1, RELEASE 1, SETATTR 3.1, WRITE 1.8";
    sends((Flow::Delegated, &[]), cached, nothing, unpack)?;
    sends((Flow::Served, &[]), cached, nothing, unpack)?;
    Ok(())
}

/// What root can have where nobody else gets in: a name is looked up, a file is made, its times, its owner and its mode are set, and it is
/// closed.
#[test]
fn tar_sends_six_requests_for_a_file_where_nothing_is_asked_twice() -> Result<()> {
    let args = ["--permissions", "none", "--xattrs", "off"];
    let expected = "CREATE 1, LOOKUP 1, RELEASE 1, SETATTR 3.1";
    let most = sends((Flow::Passthrough, &args), expected, nothing, unpack)?;
    ensure!(most <= 630, "{most} hundredths, those for folders included");
    let expected = "CREATE 1, GETXATTR 2, LOOKUP 1, RELEASE 1, SETATTR 3.1";
    sends((Flow::Passthrough, &args[..2]), expected, nothing, unpack)?;
    let expected = "CREATE 1, GETATTR 1, LOOKUP 1, RELEASE 1, SETATTR 3.1";
    sends((Flow::Passthrough, &args[2..]), expected, nothing, unpack)?;
    Ok(())
}

#[test]
fn what_cp_sends() -> Result<()> {
    let copy =
        |tree: &Tree, to: &Path| run(Command::new("cp").arg("-a").arg(tree.path()).arg(to.join("copy")));
    let expected = "CREATE 1, GETATTR 1, GETXATTR 1, LOOKUP 1, RELEASE 1, SETATTR 1.1, SETXATTR 1";
    sends((Flow::Passthrough, &[]), expected, nothing, copy)?;
    Ok(())
}

#[test]
fn what_most_programs_send() -> Result<()> {
    let expected = "CREATE 1, GETATTR 1, GETXATTR 1, LOOKUP 1, RELEASE 1";
    sends((Flow::Passthrough, &[]), expected, nothing, write_all)?;
    let args = ["--permissions", "none", "--xattrs", "off"];
    sends((Flow::Passthrough, &args), "CREATE 1, LOOKUP 1, RELEASE 1", nothing, write_all)?;
    Ok(())
}

fn git(tree: &Tree, to: &Path, args: &[&str]) -> Result<()> {
    let (repository, work) = (tree.home.path().join("repository"), to.join("work"));
    run(Command::new("git").arg("--git-dir").arg(repository).arg("--work-tree").arg(work).args(args))
}

/// Git checks whether each file is there before it makes it, and what it is like afterwards.
#[test]
fn what_git_sends() -> Result<()> {
    let prepare = |tree: &Tree, to: &Path| -> Result<()> {
        tree.repository()?;
        Ok(fs::create_dir(to.join("work"))?)
    };
    let checkout = |tree: &Tree, to: &Path| git(tree, to, &["checkout", "-q", "-f", "HEAD"]);
    let expected = "CREATE 1, GETATTR 2, GETXATTR 1, LOOKUP 2.1, RELEASE 1";
    sends((Flow::Passthrough, &[]), expected, prepare, checkout)?;
    Ok(())
}

/// A removal makes the kernel forget what it knows of the folder, whose permissions it asks for again.
#[test]
fn what_removing_sends() -> Result<()> {
    let remove = |_: &Tree, to: &Path| run(Command::new("rm").arg("-r").arg(to.join("tree")));
    sends((Flow::Passthrough, &[]), "GETATTR 1, UNLINK 1", unpack, remove)?;
    sends((Flow::Passthrough, &["--permissions", "none"]), "UNLINK 1", unpack, remove)?;
    Ok(())
}

/// A walk of what is known: listing a folder makes the kernel take its time of access for unknown (`fuse_invalidate_atime` in
/// `fs/fuse/readdir.c`), so the next walk asks for that once, and later ones for nothing.
#[test]
fn a_walk_asks_for_each_folder_once() -> Result<()> {
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, Flow::Passthrough)? else { continue };
        let (tree, names) = (Tree::make()?, stage.path("names"));
        unpack(&tree, &names)?;
        let walk = || run(Command::new("find").arg(&names).args(["-size", "+100"]));
        let of = |operation: &str| -> Result<u64> {
            let seen = stage.requests(walk)?;
            say(&format!("{transport:?}: a walk sent {seen:?}"));
            ensure!(seen.keys().all(|name| name == operation || name == "STATFS"), "{transport:?}: {seen:?}");
            Ok(seen.get(operation).copied().unwrap_or(0))
        };
        let folders = FOLDERS + 2;
        // The second of each is empty: nothing else tells the kernel that the folder ends.
        ensure!(of("READDIRPLUS")? == 2 * folders);
        ensure!(of("GETATTR")? <= folders + 1);
        ensure!(of("GETATTR")? == 0);
        stage.end()?;
    }
    Ok(())
}
