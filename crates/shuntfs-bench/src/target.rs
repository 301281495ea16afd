//! The targets: ways to reach the same lower folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::goal::Role;
use crate::machine;
use crate::options::Options;
use crate::process;

/// One way to reach the lower folder.
#[derive(Debug, Clone)]
pub struct Target {
    /// The column's name.
    pub name: String,
    /// How it is mounted.
    pub mounting: Mounting,
    /// Which goals it is held to.
    pub role: Option<Role>,
}

/// How a target is mounted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Mounting {
    /// Not at all: the lower folder itself.
    Bare,
    /// By the kernel alone.
    Bind,
    /// By a program that stays in the foreground: its words, with `{SRC}` and `{MNT}` to be replaced.
    Server(Vec<String>),
}

impl Target {
    fn new(name: &str, mounting: Mounting) -> Self {
        Self { name: name.to_owned(), mounting, role: None }
    }

    fn server(name: &str, words: &[&str], role: Option<Role>) -> Self {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Self { name: name.to_owned(), mounting: Mounting::Server(words), role }
    }

    /// Reads `NAME=COMMAND`.
    fn parse(text: &str) -> Result<Self> {
        let (name, command) =
            text.split_once('=').with_context(|| format!("`{text}` is not NAME=COMMAND"))?;
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        for place in ["{SRC}", "{MNT}"] {
            if !words.iter().any(|word| word.contains(place)) {
                bail!("the command of target `{name}` does not say where {place} goes");
            }
        }
        Ok(Self { name: name.to_owned(), mounting: Mounting::Server(words), role: None })
    }

    /// Returns what is run, for the report.
    #[must_use]
    pub fn about(&self) -> String {
        match &self.mounting {
            Mounting::Bare => "the lower folder itself".to_owned(),
            Mounting::Bind => "mount --bind {SRC} {MNT}".to_owned(),
            Mounting::Server(words) => words.join(" "),
        }
    }

    /// Returns whether the target asks for FUSE over io_uring.
    pub(crate) fn wants_uring(&self) -> bool {
        match &self.mounting {
            Mounting::Server(words) => words.iter().any(|word| word.contains("uring")),
            Mounting::Bare | Mounting::Bind => false,
        }
    }
}

/// Fills in the places of a template.
pub(crate) fn fill(words: &[String], source: &Path, mount_point: &Path) -> Command {
    let fill = |word: &String| {
        let source = source.to_string_lossy();
        word.replace("{SRC}", &source).replace("{MNT}", &mount_point.to_string_lossy())
    };
    let mut filled = words.iter().map(fill);
    // `setpriv` makes the kernel end the server when we are killed and cannot do it ourselves.
    let mut command = if process::on_path("setpriv") {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        command
    } else {
        Command::new(filled.next().unwrap_or_default())
    };
    command.args(filled);
    command
}

/// Returns every target that this machine has, the bare folder first.
pub(crate) fn all(options: &Options) -> Result<Vec<Target>> {
    let mut targets = vec![Target::new("bare", Mounting::Bare)];
    if rustix::process::geteuid().is_root() {
        targets.push(Target::new("bind", Mounting::Bind));
    }
    if let Some(shunt) = shunt(options.shunt.as_deref()) {
        targets.extend(ours(&shunt.to_string_lossy()));
    }
    targets.extend(peers());
    for text in &options.templates {
        targets.push(Target::parse(text)?);
    }
    Ok(targets)
}

/// Returns the targets to measure: all, or those asked for with the bare folder in front.
pub(crate) fn chosen(options: &Options) -> Result<Vec<Target>> {
    let all = all(options)?;
    if options.targets.is_empty() {
        return Ok(all);
    }
    for name in &options.targets {
        if !all.iter().any(|target| target.name == *name) {
            let known: Vec<_> = all.iter().map(|target| target.name.as_str()).collect();
            bail!("there is no target `{name}` here; there are {}", known.join(", "));
        }
    }
    let wanted = |target: &Target| target.name == "bare" || options.targets.contains(&target.name);
    Ok(all.into_iter().filter(wanted).collect())
}

