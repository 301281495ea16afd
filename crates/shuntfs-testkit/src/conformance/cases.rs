//! The list, one file a family.

use super::Case;

/// Declares the families and their list at once, so that no file is forgotten.
macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        const FAMILIES: &[&[Case]] = &[$($family::CASES),*];
    };
}

families!(
    acl,
    append,
    copy,
    create,
    direct,
    fallocate,
    ioctl,
    locks,
    misc,
    mixed_opens,
    mmap,
    modes,
    names,
    readdir,
    rename,
    seek,
    special,
    stat,
    suid,
    times,
    unlinked,
    xattr,
);

/// Every case, in the order in which they run.
#[must_use]
pub fn cases() -> Vec<Case> {
    FAMILIES.iter().copied().flatten().copied().collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn every_name_is_used_once_and_names_its_family() {
        let mut names: Vec<&str> = cases().iter().map(|case| case.name).collect();
        assert!(names.iter().all(|name| name.split('/').count() == 2), "{names:?}");
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
