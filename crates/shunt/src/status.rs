//! `shunt status`.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde_json::Value;
use shuntfs::Reason;
use shuntfs_image::HostCache;

use crate::cli::StatusArgs;
use crate::control::{AskError, Client, Status, TakeoverStatus};
use crate::failure::Failure;
use crate::json;
use crate::list::print_table;
use crate::meaning;
use crate::mounts::{self, Mounts, shown};
use crate::run::output_failure;
use crate::umount::{self, is_dead};

/// How long a mount that answers may be without a control socket.
const START_LIMIT: Duration = Duration::from_secs(3);
const START_PAUSE: Duration = Duration::from_millis(10);

/// Shows the state of a mount.
///
/// # Errors
/// Where there is no such mount, and where its server does not answer.
pub(crate) fn run(args: &StatusArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let list = Mounts::read()?;
    let mount = umount::find(&list, &args.mountpoint)?;
    let status = status_of(mount)?;
    if args.json {
        return json::print(&status, out);
    }
    let status = readable(&status)?;
    print_head(&status, out)
        .and_then(|()| print_rights(&status, out))
        .and_then(|()| print_branches(&status, out))
        .and_then(|()| print_image(&status, out))
        .and_then(|()| print_rules(&status, out))
        .and_then(|()| print_checks(&status, out))
        .and_then(|()| print_flows(&status, out))
        .map_err(|error| output_failure(&error))?;
    print_operations(&status, out)
}

/// The same state with control characters shown, not obeyed: the server may be another user's, whose words reach root's
/// terminal. What went wrong may have several lines.
pub(crate) fn readable(status: &Status) -> Result<Status, Failure> {
    cleaned(status, |name, text| match name {
        "error" => text.lines().map(shown).collect::<Vec<_>>().join("\n"),
        _ => shown(text),
    })
}

/// The same state with every text in it, names of numbers too, made clean: given the name of a text, and the text.
pub(crate) fn cleaned(status: &Status, clean: fn(&str, &str) -> String) -> Result<Status, Failure> {
    fn walk(name: &str, value: Value, clean: fn(&str, &str) -> String) -> Value {
        match value {
            Value::String(text) => Value::String(clean(name, &text)),
            Value::Array(all) => {
                Value::Array(all.into_iter().map(|value| walk(name, value, clean)).collect())
            }
            Value::Object(all) => Value::Object(
                all.into_iter().map(|(name, value)| (shown(&name), walk(&name, value, clean))).collect(),
            ),
            other => other,
        }
    }
    let value = serde_json::to_value(status).and_then(|value| serde_json::from_value(walk("", value, clean)));
    value.map_err(|error| Failure::new(format!("its server says something unknown: {error}")))
}

/// Asks the server of a mount for its state. One that is killed before it answers may have a successor.
fn status_of(mount: &shuntfs_sys::mount::MountInfo) -> Result<Status, Failure> {
    let answer = match client_of(mount)?.status() {
        Err(AskError::NoServer) => client_of(mount)?.status(),
        answer => answer,
    };
    answer.map_err(|error| unanswered(mount, &error))
}

