//! fsx, which works on a file at random and knows what it must contain: on each transport, on files of each flow at the same time. Whatever flow
//! a file has, its reads, writes, mappings, truncations, holes and copies must be those of one file.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use shuntfs_testkit::conformance::case_limit;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::program::run;
use shuntfs_testkit::tools::fsx;
use shuntfs_testkit::{say, serial};

/// Every operation that fsx knows. ext4 has room for `posix_fallocate`.
const OPERATIONS: &str = "\
[weights]
close_open = 2
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 1
truncate = 3
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 3
sendfile = 3
posix_fadvise = 2
copy_file_range = 3
";

const STEPS: &str = "2000";
const SEEDS: [u64; 2] = [1, 2];

/// The files of each name have a flow, the last ones one for each direction. On a ring `splice` is `relay`, or zero copy.
const RULES: &str = "\
[[rule]]
basename = 'passthrough*'
flow = 'passthrough'

[[rule]]
basename = 'delegated*'
flow = 'splice'

[[rule]]
basename = 'served*'
flow = 'served'

[[rule]]
basename = 'mixed*'
flow = { read = 'splice', write = 'served' }
";

const FILES: [&str; 4] = ["passthrough", "delegated", "served", "mixed"];

fn all_flows_at_once(transport: Transport) -> Result<()> {
    let _serial = serial();
    let Some(program) = fsx()? else { return Ok(()) };
    let Some(lower) = Lower::make(LowerKind::Ext4)? else { return Ok(()) };
    let source = lower.folder("source")?;
    let settings = tempfile::tempdir()?;
    let (operations, ruled) = (settings.path().join("fsx.toml"), settings.path().join("rules.toml"));
    fs::write(&operations, OPERATIONS)?;
    fs::write(&ruled, RULES)?;
    let spec = MountSpec::new(&source, transport, Flow::Passthrough);
    let spec = spec.args(&["--rules", ruled.to_str().context("plain")?]);
    let limit = 3 * case_limit();
    let Some(mut mount) = Mounted::start(&spec.limit(2 * limit.as_secs()))? else { return Ok(()) };
    let work = |file: &Path, seed: u64| -> Result<()> {
        let mut command = Command::new(&program);
        command.arg("-f").arg(&operations).args(["-N", STEPS, "-S", &seed.to_string(), "-P"]);
        run(command.arg(settings.path()).arg(file), limit)?.ok(&format!("fsx on {}", file.display()))?;
        Ok(())
    };
    let all =
        FILES.iter().flat_map(|name| SEEDS.map(|seed| (mount.path().join(format!("{name}{seed}")), seed)));
    let all: Vec<_> = all.collect();
    thread::scope(|scope| {
        let workers: Vec<_> = all.iter().map(|(file, seed)| scope.spawn(|| work(file, *seed))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("nothing in it panics"))
    })?;
    let status = mount.status()?;
    let flows: Vec<(&str, u64)> = ["passthrough", "splice", "relay", "zero_copy", "served"]
        .map(|flow| (flow, status.flow(flow)))
        .into_iter()
        .filter(|(_, opens)| *opens > 0)
        .collect();
    say(&format!("fsx on {}: {flows:?}", transport.name()));
    ensure!(flows.len() == 3, "not every flow had a file: {:?}", status.0);
    let shown = all.iter().map(|(file, _)| Ok((file.file_name().context("has a name")?, fs::read(file)?)));
    let shown = shown.collect::<Result<Vec<_>>>()?;
    ensure!(shown.iter().any(|(_, bytes)| !bytes.is_empty()), "every file is empty");
    let ended = mount.unmount()?;
    ensure!(ended.success(), "the server ended with {ended}:\n{}", mount.log());
    for (name, bytes) in shown {
        ensure!(fs::read(source.join(name))? == bytes, "{} is another one below", name.display());
    }
    Ok(())
}

#[test]
fn device() -> Result<()> {
    all_flows_at_once(Transport::Device)
}

#[test]
fn cloned() -> Result<()> {
    all_flows_at_once(Transport::Cloned)
}

/// Where the kernel has it, delegated bytes move by zero copy.
#[test]
fn uring() -> Result<()> {
    all_flows_at_once(Transport::Uring)
}

/// `cargo xtask compat` runs it before the others, which then run where there is no network.
#[test]
fn the_program_is_installed() -> Result<()> {
    let Some(program) = fsx()? else { return Ok(()) };
    let help = run(Command::new(program).arg("--help"), case_limit())?.ok("fsx --help")?;
    ensure!(help.contains("-S"), "{help}");
    Ok(())
}
