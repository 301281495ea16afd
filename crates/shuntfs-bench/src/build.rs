//! The build of a C project below the folder that a target shows: Linux' own tree where its source is there, else one that
//! is generated.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::case::Amount;
use crate::process;
use crate::stop::Stop;

/// The sources and the objects, below the folder that the target shows.
const SOURCES: &str = "project";
const OBJECTS: &str = "objects";

/// What the generated project links to.
const PROGRAM: &str = "program";

/// A project whose sources are on the lower file system.
#[derive(Debug)]
pub(crate) struct Project {
    kind: Kind,
    cpus: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Linux(PathBuf),
    Generated(usize),
}

impl Project {
    /// Bytes that the larger kind of project takes, sources and objects.
    pub(crate) const LEN_MAX: u64 = 3 << 30;

    /// Puts the sources below the lower folder.
    ///
    /// # Errors
    /// When they cannot be unpacked or written.
    pub(crate) fn unpack(lower: &Path, amount: &Amount, cpus: u32, stop: &Stop) -> Result<Self> {
        let kind = kind(amount);
        let sources = lower.join(SOURCES);
        fs::create_dir(&sources)?;
        match &kind {
            Kind::Linux(archive) => {
                let mut command = Command::new("tar");
                command.arg("-xf").arg(archive).arg("--strip-components=1").arg("-C").arg(&sources);
                process::run_ok(&mut command, amount.build_limit, stop)
                    .context("cannot unpack the sources")?;
            }
            Kind::Generated(count) => generate(&sources, *count)?,
        }
        Ok(Self { kind, cpus })
    }

    /// Says what is built.
    pub(crate) fn about(&self) -> String {
        match &self.kind {
            Kind::Linux(archive) => {
                format!("`build` is a tinyconfig of {} with {} jobs.", archive.display(), self.cpus)
            }
            Kind::Generated(count) => format!(
                "`build` is a generated C project of {count} files with {} jobs; for a kernel's: apt install linux-source \
                 flex bison bc.",
                self.cpus
            ),
        }
    }

    /// Removes the objects of an earlier build.
    pub(crate) fn prepare(&self, lower: &Path) -> Result<()> {
        let objects = lower.join(OBJECTS);
        if objects.exists() {
            fs::remove_dir_all(&objects).context("cannot remove the objects")?;
        }
        Ok(fs::create_dir(&objects)?)
    }

    /// Builds, and returns how long it took.
    pub(crate) fn run(&self, root: &Path, amount: &Amount, stop: &Stop) -> Result<Duration> {
        let make = |word: &str| {
            let mut command = Command::new("make");
            command.args(make_words(root, word));
            process::run_ok(&mut command, amount.build_limit, stop).map(|ended| ended.elapsed)
        };
        let jobs = self.jobs();
        match self.kind {
            Kind::Linux(_) => Ok(make("tinyconfig")? + make(&jobs)?),
            Kind::Generated(_) => make(&jobs),
        }
    }

    /// Starts a build that goes on beside something else.
    pub(crate) fn start(&self, root: &Path) -> Result<Building> {
        self.prepare(root)?;
        let words = std::iter::once("make".to_owned()).chain(make_words(root, &self.jobs()));
        let mut command = process::bound(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Building(command.spawn().context("cannot start `make`")?))
    }

    fn jobs(&self) -> String {
        format!("-j{}", self.cpus)
    }

    /// Checks on the lower folder that there is something built.
    pub(crate) fn verify(&self, lower: &Path) -> Result<()> {
        let built = match self.kind {
            Kind::Linux(_) => "vmlinux",
            Kind::Generated(_) => PROGRAM,
        };
        let len = fs::metadata(lower.join(OBJECTS).join(built)).map_or(0, |meta| meta.len());
        if len == 0 {
            bail!("the build ended without `{built}`");
        }
        Ok(())
    }
}

/// A build that goes on until it is dropped.
#[derive(Debug)]
pub(crate) struct Building(Child);

impl Building {
    /// Ends the build.
    ///
    /// # Errors
    /// When it had ended before: what was measured beside it was not beside it all the time.
    pub(crate) fn end(mut self) -> Result<()> {
        match self.0.try_wait()? {
            Some(status) => bail!("the build beside the calls ended before them with {status}"),
            None => Ok(()),
        }
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        process::kill(&mut self.0);
    }
}