/// Connects to the server of a mount. A mount is there a moment before its control socket is.
pub(crate) fn client_of(mount: &shuntfs_sys::mount::MountInfo) -> Result<Client, Failure> {
    let connection = mounts::connection(mount).unwrap_or_default();
    let owner = Vec::from_iter(mounts::owner(mount));
    let started = Instant::now();
    loop {
        match Client::of_connection(connection, &owner) {
            Err(AskError::NoServer) if started.elapsed() < START_LIMIT && !is_dead(&mount.mount_point) => {
                std::thread::sleep(START_PAUSE);
            }
            outcome => return outcome.map_err(|error| unanswered(mount, &error)),
        }
    }
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
    writeln!(out, "{} shows {}", status.mountpoint, status.folder)?;
    let connection = status.session.connection.map(|connection| connection.to_string()).unwrap_or_default();
    let (pid, version, protocol) = (status.pid, &status.version, &status.protocol);
    let since = duration(status.uptime_s);
    writeln!(
        out,
        "  server     process {pid}, shunt {version}, up {since}, connection {connection}, protocol {protocol}"
    )?;
    let transport = &status.session.transport;
    let (kind, queues, depth, mib) =
        (&transport.kind, transport.queues, transport.depth, transport.payload_max >> 20);
    let plural = if queues == 1 { "queue" } else { "queues" };
    writeln!(out, "  transport  {kind}, {queues} {plural} of {depth}, payload memory at most {mib} MiB")?;
    writeln!(out, "             because {}", transport.why)?;
    if transport.pool_buffers > 0 {
        let buffers = transport.pool_buffers;
        let zero_copy = match &transport.zero_copy_off {
            None => "zero copy where no byte must be seen".to_owned(),
            Some(why) => format!("no zero copy: {why}"),
        };
        writeln!(out, "             payloads from a pool of {buffers} for each CPU; {zero_copy}")?;
    }
    let Some(TakeoverStatus { keeper, replaced, program, taken_back }) = &status.takeover else {
        return Ok(());
    };
    match keeper {
        Some(pid) if status.session.transport.kind == "uring" => {
            writeln!(
                out,
                "  keeper     process {pid}: shunt upgrade continues the mount; it ends if this server dies"
            )?;
        }
        Some(pid) => {
            writeln!(out, "  keeper     process {pid} watches, and starts another server if this one dies")?;
        }
        None => writeln!(out, "  keeper     DEAD: no other server follows if this one dies")?,
    }
    let servers = match replaced {
        0 => "no server was replaced".to_owned(),
        1 => "1 server was replaced".to_owned(),
        _ => format!("{replaced} servers were replaced"),
    };
    writeln!(out, "             {servers}")?;
    let Some(why) = taken_back else { return Ok(()) };
    let program = program.as_deref().unwrap_or("the program before");
    writeln!(out, "  upgrade    TAKEN BACK: {why}")?;
    writeln!(out, "             {program} serves again")
}

fn print_rights(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let rights = &status.rights;
    let names: Vec<String> = rights
        .capabilities
        .iter()
        .map(|name| name.strip_prefix("CAP_").unwrap_or(name).to_lowercase())
        .collect();
    let capabilities = if names.is_empty() {
        "no capabilities".to_owned()
    } else {
        format!("capabilities {}", names.join(" "))
    };
    writeln!(out, "  rights     {capabilities}")?;
    let programs =
        if rights.no_new_privileges { "programs gain none" } else { "set-uid programs have effect" };
    let seccomp = if rights.seccomp { ", system calls are filtered" } else { "" };
    writeln!(out, "             {programs}{seccomp}")
}

/// The branches, where there are several.
pub(crate) fn print_branches(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let branches = status.pool.get("branches").and_then(Value::as_array);
    for (place, branch) in branches.into_iter().flatten().enumerate() {
        let text = |name: &str| branch.get(name).and_then(Value::as_str).unwrap_or_default();
        let mib = |name: &str| branch.get(name).and_then(Value::as_u64).map(|bytes| bytes >> 20);
        let title = if place == 0 { "branches" } else { "" };
        let space = match (mib("available"), mib("total")) {
            (Some(available), Some(total)) => format!("{available} of {total} MiB available"),
            _ => "its space is not known".to_owned(),
        };
        let read_only = match branch.get("mounted_read_only").and_then(Value::as_bool) {
            Some(true) => ", mounted read-only",
            _ => "",
        };
        let min_free = mib("min_free").unwrap_or_default();
        let called = Some(text("id")).filter(|id| !id.is_empty());
        let called = called.map(|id| format!(", called {id}")).unwrap_or_default();
        writeln!(
            out,
            "  {title:<10} {} {}{called}{read_only}, {space}, {min_free} to be left",
            text("path"),
            text("mode")
        )?;
        writeln!(out, "             {}", health_of(branch))?;
        writeln!(out, "             {}", use_of(branch))?;
    }
    Ok(())
}

/// How a branch is.
fn health_of(branch: &Value) -> String {
    let text = |name: &str| branch.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| branch.get(name).and_then(Value::as_u64);
    let why = text("why");
    let since = number("since_s").map(duration).unwrap_or_default();
    let old = number("space_age_s").filter(|age| *age > 1).map(duration);
    let old = old.map(|age| format!("; its space is that of {age} ago")).unwrap_or_default();
    match text("health") {
        "ok" => "ok".to_owned(),
        "slow" => format!("slow: {why}"),
        "error" => format!("error {since} ago: {why}{old}"),
        "silent" => format!("NOT ANSWERING for {since}{old}"),
        "aside" => format!("SET ASIDE for {since}: {why}{old}"),
        // An older server does not say it.
        "" => "its health is not told".to_owned(),
        other => format!("{other}: {why}"),
    }
}

