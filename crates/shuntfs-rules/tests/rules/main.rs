//! Files of rules: what is wrong with them, and what they decide.

#![expect(clippy::unwrap_used, reason = "a test")]

mod decisions;
mod machine;
mod mistakes;
