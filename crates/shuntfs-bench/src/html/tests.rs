//! The page and its plots, made from a sample run.
