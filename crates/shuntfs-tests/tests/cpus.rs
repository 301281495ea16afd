//! A server works on the CPUs that it was given: by its affinity (`taskset`, systemd's `CPUAffinity=`) or by a cpuset, which may
//! change while it serves. And in the scheduling classes that it was given.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::{serial, skipped};

/// The watcher looks every few milliseconds: so long, it has had its say many times.
const WATCHED: Duration = Duration::from_millis(500);

/// The CPUs of this process.
fn cpus() -> Result<Vec<usize>> {
    let all = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect())
}

/// Asks for names that do not exist, on one CPU, until it is told to stop. How many.
fn ask(folder: &Path, cpu: usize, stop: &AtomicBool) -> Result<u64> {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one)?;
    let mut asked = 0;
    while !stop.load(Ordering::Relaxed) {
        asked += 1;
        ensure!(fs::symlink_metadata(folder.join(format!("none{cpu}-{asked}"))).is_err());
    }
    Ok(asked)
}

/// On which CPUs the threads of a server may run. The kernel's own threads for its rings keep to the cpuset alone.
fn may_run(pid: u32) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
        let line = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if !line("Name:").is_some_and(|name| name.starts_with("iou-")) {
            found.insert(line("Cpus_allowed_list:").context("no list of CPUs")?.to_owned());
        }
    }
    Ok(found)
}

/// Has callers on all CPUs ask a mount, one alone first and then all, and looks meanwhile where the server may run.
fn while_asked(mount: &Mounted, callers: &[usize]) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for callers in [&callers[..1], callers] {
        let stop = AtomicBool::new(false);
        let asked = thread::scope(|scope| {
            let ask = |cpu: &usize| {
                let (folder, cpu, stop) = (mount.path(), *cpu, &stop);
                scope.spawn(move || ask(folder, cpu, stop))
            };
            let callers: Vec<_> = callers.iter().map(ask).collect();
            let since = Instant::now();
            let mut watched = Ok(());
            while watched.is_ok() && since.elapsed() < WATCHED {
                watched = may_run(mount.pid()).map(|now| found.extend(now));
                thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            let asked: Result<Vec<u64>> =
                callers.into_iter().map(|caller| caller.join().expect("no panic")).collect();
            watched.and(asked)
        })?;
        ensure!(asked.iter().all(|asked| *asked > 100), "hardly anything was asked: {asked:?}");
    }
    Ok(found)
}

fn end(mut mount: Mounted) -> Result<()> {
    let status = mount.unmount()?;
    ensure!(status.success(), "the server ended with {status}:\n{}", mount.log());
    Ok(())
}

/// A regression: the queues of io_uring were pinned to the CPUs that the server was kept from.
#[test]
fn a_server_keeps_to_the_cpus_of_its_affinity() -> Result<()> {
    let _serial = serial();
    let all = cpus()?;
    let [.., last] = &all[..] else { return Ok(()) };
    if all.len() < 2 {
        skipped("there is one CPU");
        return Ok(());
    }
    let last = last.to_string();
    let Some(lower) = Lower::make(LowerKind::Tmpfs)? else { return Ok(()) };
    for transport in Transport::ALL {
        let spec = MountSpec::new(lower.path(), transport, Flow::Served).by(&["taskset", "-c", &last]);
        let Some(mount) = Mounted::start(&spec)? else { continue };
        let found = while_asked(&mount, &all)?;
        ensure!(
            found == BTreeSet::from([last.clone()]),
            "{transport:?}: may run on {found:?}, not only on {last}"
        );
        end(mount)?;
    }
    Ok(())
}

/// As `taskset -a -p` does to a server that runs. Rule 5 of the scheduler put its reader back on a CPU that had been removed.
#[test]
fn a_server_keeps_to_the_cpus_that_it_is_given_while_it_serves() -> Result<()> {
    let _serial = serial();
    let all = cpus()?;
    let [first, .., last] = all[..] else {
        skipped("there is one CPU");
        return Ok(());
    };
    let Some(lower) = Lower::make(LowerKind::Tmpfs)? else { return Ok(()) };
    for transport in [Transport::Device, Transport::Cloned] {
        let Some(mount) = Mounted::start(&MountSpec::new(lower.path(), transport, Flow::Served))? else {
            continue;
        };
        while_asked(&mount, &all)?;
        // The watcher lets go of the readers when it goes to sleep.
        thread::sleep(WATCHED);
        let mut one = CpuSet::new();
        one.set(last);
        for task in fs::read_dir(format!("/proc/{}/task", mount.pid()))? {
            let tid = task?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
            sched_setaffinity(tid, &one)?;
        }
        let found = while_asked(&mount, &[first, last])?;
        let only_last = BTreeSet::from([last.to_string()]);
        ensure!(found == only_last, "{transport:?}: may run on {found:?}, not only on {last}");
        end(mount)?;
    }
    Ok(())
}

