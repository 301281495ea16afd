//! The conformance list on each transport and flow, against the same list on the bare lower file system.

use anyhow::Result;
use shuntfs_testkit::conformance::{Case, Report, Subject, case_limit, cases, compare};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::{helper, say, serial};

/// The cases whose names contain `SHUNT_CASES`, or all.
fn chosen() -> Vec<Case> {
    let wanted = std::env::var("SHUNT_CASES").unwrap_or_default();
    cases().into_iter().filter(|case| case.name.contains(&wanted)).collect()
}

fn told(what: &str, report: Report) -> Result<()> {
    say(&format!(
        "{what}: {} cases, {} observations, {} of them kernel limits",
        report.cases, report.observations, report.limits
    ));
    report.into_result(what)
}

/// Two folders of one bare file system must look the same: what differs here is chance and no observation.
fn bare(kind: LowerKind) -> Result<()> {
    let _serial = serial();
    helper::set_program(env!("CARGO_BIN_EXE_testkit-helper"));
    let Some(lower) = Lower::make(kind)? else { return Ok(()) };
    let (one, other) = (lower.folder("one")?, lower.folder("other")?);
    let report = compare(&chosen(), &Subject::bare(&one), &Subject::bare(&other), || ());
    told(&format!("{kind} against itself"), report)
}

fn mounted(kind: LowerKind, transport: Transport, flow: Flow, args: &[&str]) -> Result<()> {
    let _serial = serial();
    helper::set_program(env!("CARGO_BIN_EXE_testkit-helper"));
    let Some(lower) = Lower::make(kind)? else { return Ok(()) };
    let (oracle, source) = (lower.folder("oracle")?, lower.folder("source")?);
    // Where one case may take longer, because the machine is slow, so may the list.
    let limit = 10 * case_limit().as_secs();
    let spec = MountSpec::new(&source, transport, flow).args(args).limit(limit);
    let Some(mut mount) = Mounted::start(&spec)? else { return Ok(()) };
    let subject = Subject::mounted(mount.path(), &source);
    let connection = mount.connection();
    let report = compare(&chosen(), &Subject::bare(&oracle), &subject, || drop(connection.abort()));
    let hung = report.hung;
    let answer = told(&format!("{kind} through {spec}"), report);
    if !hung && answer.is_ok() {
        let status = mount.unmount()?;
        anyhow::ensure!(status.success(), "the server ended with {status}:\n{}", mount.log());
    }
    answer
}

macro_rules! bare_tests {
    ($($name:ident: $kind:ident;)*) => {
        $(#[test]
        fn $name() -> Result<()> {
            bare(LowerKind::$kind)
        })*
    };
}

bare_tests! {
    bare_tmpfs: Tmpfs;
    bare_ext4: Ext4;
    bare_xfs: Xfs;
    bare_btrfs: Btrfs;
}

macro_rules! mounted_tests {
    ($($name:ident: $kind:ident $transport:ident $flow:ident $args:expr;)*) => {
        $(#[test]
        fn $name() -> Result<()> {
            mounted(LowerKind::$kind, Transport::$transport, Flow::$flow, $args)
        })*
    };
}

mounted_tests! {
    ext4_device_passthrough: Ext4 Device Passthrough &[];
    ext4_device_delegated: Ext4 Device Delegated &[];
    ext4_device_served: Ext4 Device Served &[];
    ext4_cloned_passthrough: Ext4 Cloned Passthrough &[];
    ext4_cloned_delegated: Ext4 Cloned Delegated &[];
    ext4_cloned_served: Ext4 Cloned Served &[];
    ext4_uring_passthrough: Ext4 Uring Passthrough &[];
    ext4_uring_delegated: Ext4 Uring Delegated &[];
    ext4_uring_served: Ext4 Uring Served &[];
    tmpfs_passthrough: Tmpfs Device Passthrough &[];
    xfs_passthrough: Xfs Device Passthrough &[];
    btrfs_passthrough: Btrfs Device Passthrough &[];
    ext4_cache_none: Ext4 Device Passthrough &["--cache", "none"];
    ext4_locks_lower: Ext4 Uring Passthrough &["--locks", "lower"];
}
