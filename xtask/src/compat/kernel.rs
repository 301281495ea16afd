//! A kernel from Debian's packages, made ready to be booted, and kept below the target folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::apt::Apt;
use super::cpio::Archive;
use super::modules;
use super::plan::Wanted;

/// The packages that a kernel comes in: one until 6.x, an empty one with three others since.
const PACKAGES: [&str; 4] = ["linux-image-", "linux-binary-", "linux-modules-", "linux-base-"];
const ARCHITECTURE: &str = "-amd64";
/// Debian's other kernels of a version: for clouds, real time, without a signature, and their debug information.
const FLAVOURS: [&str; 4] = ["cloud", "rt", "unsigned", "dbg"];

/// A kernel that can be booted.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// What `uname -r` says there.
    pub(crate) release: String,
    pub(crate) image: PathBuf,
    /// Its first root, without the first program.
    pub(crate) root: PathBuf,
}

impl Kernel {
    /// Returns a kernel that was made before, or makes one; apt is asked for only where it is needed.
    pub(crate) fn get(folder: &Path, wanted: Wanted, apt: &mut dyn FnMut() -> Result<Apt>) -> Result<Self> {
        let home = folder.join(wanted.to_string());
        let (release, image, root) = (home.join("release"), home.join("vmlinuz"), home.join("root.cpio"));
        if let Ok(text) = fs::read_to_string(&release)
            && let Some((release, names)) = text.split_once('\n')
            && names == modules::NAMES.join(" ")
        {
            return Ok(Self { release: release.to_owned(), image, root });
        }
        let apt = apt()?;
        let mut names = Vec::new();
        for start in PACKAGES {
            names.extend(apt.names(start)?);
        }
        let found =
            newest(&names, wanted).with_context(|| format!("{wanted}: Debian has no package of it"))?;
        println!("{wanted}: getting {}", found.join(" "));
        let unpacked = folder.join("unpacked");
        remove(&unpacked)?;
        apt.unpack(&[found, vec!["busybox-static".to_owned()]].concat(), &unpacked)?;
        remove(&home)?;
        fs::create_dir_all(&home).with_context(|| home.display().to_string())?;
        let name = make(&unpacked, &image, &root).with_context(|| wanted.to_string())?;
        fs::write(&release, format!("{name}\n{}", modules::NAMES.join(" ")))?;
        remove(&unpacked)?;
        Ok(Self { release: name, image, root })
    }
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    Ok(())
}

/// Picks the packages of the newest kernel of those that are asked for.
fn newest(names: &[String], wanted: Wanted) -> Option<Vec<String>> {
    let version_of = |name: &str| -> Option<String> {
        let version =
            PACKAGES.iter().find_map(|start| name.strip_prefix(start))?.strip_suffix(ARCHITECTURE)?;
        let is_plain = !version.split('-').any(|part| FLAVOURS.contains(&part));
        let numbers = numbers(version);
        let fits = match wanted {
            Wanted::Series(major, minor) => numbers.starts_with(&[u64::from(major), u64::from(minor)]),
            Wanted::Newest => numbers.len() > 2,
        };
        (is_plain && fits && version.starts_with(|letter: char| letter.is_ascii_digit()))
            .then(|| version.to_owned())
    };
    let newest = names.iter().filter_map(|name| version_of(name)).max_by_key(|version| numbers(version))?;
    let packages = PACKAGES.map(|start| format!("{start}{newest}{ARCHITECTURE}"));
    Some(packages.into_iter().filter(|package| names.contains(package)).collect())
}

