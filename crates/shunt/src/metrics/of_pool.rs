//! Metrics of what only some mounts have: a pool and its branches, rules, seals, the mover, an image.

use shuntfs_image::HostCache;
use shuntfs_pool::MoverFacts;

use super::metric::{Metric, Samples, Unit, counter, gauge};
use super::of_mount::{of_status, seconds};
use super::snapshot::{BranchFacts, PoolFacts, Snapshot};
use crate::control::{RuleStatus, VerifyStatus};

/// How a branch can be, as it is told.
const HEALTH: [&str; 5] = ["ok", "slow", "error", "silent", "aside"];

/// Of a pool and the mover.
pub(super) const POOL: &[Metric] = &[
    gauge("pool_nodes", Unit::None, &[], "Files and folders that the kernel knows.", |mount, put| {
        of_pool(mount, put, |pool, put| put.whole(&[], pool.nodes));
    }),
    gauge(
        "pool_descriptors",
        Unit::None,
        &[],
        "File descriptors that are kept for files and folders.",
        |mount, put| of_pool(mount, put, |pool, put| put.whole(&[], pool.descriptors)),
    ),
    counter(
        "pool_files_moved",
        Unit::None,
        &[],
        "Files that were moved to another branch because their own was full.",
        |mount, put| of_pool(mount, put, |pool, put| put.whole(&[], pool.files_moved)),
    ),
    counter(
        "pool_overdrawn_forgets",
        Unit::None,
        &[],
        "FORGET requests that took back more lookups than there were; any is a defect.",
        |mount, put| of_pool(mount, put, |pool, put| put.whole(&[], pool.overdrawn)),
    ),
    gauge("branch_size", Unit::Bytes, &["branch"], "Size of the file system of a branch.", |mount, put| {
        of_branches(mount, put, |branch, name, put| {
            branch.total.into_iter().for_each(|bytes| put.whole(&[name], bytes));
        });
    }),
    gauge(
        "branch_available",
        Unit::Bytes,
        &["branch"],
        "Space that is available on a branch.",
        |mount, put| {
            of_branches(mount, put, |branch, name, put| {
                branch.available.into_iter().for_each(|bytes| put.whole(&[name], bytes));
            });
        },
    ),
    gauge(
        "branch_min_free",
        Unit::Bytes,
        &["branch"],
        "Space that a new file must leave free on a branch.",
        |mount, put| of_branches(mount, put, |branch, name, put| put.whole(&[name], branch.min_free)),
    ),
    gauge(
        "branch_health",
        Unit::None,
        &["branch", "state"],
        "How a branch is: 1 at one state of ok, slow, error, silent (it does not answer) and aside (set aside until it does).",
        |mount, put| {
            of_branches(mount, put, |branch, name, put| {
                HEALTH.iter().for_each(|state| put.truth(&[name, state], branch.health == *state));
            });
        },
    ),
    gauge(
        "branch_read_only",
        Unit::None,
        &["branch"],
        "Whether the file system of a branch is mounted read-only.",
        |mount, put| {
            of_branches(mount, put, |branch, name, put| put.truth(&[name], branch.mounted_read_only))
        },
    ),
    counter(
        "branch_errors",
        Unit::None,
        &["branch"],
        "Disk errors of a branch when names were looked up.",
        |mount, put| of_branches(mount, put, |branch, name, put| put.whole(&[name], branch.errors)),
    ),
    gauge(
        "branch_nodes",
        Unit::None,
        &["branch"],
        "Files and folders of a branch that the kernel knows.",
        |mount, put| of_branches(mount, put, |branch, name, put| put.whole(&[name], branch.nodes)),
    ),
    gauge("branch_open_files", Unit::None, &["branch"], "Files of a branch that are open.", |mount, put| {
        of_branches(mount, put, |branch, name, put| put.whole(&[name], branch.open_files));
    }),
    counter(
        "branch_transferred",
        Unit::Bytes,
        &["branch", "direction"],
        "Bytes that the server read from and wrote to a branch.",
        |mount, put| {
            of_branches(mount, put, |branch, name, put| {
                put.whole(&[name, "read"], branch.read_bytes);
                put.whole(&[name, "write"], branch.written_bytes);
            });
        },
    ),
    gauge(
        "branch_lookup_mean",
        Unit::Seconds,
        &["branch"],
        "Mean duration of the last lookups of names on a branch.",
        |mount, put| {
            of_branches(mount, put, |branch, name, put| {
                branch.lookup_ns.into_iter().for_each(|ns| put.real(&[name], seconds(ns, 1e9)));
            });
        },
    ),
    gauge("mover_running", Unit::None, &[], "Whether the mover runs.", |mount, put| {
        of_mover(mount, put, |mover, put| put.truth(&[], mover.running));
    }),
    gauge(
        "mover_run_start_time",
        Unit::Seconds,
        &[],
        "When the last run of the mover began, in seconds since 1970.",
        |mount, put| of_mover(mount, put, |mover, put| put.whole(&[], mover.started_s)),
    ),
    gauge(
        "mover_run_duration",
        Unit::Seconds,
        &[],
        "Duration of the last run of the mover.",
        |mount, put| {
            of_mover(mount, put, |mover, put| put.real(&[], seconds(mover.took_ms, 1e3)));
        },
    ),
    gauge(
        "mover_run_files",
        Unit::None,
        &["state"],
        "Files of the last run of the mover: due, done (moved or not), moved, left for a reason, failed.",
        |mount, put| {
            of_mover(mount, put, |mover, put| {
                put.whole(&["due"], mover.due_files);
                put.whole(&["done"], mover.done_files);
                put.whole(&["moved"], mover.moved_files);
                put.whole(&["left"], mover.left_files);
                put.whole(&["failed"], mover.failures);
            });
        },
    ),
    gauge(
        "mover_run_size",
        Unit::Bytes,
        &["state"],
        "Bytes of the last run of the mover: due, done, moved.",
        |mount, put| {
            of_mover(mount, put, |mover, put| {
                put.whole(&["due"], mover.due_bytes);
                put.whole(&["done"], mover.done_bytes);
                put.whole(&["moved"], mover.moved_bytes);
            });
        },
    ),
];

