//! Functions that have a policy of their own.

use super::table::Category;

/// What a policy picks branches for, where those of its category need not all have the same: by the names that mergerfs has for
/// functions. The other functions of mergerfs's have no policy here, because they are done where something is shown, or on all branches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Function {
    /// A file is made and opened. What moves or is linked keeps to folders that are there if this policy does.
    Create,
    /// Something is looked up, and what is found is opened, read and listed, too.
    GetAttr,
    /// A folder is made.
    Mkdir,
    /// A device, a FIFO or a socket is made, or a file that is not opened.
    Mknod,
    /// What is no folder gets another name.
    Rename,
    /// A symlink is made.
    Symlink,
    /// What is no folder loses a name.
    Unlink,
}

impl Function {
    /// All of them, in the order of their names and numbers.
    pub const ALL: [Self; 7] =
        [Self::Create, Self::GetAttr, Self::Mkdir, Self::Mknod, Self::Rename, Self::Symlink, Self::Unlink];

    /// The function with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.name() == name)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::GetAttr => "getattr",
            Self::Mkdir => "mkdir",
            Self::Mknod => "mknod",
            Self::Rename => "rename",
            Self::Symlink => "symlink",
            Self::Unlink => "unlink",
        }
    }

    /// The category whose policy it has where users name none for it.
    #[must_use]
    pub const fn category(self) -> Category {
        match self {
            Self::Create | Self::Mkdir | Self::Mknod | Self::Symlink => Category::Create,
            Self::GetAttr => Category::Search,
            Self::Rename | Self::Unlink => Category::Action,
        }
    }

    /// Its place in [`Function::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn functions_are_found_by_name_and_number() {
        for function in Function::ALL {
            assert_eq!(Function::of(function.name()), Some(function));
            assert_eq!(Function::ALL[function.index()], function);
        }
        assert!(Function::ALL.is_sorted_by_key(|function| function.name()));
        assert_eq!(Function::of("open"), None);
        for category in Category::ALL {
            assert!(Function::ALL.into_iter().any(|function| function.category() == category));
        }
    }
}
