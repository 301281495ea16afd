//! Operations with one number to say: ACCESS, BMAP, INTERRUPT, SYNCFS.

use crate::macros::{layout, wire_struct};

wire_struct! {
    /// Arguments of ACCESS.
    pub struct AccessIn {
        /// `R_OK`, `W_OK`, `X_OK`.
        pub mask: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(AccessIn, 8);

wire_struct! {
    /// Arguments of BMAP.
    pub struct BmapIn {
        /// The block in the file.
        pub block: u64,
        /// Its size in bytes.
        pub blocksize: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(BmapIn, 16, blocksize @ 8);

wire_struct! {
    /// The answer to BMAP.
    pub struct BmapOut {
        /// The block on the device.
        pub block: u64,
    }
}

layout!(BmapOut, 8);

wire_struct! {
    /// Arguments of INTERRUPT.
    pub struct InterruptIn {
        /// The request whose caller was interrupted.
        pub unique: u64,
    }
}

layout!(InterruptIn, 8);

wire_struct! {
    /// Arguments of SYNCFS: none yet.
    pub struct SyncfsIn {
        /// Zero.
        pub padding: u64,
    }
}

layout!(SyncfsIn, 8);
