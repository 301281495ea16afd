//! `shunt-bench`: what it refuses, and the smallest run of everything, which proves that each case works and that nothing is
//! left, not how fast anything is.
#![expect(clippy::unwrap_used, reason = "a test ends where it finds the world not as it must be")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_shunt-bench");

/// Our columns of every table; peers are measured by whoever has them.
const OURS: &str = "bind,served,passthrough,regular,spliced,relayed,delegated,device,cloned,uring,file q1,file q2,\
    file passthrough,null q1,null q2,shunt,shunt-uring,verified,verified-uring,device-never-light,cloned-never-light,\
    uring-never-light,served-cloned,passthrough-cloned,off,crash,one";

const TABLES: [&str; 11] = [
    "passthrough",
    "stacked",
    "uring",
    "queues",
    "smallfiles",
    "roundtrip",
    "tails",
    "takeover",
    "peers",
    "verity",
    "pool",
];

fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The program that is measured.
fn shunt() -> PathBuf {
    shuntfs_testkit::mounted::shunt_binary().unwrap()
}

/// Says why a test cannot run here.
fn skip_unless_root_with_fio() -> bool {
    let missing = if !have("fio") {
        "fio is not installed"
    } else if !is_root() {
        "not root: no loop device, no bind mount"
    } else {
        return false;
    };
    println!("SKIPPED: {missing}");
    true
}

/// A run of the bench, which is killed should it hang.
struct Run {
    child: Child,
    log: File,
}

