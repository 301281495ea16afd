//! What a file of rules may name that only its surroundings know.

/// Users and groups of the machine, and what the pool has.
pub trait Known {
    /// The number of a user.
    fn user(&self, name: &str) -> Option<u32>;
    /// The number of a group.
    fn group(&self, name: &str) -> Option<u32>;
    /// The policies that can place new files; branches are named without anybody's asking here.
    fn policies(&self) -> &[&str];
}

/// A system without users, groups and policies: names of those are mistakes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Nobody;

impl Known for Nobody {
    fn user(&self, _: &str) -> Option<u32> {
        None
    }

    fn group(&self, _: &str) -> Option<u32> {
        None
    }

    fn policies(&self) -> &[&str] {
        &[]
    }
}
