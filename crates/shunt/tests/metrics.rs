//! Metrics of real mounts, read by the programs that they are for: promtool and Prometheus.

mod common;

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{LIMIT, Room, SHUNT, can_mount, eventually, run, shunt, signal, wait};

/// Whether a program of Debian's package `prometheus` is there; says so where it is not.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !has {
        eprintln!("SKIPPED: {program} is not installed (package prometheus)");
    }
    has
}

/// What `promtool` says of text in the format of Prometheus; nothing where all is well.
fn check_metrics(text: &str) -> String {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.take().expect("was piped").write_all(text.as_bytes()).expect("takes it");
    let code = wait(&mut child);
    let mut said = String::new();
    child.stdout.take().expect("was piped").read_to_string(&mut said).expect("is text");
    child.stderr.take().expect("was piped").read_to_string(&mut said).expect("is text");
    if code == Some(0) { said } else { format!("exit code {code:?}: {said}") }
}

/// The samples of a metric, and their values.
fn samples(text: &str, name: &str) -> Vec<(String, f64)> {
    let of = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
    let value = |line: &str| {
        let (labels, value) = line.rsplit_once(' ').expect("a value");
        (labels[name.len()..].to_owned(), value.parse().expect("a number"))
    };
    text.lines().filter(of).map(value).collect()
}

fn value(text: &str, name: &str, labels: &[&str]) -> f64 {
    let all = samples(text, name);
    let mut fitting = all.iter().filter(|(other, _)| labels.iter().all(|label| other.contains(label)));
    let (_, value) = fitting.next().unwrap_or_else(|| panic!("no {name} {labels:?} in\n{text}"));
    *value
}

fn metrics_of(mount: &Path) -> String {
    shunt([OsStr::new("metrics"), mount.as_os_str()]).ok().out
}

/// What somebody gets who asks for a path.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(LIMIT)).expect("is a socket");
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("writes");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answers");
    text
}

/// Where a mount says in its log that it listens.
fn address_in(log: &Path) -> SocketAddr {
    let mut address = None;
    eventually("the mount listens", || {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let found =
            text.split_once("metrics are at http://").and_then(|(_, rest)| rest.split_once("/metrics"));
        address = found.and_then(|(address, _)| address.parse().ok());
        address.is_some()
    });
    address.expect("was found")
}

#[test]
fn a_mount_of_one_folder_counts_what_it_does() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    std::fs::write(room.src().join("big"), vec![7; 4 << 20]).expect("writes");
    room.mount(&["--transport", "cloned", "--flow", "served"]);
    room.read("big");
    let _not_there = run(Command::new("cat").arg(room.mnt().join("nothing")));
    let text = metrics_of(&room.mnt());
    let mount = format!("mount=\"{}\"", room.mnt().display());
    assert!(value(&text, "shuntfs_up", &[&mount]) > 0.5);
    assert!(value(&text, "shuntfs_requests_total", &["op=\"READ\""]) > 0.5);
    let read = value(&text, "shuntfs_transferred_bytes_total", &["direction=\"read\"", "flow=\"served\""]);
    assert!((read - f64::from(4 << 20)).abs() < 0.5, "{read}");
    assert!(value(&text, "shuntfs_opens_total", &["flow=\"served\""]) > 0.5);
    let busy: f64 = samples(&text, "shuntfs_queue_busy_requests").iter().map(|(_, busy)| busy).sum();
    assert!(busy < 0.5, "nothing is at work: {busy}");
    let open = value(&text, "shuntfs_process_open_fds", &[]);
    assert!(open > 2.5 && open < value(&text, "shuntfs_process_max_fds", &[]), "{open}");

    // The histogram agrees with itself.
    let buckets = samples(&text, "shuntfs_request_duration_seconds_bucket");
    let buckets: Vec<f64> =
        buckets.iter().filter(|(labels, _)| labels.contains("READ")).map(|(_, count)| *count).collect();
    let count = value(&text, "shuntfs_request_duration_seconds_count", &["READ"]);
    let sum = value(&text, "shuntfs_request_duration_seconds_sum", &["READ"]);
    assert!(count > 0.5 && sum > 0.0 && sum < LIMIT.as_secs_f64(), "{count} {sum}");
    assert!(
        buckets.is_sorted() && (buckets.last().expect("has some") - count).abs() < 0.5,
        "{buckets:?} {count}"
    );
    room.umount(&[]).ok();
}

