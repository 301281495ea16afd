//! End-to-end tests of shuntfs: everything here is in `tests/`, on mounts of the built `shunt`.
