//! A name of a request, copied so that the work can go to another thread.

use std::ffi::CStr;

use shuntfs::{Errno, Name, Result};

/// The longest name that any lower file system takes (`NAME_MAX`).
const NAME_MAX: usize = 255;

/// One path component on the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameBuf {
    bytes: [u8; NAME_MAX + 1],
    len: u8,
}

impl NameBuf {
    /// Copies a name.
    ///
    /// # Errors
    /// ENAMETOOLONG beyond 255 bytes, as the lower file system would say.
    pub(crate) fn new(name: Name<'_>) -> Result<Self> {
        let name = name.as_bytes();
        let len = u8::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
        let mut bytes = [0; NAME_MAX + 1];
        bytes[..name.len()].copy_from_slice(name);
        Ok(Self { bytes, len })
    }

    /// The name.
    pub(crate) fn as_c_str(&self) -> &CStr {
        let bytes = &self.bytes[..=usize::from(self.len)];
        CStr::from_bytes_with_nul(bytes).expect("it was one component, and the rest is zero")
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn every_length_that_a_name_may_have_survives() {
        for len in [1, 2, 254, 255] {
            let name = CString::new(vec![0xfe; len]).unwrap();
            let copy = NameBuf::new(Name::new(&name).unwrap()).unwrap();
            assert_eq!(copy.as_c_str(), name.as_c_str());
        }
        let long = CString::new(vec![b'a'; 256]).unwrap();
        assert_eq!(NameBuf::new(Name::new(&long).unwrap()).err(), Some(Errno::NAMETOOLONG));
    }
}