/// All bytes are counted, under what moved them.
#[test]
fn bytes_are_counted_by_what_moved_them() {
    if !can_mount() {
        return;
    }
    const LEN: u32 = 4 << 20;
    for (flow, moved_by) in [("served", &["served"][..]), ("splice", &["splice", "relay"])] {
        let room = Room::new();
        std::fs::write(room.src().join("big"), vec![7; LEN as usize]).expect("writes");
        room.mount(&["--transport", "cloned", "--flow", flow]);
        room.read("big");
        let copy = format!("of={}", room.mnt().join("new").display());
        run(Command::new("dd").args(["if=/dev/zero", &copy, "bs=64k", "count=16", "status=none"])).ok();
        let text = metrics_of(&room.mnt());
        let bytes = |direction: &str| -> Vec<(String, f64)> {
            let all = samples(&text, "shuntfs_transferred_bytes_total").into_iter();
            all.filter(|(labels, _)| labels.contains(direction)).collect()
        };
        let (read, written) = (bytes("\"read\""), bytes("\"write\""));
        for (labels, _) in read.iter().chain(&written) {
            assert!(
                moved_by.iter().any(|flow| labels.contains(&format!("flow=\"{flow}\""))),
                "{flow}: {labels}"
            );
        }
        assert!(read[0].1 > 0.5 && (sum(&read) - f64::from(LEN)).abs() < 0.5, "{flow}: {read:?}");
        assert!((sum(&written) - f64::from(1 << 20)).abs() < 0.5, "{flow}: {written:?}");
        let timed = samples(&text, "shuntfs_request_duration_seconds_count");
        for op in ["READ", "WRITE"] {
            let of_op = || timed.iter().filter(|(labels, _)| labels.contains(op));
            assert!(
                of_op().count() > 0
                    && of_op().all(|(labels, _)| moved_by
                        .iter()
                        .any(|flow| labels.contains(&format!("flow=\"{flow}\"")))),
                "{flow}: {timed:?}"
            );
        }
        room.umount(&[]).ok();
    }
}

fn sum(samples: &[(String, f64)]) -> f64 {
    samples.iter().map(|(_, value)| value).sum()
}

/// A mount of a mount whose server is stopped: whoever reads waits, and that can be seen.
#[test]
fn a_request_that_waits_for_what_is_below_is_at_work() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let server = room.mount_in_foreground(&["--cache", "none", "--flow", "served"]);
    let above = room.path().join("above");
    std::fs::create_dir(&above).expect("makes");
    let mount = Command::new(SHUNT)
        .args(["mount", "--cache", "none", "--flow", "served"])
        .args([&room.mnt(), &above])
        .output();
    assert!(mount.expect("starts").status.success());
    let busy = || sum(&samples(&metrics_of(&above), "shuntfs_queue_busy_requests"));
    assert!(busy() < 0.5);
    signal(server.id(), "STOP");
    let mut reader =
        Command::new("cat").arg(above.join("hello")).stdout(Stdio::null()).spawn().expect("starts");
    let started = Instant::now();
    let mut seen = false;
    while !seen && started.elapsed() < Duration::from_secs(20) {
        seen = busy() > 0.5;
    }
    signal(server.id(), "CONT");
    assert_eq!(wait(&mut reader), Some(0));
    assert!(seen, "a request was at work");
    eventually("nothing is at work any more", || busy() < 0.5);
    run(Command::new(SHUNT).arg("umount").arg(&above)).ok();
    room.umount(&[]).ok();
}

