//! What the keeper's tests ask of its example `kept_folder`, asked of a pool of three branches: its server is killed at every system call of an operation. Needs
//! CAP_SYS_ADMIN, CAP_SYS_PTRACE and /dev/fuse; elsewhere it says so and passes.

#[path = "../../shuntfs-keeper/tests/privileged_points.rs"]
mod points;