/// Of rules and seals.
pub(super) const CHECKS: &[Metric] = &[
    gauge("rules", Unit::None, &[], "Rules that are in force.", |mount, put| {
        of_rules(mount, put, |rules, put| put.whole(&[], rules.rules));
    }),
    counter("rules_reloads", Unit::None, &[], "Times that the rules were read again.", |mount, put| {
        of_rules(mount, put, |rules, put| put.whole(&[], rules.reloads));
    }),
    gauge(
        "rules_reload_failed",
        Unit::None,
        &[],
        "Whether the last attempt to read the rules again failed; the earlier rules hold.",
        |mount, put| of_rules(mount, put, |rules, put| put.truth(&[], rules.error.is_some())),
    ),
    counter(
        "rules_failures",
        Unit::None,
        &[],
        "Accesses that were refused because a rule could not be evaluated.",
        |mount, put| of_rules(mount, put, |rules, put| put.whole(&[], rules.failures)),
    ),
    gauge("verify_files", Unit::None, &[], "Files that are sealed.", |mount, put| {
        of_seal(mount, put, |verify, put| put.whole(&[], verify.files));
    }),
    gauge(
        "verify_trusted",
        Unit::None,
        &[],
        "Whether the seal is signed by a trusted key or has the digest that was asked for.",
        |mount, put| of_seal(mount, put, |verify, put| put.truth(&[], verify.trusted)),
    ),
    gauge("verify_serial", Unit::None, &[], "Serial of the seal; 0 where it has none.", |mount, put| {
        of_seal(mount, put, |verify, put| put.whole(&[], verify.serial));
    }),
    counter(
        "verify_reloads",
        Unit::None,
        &[],
        "Times that another seal was taken since the mount.",
        |mount, put| of_seal(mount, put, |verify, put| put.whole(&[], verify.reloads)),
    ),
    gauge(
        "verify_reload_failed",
        Unit::None,
        &[],
        "Whether the last attempt to take another seal failed; the earlier seal holds.",
        |mount, put| of_seal(mount, put, |verify, put| put.truth(&[], verify.error.is_some())),
    ),
    counter("verify_reads", Unit::None, &[], "READ requests that were checked.", |mount, put| {
        of_seal(mount, put, |verify, put| put.whole(&[], verify.facts.reads));
    }),
    counter(
        "verify_blocks",
        Unit::None,
        &["kind"],
        "Blocks that were hashed and compared, of data and of hash trees.",
        |mount, put| {
            of_seal(mount, put, |verify, put| {
                put.whole(&["data"], verify.facts.data_blocks);
                put.whole(&["tree"], verify.facts.tree_blocks);
            });
        },
    ),
    counter(
        "verify_failures",
        Unit::None,
        &["kind"],
        "What was not as it was sealed: blocks, files that are too short, names that lead elsewhere, missing files.",
        |mount, put| {
            of_seal(mount, put, |verify, put| {
                put.whole(&["block"], verify.facts.bad_blocks);
                put.whole(&["short_file"], verify.facts.short_files);
                put.whole(&["wrong_name"], verify.facts.wrong_names);
                put.whole(&["missing_file"], verify.facts.refused_opens);
            });
        },
    ),
    counter(
        "verify_refused_reads",
        Unit::None,
        &[],
        "READ requests that were refused because something was not as it was sealed.",
        |mount, put| {
            of_seal(mount, put, |verify, put| put.whole(&[], verify.facts.refused_reads));
        },
    ),
    counter(
        "verify_native_files",
        Unit::None,
        &[],
        "Files that the lower file system verifies by itself.",
        |mount, put| of_seal(mount, put, |verify, put| put.whole(&[], verify.facts.native_files)),
    ),
    gauge(
        "verify_tree_cache",
        Unit::Bytes,
        &[],
        "Memory of verified blocks of hash trees that are kept.",
        |mount, put| of_seal(mount, put, |verify, put| put.whole(&[], verify.facts.tree_cached)),
    ),
    gauge(
        "verify_tree_cache_limit",
        Unit::Bytes,
        &[],
        "Limit of the memory of verified blocks of hash trees.",
        |mount, put| of_seal(mount, put, |verify, put| put.whole(&[], verify.facts.tree_cache_max)),
    ),
];

