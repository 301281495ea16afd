//! From bytes to a typed request.

use super::extensions::Extensions;
use super::op::Op;
use super::split::{data, fixed, name, nothing, only_name, only_string, records, string, two_names};
use crate::op::{BatchForgetIn, InitIn, RemovemappingIn, SetxattrIn};
use crate::{InHeader, Opcode};

/// A request whose every length was checked. It borrows names and data from where the bytes lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Its header.
    pub header: InHeader,
    /// What it asks for.
    pub op: Op<'a>,
    /// What creations carry beyond that.
    pub extensions: Extensions<'a>,
}

/// What is wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParseError {
    /// The fixed struct has another length.
    Fixed {
        /// Bytes that came.
        got: usize,
        /// Bytes that the struct has.
        needed: usize,
    },
    /// A string has no NUL.
    NoNul,
    /// A name is empty, `.`, `..`, or holds a `/`.
    Name,
    /// Data or records are not as many as announced.
    Data {
        /// Bytes that came.
        got: usize,
        /// Bytes or records announced.
        announced: u32,
    },
    /// Something follows the end.
    Trailing {
        /// How many bytes.
        got: usize,
    },
    /// The extensions are longer than the request, or their lengths do not add up.
    Extensions,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed { got, needed } => write!(f, "{got} bytes of arguments where {needed} are due"),
            Self::NoNul => f.write_str("a string without an end"),
            Self::Name => f.write_str("a name that is no single component"),
            Self::Data { got, announced } => write!(f, "{got} bytes follow, and {announced} were announced"),
            Self::Trailing { got } => write!(f, "{got} bytes too many"),
            Self::Extensions => f.write_str("extensions that do not add up"),
        }
    }
}

impl std::error::Error for ParseError {}

impl<'a> Request<'a> {
    /// Types a request: `fixed` is the struct that follows the header ([`Opcode::fixed_len`] bytes), `rest` all
    /// that follows that. On io_uring the two arrive apart; from a device they follow each other.
    ///
    /// # Errors
    /// What is wrong with it. Never panics, never allocates.
    pub fn parse(header: &InHeader, fixed: &'a [u8], rest: &'a [u8]) -> Result<Self, ParseError> {
        let extensions_len = header.extensions_len();
        let body_len = rest.len().checked_sub(extensions_len).ok_or(ParseError::Extensions)?;
        let (body, extensions) = rest.split_at(body_len);
        let extensions = Extensions::parse(extensions)?;
        let op = match Opcode::new(header.opcode) {
            Some(opcode) => op(opcode, fixed, body)?,
            None => Op::Unknown(header.opcode),
        };
        Ok(Self { header: *header, op, extensions })
    }
}

fn op<'a>(opcode: Opcode, bytes: &'a [u8], rest: &'a [u8]) -> Result<Op<'a>, ParseError> {
    if opcode.fixed_len() == 0 {
        nothing(bytes)?;
    }
    match opcode {
        Opcode::Lookup
        | Opcode::Symlink
        | Opcode::Mknod
        | Opcode::Mkdir
        | Opcode::Unlink
        | Opcode::Rmdir
        | Opcode::Rename
        | Opcode::Rename2
        | Opcode::Link
        | Opcode::Create
        | Opcode::Tmpfile => names(opcode, bytes, rest),
        Opcode::Setxattr | Opcode::Getxattr | Opcode::Listxattr | Opcode::Removexattr => {
            xattrs(opcode, bytes, rest)
        }
        Opcode::Write | Opcode::Ioctl | Opcode::NotifyReply | Opcode::BatchForget | Opcode::Removemapping => {
            with_data(opcode, bytes, rest)
        }
        // CUSE and old kernels: what follows, or how long it is, is their own.
        Opcode::Init => init(bytes, rest),
        Opcode::CuseInit => Ok(Op::CuseInit(fixed(bytes)?)),
        plain => {
            nothing(rest)?;
            alone(plain, bytes)
        }
    }
}

fn names<'a>(opcode: Opcode, bytes: &'a [u8], rest: &'a [u8]) -> Result<Op<'a>, ParseError> {
    Ok(match opcode {
        Opcode::Symlink => {
            let (name, target) = name(rest)?;
            Op::Symlink { name, target: only_string(target)? }
        }
        Opcode::Mknod => Op::Mknod { arg: fixed(bytes)?, name: only_name(rest)? },
        Opcode::Mkdir => Op::Mkdir { arg: fixed(bytes)?, name: only_name(rest)? },
        Opcode::Unlink => Op::Unlink { name: only_name(rest)? },
        Opcode::Rmdir => Op::Rmdir { name: only_name(rest)? },
        Opcode::Rename => {
            let (name, new_name) = two_names(rest)?;
            Op::Rename { arg: fixed(bytes)?, name, new_name }
        }
        Opcode::Rename2 => {
            let (name, new_name) = two_names(rest)?;
            Op::Rename2 { arg: fixed(bytes)?, name, new_name }
        }
        Opcode::Link => Op::Link { arg: fixed(bytes)?, name: only_name(rest)? },
        Opcode::Create => Op::Create { arg: fixed(bytes)?, name: only_name(rest)? },
        Opcode::Tmpfile => {
            only_string(rest)?;
            Op::Tmpfile { arg: fixed(bytes)? }
        }
        _ => match only_string(rest)?.to_bytes() {
            b"." => Op::LookupDot,
            b".." => Op::LookupDotDot,
            _ => Op::Lookup { name: only_name(rest)? },
        },
    })
}

