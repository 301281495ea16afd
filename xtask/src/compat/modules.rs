//! Kernel modules, with what they depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// What a guest needs: its root (9p on virtio, overlayfs) and what the checks mount. A kernel that has no module of a name
/// has it built in, or lacks it; the checks tell.
///
/// ext4 asks for `crc32c` by its name in the kernel's table of algorithms, so that no dependency leads to its module.
pub(crate) const NAMES: [&str; 8] =
    ["virtio_pci", "9pnet_virtio", "9p", "overlay", "crc32c_generic", "ext4", "loop", "fuse"];

/// Returns the modules of [`NAMES`] and their dependencies below a folder, in an order in which they can be loaded.
pub(crate) fn load(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = BTreeMap::new();
    collect(folder, &mut files)?;
    ensure!(!files.is_empty(), "{}: no modules", folder.display());
    in_order(&NAMES, &mut |name| files.get(name).map(|path| read(path)).transpose())
}

fn in_order(
    names: &[&str],
    read: &mut dyn FnMut(&str) -> Result<Option<Vec<u8>>>,
) -> Result<Vec<(String, Vec<u8>)>> {
    fn visit(
        name: &str,
        read: &mut dyn FnMut(&str) -> Result<Option<Vec<u8>>>,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<()> {
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(bytes) = read(name)? else { return Ok(()) };
        for dependency in dependencies(&bytes) {
            visit(&dependency, read, seen, order)?;
        }
        order.push((name.to_owned(), bytes));
        Ok(())
    }
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    for name in names {
        visit(name, read, &mut seen, &mut order)?;
    }
    Ok(order)
}

/// The names in a module's entry `depends=`, one of several texts that a zero byte ends.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let at = module.windows(KEY.len()).position(|window| window == KEY);
    let value = at.and_then(|at| module[at + KEY.len()..].split(|byte| *byte == 0).next());
    let text = String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
    text.split(',').filter(|name| !name.is_empty()).map(normal).collect()
}

/// Finds every module, whatever it is compressed with.
fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if let Some((name, "" | ".xz" | ".zst")) =
            entry.file_name().to_string_lossy().split_once(".ko")
        {
            files.insert(normal(name), path);
        }
    }
    Ok(())
}

/// Files have dashes where the kernel has underscores, or not.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(path).with_context(|| path.display().to_string()),
    };
    let output = Command::new(program).args(["-d", "-c", "-q"]).arg(path).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(depends: &str) -> Vec<u8> {
        format!("\u{7f}ELF depends=wrong\0license=GPL\0\0depends={depends}\0name=x\0").into_bytes()
    }

    #[test]
    fn dependencies_are_loaded_first_and_once() {
        let table = BTreeMap::from([
            ("top", module("middle,other-one")),
            ("middle", module("bottom")),
            ("other_one", module("bottom,built_in")),
            ("bottom", module("")),
        ]);
        let order = in_order(&["top", "absent", "bottom"], &mut |name| Ok(table.get(name).cloned())).unwrap();
        let names: Vec<&str> = order.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["bottom", "middle", "other_one", "top"]);
    }

    #[test]
    fn a_circle_and_a_file_without_an_entry_come_to_an_end() {
        let order =
            in_order(&["a"], &mut |name| Ok(Some(module(if name == "a" { "b" } else { "a" })))).unwrap();
        assert_eq!(order.len(), 2);
        assert!(dependencies(b"depends=x").is_empty() && dependencies(b"").is_empty());
    }

    #[test]
    fn modules_are_found_by_name_and_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        for name in ["9pnet-virtio.ko", "inner/fuse.ko.xz", "inner/fuse.ko.sig", "modules.dep"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let mut files = BTreeMap::new();
        collect(folder.path(), &mut files).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["9pnet_virtio", "fuse"]);
        assert_eq!(read(&files["9pnet_virtio"]).unwrap(), b"9pnet-virtio.ko");
        assert!(read(&files["fuse"]).is_err(), "it is not compressed");
    }
}