/// Of an exported image.
pub(super) const IMAGE: &[Metric] = &[
    gauge(
        "image_info",
        Unit::None,
        &["format", "cache", "snapshot"],
        "The image that is exported; the value is always 1.",
        |mount, put| {
            of_status(mount, put, |status, put| {
                if let Some(image) = &status.image {
                    let cache = if image.cache == HostCache::None { "none" } else { "writeback" };
                    let snapshot = image.snapshot.as_deref().unwrap_or_default();
                    put.whole(&[image.format.name(), cache, snapshot], 1_u64);
                }
            });
        },
    ),
    gauge("image_size", Unit::Bytes, &[], "Size of the disk in the image.", |mount, put| {
        of_status(mount, put, |status, put| {
            status.image.iter().for_each(|image| put.whole(&[], image.size));
        });
    }),
    gauge("image_writable", Unit::None, &[], "Whether the image may be written.", |mount, put| {
        of_status(mount, put, |status, put| {
            status.image.iter().for_each(|image| put.truth(&[], image.writable));
        });
    }),
    gauge(
        "image_locked",
        Unit::None,
        &[],
        "Whether the image is locked against other programs.",
        |mount, put| {
            of_status(mount, put, |status, put| {
                status.image.iter().for_each(|image| put.truth(&[], image.locked));
            });
        },
    ),
    gauge("image_layers", Unit::None, &[], "Files of the image, with its backing files.", |mount, put| {
        of_status(mount, put, |status, put| {
            status.image.iter().for_each(|image| put.whole(&[], image.layers.len()));
        });
    }),
];

fn of_pool(mount: &Snapshot, put: &mut Samples, read: fn(&PoolFacts, &mut Samples)) {
    if let Some(pool) = &mount.pool {
        read(pool, put);
    }
}

fn of_branches(mount: &Snapshot, put: &mut Samples, read: fn(&BranchFacts, &str, &mut Samples)) {
    for branch in mount.pool.iter().flat_map(|pool| &pool.branches) {
        read(branch, &branch.path, put);
    }
}

fn of_mover(mount: &Snapshot, put: &mut Samples, read: fn(&MoverFacts, &mut Samples)) {
    if let Some(mover) = mount.status.as_ref().and_then(|status| status.mover.as_ref()) {
        read(mover, put);
    }
}

fn of_rules(mount: &Snapshot, put: &mut Samples, read: fn(&RuleStatus, &mut Samples)) {
    if let Some(rules) = mount.status.as_ref().and_then(|status| status.rules.as_ref()) {
        read(rules, put);
    }
}

fn of_seal(mount: &Snapshot, put: &mut Samples, read: fn(&VerifyStatus, &mut Samples)) {
    if let Some(verify) = mount.status.as_ref().and_then(|status| status.verify.as_ref()) {
        read(verify, put);
    }
}