fn make_words(root: &Path, word: &str) -> [String; 5] {
    let place = |name| root.join(name).display().to_string();
    ["-s".to_owned(), "-C".to_owned(), place(SOURCES), format!("O={}", place(OBJECTS)), word.to_owned()]
}

/// Returns whether the project that would be built is the large one.
pub(crate) fn is_large(amount: &Amount) -> bool {
    matches!(kind(amount), Kind::Linux(_))
}

/// Says why nothing can be built, if so.
pub(crate) fn missing() -> Option<&'static str> {
    [
        ("make", "`make` is not installed (Debian package make)"),
        ("cc", "`cc` is not installed (Debian package gcc)"),
    ]
    .into_iter()
    .find_map(|(program, why)| (!process::on_path(program)).then_some(why))
}

fn kind(amount: &Amount) -> Kind {
    const TOOLS: &[&str] = &["gcc", "make", "flex", "bison", "bc", "xz"];
    let archive = if amount.real_build { linux_source(Path::new("/usr/src")) } else { None };
    match archive.filter(|_| TOOLS.iter().all(|tool| process::on_path(tool))) {
        Some(archive) => Kind::Linux(archive),
        None => Kind::Generated(amount.sources),
    }
}

/// Returns Debian's archive of the kernel's source, the newest by name.
fn linux_source(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("linux-source") && name.ends_with(".tar.xz")
        })
        .max()
}

/// Writes sources that include one another's headers and a Makefile.
fn generate(folder: &Path, count: usize) -> Result<()> {
    /// Functions of a source: about half a second of work for a compiler.
    const FUNCTIONS: usize = 120;
    /// Headers that a source includes.
    const HEADERS: usize = 12;
    let mut main = String::new();
    for number in 0..count {
        fs::write(folder.join(format!("part{number}.h")), format!("#pragma once\nint part{number}(int);\n"))?;
        let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for near in 0..HEADERS.min(count) {
            writeln!(text, "#include \"part{}.h\"", (number + near) % count)?;
        }
        for function in 0..FUNCTIONS {
            writeln!(
                text,
                "static int step{function}(int x) {{ char s[64]; snprintf(s, sizeof s, \"%d\", x * {function}); \
                 return atoi(s) + (int)strlen(s); }}"
            )?;
        }
        write!(text, "int part{number}(int x) {{ return 0")?;
        for function in 0..FUNCTIONS {
            write!(text, " + step{function}(x)")?;
        }
        text.push_str("; }\n");
        fs::write(folder.join(format!("part{number}.c")), text)?;
        writeln!(main, "#include \"part{number}.h\"")?;
    }
    main.push_str("int main(void) { int sum = 0;\n");
    for number in 0..count {
        writeln!(main, "sum += part{number}({number});")?;
    }
    main.push_str("return sum == 1; }\n");
    fs::write(folder.join("main.c"), main)?;
    fs::write(folder.join("Makefile"), MAKEFILE.replace("PROGRAM", PROGRAM))?;
    Ok(())
}

const MAKEFILE: &str = "\
SOURCES := $(wildcard *.c)
OBJECTS := $(SOURCES:%.c=$(O)/%.o)
$(O)/PROGRAM: $(OBJECTS)
\t$(CC) -o $@ $^
$(O)/%.o: %.c
\t$(CC) -O1 -MMD -c -o $@ $<
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_source_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(linux_source(folder.path()), None);
        for name in ["linux-source-6.1.tar.xz", "linux-source-6.12.tar.bz2", "linux-config-6.1"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(linux_source(folder.path()).unwrap().file_name().unwrap(), "linux-source-6.1.tar.xz");
    }

    #[test]
    fn the_generated_project_builds() {
        if let Some(why) = missing() {
            println!("SKIPPED: {why}");
            return;
        }
        let lower = tempfile::tempdir().unwrap();
        let stop = Stop::default();
        let project = Project::unpack(lower.path(), &Amount::TINY, 2, &stop).unwrap();
        project.prepare(lower.path()).unwrap();
        assert!(project.verify(lower.path()).is_err());
        assert!(!project.run(lower.path(), &Amount::TINY, &stop).unwrap().is_zero());
        project.verify(lower.path()).unwrap();
        let mut building = project.start(lower.path()).unwrap();
        assert!(project.verify(lower.path()).is_err(), "it begins anew");
        building.0.wait().unwrap();
        assert!(building.end().is_err(), "what is over is beside nothing");
        project.start(lower.path()).unwrap().end().unwrap();
    }
}
