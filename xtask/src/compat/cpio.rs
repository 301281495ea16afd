//! Archives that the kernel unpacks into its first root: cpio in the format `newc`, uncompressed.
//!
//! Several archives may follow each other in one file.

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// An archive that grows. Folders come before what is in them.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: usize,
}

impl Archive {
    /// Adds an empty folder.
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, &[]);
    }

    /// Adds a file that may be executed.
    pub(crate) fn file(&mut self, name: &str, bytes: &[u8]) {
        self.entry(name, PROGRAM, bytes);
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.entries += 1;
        // Inode, mode, owner, group, links, time, length, four numbers of devices, length of the name, checksum.
        let mut header = format!("070701{:08x}{mode:08x}{:08x}{:08x}{:08x}", self.entries, 0, 0, 1);
        header += &format!("{:08x}{:08x}{}{:08x}{:08x}", 0, bytes.len(), "0".repeat(32), name.len() + 1, 0);
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::{Command, Stdio};

    #[test]
    fn lengths_and_places_are_those_of_the_format() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/a", b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..14], b"07070100000001");
        // The header has 110 bytes, the name 4 with its end.
        let second = 110_usize.next_multiple_of(4) + 4;
        assert_eq!(&bytes[second..second + 22], b"07070100000002000081ed");
        let name = second + 110;
        assert_eq!(&bytes[name..name + 6], b"bin/a\0");
        assert_eq!(&bytes[name + 6..name + 14], b"12345\0\0\0");
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }

    /// The format as another program reads it, where there is one.
    #[test]
    fn other_programs_unpack_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = Archive::default();
        archive.folder("inner");
        archive.file("inner/file", &[7; 5001]);
        fs::write(folder.path().join("archive"), archive.finish()).unwrap();
        let mut unpack = Command::new("cpio");
        unpack.args(["-i", "--quiet", "-F", "archive"]).current_dir(&folder).stdin(Stdio::null());
        let Ok(status) = unpack.status() else {
            println!("SKIPPED: there is no cpio");
            return;
        };
        assert!(status.success());
        assert_eq!(fs::read(folder.path().join("inner/file")).unwrap(), [7; 5001]);
    }
}
