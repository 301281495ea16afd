//! What kernel this is and how its fuse module is set.

use std::path::Path;

/// The kernel's version, major and minor; (0, 0) where it calls itself something unreadable.
#[must_use]
pub fn kernel_version() -> (u32, u32) {
    let (major, minor, _) = kernel_release();
    (major, minor)
}

/// The kernel's version, to the patch: (6, 18, 44), with 0 where it names none; (0, 0, 0) where it calls itself something unreadable.
#[must_use]
pub fn kernel_release() -> (u32, u32, u32) {
    let name = rustix::system::uname();
    name.release().to_str().ok().and_then(parse).unwrap_or((0, 0, 0))
}

fn parse(release: &str) -> Option<(u32, u32, u32)> {
    let mut parts = release.splitn(3, '.');
    let mut number = || -> Option<u32> {
        let part = parts.next()?;
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse().ok()
    };
    Some((number()?, number()?, number().unwrap_or(0)))
}

/// A parameter of the fuse module, such as `enable_uring`; `None` where the kernel does not have it.
#[must_use]
pub fn fuse_module_param(name: &str) -> Option<String> {
    let value = std::fs::read_to_string(Path::new("/sys/module/fuse/parameters").join(name)).ok()?;
    Some(value.trim_end().to_owned())
}

/// A setting of FUSE for all mounts, below `/proc/sys/fs/fuse`; `None` where the kernel does not have it.
#[must_use]
pub fn fuse_sysctl(name: &str) -> Option<u64> {
    let value = std::fs::read_to_string(Path::new("/proc/sys/fs/fuse").join(name)).ok()?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn reads_releases() {
        assert_eq!(parse("6.18.44-fc-v669"), Some((6, 18, 44)));
        assert_eq!(parse("7.2-rc1"), Some((7, 2, 0)));
        assert_eq!(parse("5.10.0+"), Some((5, 10, 0)));
        assert_eq!(parse("6.12.96"), Some((6, 12, 96)));
        assert_eq!(parse("6.8-17.fc"), Some((6, 8, 0)));
        assert_eq!(parse("six"), None);
        assert_eq!(parse("6"), None);
        assert!(kernel_version() > (3, 0));
    }

    #[test]
    fn unknown_settings_are_none() {
        assert_eq!(fuse_sysctl("no_such_setting"), None);
    }

    #[test]
    fn unknown_parameters_are_none() {
        assert_eq!(fuse_module_param("no_such_parameter"), None);
    }
}
