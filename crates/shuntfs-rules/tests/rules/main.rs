//! Files of rules: what is wrong with them, and what they decide.

mod decisions;
mod machine;
mod mistakes;
mod movers;
mod moves;
