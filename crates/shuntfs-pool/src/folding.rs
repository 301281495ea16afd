//! Lower folders that take different names for the same.
//!
//! Rules, seals and the protection of the store compare names byte by byte. Where the lower file system finds `SECRET` for
//! `secret`, or one form of an accented letter for another, whoever asks for the other spelling would pass them. So what lies in such
//! a folder is refused where names decide: EOPNOTSUPP for whoever looks into it, and no mount where it is the source itself.
//!
//! Some file systems do so as a whole, some by folder (`chattr +F`, which is inherited), and of some nobody can say: network
//! file systems and other FUSE servers. There it is tried out with a name that the folder has, once for each folder.

use std::collections::HashSet;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::dir::DirReader;
use shuntfs_sys::{FsMagic, Stat, open_path_at, reopen, stat_of};

use crate::branch::Branch;
use crate::error::errno;
use crate::guard;
use crate::mode;
use crate::node::{Marks, Node, Parts};
use crate::op::ioctl::Command;
use crate::shared::Shared;

/// `FS_IOC_GETFLAGS`, and the flag of a folder whose names are folded.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_CASEFOLD_FL: u32 = 0x4000_0000;

/// How many names of a folder are read to find one that tells, and how many are tried.
const READ_MAX: usize = 1024;
const TRIED_MAX: usize = 4;

/// What is known of a kind of file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Names are bytes.
    Exact,
    /// It folds all names.
    Folds(&'static str),
    /// It folds those of folders with a flag.
    ByFolder,
    /// That depends on how it was made or mounted, or on what is behind it.
    Unknown,
}

fn kind_of(magic: FsMagic) -> Kind {
    match magic.0 {
        // btrfs, squashfs, erofs, ramfs, nilfs, cramfs, minix (two of three), romfs
        0x9123_683e | 0x7371_7368 | 0xe0f5_e1e2 | 0x8584_58f6 | 0x3434 | 0x28cd_3d45 | 0x2468 | 0x4d5a
        | 0x7275 => Kind::Exact,
        0x4d44 => Kind::Folds("vfat"),
        0x2011_bab0 => Kind::Folds("exfat"),
        0x7366_746e | 0x5346_544e => Kind::Folds("ntfs"),
        0x4244 => Kind::Folds("hfs"),
        0x482b | 0x4858 => Kind::Folds("hfsplus"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Kind::Folds("cifs"),
        0xf995_e849 => Kind::Folds("hpfs"),
        0xadff => Kind::Folds("affs"),
        // ext2 to ext4, f2fs, tmpfs, bcachefs; and what passes the question on: overlayfs, ecryptfs.
        0xef53 | 0xf2f5_2010 | 0x0102_1994 | 0xca45_1a4e | 0x794c_7630 | 0xf15f => Kind::ByFolder,
        // xfs (ascii-ci), jfs, zfs, isofs, udf, 9p, NFS, FUSE, vboxsf and all that is not heard of.
        _ => Kind::Unknown,
    }
}

/// Refuses a folder whose names are not compared as here, where names decide about anything.
///
/// # Errors
/// EOPNOTSUPP, and those of asking.
pub(crate) fn check(shared: &Shared, folder: &Arc<Node>, lower: &LowerFile) -> Result<()> {
    if folder.has(Marks::EXACT) || !shared.goes_by_names() {
        return Ok(());
    }
    if let Some(parts) = folder.parts() {
        return check_parts(shared, folder, parts);
    }
    let magic = shared.mount(folder.mount()).magic;
    match folds(shared, magic, lower)? {
        Some(false) => {
            folder.mark(Marks::EXACT);
            Ok(())
        }
        Some(true) => Err(refuse(folder, Folds::of(kind_of(magic)))),
        // It has no name that could tell; the next look asks again.
        None => Ok(()),
    }
}

/// The same of a folder of a merge, before anything of it is open; nothing of other folders.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_merged(shared: &Shared, folder: &Arc<Node>) -> Result<()> {
    match folder.parts().filter(|_| shared.goes_by_names()) {
        Some(parts) => check_parts(shared, folder, parts),
        None => Ok(()),
    }
}

