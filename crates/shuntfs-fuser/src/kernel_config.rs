//! What a file system asks of the kernel at INIT.

use std::time::Duration;

use shuntfs_wire as wire;
use shuntfs_wire::abi;

use crate::ids::Version;
use crate::init_flags::InitFlags;

/// The longest write that can be agreed on, in bytes.
pub(crate) const MAX_WRITE: u32 = 16 << 20;
/// How deep the kernel stacks file systems.
const STACK_DEPTH_MAX: u32 = 2;

/// What the kernel offers at INIT, and what is wanted of it.
#[derive(Debug)]
pub struct KernelConfig {
    capabilities: InitFlags,
    requested: InitFlags,
    max_readahead: u32,
    max_readahead_offered: u32,
    max_background: u16,
    congestion_threshold: Option<u16>,
    max_write: u32,
    time_gran: Duration,
    max_stack_depth: u32,
    kernel_abi: Version,
}

impl KernelConfig {
    pub(crate) fn new(init: &wire::InitIn) -> Self {
        let capabilities = InitFlags::from_bits_retain(init.offered().bits());
        let always = InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_BIG_WRITES;
        Self {
            capabilities,
            requested: always | (capabilities & InitFlags::FUSE_MAX_PAGES),
            max_readahead: init.max_readahead,
            max_readahead_offered: init.max_readahead,
            max_background: 16,
            congestion_threshold: None,
            max_write: MAX_WRITE,
            time_gran: Duration::from_nanos(1),
            max_stack_depth: 0,
            kernel_abi: Version(init.major, init.minor),
        }
    }

    /// Sets how deep backing files may lie below other file systems, 1 or 2; 0 turns passthrough off. Returns what was
    /// set before.
    ///
    /// # Errors
    /// The largest that is possible.
    pub fn set_max_stack_depth(&mut self, value: u32) -> Result<u32, u32> {
        if value > STACK_DEPTH_MAX {
            return Err(STACK_DEPTH_MAX);
        }
        Ok(std::mem::replace(&mut self.max_stack_depth, value))
    }

    /// Sets the granularity of times: a power of ten of nanoseconds up to one second. Returns what was set before.
    ///
    /// # Errors
    /// The nearest that is possible.
    pub fn set_time_granularity(&mut self, value: Duration) -> Result<Duration, Duration> {
        let powers = (0..=9).map(|power| Duration::from_nanos(10_u64.pow(power)));
        let nearest = powers.take_while(|power| *power <= value).last().unwrap_or(Duration::from_nanos(1));
        if nearest != value {
            return Err(nearest);
        }
        Ok(std::mem::replace(&mut self.time_gran, value))
    }

    /// Sets the longest write, in bytes. Returns what was set before.
    ///
    /// # Errors
    /// The nearest that is possible.
    pub fn set_max_write(&mut self, value: u32) -> Result<u32, u32> {
        set(&mut self.max_write, value, 1, MAX_WRITE)
    }

    /// Sets the longest readahead, in bytes. Returns what was set before.
    ///
    /// # Errors
    /// The nearest that is possible: the kernel offers a largest one.
    pub fn set_max_readahead(&mut self, value: u32) -> Result<u32, u32> {
        let most = self.max_readahead_offered;
        set(&mut self.max_readahead, value, 1, most)
    }

    /// What the kernel offers.
    pub fn capabilities(&self) -> InitFlags {
        self.capabilities & !InitFlags::FUSE_INIT_EXT
    }

    /// The kernel's version of the protocol.
    pub fn kernel_abi(&self) -> Version {
        self.kernel_abi
    }

    /// Asks for capabilities.
    ///
    /// # Errors
    /// Those that the kernel does not offer; then none is asked for.
    pub fn add_capabilities(&mut self, capabilities_to_add: InitFlags) -> Result<(), InitFlags> {
        let missing = capabilities_to_add & !self.capabilities;
        if !missing.is_empty() {
            return Err(missing);
        }
        self.requested |= capabilities_to_add;
        Ok(())
    }

    /// Sets how many requests in the background (readahead, asynchronous I/O) the kernel sends at once. Returns what
    /// was set before.
    ///
    /// # Errors
    /// The nearest that is possible.
    pub fn set_max_background(&mut self, value: u16) -> Result<u16, u16> {
        if value == 0 {
            return Err(1);
        }
        Ok(std::mem::replace(&mut self.max_background, value))
    }

    /// Sets from how many requests in the background on the kernel holds others back. Returns what was set before.
    ///
    /// # Errors
    /// The nearest that is possible.
    pub fn set_congestion_threshold(&mut self, value: u16) -> Result<u16, u16> {
        if value == 0 {
            return Err(1);
        }
        let before = self.congestion_threshold();
        self.congestion_threshold = Some(value);
        Ok(before)
    }

    /// The longest write, in bytes.
    pub(crate) fn max_write(&self) -> u32 {
        self.max_write
    }

