//! What `kept_branches_points` asks, asked of a write for which there is no room on its file's branch. Needs CAP_SYS_ADMIN, CAP_SYS_PTRACE and /dev/fuse;
//! elsewhere it says so and passes.

#[path = "../../shuntfs-keeper/tests/privileged_points.rs"]
mod points;
