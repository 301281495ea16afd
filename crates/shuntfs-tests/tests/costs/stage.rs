//! A mount whose requests and lower system calls are counted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::process::Tracer;
use shuntfs_testkit::{Serial, serial};

/// At most once in this time does the watcher ask where a caller runs.
const WATCHER_LOOKS: Duration = Duration::from_millis(4);

/// A mounted folder, with a file of 1 MiB and a folder for names.
pub(crate) struct Stage {
    pub(crate) mount: Mounted,
    pub(crate) source: PathBuf,
    _lower: Lower,
    _serial: Serial,
}

impl Stage {
    pub(crate) fn make(transport: Transport, flow: Flow) -> Result<Option<Self>> {
        Self::make_with(transport, flow, &[])
    }

    pub(crate) fn make_with(transport: Transport, flow: Flow, args: &[&str]) -> Result<Option<Self>> {
        let serial = serial();
        let Some(lower) = Lower::make(LowerKind::Ext4)? else { return Ok(None) };
        let source = lower.folder("source")?;
        fs::write(source.join("file"), vec![b'x'; 1 << 20])?;
        fs::create_dir(source.join("names"))?;
        let mut spec = MountSpec::new(&source, transport, flow).args(args);
        // Some settings are for a mount that nobody else reaches.
        spec.allow_other = !args.iter().any(|arg| ["--permissions", "--xattrs"].contains(arg));
        let Some(mount) = Mounted::start(&spec)? else { return Ok(None) };
        Ok(Some(Self { mount, source, _lower: lower, _serial: serial }))
    }

    /// The same of several folders, of which that one is the last.
    pub(crate) fn make_pool(transport: Transport, branches: usize, args: &[&str]) -> Result<Option<Self>> {
        let serial = serial();
        let Some(lower) = Lower::make(LowerKind::Ext4)? else { return Ok(None) };
        let folders = (0..branches).map(|number| lower.folder(&number.to_string()));
        let folders = folders.collect::<Result<Vec<_>>>()?;
        let source = folders.last().context("there is a branch")?.clone();
        let list: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let spec = MountSpec::new(Path::new(&list.join(":")), transport, Flow::Passthrough).args(args);
        let Some(mount) = Mounted::start(&spec)? else { return Ok(None) };
        Ok(Some(Self { mount, source, _lower: lower, _serial: serial }))
    }

    /// Counts the requests, by operation, that `act` sends to the server, with those that come a moment later. What the
    /// kernel forgets it says in its own time; that is left out.
    pub(crate) fn requests(&self, act: impl FnOnce() -> Result<()>) -> Result<BTreeMap<String, u64>> {
        let before = self.settled()?;
        act()?;
        let after = self.settled()?;
        let grown =
            after.iter().map(|(name, count)| (name.clone(), count - before.get(name).copied().unwrap_or(0)));
        Ok(grown.filter(|(_, count)| *count > 0).collect())
    }

    /// The counts once nothing more arrives: RELEASE and FORGET come in the background.
    fn settled(&self) -> Result<BTreeMap<String, u64>> {
        let mut last = self.counts()?;
        wait_until(Duration::from_secs(5), || {
            std::thread::sleep(Duration::from_millis(60));
            let now = self.counts().unwrap_or_default();
            let still = now == last;
            last = now;
            still
        });
        Ok(last)
    }

    fn counts(&self) -> Result<BTreeMap<String, u64>> {
        let status = self.mount.status()?;
        Ok(status
            .counted()
            .map(|(name, count)| (name.to_uppercase(), count))
            .filter(|(name, _)| !name.contains("FORGET"))
            .collect())
    }

    /// Counts the system calls of the server during `act`, without those of looks at where a caller runs; `None` where it cannot be traced.
    pub(crate) fn calls(&self, act: impl FnOnce() -> Result<()>) -> Result<Option<BTreeMap<String, u64>>> {
        let Some(tracer) = Tracer::follow(self.mount.pid())? else { return Ok(None) };
        let since = Instant::now();
        act()?;
        let looks_max = since.elapsed().as_millis() / WATCHER_LOOKS.as_millis() + 2;
        std::thread::sleep(Duration::from_millis(60));
        let mut calls = tracer.stop()?;
        // A look at where a caller runs is an `open`, which nothing else uses, and with it a `pread64`, a `close` and, in a debug build, an
        // `fcntl`.
        let looks = calls.remove("open").unwrap_or(0);
        ensure!(
            u128::from(looks) <= looks_max,
            "{looks} looks at the caller's CPU, where {looks_max} may be"
        );
        for name in ["pread64", "close", "fcntl"] {
            calls.entry(name.to_owned()).and_modify(|count| *count = count.saturating_sub(looks));
        }
        Ok(Some(calls))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    pub(crate) fn end(mut self) -> Result<()> {
        let status = self.mount.unmount()?;
        ensure!(status.success(), "the server ended with {status}:\n{}", self.mount.log());
        Ok(())
    }
}
