//! Branches as users write them: `/a:/b=RO:/mnt/disk*=NC,10G`, as mergerfs has it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use globset::GlobBuilder;
use shuntfs_pool::{BranchOptions, BranchWords};

use crate::failure::Failure;
use crate::units::size;

/// As many as the pool takes.
const BRANCHES_MAX: usize = 256;

/// The branches that SRC names; `None` where it is one folder: a folder that is there is meant, whatever it is called.
///
/// # Errors
/// A mode that is none, a size that is none, a pattern that finds nothing.
pub(crate) fn of_source(source: &Path) -> Result<Option<Vec<BranchOptions>>, Failure> {
    let text = source.as_os_str().as_bytes();
    let is_one = source.symlink_metadata().is_ok() || !text.iter().any(|byte| b":=*?[{".contains(byte));
    if is_one { Ok(None) } else { read(source.as_os_str()).map(Some) }
}

/// The branches of a list, those of patterns in the order of their names.
///
/// # Errors
/// As [`of_source`].
pub(crate) fn read(list: &OsStr) -> Result<Vec<BranchOptions>, Failure> {
    let mut all = Vec::new();
    for text in list.as_bytes().split(|byte| *byte == b':').filter(|text| !text.is_empty()) {
        let branch = read_one(text)?;
        let found = expand(&branch.path)?;
        all.extend(found.into_iter().map(|path| BranchOptions { path, ..branch.clone() }));
    }
    Ok(all)
}

/// The same list with paths from the root on, for a server that leaves the folder of its caller.
///
/// # Errors
/// Where the working directory is gone and a path was relative to it.
pub(crate) fn absolute(source: &Path) -> std::io::Result<OsString> {
    if !matches!(of_source(source), Ok(Some(_))) {
        return Ok(std::path::absolute(source)?.into());
    }
    let list = source.as_os_str().as_bytes().split(|byte| *byte == b':').filter(|text| !text.is_empty());
    let absolute =
        list.map(|text| Ok(std::path::absolute(OsStr::from_bytes(text))?.into_os_string().into_vec()));
    Ok(OsString::from_vec(absolute.collect::<std::io::Result<Vec<_>>>()?.join(&b':')))
}

/// Reads `PATH[=MODE[,MINFREE][,id=NAME]]`.
fn read_one(text: &[u8]) -> Result<BranchOptions, Failure> {
    let Some((path, words)) = BranchWords::part(text) else {
        let whole = BranchOptions::new(OsString::from_vec(text.to_owned()));
        let name = text.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        return match name.iter().position(|byte| *byte == b'=') {
            Some(equals) if !whole.path.exists() => {
                let said = String::from_utf8_lossy(&name[equals + 1..]);
                let mode = said.split(',').next().unwrap_or_default();
                Err(Failure::usage(format!("{mode:?} is no mode of a branch")).hint("RW, RO or NC"))
            }
            _ => Ok(whole),
        };
    };
    let BranchWords { mode, min_free, id } = words.map_err(Failure::usage)?;
    let read = |text| size(text).map_err(|why| Failure::usage(format!("`{text}` is not {why}")));
    let min_free = min_free.map(read).transpose()?;
    Ok(BranchOptions { path: OsStr::from_bytes(path).into(), mode, min_free, id: id.map(str::to_owned) })
}

/// The folders that a pattern finds; of a path without one, or that is there, the path.
fn expand(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if path.symlink_metadata().is_ok() {
        return Ok(vec![path.to_owned()]);
    }
    let found = without_braces(path)?;
    if found.len() > 1 {
        return Ok(found.iter().map(|path| expand(path)).collect::<Result<Vec<_>, _>>()?.concat());
    }
    let is_pattern = |part: &OsStr| part.as_bytes().iter().any(|byte| b"*?[".contains(byte));
    if !is_pattern(path.as_os_str()) {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = vec![PathBuf::new()];
    for component in path.components() {
        let part = component.as_os_str();
        if !matches!(component, Component::Normal(part) if is_pattern(part)) {
            found.iter_mut().for_each(|folder| folder.push(part));
            continue;
        }
        let pattern = part.to_str().and_then(|text| GlobBuilder::new(text).build().ok());
        let matcher = pattern
            .ok_or_else(|| Failure::usage(format!("{} is no pattern", path.display())))?
            .compile_matcher();
        // As a shell has it, names that begin with a dot are meant only where the pattern begins so.
        let may_be_hidden = part.as_bytes().starts_with(b".");
        let is_meant =
            |name: &OsStr| matcher.is_match(name) && (may_be_hidden || !name.as_bytes().starts_with(b"."));
        let below = |folder: PathBuf| {
            let shown = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
            let entries = fs::read_dir(shown).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name()).filter(|name| is_meant(name));
            let mut below: Vec<PathBuf> = names.map(|name| folder.join(name)).collect();
            below.sort();
            below
        };
        found = found.into_iter().flat_map(below).collect();
    }
    found.retain(|path| path.is_dir());
    if found.is_empty() {
        let failure = Failure::new(format!("{} finds no folder", path.display()));
        return Err(failure.hint("are the disks mounted?"));
    }
    Ok(found)
}

