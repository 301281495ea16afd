//! `shunt status`.

use std::io::{self, Write};

use crate::cli::StatusArgs;
use crate::control::{AskError, Client, Status};
use crate::failure::Failure;
use crate::list::{print_json, print_table};
use crate::mounts::{self, Mounts, shown};
use crate::run::output_failure;
use crate::umount;

/// Shows the state of a mount.
///
/// # Errors
/// Where there is no such mount, and where its server does not answer.
pub(crate) fn run(args: &StatusArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let list = Mounts::read()?;
    let mount = umount::find(&list, &args.mountpoint)?;
    let status = client_of(mount)?.status().map_err(|error| unanswered(mount, &error))?;
    if args.json {
        return print_json(&status, out);
    }
    print_head(&status, out).map_err(|error| output_failure(&error))?;
    print_flows(&status, out)?;
    print_operations(&status, out)
}

/// Connects to the server of a mount.
pub(crate) fn client_of(mount: &shuntfs_sys::mount::MountInfo) -> Result<Client, Failure> {
    let connection = mounts::connection(mount).unwrap_or_default();
    Client::of_connection(connection, &Vec::from_iter(mounts::owner(mount)))
        .map_err(|error| unanswered(mount, &error))
}

/// The failure of asking the server of a mount.
pub(crate) fn unanswered(mount: &shuntfs_sys::mount::MountInfo, error: &AskError) -> Failure {
    let place = shown(&mount.mount_point);
    let failure = Failure::new(format!("{place}: {error}"));
    match error {
        AskError::NoServer => {
            failure.hint(format!("if its server is gone, take the mount away: shunt umount {place}"))
        }
        AskError::Silent { pid } => {
            failure.hint(format!("is it stopped? kill -CONT {pid}, or shunt umount --force {place}"))
        }
        _ => failure,
    }
}

fn print_head(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{} shows {}", shown(&status.mountpoint), shown(&status.source))?;
    let transport = &status.transport;
    writeln!(
        out,
        "  server     process {}, shunt {}, since {}, connection {}, protocol {}",
        status.pid,
        status.version,
        duration(status.uptime_s),
        status.connection,
        status.protocol
    )?;
    let (queues, mib) = (transport.queues, transport.payload_max >> 20);
    let plural = if queues == 1 { "queue" } else { "queues" };
    writeln!(out, "  transport  {}, {queues} {plural}, payload memory at most {mib} MiB", transport.kind)?;
    if !transport.why.is_empty() {
        writeln!(out, "             {}", transport.why)?;
    }
    Ok(())
}

fn print_flows(status: &Status, out: &mut dyn Write) -> Result<(), Failure> {
    let flows: Vec<String> = status
        .flows
        .iter()
        .filter(|flow| flow.opens > 0)
        .map(|flow| format!("{} {}", flow.flow, flow.opens))
        .collect();
    let text = if flows.is_empty() { "none yet".into() } else { flows.join(", ") };
    writeln!(out, "  opens      {text}").map_err(|error| output_failure(&error))?;
    for downgrade in status.downgrades.iter().filter(|downgrade| downgrade.opens > 0) {
        let (reason, opens, meaning) = (&downgrade.reason, downgrade.opens, &downgrade.meaning);
        writeln!(out, "  downgraded {opens} ({reason}): {meaning}")
            .map_err(|error| output_failure(&error))?;
    }
    Ok(())
}

fn print_operations(status: &Status, out: &mut dyn Write) -> Result<(), Failure> {
    let mut lines = vec![["  OPERATION", "REQUESTS", "ERRORS"].map(str::to_owned)];
    let busy = status.operations.iter().filter(|operation| operation.requests > 0);
    lines.extend(
        busy.map(|op| [format!("  {}", op.operation), op.requests.to_string(), op.errors.to_string()]),
    );
    print_table(&lines, out)?;
    let mut lines = vec![["  QUEUE", "REQUESTS"].map(str::to_owned)];
    lines
        .extend(status.queues.iter().map(|queue| [format!("  {}", queue.queue), queue.requests.to_string()]));
    print_table(&lines, out)?;
    let mut lines = vec![["  COUNTER", "COUNT"].map(str::to_owned)];
    lines.extend(status.counters.iter().map(|(name, count)| [format!("  {name}"), count.to_string()]));
    if lines.len() > 1 { print_table(&lines, out) } else { Ok(()) }
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn durations_are_for_people() {
        let cases = [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3725, "1 h 2 min"), (90000, "1 d 1 h")];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }
}
