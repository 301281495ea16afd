//! What kernel this is and how its fuse module is set.

use std::path::Path;

/// The kernel's version, major and minor; (0, 0) where it calls itself something unreadable.
#[must_use]
pub fn kernel_version() -> (u32, u32) {
    let name = rustix::system::uname();
    name.release().to_str().ok().and_then(parse).unwrap_or((0, 0))
}

fn parse(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A parameter of the fuse module, such as `enable_uring`; `None` where the kernel does not have it.
#[must_use]
pub fn fuse_module_param(name: &str) -> Option<String> {
    let value = std::fs::read_to_string(Path::new("/sys/module/fuse/parameters").join(name)).ok()?;
    Some(value.trim_end().to_owned())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn reads_releases() {
        assert_eq!(parse("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(parse("7.2-rc1"), Some((7, 2)));
        assert_eq!(parse("5.10.0+"), Some((5, 10)));
        assert_eq!(parse("six"), None);
        assert!(kernel_version() > (3, 0));
    }

    #[test]
    fn unknown_parameters_are_none() {
        assert_eq!(fuse_module_param("no_such_parameter"), None);
    }
}
