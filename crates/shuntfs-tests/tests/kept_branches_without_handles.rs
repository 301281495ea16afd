//! The same as `kept_pool_without_handles.rs` of a pool of three branches. Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere it says so and passes.

#[path = "../../shuntfs-keeper/tests/privileged_surviving.rs"]
mod surviving;