#[test]
fn promtool_finds_nothing_to_say_of_any_kind_of_mount() {
    if !can_mount() || !has("promtool") {
        return;
    }
    let (pool, sealed, image) = (Room::new(), Room::new(), Room::new());
    std::fs::create_dir(pool.path().join("other")).expect("makes");
    let branches = format!("{}:{}", pool.src().display(), pool.path().join("other").display());
    run(Command::new(SHUNT).args(["mount", &branches]).arg(pool.mnt())).ok();
    std::fs::write(pool.mnt().join("new"), "x").expect("writes");

    run(Command::new(SHUNT).arg("seal").arg(sealed.src())).ok();
    sealed.mount(&["--verify", "required"]);
    sealed.read("hello");

    let (raw, shown) = (image.path().join("raw"), image.path().join("shown"));
    std::fs::write(&raw, vec![0; 1 << 20]).expect("writes");
    let export =
        Command::new(SHUNT).args(["export", "--format", "raw", "--writable"]).args([&raw, &shown]).output();
    assert!(export.expect("starts").status.success());

    // Of what is not moved there are times without a flow.
    let synced = format!("of={}", pool.mnt().join("synced").display());
    run(Command::new("dd").args(["if=/dev/zero", &synced, "bs=4k", "count=1", "conv=fsync", "status=none"]))
        .ok();
    let mounts = [pool.mnt(), sealed.mnt(), shown.clone()];
    let mut words: Vec<&OsStr> = ["metrics", "--format", "prometheus"].map(OsStr::new).into();
    words.extend(mounts.iter().map(|mount| mount.as_os_str()));
    let text = shunt(words).ok().out;
    run(Command::new(SHUNT).arg("umount").arg(&shown)).ok();
    assert_eq!(check_metrics(&text), "", "{text}");
    assert_eq!(samples(&text, "shuntfs_branch_size_bytes").len(), 2, "{text}");
    let timed = samples(&text, "shuntfs_request_duration_seconds_count");
    let is_timed =
        |op: &str, flow: &str| timed.iter().any(|(labels, _)| labels.contains(op) && labels.contains(flow));
    assert!(is_timed("READ", "flow=\"verified\""), "{timed:?}");
    let synced = timed.iter().find(|(labels, _)| labels.contains("FSYNC"));
    assert!(synced.is_some_and(|(labels, _)| !labels.contains("flow=")), "{timed:?}");
    assert!(value(&text, "shuntfs_branch_health", &["state=\"ok\""]) > 0.5);
    assert!(value(&text, "shuntfs_verify_files", &[]) > 0.5);
    assert!(value(&text, "shuntfs_verify_blocks_total", &["kind=\"data\""]) > 0.5, "{text}");
    let size = value(&text, "shuntfs_image_size_bytes", &[]);
    assert!((size - f64::from(1 << 20)).abs() < 0.5, "{size}");
    assert_eq!(text.matches("# TYPE shuntfs_up gauge").count(), 1, "families of several mounts are one");
}

#[test]
fn a_server_that_does_not_answer_is_down_and_not_missing() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let server = room.mount_in_foreground(&[]);
    signal(server.id(), "STOP");
    let ran = shunt([OsStr::new("metrics"), room.mnt().as_os_str()]).ok();
    signal(server.id(), "CONT");
    assert!(value(&ran.out, "shuntfs_up", &[]) < 0.5, "{ran:?}");
    assert!(
        ran.out.ends_with("# EOF\n") && samples(&ran.out, "shuntfs_uptime_seconds").is_empty(),
        "{ran:?}"
    );
    assert!(ran.err.contains("does not answer"), "{ran:?}");
    room.umount(&[]).ok();
    shunt([OsStr::new("metrics"), room.mnt().as_os_str()]).fails(1, &["not a mount point", "shunt list"]);
}

