//! From a request to the operation that answers it: one future a request, one file an operation family.
//!
//! `request` takes the request apart and picks the family; `answer` says how it ends. A file system's ENOSYS
//! becomes EOPNOTSUPP on the way, because the kernel remembers an ENOSYS for the whole connection: only the
//! library says it, for operations that are not in the chosen [`crate::OpSet`].

mod answer;
mod attrs;
mod dirs;
mod forget;
mod ioctl;
mod locks;
mod names;
mod open;
mod ranges;
mod read;
mod request;
mod space;
mod write;
mod xattr;

pub(crate) use request::dispatch;