/// The same of a folder of a merge: names must be bytes on each branch that has it, because a name is looked for on all of them.
fn check_parts(shared: &Shared, folder: &Arc<Node>, parts: &Parts) -> Result<()> {
    if parts.is_exact() {
        return Ok(());
    }
    let (places, mut are_exact) = (parts.all(), true);
    for place in &places {
        let magic = shared.mount(place.mount()).magic;
        let Ok(lower) = shared.descriptor_at(folder, place) else {
            // Nothing is found there either, as long as that is so.
            are_exact = false;
            continue;
        };
        match folds(shared, magic, &lower)? {
            Some(true) => return Err(refuse(folder, Folds::of(kind_of(magic)))),
            answer => are_exact &= answer.is_some(),
        }
    }
    if are_exact {
        parts.are_exact(&places);
    }
    Ok(())
}

/// Says once that a folder is refused.
fn refuse(folder: &Node, what: Folds) -> Errno {
    if !folder.has(Marks::FOLDS) {
        folder.mark(Marks::FOLDS);
        tracing::error!(node = folder.id.get(), "a folder is refused: {what}");
    }
    Errno::OPNOTSUPP
}

/// Whether a folder on such a file system takes different names for the same; `None` where nothing in it tells.
///
/// # Errors
/// Those of asking.
pub(crate) fn folds(shared: &Shared, magic: FsMagic, folder: &LowerFile) -> Result<Option<bool>> {
    match kind_of(magic) {
        Kind::Exact => Ok(Some(false)),
        Kind::Folds(_) => Ok(Some(true)),
        Kind::ByFolder => has_flag(shared, folder).map(Some),
        Kind::Unknown => try_out(shared, folder),
    }
}

/// Why names cannot decide there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folds(&'static str);

impl Folds {
    fn of(kind: Kind) -> Self {
        Self(match kind {
            Kind::Folds(what) => what,
            Kind::ByFolder => "a folder with chattr +F",
            Kind::Exact | Kind::Unknown => "the lower file system, as was tried out,",
        })
    }
}

impl std::fmt::Display for Folds {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(what) = self;
        write!(
            out,
            "{what} takes different names for the same, so neither rules by name nor seals can hold there"
        )
    }
}

/// Why the source itself, or a branch, cannot be shown under what goes by names: which that is, and what does it.
pub(crate) fn of_source(shared: &Shared) -> Result<Option<(PathBuf, Folds)>> {
    if !shared.goes_by_names() {
        return Ok(None);
    }
    // One that is set aside would keep us waiting; what is in it is checked folder by folder when somebody looks into it.
    for branch in shared.branches.in_use().into_iter().filter(|branch| !branch.health.is_aside()) {
        if let Some(why) = of_branch(shared, branch)? {
            return Ok(Some((branch.source().to_owned(), why)));
        }
    }
    Ok(None)
}

/// The same of one branch.
pub(crate) fn of_branch(shared: &Shared, branch: &Branch) -> Result<Option<Folds>> {
    let magic = branch.mounts.own().magic;
    let folds = folds(shared, magic, branch.root())?;
    Ok((folds == Some(true)).then(|| Folds::of(kind_of(magic))))
}

fn has_flag(shared: &Shared, lower: &LowerFile) -> Result<bool> {
    let fd = shared.opening(|| reopen(lower, mode::O_RDONLY | mode::O_DIRECTORY))?;
    let mut data = [0; 4];
    let command = Command { number: FS_IOC_GETFLAGS, output_max: 4 };
    match guard::ask(&LowerFile::new(fd), command, &mut data) {
        Ok(_) => Ok(u32::from_ne_bytes(data) & FS_CASEFOLD_FL != 0),
        // It knows of no flags, and so of none that folds.
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Asks for names of the folder in other spellings; `None` where it has none that could tell.
fn try_out(shared: &Shared, lower: &LowerFile) -> Result<Option<bool>> {
    let names = names_in(shared, lower)?;
    let mut told = None;
    let telling = names.iter().filter(|name| name.as_bytes().iter().any(u8::is_ascii_alphabetic));
    for name in telling.take(TRIED_MAX) {
        let Some(meant) = look(shared, lower, name)? else { continue };
        for other in spellings(name).iter().filter(|other| !names.contains(*other)) {
            match look(shared, lower, other)? {
                Some(found) if (found.dev, found.ino) == (meant.dev, meant.ino) => return Ok(Some(true)),
                _ => told = Some(false),
            }
        }
    }
    Ok(told)
}

fn look(shared: &Shared, lower: &LowerFile, name: &CString) -> Result<Option<Stat>> {
    match shared.opening(|| open_path_at(lower, name)) {
        Ok(fd) => stat_of(&fd).map(Some).map_err(errno),
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::ACCES | Errno::IO)) => Err(error),
        // What may not be in a name there is no other spelling of one that may.
        Err(_) => Ok(None),
    }
}