impl Run {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(BENCH);
        command.arg("--shunt").arg(shunt()).args(words);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let log = tempfile::tempfile().unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log.try_clone().unwrap());
        Self { child: command.spawn().unwrap(), log }
    }

    /// Waits for the end; the exit code and what was printed. Nothing may be left by then.
    fn end(mut self, limit: Duration) -> (Option<i32>, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > limit {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("the run does not end within {} s: {}", limit.as_secs(), self.said());
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        // The kernel lets the loop device go in its own time once nothing is mounted from it.
        let ended = Instant::now();
        while !left(self.child.id()).is_empty() {
            assert!(ended.elapsed() < Duration::from_secs(20), "left behind: {:?}", left(self.child.id()));
            std::thread::sleep(Duration::from_millis(100));
        }
        (status.code(), self.said())
    }

    fn said(&self) -> String {
        // The program writes through the same open file: its position must stay where it is.
        let mut bytes = vec![0; usize::try_from(self.log.metadata().unwrap().len()).unwrap()];
        let len = self.log.read_at(&mut bytes, 0).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}

/// Returns the mounts, loop devices and processes of a run, which have its process id in their path.
fn left(id: u32) -> Vec<String> {
    let own = format!("shuntfs-bench-{id}-");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let images = fs::read_dir("/sys/block").unwrap().flatten();
    let images = images.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
    mounts
        .lines()
        .map(str::to_owned)
        .chain(images)
        .chain(processes)
        .filter(|line| line.contains(&own))
        .collect()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs what must be refused, and checks what is said.
fn refused(words: &[&str], said: &[&str]) {
    let mut command = Command::new(BENCH);
    command.args(words);
    let (code, text) = Run::of(command).end(Duration::from_secs(30));
    assert_eq!(code, Some(2), "{words:?}: {text}");
    for word in said {
        assert!(text.contains(word), "{words:?} does not say `{word}`: {text}");
    }
}

#[test]
fn what_does_not_exist_is_refused_with_the_nearest() {
    refused(&["--table", "passthru"], &["no table `passthru`", "`passthrough`"]);
    refused(&["--targets", "urin"], &["no target `urin`", "`uring`"]);
    refused(&["--case", "unpakc"], &["`unpakc`", "`unpack`"]);
    refused(&["--target", "x=cp {SRC}"], &["{MNT}"]);
    refused(&["--size", "some"], &["--size", "smoke"]);
    refused(&["--size", "5"], &["MiB"]);
    refused(&["--rounds", "0"], &["--rounds"]);
    refused(&["--entries", "0"], &["--entries"]);
    refused(&["--json", "/no/folder/x.json"], &["/no/folder"]);
    refused(&["--from", "/no/run.json"], &["/no/run.json", "No such file"]);
    refused(&["--shunt", "/no/shunt", "--table", "roundtrip"], &["`/no/shunt`", "--shunt FILE"]);
}

#[test]
fn tables_and_columns_are_listed() {
    let (code, text) = Run::start(&["--list"]).end(Duration::from_secs(30));
    assert_eq!(code, Some(0), "{text}");
    for name in TABLES {
        assert!(
            text.contains(&format!("\n{name}: ")) || text.starts_with(&format!("{name}: ")),
            "{name}: {text}"
        );
    }
}

#[test]
fn a_missing_program_is_named_with_its_package() {
    let mut command = Command::new(BENCH);
    command.args(["--size", "smoke", "--table", "passthrough"]).env("PATH", "/no/programs");
    let (code, text) = Run::of(command).end(Duration::from_secs(30));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("`fio` is not installed: apt install fio"), "{text}");
}

#[test]
fn too_large_a_size_is_refused_before_anything_is_made() {
    if !have("fio") {
        println!("SKIPPED: fio is not installed");
        return;
    }
    refused(&["--size", "1000000G", "--table", "passthrough"], &["MiB are needed"]);
}

/// Without root there is a folder instead of a file system of its own, and that is said.
#[test]
fn without_root_it_works_in_a_folder_and_says_so() {
    if !is_root() || !have("setpriv") || !have("fusermount3") {
        println!("SKIPPED: needs root to be somebody else, setpriv and fusermount3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // Somebody else may not look into the folder that this program was built in.
    fs::copy(shunt(), folder.path().join("shunt")).unwrap();
    let bench = folder.path().join("shunt-bench");
    fs::copy(BENCH, &bench).unwrap();
    let json = folder.path().join("run.json");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&bench);
    command.args(["--size", "smoke", "--table", "smallfiles", "--case", "unpack"]);
    command.args(["--targets", "served", "--json", text(&json), "--folder", text(folder.path())]);
    command.env("TMPDIR", folder.path());
    let (code, said) = Run::of(command).end(Duration::from_mins(1));
    assert_eq!(code, Some(0), "{said}");
    let run = read(&json);
    assert!(run["lower"].as_str().unwrap().starts_with("a folder in"), "{run}");
    assert!(
        run["doubts"].as_array().unwrap().iter().any(|doubt| doubt.as_str().unwrap().contains("Not root"))
    );
    assert!(run["tables"][0]["rows"][0]["cells"]["served"]["median"].as_f64().unwrap() > 0.0, "{run}");
}

/// One test for all: runs at the same time would wait for each other's writes.
#[test]
fn smoke_as_root_measures_every_table_and_leaves_nothing() {
    if skip_unless_root_with_fio() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    every_row_has_a_figure_for_each_column(folder.path());
    a_broken_peer_fails_alone(folder.path());
    wrong_bytes_are_no_figure(folder.path());
    lost_writes_are_no_figure(folder.path());
    a_server_that_hangs_is_left_at_the_limit(folder.path());
    calls_that_hang_are_left_at_the_limit(folder.path());
    an_interrupt_takes_everything_down();
}

fn every_row_has_a_figure_for_each_column(folder: &Path) {
    let path = |name: &str| folder.join(name);
    let (json, html, markdown, docs) = (path("all.json"), path("all.html"), path("all.md"), path("page.md"));
    let reports =
        ["--json", text(&json), "--html", text(&html), "--markdown", text(&markdown), "--docs", text(&docs)];
    let words = [&["--size", "smoke", "--targets", OURS][..], &reports].concat();
    let (code, said) = Run::start(&words).end(Duration::from_mins(6));
    assert_eq!(code, Some(0), "{said}");
    let run = read(&json);
    let tables: Vec<&str> =
        run["tables"].as_array().unwrap().iter().map(|table| table["table"].as_str().unwrap()).collect();
    assert_eq!(tables, TABLES);
    for table in run["tables"].as_array().unwrap() {
        every_cell_has_a_figure(table);
    }
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("<svg") && page.contains("smallfiles"), "no plot");
    let short = fs::read_to_string(&docs).unwrap();
    assert!(short.contains("| unpack a source tree |") && short.lines().count() < 40, "{short}");
    let page = fs::read_to_string(path("page-full.md")).unwrap();
    for table in tables {
        assert!(page.contains(&format!("## `{table}`")), "{table}: {page}");
    }
    assert!(!page.contains(text(folder)), "the page names a folder of this machine: {page}");
    assert!(run["seed"].is_u64() && run["descriptors"].as_u64().unwrap() >= 1024, "{run}");
    let kept = fs::read_dir(path("page")).unwrap().flatten().map(|entry| entry.path());
    let kept =
        kept.filter(|path| path.extension().is_some_and(|found| found == "json")).map(|path| read(&path));
    let cell = kept.map(|run| run["tables"][0]["rows"][0]["cells"]["bare"].clone()).next().unwrap();
    assert_eq!(cell["samples"].as_array().unwrap().len(), 1, "the figure of each round is kept: {cell}");
    an_old_run_can_be_shown_again(&json, &html);
}

fn every_cell_has_a_figure(table: &Value) {
    let rows = table["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "{table}");
    for column in table["columns"].as_array().unwrap() {
        let name = column["name"].as_str().unwrap();
        for row in rows {
            let cell = &row["cells"][name];
            // Only what verifies has hash trees to read.
            let has_no_tree = row["unit"] == "tree_reads" && !name.starts_with("verified");
            let is_of_server = row["unit"] == "server_micros" || row["unit"] == "server_sec_per_gib";
            let has_no_server = is_of_server && name == "bare";
            if column["missing"].is_string() || has_no_tree || has_no_server {
                assert!(cell["skipped"].is_string(), "{name}, {row}");
            } else {
                assert!(cell["median"].as_f64().is_some_and(|median| median >= 0.0), "{name}, {row}");
                assert!(cell["error"].is_null(), "{name}, {row}");
            }
        }
    }
}

fn an_old_run_can_be_shown_again(json: &Path, html: &Path) {
    let again = html.with_extension("again");
    let words = ["--from", text(json), "--html", text(&again)];
    let (code, said) = Run::start(&words).end(Duration::from_secs(30));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("## `roundtrip`"), "{said}");
    assert_eq!(fs::read(html).unwrap(), fs::read(&again).unwrap());
}

/// Runs one case on a target that cannot succeed; the case's first row and the columns.
fn one_case(folder: &Path, case: [&str; 2], name: &str, template: &str, more: &[&str]) -> Value {
    let json = folder.join(format!("{name}.json"));
    let target = format!("{name}={template}");
    let size: &[&str] = if more.contains(&"--size") { &[] } else { &["--size", "smoke"] };
    let asked = ["--table", case[0], "--case", case[1], "--targets", name, "--target", &target];
    let words = [size, &asked, more, &["--json", text(&json)]].concat();
    let (code, said) = Run::start(&words).end(Duration::from_mins(4));
    assert_eq!(code, Some(1), "{said}");
    read(&json)["tables"][0].clone()
}

fn a_broken_peer_fails_alone(folder: &Path) {
    let table = one_case(folder, ["smallfiles", "walk cold"], "broken", "ls {SRC}/absent {MNT}", &[]);
    let cells = &table["rows"][0]["cells"];
    assert!(cells["bare"]["median"].as_f64().is_some_and(|median| median > 0.0), "{cells}");
    assert!(cells["broken"]["error"].as_str().unwrap().contains("No such file"), "{cells}");
}

/// A target that shows other bytes than the lower folder: a tmpfs with zeroes. Its column says so.
fn wrong_bytes_are_no_figure(folder: &Path) {
    let script = folder.join("wrong.sh");
    fs::write(&script, "mount -t tmpfs none \"$2\" && head -c 4M /dev/zero > \"$2/large.0\"\n").unwrap();
    let template = format!("sh {} {{SRC}} {{MNT}}", script.display());
    let table = one_case(folder, ["passthrough", "write 4k"], "wrong", &template, &[]);
    assert!(table["rows"][0]["cells"]["bare"]["error"].is_null(), "{table}");
    assert!(table["rows"][0]["cells"]["wrong"]["error"].as_str().unwrap().contains("differ"), "{table}");
    let column =
        table["columns"].as_array().unwrap().iter().find(|column| column["name"] == "wrong").unwrap();
    assert!(column["missing"].as_str().unwrap().contains("differ"), "{column}");
}

/// A target that shows the right bytes and keeps for itself what is written: a tmpfs with a copy.
fn lost_writes_are_no_figure(folder: &Path) {
    let script = folder.join("lost.sh");
    fs::write(&script, "mount -t tmpfs none \"$2\" && cp \"$1/large.0\" \"$2\"\n").unwrap();
    let template = format!("sh {} {{SRC}} {{MNT}}", script.display());
    let table = one_case(folder, ["passthrough", "write 4k"], "lost", &template, &[]);
    for row in table["rows"].as_array().unwrap() {
        assert!(row["cells"]["bare"]["error"].is_null(), "{row}");
        let error = row["cells"]["lost"]["error"].as_str().unwrap();
        assert!(error.starts_with("0 blocks of the lower files"), "{error}");
    }
}

/// A server that stops in the middle of a case, forever.
fn a_server_that_hangs_is_left_at_the_limit(folder: &Path) {
    let script = folder.join("hung.sh");
    let lines = format!(
        "{} mount -f --flow served \"$1\" \"$2\" &\nsleep 1\nkill -STOP $!\nwait\n",
        shunt().display()
    );
    fs::write(&script, lines).unwrap();
    let template = format!("sh {} {{SRC}} {{MNT}}", script.display());
    let more = ["--size", "256M", "--rounds", "1", "--limit", "10"];
    let table = one_case(folder, ["passthrough", "randwrite 4k"], "hung", &template, &more);
    let cells = &table["rows"][0]["cells"];
    assert!(cells["bare"]["median"].as_f64().is_some_and(|median| median > 0.0), "{cells}");
    assert!(cells["hung"]["error"].as_str().unwrap().contains("longer than 10 s"), "{cells}");
}

/// The same between single calls, which no program of somebody else's makes.
fn calls_that_hang_are_left_at_the_limit(folder: &Path) {
    let script = folder.join("stopped.sh");
    let until = "until [ -e \"$1/calls/made.0/name.0\" ]; do sleep 0.02; done";
    let lines = format!(
        "{} mount -f --flow served \"$1\" \"$2\" &\n{until}\nkill -STOP $!\nwait\n",
        shunt().display()
    );
    fs::write(&script, lines).unwrap();
    let template = format!("sh {} {{SRC}} {{MNT}}", script.display());
    let more = ["--size", "8M", "--rounds", "1", "--limit", "5"];
    let table = one_case(folder, ["tails", "create idle j1"], "stopped", &template, &more);
    for row in table["rows"].as_array().unwrap() {
        let has_figure = row["cells"]["bare"]["median"].as_f64().is_some_and(|median| median > 0.0);
        assert!(has_figure || row["unit"] == "server_micros", "{row}");
        assert!(row["cells"]["stopped"]["error"].as_str().unwrap().contains("longer than 5 s"), "{row}");
    }
}

/// Once the run has a figure, an interrupt ends it with the report of what there is.
fn an_interrupt_takes_everything_down() {
    let table = ["--table", "passthrough", "--targets", "bind,served", "--case", "write 4k"];
    let run = Run::start(&[&["--rounds", "50", "--size", "8M"][..], &table].concat());
    let started = Instant::now();
    while !run.said().contains("write 4k, served: ") {
        assert!(started.elapsed() < Duration::from_mins(1), "{}", run.said());
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = Command::new("kill").arg("-INT").arg(run.child.id().to_string()).status().unwrap();
    assert!(status.success());
    let (code, said) = run.end(Duration::from_secs(60));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("- Interrupted:") && said.contains("| case | bare | bind | served |"), "{said}");
}
