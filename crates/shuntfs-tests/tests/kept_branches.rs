//! What the keeper's tests ask of its example `kept_folder`, asked of a pool of three branches: its servers are killed under callers that make, move and remove
//! names, and with files open. Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere it says so and passes.

#[path = "../../shuntfs-keeper/tests/privileged_surviving.rs"]
mod surviving;