fn names_in(shared: &Shared, lower: &LowerFile) -> Result<HashSet<CString>> {
    let fd = shared.opening(|| reopen(lower, mode::O_RDONLY | mode::O_DIRECTORY))?;
    let (mut reader, mut names) = (DirReader::new(fd), HashSet::new());
    while names.len() < READ_MAX {
        if let Some(record) = reader.peek().map_err(errno)? {
            names.insert(record.name.to_owned());
            reader.advance().map_err(errno)?;
        } else if !reader.fill().map_err(errno)? {
            break;
        }
    }
    Ok(names)
}

/// Other spellings of a name: in the other case; with a letter of full width, which compatible normalisation takes for the
/// plain one; and with the sign of Kelvin, which every normalisation takes for a K.
fn spellings(name: &CString) -> Vec<CString> {
    let bytes = name.as_bytes();
    let swapped = bytes.iter().map(|byte| match byte {
        b'a'..=b'z' => byte.to_ascii_uppercase(),
        byte => byte.to_ascii_lowercase(),
    });
    let mut all = vec![swapped.collect::<Vec<u8>>()];
    let replaced =
        |at: usize, with: char| [&bytes[..at], with.to_string().as_bytes(), &bytes[at + 1..]].concat();
    if let Some(at) = bytes.iter().position(u8::is_ascii_alphabetic) {
        let wide = char::from_u32(0xfee0 + u32::from(bytes[at]));
        all.extend(wide.map(|wide| replaced(at, wide)));
    }
    all.extend(bytes.iter().position(|byte| *byte == b'K').map(|at| replaced(at, '\u{212a}')));
    all.into_iter().filter_map(|bytes| CString::new(bytes).ok()).collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::options::PoolOptions;

    #[test]
    fn names_are_spelled_in_other_ways() {
        let spelled = |name: &str| -> Vec<String> {
            let name = CString::new(name).unwrap();
            spellings(&name).into_iter().map(|name| name.into_string().unwrap()).collect()
        };
        assert_eq!(spelled("1-Keep.txt"), ["1-kEEP.TXT", "1-\u{ff2b}eep.txt", "1-\u{212a}eep.txt"]);
        assert_eq!(spelled("a"), ["A", "\u{ff41}"]);
    }

    #[test]
    fn what_does_not_fold_is_found_exact() {
        let folder = tempfile::tempdir().unwrap();
        let shared = Shared::open(&PoolOptions::new(folder.path())).unwrap();
        let root = shared.descriptor(&shared.root).unwrap();
        assert_eq!(try_out(&shared, &root), Ok(None), "there is nothing to try");
        std::fs::write(folder.path().join("17"), "").unwrap();
        assert_eq!(try_out(&shared, &root), Ok(None));
        for name in ["Name", "nAME"] {
            std::fs::write(folder.path().join(name), "").unwrap();
            assert_eq!(try_out(&shared, &root), Ok(Some(false)), "{name}");
        }
        assert_eq!(has_flag(&shared, &root), Ok(false));
    }

    #[test]
    fn whole_file_systems_are_known() {
        for (magic, kind) in [
            (0x4d44, Kind::Folds("vfat")),
            (0x2011_bab0, Kind::Folds("exfat")),
            (0xef53, Kind::ByFolder),
            (0x0102_1994, Kind::ByFolder),
            (0x9123_683e, Kind::Exact),
            (0x6573_5546, Kind::Unknown),
            (0x5846_5342, Kind::Unknown),
        ] {
            assert_eq!(kind_of(FsMagic(magic)), kind, "{magic:#x}");
        }
    }
}
