//! Error numbers as they travel in replies.

use std::io::{Error, ErrorKind};
use std::num::NonZeroU16;

/// The result of a file system operation.
pub type Result<T> = std::result::Result<T, Errno>;

/// An error number, positive, 1..=4095. The reply encoder applies the sign, once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(NonZeroU16);

macro_rules! errnos {
    ($($name:ident = $number:literal;)*) => {
        impl Errno {
            $(
                #[doc = concat!("`E", stringify!($name), "`, ", stringify!($number), " on Linux.")]
                pub const $name: Self = Self(NonZeroU16::new($number).expect("not zero"));
            )*

            /// The symbolic name without its `E`, where this crate knows it.
            #[must_use]
            pub const fn symbol(self) -> Option<&'static str> {
                match self.0.get() {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    PERM = 1; NOENT = 2; INTR = 4; IO = 5; NXIO = 6; TOOBIG = 7; BADF = 9; AGAIN = 11; NOMEM = 12;
    ACCES = 13; FAULT = 14; BUSY = 16; EXIST = 17; XDEV = 18; NODEV = 19; NOTDIR = 20; ISDIR = 21;
    INVAL = 22; NFILE = 23; MFILE = 24; NOTTY = 25; TXTBSY = 26; FBIG = 27; NOSPC = 28; SPIPE = 29;
    ROFS = 30; MLINK = 31; PIPE = 32; RANGE = 34; DEADLK = 35; NAMETOOLONG = 36; NOLCK = 37;
    NOSYS = 38; NOTEMPTY = 39; LOOP = 40; NODATA = 61; PROTO = 71; OVERFLOW = 75; OPNOTSUPP = 95;
    NOTCONN = 107; TIMEDOUT = 110; ALREADY = 114; STALE = 116; DQUOT = 122; CANCELED = 125;
}

impl Errno {
    /// The error with this number; `None` outside 1..=4095.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number > 4095 {
            return None;
        }
        match NonZeroU16::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The error that a lower file system gave. ENOSYS becomes EOPNOTSUPP, because the kernel
    /// remembers an ENOSYS for the whole connection; what is no error number becomes EIO.
    #[must_use]
    pub fn from_lower(number: i32) -> Self {
        match u16::try_from(number).ok().and_then(Self::new) {
            Some(Self::NOSYS) => Self::OPNOTSUPP,
            Some(errno) => errno,
            None => Self::IO,
        }
    }

    /// The number, positive.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

/// The number that the system gave, as [`Errno::from_lower`] takes it; where it gave none, the one that fits the kind, or EIO.
impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// As for the error itself.
impl From<&Error> for Errno {
    fn from(error: &Error) -> Self {
        if let Some(number) = error.raw_os_error() {
            return Self::from_lower(number);
        }
        match error.kind() {
            ErrorKind::NotFound => Self::NOENT,
            ErrorKind::PermissionDenied => Self::ACCES,
            ErrorKind::AlreadyExists => Self::EXIST,
            ErrorKind::NotADirectory => Self::NOTDIR,
            ErrorKind::IsADirectory => Self::ISDIR,
            ErrorKind::DirectoryNotEmpty => Self::NOTEMPTY,
            ErrorKind::ReadOnlyFilesystem => Self::ROFS,
            ErrorKind::StorageFull => Self::NOSPC,
            ErrorKind::QuotaExceeded => Self::DQUOT,
            ErrorKind::FileTooLarge => Self::FBIG,
            ErrorKind::InvalidInput => Self::INVAL,
            ErrorKind::InvalidFilename => Self::NAMETOOLONG,
            ErrorKind::TimedOut => Self::TIMEDOUT,
            ErrorKind::Interrupted => Self::INTR,
            ErrorKind::WouldBlock => Self::AGAIN,
            ErrorKind::OutOfMemory => Self::NOMEM,
            ErrorKind::Unsupported => Self::OPNOTSUPP,
            _ => Self::IO,
        }
    }
}

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.symbol() {
            Some(symbol) => write!(f, "E{}", if symbol == "TOOBIG" { "2BIG" } else { symbol }),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Errno {}

const _: () = assert!(size_of::<Result<()>>() == 2);

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn bounds_hold() {
        assert_eq!(Errno::new(0), None);
        assert_eq!(Errno::new(4095).map(Errno::get), Some(4095));
        assert_eq!(Errno::new(4096), None);
    }

    #[test]
    fn enosys_of_a_lower_file_is_never_kept() {
        assert_eq!(Errno::from_lower(38), Errno::OPNOTSUPP);
        assert_eq!(Errno::from_lower(28), Errno::NOSPC);
        assert_eq!(Errno::from_lower(-5), Errno::IO);
        assert_eq!(Errno::from_lower(0), Errno::IO);
        assert_eq!(Errno::from_lower(70_000), Errno::IO);
    }

    #[test]
    fn an_error_of_std_keeps_its_number_or_gets_one() {
        assert_eq!(Errno::from(Error::from_raw_os_error(28)), Errno::NOSPC);
        assert_eq!(Errno::from(Error::from_raw_os_error(38)), Errno::OPNOTSUPP);
        assert_eq!(Errno::from(Error::from(ErrorKind::NotFound)), Errno::NOENT);
        assert_eq!(Errno::from(Error::other("whatever")), Errno::IO);
        let asked = || -> Result<()> { Err(Error::from(ErrorKind::TimedOut))? };
        assert_eq!(asked(), Err(Errno::TIMEDOUT));
    }
}
