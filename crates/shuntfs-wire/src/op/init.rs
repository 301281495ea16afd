//! INIT.

use crate::InitFlags;
use crate::macros::{layout, wire_struct};

wire_struct! {
    /// What the kernel offers.
    pub struct InitIn {
        /// Major version.
        pub major: u32,
        /// Minor version.
        pub minor: u32,
        /// Longest readahead in bytes.
        pub max_readahead: u32,
        /// Low word of the flags; [`InitIn::offered`] gives both.
        pub flags: u32,
        /// High word of the flags.
        pub flags2: u32,
        /// Zero.
        pub unused: [u32; 11],
    }
}

layout!(InitIn, 64, minor @ 4, max_readahead @ 8, flags @ 12, flags2 @ 16);

impl InitIn {
    /// Length in bytes before Linux 5.17.
    pub const SHORT_LEN: usize = 16;

    /// The flags offered; the second word counts only where the first says so.
    #[must_use]
    pub const fn offered(&self) -> InitFlags {
        let low = InitFlags::from_bits_retain(self.flags as u64);
        if low.contains(InitFlags::INIT_EXT) {
            return InitFlags::from_bits_retain(self.flags as u64 | (self.flags2 as u64) << 32);
        }
        low
    }
}

wire_struct! {
    /// What the server agrees to.
    pub struct InitOut {
        /// Major version.
        pub major: u32,
        /// Minor version.
        pub minor: u32,
        /// Longest readahead in bytes; cannot raise the kernel's.
        pub max_readahead: u32,
        /// Low word of the flags; set with [`InitOut::set_agreed`].
        pub flags: u32,
        /// How many background requests at once.
        pub max_background: u16,
        /// From how many on the backing device counts as congested.
        pub congestion_threshold: u16,
        /// Longest WRITE in bytes, at least 4096.
        pub max_write: u32,
        /// Granularity of times in nanoseconds, 1 to 1,000,000,000.
        pub time_gran: u32,
        /// Longest READ and WRITE in pages, with [`InitFlags::MAX_PAGES`].
        pub max_pages: u16,
        /// Alignment of DAX mappings (virtiofs).
        pub map_alignment: u16,
        /// High word of the flags.
        pub flags2: u32,
        /// How deep backing files may be stacked, 1 or 2, with [`InitFlags::PASSTHROUGH`].
        pub max_stack_depth: u32,
        /// Seconds that a request may take, with [`InitFlags::REQUEST_TIMEOUT`].
        pub request_timeout: u16,
        /// Zero.
        pub unused: [u16; 11],
    }
}

layout!(
    InitOut, 64, flags @ 12, max_background @ 16, congestion_threshold @ 18, max_write @ 20, time_gran @ 24,
    max_pages @ 28, map_alignment @ 30, flags2 @ 32, max_stack_depth @ 36, request_timeout @ 40,
);

impl InitOut {
    /// Writes the flags agreed to into both words. The high one counts only where [`InitFlags::INIT_EXT`] is among
    /// them.
    #[expect(clippy::cast_possible_truncation, reason = "each word takes its half")]
    pub fn set_agreed(&mut self, agreed: InitFlags) {
        self.flags = agreed.bits() as u32;
        self.flags2 = (agreed.bits() >> 32) as u32;
    }
}