fn xattrs<'a>(opcode: Opcode, bytes: &'a [u8], rest: &'a [u8]) -> Result<Op<'a>, ParseError> {
    Ok(match opcode {
        Opcode::Setxattr => {
            let arg = setxattr(bytes)?;
            let (name, value) = string(rest)?;
            Op::Setxattr { arg, name, value: data(value, arg.size)? }
        }
        Opcode::Getxattr => Op::Getxattr { arg: fixed(bytes)?, name: only_string(rest)? },
        Opcode::Listxattr => {
            nothing(rest)?;
            Op::Listxattr(fixed(bytes)?)
        }
        _ => Op::Removexattr { name: only_string(rest)? },
    })
}

/// Takes the short form, too, which has no flags of the kernel's.
fn setxattr(bytes: &[u8]) -> Result<SetxattrIn, ParseError> {
    let mut long = [0; size_of::<SetxattrIn>()];
    if bytes.len() == SetxattrIn::SHORT_LEN {
        long[..SetxattrIn::SHORT_LEN].copy_from_slice(bytes);
        return fixed(&long);
    }
    fixed(bytes)
}

/// Takes the short form, too, in which `bytes` may lie in front or all in `rest`.
fn init<'a>(bytes: &'a [u8], rest: &'a [u8]) -> Result<Op<'a>, ParseError> {
    let mut long = [0; size_of::<InitIn>()];
    if bytes.len() == InitIn::SHORT_LEN && rest.is_empty() {
        long[..InitIn::SHORT_LEN].copy_from_slice(bytes);
        return Ok(Op::Init(fixed(&long)?));
    }
    // A newer kernel's INIT may be longer: what is beyond is not known here and not needed.
    Ok(Op::Init(fixed(bytes)?))
}

fn with_data<'a>(opcode: Opcode, bytes: &'a [u8], rest: &'a [u8]) -> Result<Op<'a>, ParseError> {
    Ok(match opcode {
        Opcode::Write => {
            let arg: crate::WriteIn = fixed(bytes)?;
            Op::Write { arg, data: data(rest, arg.size)? }
        }
        Opcode::Ioctl => {
            let arg: crate::IoctlIn = fixed(bytes)?;
            Op::Ioctl { arg, data: data(rest, arg.in_size)? }
        }
        Opcode::NotifyReply => {
            let arg: crate::NotifyRetrieveIn = fixed(bytes)?;
            Op::NotifyReply { arg, data: data(rest, arg.size)? }
        }
        Opcode::BatchForget => {
            let arg: BatchForgetIn = fixed(bytes)?;
            Op::BatchForget(records(rest, arg.count)?)
        }
        _ => {
            let arg: RemovemappingIn = fixed(bytes)?;
            Op::Removemapping(records(rest, arg.count)?)
        }
    })
}

/// Operations with a fixed struct, or nothing, and no more.
fn alone<'a>(opcode: Opcode, bytes: &[u8]) -> Result<Op<'a>, ParseError> {
    Ok(match opcode {
        Opcode::Forget => Op::Forget(fixed(bytes)?),
        Opcode::Getattr => Op::Getattr(fixed(bytes)?),
        Opcode::Setattr => Op::Setattr(fixed(bytes)?),
        Opcode::Readlink => Op::Readlink,
        Opcode::Open => Op::Open(fixed(bytes)?),
        Opcode::Read => Op::Read(fixed(bytes)?),
        Opcode::Statfs => Op::Statfs,
        Opcode::Release => Op::Release(fixed(bytes)?),
        Opcode::Fsync => Op::Fsync(fixed(bytes)?),
        Opcode::Flush => Op::Flush(fixed(bytes)?),
        Opcode::Opendir => Op::Opendir(fixed(bytes)?),
        Opcode::Readdir => Op::Readdir(fixed(bytes)?),
        Opcode::Readdirplus => Op::Readdirplus(fixed(bytes)?),
        Opcode::Releasedir => Op::Releasedir(fixed(bytes)?),
        Opcode::Fsyncdir => Op::Fsyncdir(fixed(bytes)?),
        Opcode::Getlk => Op::Getlk(fixed(bytes)?),
        Opcode::Setlk => Op::Setlk(fixed(bytes)?),
        Opcode::Setlkw => Op::Setlkw(fixed(bytes)?),
        Opcode::Access => Op::Access(fixed(bytes)?),
        Opcode::Interrupt => Op::Interrupt(fixed(bytes)?),
        Opcode::Bmap => Op::Bmap(fixed(bytes)?),
        Opcode::Destroy => Op::Destroy,
        Opcode::Poll => Op::Poll(fixed(bytes)?),
        Opcode::Fallocate => Op::Fallocate(fixed(bytes)?),
        Opcode::Lseek => Op::Lseek(fixed(bytes)?),
        Opcode::CopyFileRange => Op::CopyFileRange(fixed(bytes)?),
        Opcode::CopyFileRange64 => Op::CopyFileRange64(fixed(bytes)?),
        Opcode::Setupmapping => Op::Setupmapping(fixed(bytes)?),
        Opcode::Syncfs => Op::Syncfs(fixed(bytes)?),
        Opcode::Statx => Op::Statx(fixed(bytes)?),
        other => Op::Unknown(other.number()),
    })
}

#[cfg(test)]
mod tests;