/// The paths that all braces with a comma in them stand for.
fn without_braces(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = vec![path.to_owned()];
    let next = |paths: &[PathBuf]| {
        let of_one = |(at, path): (usize, &PathBuf)| Some((at, of_braces(path.as_os_str().as_bytes())?));
        paths.iter().enumerate().find_map(of_one)
    };
    while let Some((at, several)) = next(&paths) {
        paths.splice(at..=at, several);
        if paths.len() > BRANCHES_MAX {
            return Err(Failure::usage(format!("{} are more than {BRANCHES_MAX} branches", path.display())));
        }
    }
    Ok(paths)
}

/// The paths that the first braces with a comma in them stand for, as a shell has it: `/{a,b}` for `/a` and `/b`.
fn of_braces(path: &[u8]) -> Option<Vec<PathBuf>> {
    for open in (0..path.len()).filter(|at| path[*at] == b'{') {
        let (mut depth, mut cuts) = (0, vec![open]);
        for (at, byte) in path.iter().enumerate().skip(open) {
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                b',' if depth == 1 => cuts.push(at),
                _ => {}
            }
            if depth > 0 {
                continue;
            }
            if cuts.len() == 1 {
                break;
            }
            cuts.push(at);
            let part =
                |ends: &[usize]| [&path[..open], &path[ends[0] + 1..ends[1]], &path[at + 1..]].concat();
            let paths = cuts.windows(2).map(|ends| PathBuf::from(OsString::from_vec(part(ends))));
            return Some(paths.collect());
        }
    }
    None
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_pool::policy::BranchMode;

    fn texts(list: &str) -> Result<Vec<(String, BranchMode, Option<u64>)>, String> {
        let text = |branch: BranchOptions| {
            (branch.path.to_string_lossy().into_owned(), branch.mode, branch.min_free)
        };
        let read = read(OsStr::new(list)).map_err(|failure| failure.to_string());
        read.map(|all| all.into_iter().map(text).collect())
    }

    #[test]
    fn branches_are_read_as_mergerfs_writes_them() {
        use BranchMode::{NoCreate, ReadOnly, ReadWrite};
        let branch = |path: &str, mode, min_free| (path.to_owned(), mode, min_free);
        assert_eq!(
            texts("/a:/b=RO:/c=d=NC,2K:"),
            Ok(vec![
                branch("/a", ReadWrite, None),
                branch("/b", ReadOnly, None),
                branch("/c=d", NoCreate, Some(2048)),
            ])
        );
        assert!(texts("/a=ro").is_err() && texts("/a=RW,x").is_err() && texts("/a=RW,id=x y").is_err());
        assert!(texts("/b=c/a=ro,id=x").unwrap_err().contains("\"ro\" is no mode"));
        let called = read(OsStr::new("/a=RW,id=photos:/b")).map_err(|failure| failure.to_string()).unwrap();
        assert_eq!(
            called.iter().map(|branch| branch.id.as_deref()).collect::<Vec<_>>(),
            [Some("photos"), None]
        );
        let folder = tempfile::Builder::new().prefix("a=").tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        assert_eq!(texts(path), Ok(vec![branch(path, ReadWrite, None)]), "it is there by this name");
    }

    #[test]
    fn patterns_find_folders_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().to_str().unwrap();
        for name in ["disk2/data", "disk10/data", "disk1/data", ".disk3/data", "disk4", "other/data"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("disk5"), "").unwrap();
        let found = |list: &str| -> Result<Vec<String>, String> {
            let texts = texts(&format!("{top}/{list}"))?;
            Ok(texts.into_iter().map(|(path, ..)| path[top.len() + 1..].to_owned()).collect())
        };
        assert_eq!(found("disk*/data=NC").unwrap(), ["disk1/data", "disk10/data", "disk2/data"]);
        assert_eq!(found("disk?").unwrap(), ["disk1", "disk2", "disk4"]);
        assert_eq!(found("[do]*[!0-9]/data").unwrap(), ["other/data"]);
        assert!(found("nothing*").unwrap_err().contains("finds no folder"));
        assert_eq!(found("{other,disk{2,1}}/data=NC").unwrap(), ["other/data", "disk2/data", "disk1/data"]);
        assert_eq!(found("{other/d*,disk?}").unwrap(), ["other/data", "disk1", "disk2", "disk4"]);
        assert!(found("{other,nothing*}").unwrap_err().contains("finds no folder"));
        assert!(found(&"{a,b}".repeat(40)).unwrap_err().contains("more than 256"));
        for unchanged in ["{other}", "a}{,b", "{", "{a{,"] {
            assert_eq!(found(unchanged).unwrap(), [unchanged]);
        }
    }

    #[test]
    fn what_is_there_is_one_folder_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a:b=RO*");
        fs::create_dir(&odd).unwrap();
        assert!(of_source(&odd).unwrap().is_none());
        assert!(of_source(Path::new("/nowhere/at/all")).unwrap().is_none());
        assert_eq!(of_source(Path::new("/nowhere:/nothing")).unwrap().unwrap().len(), 2);
        assert_eq!(of_source(Path::new("/nowhere=RO")).unwrap().unwrap().len(), 1);
        let here = std::path::absolute("x").unwrap();
        assert_eq!(absolute(Path::new("x")).unwrap(), here);
        let both = absolute(Path::new("x:y=RO,1G")).unwrap().into_string().unwrap();
        let here = here.parent().unwrap().display().to_string();
        assert_eq!(both, format!("{here}/x:{here}/y=RO,1G"));
    }
}
