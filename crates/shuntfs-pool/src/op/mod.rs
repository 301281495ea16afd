//! The operations, most of them a file each. Each says what it does, has the guard judge it ([`crate::guard`]), and does it by
//! what the guard gave.

pub(crate) mod attr;
pub(crate) mod by_number;
pub(crate) mod by_path;
pub(crate) mod create;
pub(crate) mod data;
pub(crate) mod ioctl;
pub(crate) mod lookup;
pub(crate) mod make;
pub(crate) mod open;
pub(crate) mod readlink;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod room;
pub(crate) mod xattr;
