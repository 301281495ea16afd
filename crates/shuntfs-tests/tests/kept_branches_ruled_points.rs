//! What `kept_branches_points` asks of a pool of three branches, asked of one under rules. Needs CAP_SYS_ADMIN, CAP_SYS_PTRACE and /dev/fuse; elsewhere it says so
//! and passes.

#[path = "../../shuntfs-keeper/tests/privileged_points.rs"]
mod points;