#[test]
fn a_file_for_the_textfile_collector_is_in_the_format_that_it_reads() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    let file = room.path().join("shunt.prom");
    let words = ["metrics".as_ref(), "--textfile".as_ref(), file.as_os_str(), room.mnt().as_os_str()]
        .map(OsStr::to_owned);
    let ran = shunt(&words).ok();
    assert_eq!(ran.out, "");
    let text = std::fs::read_to_string(&file).expect("was written");
    assert!(text.contains("# TYPE shuntfs_requests_total counter") && !text.contains("# EOF"), "{text}");
    if has("promtool") {
        assert_eq!(check_metrics(&text), "", "{text}");
    }
    let mnt = room.mnt();
    let nowhere = ["metrics", "--textfile", "/proc/no.prom"].map(OsStr::new);
    let nowhere = nowhere.into_iter().chain([mnt.as_os_str()]);
    shunt(nowhere).fails(1, &["cannot write /proc/no.prom"]);
    room.umount(&[]).ok();
}

/// Quotes, a line break, a byte that is no UTF-8: each would break the text, or be a metric of its own.
#[test]
fn a_mount_point_of_any_name_is_a_label() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let log = room.path().join("log");
    // In a namespace of its own: other tests read the list of mounts as text.
    let script = r#"
        place=$(printf '%s/a"} 1\nshuntfs_up{x="\\\377\033[31m' "$2")
        mkdir "$place"
        "$1" mount --metrics-listen 0 --log-file "$2/log" "$2/src" "$place"
        "$1" metrics "$place" > "$2/out"
        n=0; while [ ! -e "$2/done" ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
        "$1" umount "$place""#;
    let mut child = common::apart(script).arg(room.path()).stdin(Stdio::null()).spawn().expect("starts");
    let scraped = get(address_in(&log), "/metrics");
    std::fs::write(room.path().join("done"), "").expect("writes");
    assert_eq!(wait(&mut child), Some(0));
    let text = std::fs::read_to_string(room.path().join("out")).expect("is UTF-8");
    for text in [&text, &scraped] {
        let ups = samples(text, "shuntfs_up");
        let [(labels, _)] = ups.as_slice() else { panic!("{ups:?}") };
        // Written out once for terminals, and its backslashes once more for the format.
        assert!(labels.ends_with(r#"/a\"} 1\\nshuntfs_up{x=\"\\\\\\xff\\x1b[31m"}"#), "{labels}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    if has("promtool") {
        let (_, body) = scraped.split_once("\r\n\r\n").expect("has a head");
        assert_eq!(check_metrics(body), "", "{body}");
    }
}

#[test]
fn a_port_that_is_taken_is_no_mount() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = taken.local_addr().expect("has one").port().to_string();
    let ran = room.try_mount(&["--metrics-listen", &port]);
    assert!(ran.code == Some(1) && ran.err.contains("cannot listen") && ran.err.contains(&port), "{ran:?}");
    assert!(!room.is_mounted());
    room.try_mount(&["-o", "metrics_listen=example.org:1"]).fails(2, &["metrics_listen", "a port"]);
}

/// Nobody who connects and never reads keeps others from a scrape, or the mount from its work.
#[test]
fn a_scraper_that_never_reads_holds_up_nobody() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let log = room.path().join("log");
    room.mount(&["--metrics-listen", "localhost:0", "--log-file", log.to_str().expect("is text")]);
    let address = address_in(&log);
    assert!(address.ip().is_loopback());
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(address).expect("connects");
        let _cut_off = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        held.push(stream);
    }
    let started = Instant::now();
    let text = get(address, "/metrics");
    assert!(text.starts_with("HTTP/1.1 200") && started.elapsed() < Duration::from_secs(10), "{text}");
    assert!(value(&text, "shuntfs_process_threads", &[]) < 60.0, "{text}");
    assert_eq!(room.read("hello"), "hello there\n");
    room.umount(&[]).ok();
}

