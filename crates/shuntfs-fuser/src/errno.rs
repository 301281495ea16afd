//! Error numbers.

use std::num::NonZeroI32;

use shuntfs_wire as wire;

/// An error number, positive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Errno(NonZeroI32);

macro_rules! errnos {
    ($($name:ident = $number:literal;)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`, ", stringify!($number), " on Linux.")]
                pub const $name: Self = Self(NonZeroI32::new($number).expect("not zero"));
            )*
        }
    };
}

errnos! {
    EPERM = 1; ENOENT = 2; ESRCH = 3; EINTR = 4; EIO = 5; ENXIO = 6; E2BIG = 7; ENOEXEC = 8; EBADF = 9;
    ECHILD = 10; EAGAIN = 11; EWOULDBLOCK = 11; ENOMEM = 12; EACCES = 13; EFAULT = 14; ENOTBLK = 15; EBUSY = 16;
    EEXIST = 17; EXDEV = 18; ENODEV = 19; ENOTDIR = 20; EISDIR = 21; EINVAL = 22; ENFILE = 23; EMFILE = 24;
    ENOTTY = 25; ETXTBSY = 26; EFBIG = 27; ENOSPC = 28; ESPIPE = 29; EROFS = 30; EMLINK = 31; EPIPE = 32; EDOM = 33;
    ERANGE = 34; EDEADLK = 35; ENAMETOOLONG = 36; ENOLCK = 37; ENOSYS = 38; ENOTEMPTY = 39; ELOOP = 40; ENOMSG = 42;
    EIDRM = 43; ENODATA = 61; EREMOTE = 66; ENOLINK = 67; EPROTO = 71; EMULTIHOP = 72; EBADMSG = 74; EOVERFLOW = 75;
    EILSEQ = 84; EUSERS = 87; ENOTSOCK = 88; EDESTADDRREQ = 89; EMSGSIZE = 90; EPROTOTYPE = 91; ENOPROTOOPT = 92;
    EPROTONOSUPPORT = 93; ESOCKTNOSUPPORT = 94; EOPNOTSUPP = 95; ENOTSUP = 95; EPFNOSUPPORT = 96; EAFNOSUPPORT = 97;
    EADDRINUSE = 98; EADDRNOTAVAIL = 99; ENETDOWN = 100; ENETUNREACH = 101; ENETRESET = 102; ECONNABORTED = 103;
    ECONNRESET = 104; ENOBUFS = 105; EISCONN = 106; ENOTCONN = 107; ESHUTDOWN = 108; ETOOMANYREFS = 109;
    ETIMEDOUT = 110; ECONNREFUSED = 111; EHOSTDOWN = 112; EHOSTUNREACH = 113; EALREADY = 114; EINPROGRESS = 115;
    ESTALE = 116; EDQUOT = 122; ECANCELED = 125; EOWNERDEAD = 130; ENOTRECOVERABLE = 131;
}

/// The kernel refuses an answer with a larger error and lets the request wait on (`fuse_dev_do_write`).
const LARGEST: u16 = 511;

impl Errno {
    /// What says that there is no such extended attribute.
    pub const NO_XATTR: Self = Self::ENODATA;

    /// The error with this number; EIO where it is not positive.
    pub fn from_i32(err: i32) -> Self {
        NonZeroI32::new(err).filter(|number| number.get() > 0).map_or(Self::EIO, Self)
    }

    /// The number.
    pub fn code(self) -> i32 {
        self.0.get()
    }

    /// The same as it travels; EIO for what the kernel would not take.
    pub(crate) fn to_wire(self) -> wire::Errno {
        let number = u16::try_from(self.code()).ok().filter(|number| *number <= LARGEST);
        number.and_then(wire::Errno::new).unwrap_or(wire::Errno::IO)
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self::from_i32(error.raw_os_error().unwrap_or(0))
    }
}

impl From<std::io::ErrorKind> for Errno {
    fn from(kind: std::io::ErrorKind) -> Self {
        std::io::Error::from(kind).into()
    }
}

impl From<Errno> for i32 {
    fn from(errno: Errno) -> Self {
        errno.code()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn numbers_come_and_go() {
        assert_eq!(Errno::from_i32(2), Errno::ENOENT);
        assert_eq!((Errno::from_i32(0), Errno::from_i32(-2)), (Errno::EIO, Errno::EIO));
        assert_eq!(i32::from(Errno::NO_XATTR), 61);
        assert_eq!(Errno::from(std::io::Error::from_raw_os_error(28)), Errno::ENOSPC);
        assert_eq!(Errno::from(std::io::ErrorKind::NotFound), Errno::EIO);
    }

    #[test]
    fn what_the_kernel_would_refuse_does_not_travel() {
        assert_eq!(Errno::ENOSYS.to_wire(), wire::Errno::NOSYS);
        assert_eq!(Errno::from_i32(511).to_wire().get(), 511);
        assert_eq!(Errno::from_i32(512).to_wire(), wire::Errno::IO);
        assert_eq!(Errno::from_i32(i32::MAX).to_wire(), wire::Errno::IO);
    }
}
