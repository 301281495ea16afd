//! One path component.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;

/// One path component with its NUL, so that a lower `openat` needs no copy. Holds any bytes but NUL and,
/// when made by [`Name::new`], no `/`, and is neither empty nor `.` nor `..`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<'a>(&'a CStr);

impl<'a> Name<'a> {
    /// The name in `name`; `None` where it is empty, `.`, `..` or holds a `/`.
    #[must_use]
    pub fn new(name: &'a CStr) -> Option<Self> {
        let bytes = name.to_bytes();
        let single = !bytes.is_empty() && bytes != b"." && bytes != b".." && !bytes.contains(&b'/');
        single.then_some(Self(name))
    }

    /// The name with its NUL.
    #[must_use]
    pub const fn as_c_str(self) -> &'a CStr {
        self.0
    }

    /// The name, as the paths of the standard library take it.
    #[must_use]
    pub fn as_os_str(self) -> &'a OsStr {
        OsStr::from_bytes(self.as_bytes())
    }

    /// The name without its NUL.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0.to_bytes()
    }
}

impl std::fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_single_components_pass() {
        for good in [c"a", c"...", c".x", c"\xff\xfe", c" "] {
            assert!(Name::new(good).is_some(), "{good:?}");
        }
        for bad in [c"", c".", c"..", c"/", c"a/b"] {
            assert!(Name::new(bad).is_none(), "{bad:?}");
        }
    }
}
