//! Packages of other Debian releases, by an apt with settings of its own: nothing of the machine's apt is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The releases that have the kernels.
const SUITES: [&str; 5] = ["bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid"];
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const SETTINGS: &str = "/etc/apt";

/// How long one command may take, in seconds.
const LIMIT: &str = "900";

/// An apt with its own lists of packages.
#[derive(Debug, Clone)]
pub(crate) struct Apt {
    settings: PathBuf,
}

impl Apt {
    /// Sets it up in a folder and reads what the mirror of this machine has.
    pub(crate) fn set_up(folder: &Path) -> Result<Self> {
        let mirror = mirror_of_this_machine().with_context(|| {
            format!("{SETTINGS} names no mirror of Debian: the kernels come from Debian's packages")
        })?;
        for name in ["state/lists/partial", "cache/archives/partial", "none"] {
            fs::create_dir_all(folder.join(name)).with_context(|| folder.display().to_string())?;
        }
        let at = folder.display();
        let sources: String =
            SUITES.iter().map(|suite| format!("deb [signed-by={KEYS}] {mirror} {suite} main\n")).collect();
        let settings = format!(
            "Dir::Etc::sourcelist \"{at}/sources.list\"; Dir::Etc::sourceparts \"{at}/none\";
             Dir::Etc::preferences \"/dev/null\"; Dir::Etc::preferencesparts \"{at}/none\";
             Dir::State \"{at}/state\"; Dir::State::status \"{at}/state/status\"; Dir::Cache \"{at}/cache\";
             Acquire::Languages \"none\"; APT::Sandbox::User \"root\"; APT::Architecture \"amd64\";\n"
        );
        for (name, text) in
            [("sources.list", sources), ("apt.conf", settings), ("state/status", String::new())]
        {
            fs::write(folder.join(name), text).with_context(|| folder.display().to_string())?;
        }
        let apt = Self { settings: folder.join("apt.conf") };
        // A release that the mirror no longer has must not hide the others.
        if let Err(error) = apt.run("apt-get", &["-q", "update"], folder) {
            println!("{error:#}");
        }
        Ok(apt)
    }

    /// Returns the names of all packages that start with a text.
    pub(crate) fn names(&self, start: &str) -> Result<Vec<String>> {
        let folder = Path::new("/");
        let text = self.run("apt-cache", &["pkgnames", start], folder)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Downloads packages and unpacks them into one folder.
    pub(crate) fn unpack(&self, packages: &[String], folder: &Path) -> Result<()> {
        let archives = folder.join("archives");
        fs::create_dir_all(&archives).with_context(|| archives.display().to_string())?;
        let words: Vec<&str> =
            ["-q", "download"].into_iter().chain(packages.iter().map(String::as_str)).collect();
        self.run("apt-get", &words, &archives)?;
        for archive in fs::read_dir(&archives)? {
            let archive = archive?.path();
            let status = Command::new("dpkg-deb").arg("-x").arg(&archive).arg(folder).status();
            ensure!(
                status.context("cannot start dpkg-deb")?.success(),
                "{}: not unpacked",
                archive.display()
            );
        }
        fs::remove_dir_all(&archives).with_context(|| archives.display().to_string())
    }

    fn run(&self, program: &str, words: &[&str], folder: &Path) -> Result<String> {
        let mut command = Command::new("timeout");
        command.args(["--foreground", LIMIT, program]).args(words);
        let output = command.env("APT_CONFIG", &self.settings).current_dir(folder).output();
        let output = output.with_context(|| format!("cannot start {program}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{program} {}: {}", words.join(" "), said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn mirror_of_this_machine() -> Option<String> {
    let settings = Path::new(SETTINGS);
    let parts = fs::read_dir(settings.join("sources.list.d")).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = parts.map(|entry| entry.path()).collect();
    files.sort();
    files.push(settings.join("sources.list"));
    files.iter().find_map(|file| mirror(&fs::read_to_string(file).ok()?))
}

/// The first address of Debian's own archive; its security archive has another name.
fn mirror(sources: &str) -> Option<String> {
    let lines = sources.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace);
    let found = words.find(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian"))?;
    Some(found.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_found_in_both_formats() {
        let list = "# deb http://old.example/debian a main\n\
                    deb http://mirror.example/debian-security bookworm-security main\n\
                    deb [arch=amd64] https://mirror.example/debian/ bookworm main\n";
        assert_eq!(mirror(list).as_deref(), Some("https://mirror.example/debian"));
        let blocks = "Types: deb\nURIs: http://mirror.example:3142/debian\nSuites: trixie\n";
        assert_eq!(mirror(blocks).as_deref(), Some("http://mirror.example:3142/debian"));
        assert_eq!(mirror("deb http://mirror.example/ubuntu noble main\n"), None);
    }
}
