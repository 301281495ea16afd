//! The table of mounts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::{OsError, Result};

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountInfo {
    /// The mount's id, as statx and name_to_handle_at give it.
    pub id: i32,
    /// The id of the mount it stands on.
    pub parent: i32,
    /// The device that its files show, major and minor.
    pub dev: (u32, u32),
    /// Which folder of the file system is mounted.
    pub root: PathBuf,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Options of this mount, separated by commas.
    pub options: String,
    /// The type, with its subtype: `fuse.shunt`.
    pub fs_type: String,
    /// What is mounted, for people to read.
    pub source: String,
    /// Options of the file system, separated by commas.
    pub super_options: String,
}

/// The mounts that this process sees, each above the ones it stands on later in the list.
///
/// # Errors
/// What reading `/proc/self/mountinfo` gives.
pub fn mounts() -> Result<Vec<MountInfo>> {
    read("/proc/self/mountinfo")
}

/// The mounts that another process sees, in the same order.
///
/// # Errors
/// ENOENT or ESRCH where the process is gone, EACCES where it is not ours to look at.
pub fn mounts_of(pid: u32) -> Result<Vec<MountInfo>> {
    read(&format!("/proc/{pid}/mountinfo"))
}

fn read(path: &str) -> Result<Vec<MountInfo>> {
    let table = std::fs::read(path);
    let table = table.map_err(|error| OsError::from_io_error(&error).unwrap_or(OsError::IO))?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Reads one line; `None` for what is no such line.
fn parse(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let dev = (major.parse().ok()?, minor.parse().ok()?);
    let root = PathBuf::from(unescape(fields.next()?));
    let mount_point = PathBuf::from(unescape(fields.next()?));
    let options = text(fields.next()?);
    // Any number of optional fields, then a dash.
    fields.find(|field| *field == b"-")?;
    let fs_type = text(fields.next()?);
    let source = text(fields.next()?);
    let super_options = text(fields.next()?);
    Some(MountInfo { id, parent, dev, root, mount_point, options, fs_type, source, super_options })
}

fn number(field: &[u8]) -> Option<i32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    unescape(field).to_string_lossy().into_owned()
}

/// The kernel writes space, tab, newline, backslash and `#` as a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = octal(rest).unwrap_or((byte, after));
        plain.push(byte);
        rest = after;
    }
    OsString::from_vec(plain)
}

fn octal(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', rest @ ..] = bytes else {
        return None;
    };
    Some(((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'), rest))
}

#[cfg(test)]
mod test {
    use super::*;
    use std::path::Path;

    #[test]
    fn reads_a_line_with_escapes() {
        let line = br"36 35 98:0 /a\040b /mnt/x\134y\011z rw,noatime shared:1 master:2 - fuse.shunt so\043urce rw,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.parent), (36, 35));
        assert_eq!(mount.dev, (98, 0));
        assert_eq!(mount.root, PathBuf::from("/a b"));
        assert_eq!(mount.mount_point, PathBuf::from("/mnt/x\\y\tz"));
        assert_eq!((mount.options.as_str(), mount.fs_type.as_str()), ("rw,noatime", "fuse.shunt"));
        assert_eq!((mount.source.as_str(), mount.super_options.as_str()), ("so#urce", "rw,user_id=0"));
    }

    #[test]
    fn broken_lines_are_left_out() {
        for line in [
            &b""[..],
            b"36",
            b"36 35 98 / / rw - a b c",
            b"36 35 98:0 / / rw a b c",
            b"x 35 98:0 / / rw - a b c",
        ] {
            assert_eq!(parse(line), None);
        }
        assert_eq!(unescape(br"a\04"), OsString::from(r"a\04"));
        assert_eq!(unescape(br"\777"), OsString::from(r"\777"));
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mounts().unwrap().iter().any(|mount| mount.mount_point == Path::new("/")));
    }
}
