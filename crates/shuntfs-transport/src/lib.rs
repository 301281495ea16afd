//! Under construction.
/// One request and the memory its answer is written into.
#[derive(Debug)]
pub struct Exchange {}