/// A cpuset of its own, of cgroups v1 or v2, that goes with the test.
struct Cpuset(PathBuf);

impl Cpuset {
    fn make() -> Result<Option<Self>> {
        let name = format!("shuntfs-test-{}", std::process::id());
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, folder, kind, options, ..] = fields[..] else { continue };
            let is_v1 = kind == "cgroup" && options.split(',').any(|option| option == "cpuset");
            let controls =
                fs::read_to_string(Path::new(folder).join("cgroup.subtree_control")).unwrap_or_default();
            let is_v2 = kind == "cgroup2" && controls.split_whitespace().any(|word| word == "cpuset");
            if !is_v1 && !is_v2 {
                continue;
            }
            let path = Path::new(folder).join(&name);
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let this = Self(path);
            if is_v1 {
                fs::write(this.0.join("cpuset.mems"), fs::read(Path::new(folder).join("cpuset.mems"))?)?;
            }
            return Ok(Some(this));
        }
        skipped("no cgroup of cpusets can be made here");
        Ok(None)
    }

    fn allow(&self, cpus: &str) -> Result<()> {
        fs::write(self.0.join("cpuset.cpus"), cpus).context("cpuset.cpus")
    }

    fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        // A process that has just ended may still be counted.
        shuntfs_testkit::limit::wait_until(Duration::from_secs(5), || fs::remove_dir(&self.0).is_ok());
    }
}

/// One that loses a CPU while its queues serve there goes on beside it.
#[test]
fn a_server_keeps_to_its_cpuset() -> Result<()> {
    let _serial = serial();
    let all = cpus()?;
    if all.len() < 2 {
        skipped("there is one CPU");
        return Ok(());
    }
    let Some(lower) = Lower::make(LowerKind::Tmpfs)? else { return Ok(()) };
    let Some(cpuset) = Cpuset::make()? else { return Ok(()) };
    let last = all[all.len() - 1].to_string();
    let every = all.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let enters = format!("echo $$ > {} && exec \"$@\"", cpuset.processes().display());
    for transport in Transport::ALL {
        cpuset.allow(&last)?;
        let spec = MountSpec::new(lower.path(), transport, Flow::Served).by(&["sh", "-c", &enters, "sh"]);
        let Some(mount) = Mounted::start(&spec)? else { continue };
        let only_last = BTreeSet::from([last.clone()]);
        let found = while_asked(&mount, &all)?;
        ensure!(found == only_last, "{transport:?}: may run on {found:?}, not only on {last}");
        cpuset.allow(&every)?;
        while_asked(&mount, &all)?;
        cpuset.allow(&last)?;
        let found = while_asked(&mount, &all)?;
        ensure!(found == only_last, "{transport:?}: may run on {found:?} when only {last} is left");
        end(mount)?;
    }
    Ok(())
}

/// Whether a thread of a server is in the class `SCHED_IDLE`.
fn is_light(pid: u32) -> Result<bool> {
    const POLICY: usize = 38;
    const SCHED_IDLE: &str = "5";
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else { continue };
        let (_, rest) = stat.rsplit_once(") ").context("no name in stat")?;
        if rest.split(' ').nth(POLICY) == Some(SCHED_IDLE) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a server's threads are ever seen in the light class while one caller asks for names on one CPU.
fn is_ever_light(mount: &Mounted, cpu: usize) -> Result<bool> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let caller = scope.spawn(|| ask(mount.path(), cpu, &stop));
        let since = Instant::now();
        let mut seen = Ok(false);
        while matches!(seen, Ok(false)) && since.elapsed() < WATCHED {
            seen = is_light(mount.pid());
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        let asked = caller.join().expect("no panic")?;
        ensure!(asked > 100 || matches!(seen, Ok(true)), "hardly anything was asked: {asked}");
        seen
    })
}

/// The light class is entered by who serves much, and by nobody where it is turned off.
#[test]
fn the_light_class_can_be_turned_off() -> Result<()> {
    let _serial = serial();
    let cpu = cpus()?[0];
    let Some(lower) = Lower::make(LowerKind::Tmpfs)? else { return Ok(()) };
    for transport in Transport::ALL {
        for (value, wanted) in [("on", true), ("off", false)] {
            let spec = MountSpec::new(lower.path(), transport, Flow::Served).args(&["--sched-idle", value]);
            let Some(mount) = Mounted::start(&spec)? else { continue };
            // A busy machine may keep a server from serving enough.
            let mut found = false;
            for _ in 0..if wanted { 40 } else { 2 } {
                found = found || is_ever_light(&mount, cpu)?;
            }
            ensure!(found == wanted, "{transport:?}, {value}: light: {found}");
            end(mount)?;
        }
    }
    Ok(())
}