/// What a branch is used for.
fn use_of(branch: &Value) -> String {
    let number = |name: &str| branch.get(name).and_then(Value::as_u64).unwrap_or_default();
    let (known, open) = (number("nodes"), number("open_files"));
    let (read, written) = (number("read_bytes"), number("written_bytes"));
    let mut text = format!(
        "{known} files known, {open} open, {read} bytes read and {written} written through the server"
    );
    if let Some(lookup) = branch.get("lookup_ns").and_then(Value::as_u64) {
        text += &format!(", {} a lookup", time(lookup));
    }
    match number("errors") {
        0 => {}
        1 => text += ", 1 error",
        errors => text += &format!(", {errors} errors"),
    }
    text
}

fn print_image(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let Some(image) = &status.image else { return Ok(()) };
    let mut words = vec![image.format.name().to_owned(), format!("{} bytes", image.size)];
    words.push(if image.writable { "writable" } else { "read-only" }.to_owned());
    words.extend(image.growable.then(|| "growable".to_owned()));
    words.extend(image.snapshot.iter().map(|name| format!("snapshot {name}")));
    words.extend((image.cache == HostCache::None).then(|| "past the page cache".to_owned()));
    words.extend((!image.locked).then(|| "not locked".to_owned()));
    writeln!(out, "  image      {}", words.join(", "))?;
    for layer in image.layers.iter().skip(1) {
        writeln!(out, "             on {} ({})", layer.path, layer.format.name())?;
    }
    Ok(())
}

fn print_rules(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let Some(rules) = &status.rules else { return Ok(()) };
    let (count, reloads, file) = (rules.rules, rules.reloads, &rules.file);
    let again = match reloads {
        0 => "never read again".to_owned(),
        1 => "read again once".to_owned(),
        _ => format!("read again {reloads} times"),
    };
    writeln!(out, "  rules      {count} of {file}, {again}")?;
    if rules.failures > 0 {
        writeln!(out, "             {} uses refused because a rule could not be evaluated", rules.failures)?;
    }
    for (place, line) in rules.error.iter().flat_map(|error| error.lines()).enumerate() {
        let words = if place == 0 { "the earlier ones hold: " } else { "" };
        writeln!(out, "             {words}{line}")?;
    }
    Ok(())
}

fn print_checks(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let Some(verify) = &status.verify else { return Ok(()) };
    let facts = &verify.facts;
    let signed = match (verify.trusted, verify.signed_by.len()) {
        (false, _) => "no key asked for".to_owned(),
        (true, 0) => "of the digest asked for".to_owned(),
        (true, 1) => "signed by a trusted key".to_owned(),
        (true, count) => format!("signed by {count} trusted keys"),
    };
    writeln!(
        out,
        "  verify     {}, {} files, manifest {}, {signed}",
        verify.what, verify.files, verify.manifest
    )?;
    if verify.reloads > 0 {
        let times = if verify.reloads == 1 { "once".to_owned() } else { format!("{} times", verify.reloads) };
        writeln!(out, "             another seal was taken {times} since the mount")?;
    }
    for (place, line) in verify.error.iter().flat_map(|error| error.lines()).enumerate() {
        let words = if place == 0 { "the earlier seal holds: " } else { "" };
        writeln!(out, "             {words}{line}")?;
    }
    writeln!(
        out,
        "             {} blocks checked for {} reads, {} of them ahead; {} files verified below",
        facts.data_blocks, facts.reads, facts.reads_ahead, facts.native_files
    )?;
    writeln!(
        out,
        "             trees: {} reads, {} of them ahead, {} blocks; {} of {} KiB kept",
        facts.tree_reads,
        facts.tree_reads_ahead,
        facts.tree_blocks,
        facts.tree_cached >> 10,
        facts.tree_cache_max >> 10
    )?;
    if facts.bad_blocks + facts.short_files + facts.refused_opens + facts.wrong_names > 0 {
        writeln!(
            out,
            "  CORRUPTED  {} blocks, {} files too short, {} opens without a file, {} names that lead elsewhere; {} reads refused",
            facts.bad_blocks, facts.short_files, facts.refused_opens, facts.wrong_names, facts.refused_reads
        )?;
    }
    Ok(())
}