fn ours(shunt: &str) -> Vec<Target> {
    let mount = [shunt, "mount", "-f", "{SRC}", "{MNT}"];
    let served = |name, transport, flow, role| {
        let words = [&mount[..], &["--transport", transport, "--flow", flow]].concat();
        Target::server(name, &words, role)
    };
    vec![
        Target::server("shunt", &mount, Some(Role::Default)),
        served("shunt-uring", "uring", "relay", Some(Role::Served)),
        served("shunt-cloned", "cloned", "splice", None),
        served("shunt-device", "device", "splice", None),
    ]
}

/// Returns the peers that are on the PATH, each with the options that serve it best.
fn peers() -> Vec<Target> {
    let known: &[(&str, &[&str])] = &[
        ("passthrough_hp", &["passthrough_hp", "--foreground", "--nopassthrough", "{SRC}", "{MNT}"]),
        (
            "passthrough_hp-uring",
            &["passthrough_hp", "--foreground", "--nopassthrough", "-o", "io_uring", "{SRC}", "{MNT}"],
        ),
        ("passthrough_hp-passthrough", &["passthrough_hp", "--foreground", "{SRC}", "{MNT}"]),
        ("mergerfs", &["mergerfs", "-f", "-o", mergerfs_options(), "{SRC}", "{MNT}"]),
        ("bindfs", &["bindfs", "-f", "{SRC}", "{MNT}"]),
    ];
    let found = known.iter().filter(|(_, words)| process::on_path(words[0]));
    found.map(|(name, words)| Target::server(name, words, None)).collect()
}

/// Without its reserve, which is larger than our whole file system, and with passthrough where it has that.
fn mergerfs_options() -> &'static str {
    /// The first release with passthrough.
    const PASSTHROUGH_SINCE: (u32, u32) = (2, 41);
    if !process::on_path("mergerfs") {
        return "";
    }
    match two_numbers(&machine::version("mergerfs")) {
        Some(version) if version >= PASSTHROUGH_SINCE => {
            "minfreespace=0,cache.files=auto-full,passthrough.io=rw"
        }
        _ => "minfreespace=0,cache.files=auto-full",
    }
}

/// Reads the first two numbers of a version.
fn two_numbers(text: &str) -> Option<(u32, u32)> {
    let digits = text.find(|letter: char| letter.is_ascii_digit())?;
    let mut parts = text[digits..].split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn shunt(said: Option<&Path>) -> Option<PathBuf> {
    if let Some(said) = said {
        return Some(said.to_path_buf());
    }
    if let Some(variable) = std::env::var_os("SHUNT_BIN") {
        return Some(PathBuf::from(variable));
    }
    let beside = std::env::current_exe().ok()?.parent()?.join("shunt");
    if beside.is_file() {
        return Some(beside);
    }
    process::on_path("shunt").then(|| PathBuf::from("shunt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_must_say_where_the_folders_go() {
        assert!(Target::parse("bindfs").is_err());
        assert!(Target::parse("x=bindfs {SRC}").is_err());
        let target = Target::parse("x=bindfs -f {SRC} {MNT}").unwrap();
        assert_eq!(target.about(), "bindfs -f {SRC} {MNT}");
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(two_numbers("mergerfs version: 2.33.5"), Some((2, 33)));
        assert!(two_numbers("mergerfs v2.41.0") > Some((2, 5)));
        assert_eq!(two_numbers("none"), None);
    }

    #[test]
    fn places_are_filled_in() {
        let words = ["cp".to_owned(), "a={SRC}".to_owned(), "{MNT}".to_owned()];
        let command = fill(&words, Path::new("/s"), Path::new("/m"));
        let args: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert!(args.ends_with(&["a=/s".to_owned(), "/m".to_owned()]), "{args:?}");
    }
}
