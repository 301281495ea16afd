//! What a file is that is neither a raw image nor qcow2, told by its first and last bytes. Shown as raw, such a file would be the
//! bytes of another format, and a first write to the "disk" would destroy it.

/// How many bytes from the start are examined.
pub(crate) const START_LEN: usize = 512;
/// How many before the end.
pub(crate) const END_LEN: u64 = 512;

/// Where the bytes are, which, and what the file is then.
const AT_START: [(usize, &[u8], &str); 18] = [
    (0, b"KDMV", "a vmdk image"),
    (0, b"COWD", "a vmdk image"),
    (0, b"# Disk DescriptorFile", "the descriptor of a vmdk image"),
    (0x40, b"\x7f\x10\xda\xbe", "a vdi image"),
    (0, b"vhdxfile", "a vhdx image"),
    (0, b"conectix", "a vhd (vpc) image"),
    (0, b"QED\0", "a qed image"),
    (0, b"WithoutFreeSpace", "a parallels image"),
    (0, b"WithouFreSpacExt", "a parallels image"),
    (0, b"LUKS\xba\xbe", "a disk encrypted by LUKS"),
    (0, b"Bochs Virtual HD Image", "a bochs image"),
    (0, b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop", "a cloop image"),
    (0, b"EVF\x09\x0d\x0a\xff\x00", "an ewf (E01) image"),
    (0, b"\x1f\x8b\x08", "a file compressed by gzip"),
    (0, b"\xfd7zXZ\0", "a file compressed by xz"),
    (0, b"\x28\xb5\x2f\xfd", "a file compressed by zstd"),
    (0, b"BZh", "a file compressed by bzip2"),
    (0, b"OOOM\0", "the state of a User Mode Linux disk"),
];

/// The same before the end: the last 512 bytes begin with it.
const AT_END: [(&[u8], &str); 2] = [(b"conectix", "a vhd (vpc) image"), (b"koly", "a dmg image")];

/// What a file with these bytes is.
pub(crate) fn format(start: &[u8], end: &[u8]) -> Option<&'static str> {
    let starts = AT_START
        .iter()
        .find(|(place, magic, _)| start.get(*place..).is_some_and(|rest| rest.starts_with(magic)));
    let by_start = starts.map(|(_, _, what)| *what);
    by_start.or_else(|| AT_END.iter().find(|(magic, _)| end.starts_with(magic)).map(|(_, what)| *what))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn formats_are_told_by_their_bytes() {
        let mut vdi = vec![0; START_LEN];
        vdi[0x40..0x44].copy_from_slice(&0xbeda_107f_u32.to_le_bytes());
        for (start, what) in [
            (&b"KDMV\x01\0\0\0"[..], Some("a vmdk image")),
            (&vdi, Some("a vdi image")),
            (b"vhdxfile", Some("a vhdx image")),
            (b"LUKS\xba\xbe\0\x02", Some("a disk encrypted by LUKS")),
            (b"KDM", None),
            (b"", None),
            (&[0; START_LEN], None),
            // The boot sector of a disk.
            (b"\xeb\x63\x90", None),
        ] {
            assert_eq!(format(start, &[0; 512]), what, "{start:?}");
        }
        assert_eq!(format(&[0; 512], b"conectix\0\0"), Some("a vhd (vpc) image"));
        assert_eq!(format(&[0; 512], b"\0conectix"), None);
    }
}