fn print_flows(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let session = &status.session;
    let flows: Vec<String> = session
        .flows
        .iter()
        .filter(|(_, opens)| **opens > 0)
        .map(|(flow, opens)| format!("{flow} {opens}"))
        .collect();
    let text = if flows.is_empty() { "none yet".into() } else { flows.join(", ") };
    writeln!(out, "  opens      {text}")?;
    for (reason, opens) in session.downgrades.iter().filter(|(_, opens)| **opens > 0) {
        let is_kept_out = [Reason::ReadAgain, Reason::NearFull].map(Reason::name).contains(&reason.as_str());
        let what = if is_kept_out { "kept out  " } else { "downgraded" };
        writeln!(out, "  {what} {opens}: {}", meaning::of_reason_name(reason))?;
    }
    let (read, written) = (session.read_bytes, session.written_bytes);
    writeln!(out, "  bytes      {read} read and {written} written through the server")?;
    let (open, kept) = (session.nodes_open, session.backing_ids_kept);
    writeln!(out, "  nodes      {open} open, {kept} backing files kept for the next open")?;
    if let Some(moved) = status.pool.get("files_moved").and_then(Value::as_u64).filter(|moved| *moved > 0) {
        writeln!(out, "  moved      {moved} files to another branch, because theirs was full")?;
    }
    let stalls = &session.stalls;
    if let (Some(limit), true) = (stalls.limit_ms, stalls.total > 0) {
        let (total, now) = (stalls.total, stalls.now);
        let limit = if limit % 1000 == 0 { format!("{} s", limit / 1000) } else { format!("{limit} ms") };
        writeln!(
            out,
            "  stalls     {total} requests took longer than {limit}, {now} are still under way: see the log"
        )?;
    }
    if session.malformed > 0 || session.panics > 0 {
        writeln!(
            out,
            "  defects    {} malformed requests, {} panics: please report",
            session.malformed, session.panics
        )?;
    }
    Ok(())
}

fn print_operations(status: &Status, out: &mut dyn Write) -> Result<(), Failure> {
    let mut lines = vec![["  OPERATION", "REQUESTS", "ERRORS"].map(str::to_owned)];
    let ops = status.session.ops.iter();
    lines.extend(
        ops.map(|(op, counts)| [format!("  {op}"), counts.requests.to_string(), counts.errors.to_string()]),
    );
    print_table(&lines, out)?;
    if !status.session.latency.is_empty() {
        let mut lines = vec![["  LATENCY", "MEDIAN", "99 OF 100", "LONGEST", "TIMED"].map(str::to_owned)];
        lines.extend(status.session.latency.iter().map(|(op, latency)| {
            let [median, p99, max] = [latency.median_ns, latency.p99_ns, latency.max_ns].map(time);
            [format!("  {op}"), median, p99, max, latency.timed.to_string()]
        }));
        print_table(&lines, out)?;
    }
    let mut lines = vec![["  QUEUE", "REQUESTS"].map(str::to_owned)];
    lines.extend(
        status.session.queues.iter().map(|(queue, requests)| [format!("  {queue}"), requests.to_string()]),
    );
    print_table(&lines, out)
}

/// A short time for people.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{}.{} µs", ns / 1000, ns % 1000 / 100),
        10_000..10_000_000 => format!("{} µs", ns / 1000),
        _ => format!("{} ms", ns / 1_000_000),
    }
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
    fn branches_say_how_they_are() {
        let health = |text: &str| health_of(&serde_json::from_str(text).expect("is JSON"));
        assert_eq!(health(r#"{"health":"ok","why":null,"since_s":null,"space_age_s":0}"#), "ok");
        assert_eq!(health("{}"), "its health is not told");
        let silent = r#"{"health":"silent","why":"x","since_s":65,"space_age_s":7200}"#;
        assert_eq!(health(silent), "NOT ANSWERING for 1 min; its space is that of 2 h 0 min ago");
        let aside = r#"{"health":"aside","why":"it answers with EIO","since_s":5}"#;
        assert_eq!(health(aside), "SET ASIDE for 5 s: it answers with EIO");
        let used =
            r#"{"nodes":3,"open_files":1,"read_bytes":10,"written_bytes":0,"lookup_ns":4321,"errors":2}"#;
        assert_eq!(
            use_of(&serde_json::from_str(used).expect("is JSON")),
            "3 files known, 1 open, 10 bytes read and 0 written through the server, 4.3 µs a lookup, 2 errors"
        );
    }

    #[test]
    fn durations_are_for_people() {
        let cases = [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3725, "1 h 2 min"), (90000, "1 d 1 h")];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
        for (ns, text) in [(4321, "4.3 µs"), (43_210, "43 µs"), (43_210_000, "43 ms")] {
            assert_eq!(time(ns), text);
        }
    }
}
