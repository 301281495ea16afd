//! What `fsverity measure`, `lsattr` and others ask of a sealed file, answered as fs-verity does.

use shuntfs::{Errno, Result};
use shuntfs_verity::Digest;

/// `FS_IOC_ENABLE_VERITY`
const ENABLE: u32 = 0x4080_6685;
/// `FS_IOC_MEASURE_VERITY`
const MEASURE: u32 = 0xc004_6686;
/// `FS_IOC_GETFLAGS`, of 64-bit programs and of 32-bit ones.
const GET_FLAGS: [u32; 2] = [0x8008_6601, 0x8004_6601];
/// `FS_IOC_SETFLAGS`
const SET_FLAGS: [u32; 2] = [0x4008_6602, 0x4004_6602];
/// `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`
const FS_GET: u32 = 0x801c_581f;
const FS_SET: u32 = 0x401c_5820;
/// `FS_VERITY_FL`
const VERITY_FLAG: u32 = 0x0010_0000;
/// `FS_XFLAG_VERITY`, Linux 7.0
const VERITY_XFLAG: u32 = 0x0002_0000;
/// Length of `struct fsxattr`.
const FSXATTR_LEN: usize = 28;

/// IOCTL on a sealed file, or (`None`) on a folder: what the caller gets.
pub(crate) fn answer(digest: Option<&Digest>, command: u32, input: &[u8], room: usize) -> Result<Vec<u8>> {
    let flags = if digest.is_some() { VERITY_FLAG } else { 0 };
    match command {
        MEASURE => measure(digest.ok_or(Errno::NODATA)?, input, room),
        // The kernel's own callers take four bytes, others a long.
        _ if GET_FLAGS.contains(&command) => Ok(cut(&u64::from(flags).to_le_bytes(), room)),
        FS_GET => {
            let xflags = if digest.is_some() { VERITY_XFLAG } else { 0 };
            let mut out = [0; FSXATTR_LEN];
            out[..4].copy_from_slice(&xflags.to_ne_bytes());
            Ok(cut(&out, room))
        }
        ENABLE => Err(if digest.is_some() { Errno::EXIST } else { Errno::ISDIR }),
        FS_SET => Err(Errno::PERM),
        _ if SET_FLAGS.contains(&command) => Err(Errno::PERM),
        // The tree's bytes would go to an address that the kernel does not let us write to.
        _ => Err(Errno::NOTTY),
    }
}

/// What fs-verity itself would answer for a sealed file whose other ioctls are answered below; `None` for those.
#[must_use]
pub fn seal_ioctl(digest: &Digest, command: u32, input: &[u8], room: usize) -> Option<Result<Vec<u8>>> {
    let is_ours = matches!(command, MEASURE | ENABLE) || GET_FLAGS.contains(&command);
    is_ours.then(|| answer(Some(digest), command, input, room))
}

/// `struct fsverity_digest`: algorithm, length, digest. Before Linux 6.12 there is room for the head alone.
fn measure(digest: &Digest, input: &[u8], room: usize) -> Result<Vec<u8>> {
    let wanted = input.get(2..4).and_then(|size| size.try_into().ok()).map_or(0, u16::from_ne_bytes);
    let bytes = digest.as_bytes();
    if usize::from(wanted) < bytes.len() || room < 4 + bytes.len() {
        return Err(Errno::OVERFLOW);
    }
    let len = u16::try_from(bytes.len()).map_err(|_| Errno::OVERFLOW)?;
    let mut out = Vec::with_capacity(4 + bytes.len());
    out.extend_from_slice(&u16::from(digest.algorithm().number()).to_ne_bytes());
    out.extend_from_slice(&len.to_ne_bytes());
    out.extend_from_slice(bytes);
    Ok(out)
}

fn cut(bytes: &[u8], room: usize) -> Vec<u8> {
    bytes[..bytes.len().min(room)].to_vec()
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_verity::Algorithm;

    #[test]
    fn answers_are_those_of_fs_verity() {
        let digest = Digest::new(Algorithm::Sha256, &[7; 32]).unwrap();
        let of_file = |command, input: &[u8], room| answer(Some(&digest), command, input, room);
        let of_folder = |command| answer(None, command, &[0; 4], 64);
        let measured = of_file(MEASURE, &[0, 0, 64, 0], 68).unwrap();
        assert_eq!((&measured[..4], &measured[4..]), (&[1, 0, 32, 0][..], &[7; 32][..]));
        assert_eq!(of_file(MEASURE, &[0, 0, 31, 0], 35), Err(Errno::OVERFLOW));
        assert_eq!(of_file(MEASURE, &[0, 0, 64, 0], 4), Err(Errno::OVERFLOW), "before Linux 6.12");
        assert_eq!(of_file(MEASURE, &[], 0), Err(Errno::OVERFLOW));
        assert_eq!(of_file(GET_FLAGS[0], &[0; 8], 4), Ok(vec![0, 0, 0x10, 0]));
        assert_eq!(of_file(GET_FLAGS[0], &[0; 8], 8), Ok(vec![0, 0, 0x10, 0, 0, 0, 0, 0]));
        assert_eq!(of_file(FS_GET, &[], 28).map(|out| (out.len(), out[2])), Ok((28, 2)));
        assert_eq!(of_file(ENABLE, &[0; 128], 0), Err(Errno::EXIST));
        assert_eq!(of_file(SET_FLAGS[1], &[0; 4], 0), Err(Errno::PERM));
        assert_eq!(of_file(FS_SET, &[0; 28], 0), Err(Errno::PERM));
        assert_eq!(of_file(0xc028_6687, &[0; 40], 40), Err(Errno::NOTTY));
        assert_eq!(of_folder(MEASURE), Err(Errno::NODATA));
        assert_eq!(of_folder(ENABLE), Err(Errno::ISDIR));
        assert_eq!(of_folder(GET_FLAGS[1]), Ok(vec![0; 8]));
    }
}