/// A Prometheus that ends with this.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts Prometheus with a scrape of an address each second.
fn scraping(folder: &Path, target: SocketAddr) -> (Prometheus, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus/shuntfs.rules.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{:?}]\nscrape_configs:\n  - job_name: shuntfs\n    static_configs: [{{targets: [\"{target}\"]}}]\n",
        rules.canonicalize().expect("is there")
    );
    let file = folder.join("prometheus.yml");
    std::fs::write(&file, config).expect("writes");
    let log = std::fs::File::create(folder.join("prometheus.log")).expect("makes");
    let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
    let child = Command::new("prometheus")
        .arg(flag("config.file", &file))
        .arg(flag("storage.tsdb.path", &folder.join("data")))
        .arg(format!("--web.listen-address={free}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("starts");
    (Prometheus(child), free)
}

/// The result of a query; `None` where there is none yet.
fn query(address: SocketAddr, query: &str) -> Option<serde_json::Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    write!(stream, "GET /api/v1/{query} HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let answer: serde_json::Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?;
    Some(answer["data"].clone())
}

#[test]
fn a_real_prometheus_scrapes_it() {
    if !can_mount() || !has("prometheus") {
        return;
    }
    let room = Room::new();
    let log = room.path().join("log");
    room.mount(&["--flow", "served", "--metrics-listen", "0", "--log-file", log.to_str().expect("is text")]);
    room.read("hello");
    let target = address_in(&log);
    let folder = tempfile::tempdir().expect("a folder");
    let (_prometheus, address) = scraping(folder.path(), target);
    let mut last = None;
    eventually("Prometheus has scraped", || {
        last = query(address, "query?query=shuntfs_opens_total");
        last.as_ref().is_some_and(|data| data["result"].as_array().is_some_and(|all| !all.is_empty()))
    });
    let targets = query(address, "targets").expect("answers");
    let target = &targets["activeTargets"][0];
    assert_eq!(
        (target["health"].as_str(), target["lastError"].as_str()),
        (Some("up"), Some("")),
        "{targets}"
    );
    // It asked for OpenMetrics: the type and the help came with the name of the family, without its suffix.
    let metadata = query(address, "targets/metadata?metric=shuntfs_opens").expect("answers");
    assert_eq!(metadata[0]["type"], "counter", "{metadata}");
    let quantile = "histogram_quantile(0.5,shuntfs_request_duration_seconds_bucket{op=\"READ\"})";
    let answer = query(address, &format!("query?query={}", encoded(quantile))).expect("answers");
    let seconds: f64 =
        answer["result"][0]["value"][1].as_str().and_then(|text| text.parse().ok()).expect("is one");
    assert!(seconds > 1e-7 && seconds < 20.0, "{answer}");
    let rules = query(address, "rules").expect("answers");
    let rules = rules["groups"][0]["rules"].as_array().expect("are there").clone();
    assert!(!rules.is_empty() && rules.iter().all(|rule| rule["health"] != "err"), "{rules:#?}");
    every_graph_is_a_query(address);
    room.umount(&[]).ok();
}

/// Prometheus understands each query of the dashboard.
fn every_graph_is_a_query(address: SocketAddr) {
    let dashboard = include_str!("../../../contrib/grafana/shuntfs.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).expect("is JSON");
    let panels = dashboard["panels"].as_array().expect("has some");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut count = 0;
    for target in targets {
        let expr = target["expr"].as_str().expect("has one");
        let asked = expr.replace("$mount", ".*").replace("$__rate_interval", "1m");
        let data = query(address, &format!("query?query={}", encoded(&asked))).expect("answers");
        assert_eq!(data["resultType"], "vector", "{expr}: {data}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}

/// Text as a part of a query.
fn encoded(text: &str) -> String {
    let letter = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(letter).collect()
}

#[test]
fn the_alerts_pass_their_tests() {
    if !has("promtool") {
        return;
    }
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus");
    for words in [["check", "rules", "shuntfs.rules.yml"], ["test", "rules", "shuntfs.test.yml"]] {
        let ran = run(Command::new("promtool").args(words).current_dir(&folder)).ok();
        assert!(ran.out.contains("SUCCESS"), "{ran:?}");
    }
}
