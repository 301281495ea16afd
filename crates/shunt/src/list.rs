//! `shunt list`.

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use shuntfs_sys::spawn::effective_uid;

use crate::cli::ListArgs;
use crate::control::{self, AskError, Client};
use crate::failure::Failure;
use crate::json::{self, One};
use crate::mounts::{self, Mounts, shown};
use crate::run::{complain, output_failure};
use crate::upgrade::outdated::is_outdated;

/// How long servers that do not exist are asked again, all together, and how long apart.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);

/// The state of a mount whose server is gone.
const NO_SERVER: &str = "no server";

/// One line of the list.
#[derive(Debug, Default, Serialize)]
struct Row {
    mountpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mountpoint_hex: Option<String>,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_hex: Option<String>,
    state: &'static str,
    transport: String,
    pid: Option<u32>,
    connection: u64,
    /// Whether the file of its program was replaced since it began.
    outdated: bool,
    #[serde(skip)]
    can_be_upgraded: bool,
}

/// Lists the mounts of shunt.
///
/// # Errors
/// Those of reading the list of mounts, and of printing.
pub(crate) fn run(args: &ListArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let list = Mounts::read()?;
    let rows = rows(&found(&list));
    if args.json {
        return json::print(&One("mounts", &rows), out);
    }
    if rows.is_empty() {
        return writeln!(out, "no mounts").map_err(|error| output_failure(&error));
    }
    let advice: Vec<String> = rows.iter().filter_map(advice).collect();
    let mut lines = vec![["MNT", "SRC", "STATE", "TRANSPORT", "PID"].map(str::to_owned)];
    lines.extend(rows.into_iter().map(|row| {
        let or_dash = |text: String| if text.is_empty() { "-".into() } else { shown(text) };
        let pid = row.pid.map(|pid| pid.to_string()).unwrap_or_default();
        [or_dash(row.mountpoint), or_dash(row.source), row.state.into(), or_dash(row.transport), or_dash(pid)]
    }));
    print_table(&lines, out)?;
    advice.iter().for_each(|advice| complain(advice));
    Ok(())
}

/// What to do where the program was replaced, as after an upgrade of the package.
fn advice(row: &Row) -> Option<String> {
    let place = shown(&row.mountpoint);
    let how =
        if row.can_be_upgraded { format!("shunt upgrade {place}") } else { "unmount and mount again".into() };
    row.outdated.then(|| format!("shunt: note: {place} runs a program that was replaced on the disk: {how}"))
}

/// A mount of shunt.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where; `None` of one that was detached and still serves who has files open.
    pub(crate) mount_point: Option<PathBuf>,
    /// What the list of mounts says is shown.
    pub(crate) source: String,
    /// The number of its connection.
    pub(crate) connection: u64,
    /// Who may have mounted it.
    pub(crate) owners: Vec<u32>,
}

/// All mounts of shunt, of which some may have no server.
pub(crate) fn found(list: &Mounts) -> Vec<Found> {
    let owners: BTreeSet<u32> = [effective_uid(), 0]
        .into_iter()
        .chain(list.iter().filter(|m| mounts::is_fuse(m)).filter_map(mounts::owner))
        .collect();
    let mounted: HashSet<u64> = list.iter().filter_map(mounts::connection).collect();
    let mut answered = HashSet::new();
    for owner in owners {
        for folder in control::folders_of(owner) {
            control::sweep(&folder, |connection| mounted.contains(&connection));
            answered.extend(control::sockets(&folder).into_iter().map(|(connection, _)| connection));
        }
    }
    let mut found: Vec<Found> = list.of_shunt(&answered).map(Found::of).collect();
    // Detached lazily, and still serving who has files open.
    let detached = answered.into_iter().filter(|connection| !mounted.contains(connection));
    found.extend(detached.map(|connection| Found {
        mount_point: None,
        source: String::new(),
        connection,
        owners: Vec::new(),
    }));
    found.sort_by(|a, b| a.mount_point.cmp(&b.mount_point));
    found
}

fn rows(found: &[Found]) -> Vec<Row> {
    let mut rows: Vec<Row> = found.iter().map(asked).collect();
    // Where a server was killed, its successor answers within a moment; the mount itself is not touched to know.
    let end = Instant::now() + PATIENCE;
    while rows.iter().any(|row| row.state == NO_SERVER) && Instant::now() < end {
        std::thread::sleep(PAUSE);
        let again = rows.iter_mut().zip(found).filter(|(row, _)| row.state == NO_SERVER);
        again.for_each(|(row, found)| *row = asked(found));
    }
    rows
}

fn asked(found: &Found) -> Row {
    let mountpoint = found.mount_point.as_deref().unwrap_or(Path::new(""));
    let row = Row {
        mountpoint: json::text(mountpoint),
        mountpoint_hex: json::hex(mountpoint),
        source: found.source.clone(),
        connection: found.connection,
        ..Row::default()
    };
    let answer = Client::of_connection(found.connection, &found.owners)
        .and_then(|mut client| Ok((client.pid(), client.status()?)));
    let served = if found.mount_point.is_some() { "mounted" } else { "detached" };
    match answer {
        Ok((pid, status)) => {
            let transport = status.session.transport.kind;
            let (source, source_hex) = (status.folder, status.folder_hex);
            let keeper = status.takeover.and_then(|takeover| takeover.keeper);
            let outdated = is_outdated(keeper.unwrap_or(pid)).unwrap_or(false);
            let row = Row { outdated, can_be_upgraded: keeper.is_some(), ..row };
            Row { state: served, pid: Some(pid), transport, source, source_hex, ..row }
        }
        // A server of another version may answer in words of its own.
        Err(AskError::Refused(_)) => Row { state: served, ..row },
        Err(AskError::Silent { pid }) => Row { state: "silent", pid: Some(pid), ..row },
        Err(AskError::NoServer) => Row { state: NO_SERVER, ..row },
        Err(AskError::NotAllowed) => Row { state: "not yours", ..row },
        Err(_) => Row { state: "no answer", ..row },
    }
}

/// Prints lines as a table whose columns are as wide as they need to be.
pub(crate) fn print_table<const N: usize>(lines: &[[String; N]], out: &mut dyn Write) -> Result<(), Failure> {
    let widths: [usize; N] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    for line in lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let text = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", text.trim_end()).map_err(|error| output_failure(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    /// Each was waited for by itself, half a second long.
    #[test]
    fn dead_mounts_are_waited_for_together() {
        // No connection has such a number.
        let dead = |number| Found {
            mount_point: Some(PathBuf::from(format!("/{number}"))),
            source: "/a".into(),
            connection: u64::MAX - number,
            owners: Vec::new(),
        };
        let started = Instant::now();
        let rows = rows(&(0..20).map(dead).collect::<Vec<_>>());
        assert!(rows.len() == 20 && rows.iter().all(|row| row.state == NO_SERVER), "{rows:?}");
        let took = started.elapsed();
        assert!(took >= PATIENCE && took < PATIENCE * 10, "{took:?}");
    }
}
