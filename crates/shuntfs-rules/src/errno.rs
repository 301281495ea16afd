//! Error numbers by name.

use crate::decision::ErrorNumber;

/// Those that a refusal may well have, in the numbering of most architectures. Not among them: ENOSYS, which the kernel takes
/// for a lasting answer, and what tells the kernel to ask again.
const NUMBERS: &[(&str, i32)] = &[
    ("EPERM", 1),
    ("ENOENT", 2),
    ("EIO", 5),
    ("ENXIO", 6),
    ("EBADF", 9),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("EXDEV", 18),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ETXTBSY", 26),
    ("EFBIG", 27),
    ("ENOSPC", 28),
    ("EROFS", 30),
    ("ENODATA", 61),
    ("EREMOTE", 66),
    ("ECOMM", 70),
    ("EOPNOTSUPP", 95),
    ("EUCLEAN", 117),
    ("EDQUOT", 122),
    ("ENOMEDIUM", 123),
    ("ENOKEY", 126),
    ("EKEYEXPIRED", 127),
    ("EKEYREVOKED", 128),
    ("EKEYREJECTED", 129),
];

/// The names, for a list of what there is.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NUMBERS.iter().map(|(name, _)| *name)
}

impl ErrorNumber {
    /// The number with this name, where a rule may name it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        NUMBERS.iter().find(|(known, _)| *known == name).map(|(_, number)| Self(*number))
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        NUMBERS.iter().find(|(_, number)| *number == self.0).map_or("EIO", |(name, _)| name)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_and_numbers_are_each_others() {
        for name in names() {
            assert_eq!(ErrorNumber::named(name).unwrap().name(), name);
        }
        assert_eq!(ErrorNumber::named("EACCES"), Some(ErrorNumber::ACCES));
        assert_eq!(ErrorNumber::named("ENOSYS"), None);
        assert_eq!(ErrorNumber::named("eacces"), None);
    }
}
