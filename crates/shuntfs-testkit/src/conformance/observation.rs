//! What a case saw, as labelled text.

use std::fs::File;
use std::os::fd::OwnedFd;

use super::errno_name;

/// Labelled values in the order in which they were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    lines: Vec<(String, String)>,
}

impl Observation {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes down what was seen; a result is written as its value or the name of its error.
    pub fn see(&mut self, label: impl Into<String>, value: impl Seen) {
        self.lines.push((label.into(), value.seen()));
    }

    /// The lines.
    #[must_use]
    pub fn lines(&self) -> &[(String, String)] {
        &self.lines
    }
}

/// Something that can be written down.
pub trait Seen {
    /// The text that stands for it.
    fn seen(&self) -> String;
}

impl<T: Seen + ?Sized> Seen for &T {
    fn seen(&self) -> String {
        (**self).seen()
    }
}

impl<T: Seen> Seen for rustix::io::Result<T> {
    fn seen(&self) -> String {
        match self {
            Ok(value) => value.seen(),
            Err(error) => errno_name(error.raw_os_error()),
        }
    }
}

impl<T: Seen> Seen for std::io::Result<T> {
    fn seen(&self) -> String {
        match self {
            Ok(value) => value.seen(),
            Err(error) => error.raw_os_error().map_or_else(|| format!("{:?}", error.kind()), errno_name),
        }
    }
}

impl<T: Seen> Seen for Option<T> {
    fn seen(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), Seen::seen)
    }
}

impl Seen for () {
    fn seen(&self) -> String {
        "ok".to_owned()
    }
}

impl Seen for OwnedFd {
    fn seen(&self) -> String {
        "opened".to_owned()
    }
}

impl Seen for File {
    fn seen(&self) -> String {
        "opened".to_owned()
    }
}

impl Seen for str {
    fn seen(&self) -> String {
        self.to_owned()
    }
}

impl Seen for String {
    fn seen(&self) -> String {
        self.clone()
    }
}

impl Seen for [u8] {
    fn seen(&self) -> String {
        bytes(self)
    }
}

impl Seen for Vec<u8> {
    fn seen(&self) -> String {
        bytes(self)
    }
}

impl Seen for Vec<String> {
    fn seen(&self) -> String {
        format!("[{}]", self.join(", "))
    }
}

impl<const N: usize> Seen for [u8; N] {
    fn seen(&self) -> String {
        bytes(self)
    }
}

macro_rules! seen_as_displayed {
    ($($kind:ty),*) => {
        $(impl Seen for $kind {
            fn seen(&self) -> String {
                self.to_string()
            }
        })*
    };
}

seen_as_displayed!(bool, i32, i64, u8, u16, u32, u64, usize);

/// Bytes as text: short ones escaped, long ones as length and hash.
#[must_use]
pub fn bytes(bytes: &[u8]) -> String {
    const SHOWN: usize = 80;
    if bytes.len() <= SHOWN {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    format!("{} bytes #{:016x}", bytes.len(), crate::tree::hash(bytes))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn values_and_errors_are_written_by_name() {
        let mut seen = Observation::new();
        seen.see("ok", rustix::io::Result::Ok(()));
        seen.see("bad", rustix::io::Result::<()>::Err(rustix::io::Errno::NOTEMPTY));
        seen.see("worse", std::io::Result::<u32>::Err(std::io::Error::from_raw_os_error(libc::EIO)));
        seen.see("bytes", b"a\n");
        let text: Vec<&str> = seen.lines().iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(text, ["ok", "ENOTEMPTY", "EIO", "\"a\\n\""]);
        assert!(bytes(&[7; 100]).starts_with("100 bytes #"));
    }
}