    /// The transport cannot carry more.
    pub(crate) fn limit_to(&mut self, payload_len: u32) {
        self.max_write = self.max_write.min(payload_len);
        self.max_readahead = self.max_readahead.min(payload_len);
    }

    /// The answer to INIT.
    pub(crate) fn reply(&self, uring: bool) -> wire::InitOut {
        let mut wanted = self.requested | InitFlags::FUSE_INIT_EXT | InitFlags::FUSE_SETXATTR_EXT;
        wanted.set(InitFlags::FUSE_OVER_IO_URING, uring);
        let agreed = wire::InitFlags::from_bits_retain((wanted & self.capabilities).bits());
        let passthrough = agreed.contains(wire::InitFlags::PASSTHROUGH);
        let page_len = u32::try_from(shuntfs_sys::limits::page_len()).unwrap_or(4096);
        let max_pages = self.max_write.max(self.max_readahead).div_ceil(page_len);
        let mut out = wire::InitOut {
            major: abi::MAJOR,
            minor: abi::minor_answered(self.kernel_abi.1),
            max_readahead: self.max_readahead,
            max_background: self.max_background,
            congestion_threshold: self.congestion_threshold(),
            max_write: self.max_write,
            time_gran: self.time_gran.as_nanos().try_into().unwrap_or(1),
            max_pages: u16::try_from(max_pages).unwrap_or(u16::MAX),
            max_stack_depth: if passthrough { self.max_stack_depth } else { 0 },
            ..wire::InitOut::default()
        };
        out.set_agreed(agreed);
        out
    }

    fn congestion_threshold(&self) -> u16 {
        match self.congestion_threshold {
            Some(value) => value.min(self.max_background),
            None => self.max_background - self.max_background.div_ceil(4),
        }
    }
}

/// Puts a value in its place; the nearest possible one where it is none.
fn set(place: &mut u32, value: u32, least: u32, most: u32) -> Result<u32, u32> {
    match value {
        _ if value < least => Err(least),
        _ if value > most => Err(most),
        _ => Ok(std::mem::replace(place, value)),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn config(offered: wire::InitFlags) -> KernelConfig {
        let mut init =
            wire::InitIn { major: 7, minor: 45, max_readahead: 1 << 17, ..wire::InitIn::default() };
        let words = offered.bits().to_le_bytes();
        init.flags = u32::from_le_bytes(words[..4].try_into().unwrap());
        init.flags2 = u32::from_le_bytes(words[4..].try_into().unwrap());
        KernelConfig::new(&init)
    }

    #[test]
    fn setters_tell_what_was_set_or_what_can_be() {
        let mut config = config(wire::InitFlags::all());
        assert_eq!((config.set_max_write(0), config.set_max_write(u32::MAX)), (Err(1), Err(MAX_WRITE)));
        assert_eq!((config.set_max_write(4096), config.set_max_write(8192)), (Ok(MAX_WRITE), Ok(4096)));
        assert_eq!(config.set_max_readahead(1 << 18), Err(1 << 17));
        assert_eq!((config.set_max_stack_depth(3), config.set_max_stack_depth(1)), (Err(2), Ok(0)));
        assert_eq!((config.set_max_background(0), config.set_max_background(64)), (Err(1), Ok(16)));
        assert_eq!(config.set_congestion_threshold(100), Ok(48));
        assert_eq!(config.set_congestion_threshold(10), Ok(64), "never above what is sent");
        let nanos = Duration::from_nanos;
        assert_eq!(config.set_time_granularity(nanos(0)), Err(nanos(1)));
        assert_eq!(config.set_time_granularity(nanos(120)), Err(nanos(100)));
        assert_eq!(config.set_time_granularity(Duration::from_secs(3)), Err(Duration::from_secs(1)));
        assert_eq!(config.set_time_granularity(Duration::from_millis(1)), Ok(nanos(1)));
    }

    #[test]
    fn only_what_is_offered_is_agreed() {
        let mut config = config(wire::InitFlags::ASYNC_READ | wire::InitFlags::INIT_EXT);
        let wanted = InitFlags::FUSE_PASSTHROUGH | InitFlags::FUSE_ASYNC_READ;
        assert_eq!(config.add_capabilities(wanted), Err(InitFlags::FUSE_PASSTHROUGH));
        assert_eq!(config.capabilities(), InitFlags::FUSE_ASYNC_READ);
        config.set_max_stack_depth(2).unwrap();
        let out = config.reply(true);
        assert_eq!((out.flags, out.flags2, out.max_stack_depth), (1 | 1 << 30, 0, 0));
    }

    #[test]
    fn the_transport_decides_on_io_uring() {
        let bit = (wire::InitFlags::OVER_IO_URING.bits() >> 32) as u32;
        let mut config = config(wire::InitFlags::all());
        config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).unwrap();
        assert_eq!((config.reply(false).flags2 & bit, config.reply(true).flags2 & bit), (0, bit));
        config.limit_to(1 << 20);
        let out = config.reply(true);
        assert_eq!((out.max_write, out.max_pages), (1 << 20, 256));
    }
}
