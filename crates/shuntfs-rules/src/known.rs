//! What a file of rules may name that only its surroundings know.

/// Users and groups of the machine, and what the pool has.
pub trait Known {
    /// The number of a user.
    fn user(&self, name: &str) -> Option<u32>;
    /// The number of a group.
    fn group(&self, name: &str) -> Option<u32>;
    /// The policies that can place new files.
    fn policies(&self) -> &[&str];
}