/// The numbers in a version, which compare as versions do: `6.12.95+deb13` is 6, 12, 95, 13.
fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split(|letter: char| !letter.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// Makes what is booted out of unpacked packages. Returns the kernel's release.
fn make(unpacked: &Path, image: &Path, root: &Path) -> Result<String> {
    let folders = ["lib/modules", "usr/lib/modules"].map(|name| unpacked.join(name));
    let folder = folders.iter().find(|folder| folder.is_dir()).context("no folder of modules")?;
    let releases = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let releases = releases.collect::<Result<Vec<String>>>()?;
    let [release] = releases.as_slice() else { anyhow::bail!("modules of several kernels: {releases:?}") };
    let modules = folder.join(release);
    let images = [unpacked.join(format!("boot/vmlinuz-{release}")), modules.join("vmlinuz")];
    let from = images.iter().find(|path| path.is_file()).context("no kernel")?;
    fs::copy(from, image).with_context(|| image.display().to_string())?;
    let shells = ["bin/busybox", "usr/bin/busybox"].map(|name| unpacked.join(name));
    let shell = shells.iter().find(|path| path.is_file()).context("no busybox")?;
    let mut archive = Archive::default();
    for name in ["bin", "modules", "proc", "sys", "dev", "host", "changes", "root"] {
        archive.folder(name);
    }
    archive.file("bin/busybox", &fs::read(shell)?);
    let loaded = modules::load(&modules)?;
    ensure!(loaded.len() < 1000, "{} modules", loaded.len());
    for (index, (name, bytes)) in loaded.iter().enumerate() {
        archive.file(&format!("modules/{index:03}-{name}"), bytes);
    }
    fs::write(root, archive.finish()).with_context(|| root.display().to_string())?;
    Ok(release.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(names: &[&str], wanted: Wanted) -> Option<Vec<String>> {
        newest(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(), wanted)
    }

    #[test]
    fn the_newest_of_a_series_is_picked() {
        let names = [
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-50-amd64",
            "linux-image-6.1.0-51-cloud-amd64",
            "linux-image-6.1.0-51-rt-amd64",
            "linux-image-6.1.0-52-amd64-unsigned",
            "linux-image-6.12.95+deb12-amd64",
            "linux-image-6.12.95+deb13-amd64",
            "linux-image-6.12.96+deb13-cloud-amd64",
            "linux-image-6.12.95+deb13-amd64-dbg",
            "linux-image-amd64",
        ];
        let one = |name: &str| Some(vec![name.to_owned()]);
        assert_eq!(pick(&names, Wanted::Series(6, 1)), one("linux-image-6.1.0-50-amd64"));
        assert_eq!(pick(&names, Wanted::Series(6, 12)), one("linux-image-6.12.95+deb13-amd64"));
        assert_eq!(pick(&names, Wanted::Newest), one("linux-image-6.12.95+deb13-amd64"));
        assert_eq!(pick(&names, Wanted::Series(6, 8)), None);
        assert_eq!(pick(&["linux-image-amd64", "linux-base-", "linux-image-rt-amd64"], Wanted::Newest), None);
    }

    #[test]
    fn a_kernel_in_several_packages_is_picked_whole() {
        let names = [
            "linux-base-7.3.4+deb13-amd64",
            "linux-modules-7.3.4+deb13-amd64",
            "linux-binary-7.3.4+deb13-amd64",
            "linux-binary-7.2.12+deb13-amd64",
            "linux-binary-7.3.4+deb13-cloud-amd64",
        ];
        let found = pick(&names, Wanted::Newest).unwrap();
        assert_eq!(
            found,
            [
                "linux-binary-7.3.4+deb13-amd64",
                "linux-modules-7.3.4+deb13-amd64",
                "linux-base-7.3.4+deb13-amd64"
            ]
        );
    }

    /// What was made before is used; what lacks a module is made again.
    #[test]
    fn a_kernel_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("6.1");
        fs::create_dir(&home).unwrap();
        let mut asked = 0;
        let mut get = || {
            Kernel::get(folder.path(), Wanted::Series(6, 1), &mut || {
                asked += 1;
                anyhow::bail!("no apt here")
            })
        };
        assert!(get().is_err());
        fs::write(home.join("release"), format!("6.1.0-50-amd64\n{}", modules::NAMES.join(" "))).unwrap();
        assert_eq!(get().unwrap().release, "6.1.0-50-amd64");
        fs::write(home.join("release"), "6.1.0-50-amd64\nfuse").unwrap();
        assert!(get().is_err());
        assert_eq!(asked, 2);
    }

    #[test]
    fn unpacked_packages_become_an_image_and_a_root() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let modules = "usr/lib/modules/7.3.4+deb13-amd64";
        for (name, text) in [
            ("usr/bin/busybox", "the shell"),
            (&format!("{modules}/vmlinuz"), "the kernel"),
            (&format!("{modules}/kernel/fuse.ko"), "a module"),
        ] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        }
        let (image, root) = (at("image"), at("root"));
        assert_eq!(make(folder.path(), &image, &root).unwrap(), "7.3.4+deb13-amd64");
        assert_eq!(fs::read(&image).unwrap(), b"the kernel");
        let archive = fs::read(&root).unwrap();
        for text in ["the shell", "modules/000-fuse", "a module"] {
            assert!(archive.windows(text.len()).any(|window| window == text.as_bytes()), "{text}");
        }
        fs::remove_file(at("usr/bin/busybox")).unwrap();
        assert!(make(folder.path(), &image, &root).unwrap_err().to_string().contains("busybox"));
    }
}
