//! Every JSON document is as `docs/shunt.schema.json` says, and names in it that are not UTF-8 survive.

mod common;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{SHUNT, can_mount, run, wait};
use serde_json::{Value, json};

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../docs/shunt.schema.json")).expect("JSON")
}

/// Makes fields that are not described an error. Programs ignore them; the page must not.
fn closed(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") {
                fields.entry("additionalProperties").or_insert(false.into());
            }
            fields.values_mut().for_each(closed);
        }
        Value::Array(all) => all.iter_mut().for_each(closed),
        _ => {}
    }
}

/// Checks documents against the definition with this name.
#[track_caller]
fn check(name: &str, documents: &[Value]) {
    let mut schema = schema();
    closed(&mut schema);
    schema["$ref"] = format!("#/$defs/{name}").into();
    let validator = jsonschema::validator_for(&schema).expect("is a schema");
    assert!(!documents.is_empty(), "{name}: no document");
    for document in documents {
        let errors: Vec<String> = validator.iter_errors(document).map(|error| format!("{error:?}")).collect();
        assert!(errors.is_empty(), "{name}: {}\n{document:#}", errors.join("\n"));
        assert_eq!(document["format"], 1, "{document:#}");
    }
}

/// Runs a command that prints one document, or one on each line, and checks what it prints.
#[track_caller]
fn checked<S: AsRef<OsStr>>(name: &str, words: &[S]) -> Vec<Value> {
    let ran = run(Command::new(SHUNT).args(words));
    assert!(matches!(ran.code, Some(0 | 1)), "{ran:?}");
    let documents = serde_json::Deserializer::from_str(&ran.out).into_iter();
    let documents: Vec<Value> = documents.collect::<Result<_, _>>().unwrap_or_else(|_| panic!("{ran:?}"));
    check(name, &documents);
    documents
}

/// A name with a byte that is no UTF-8.
fn odd(folder: &Path, name: &str) -> PathBuf {
    folder.join(OsStr::from_bytes(&[name.as_bytes(), b"\xff"].concat()))
}

fn hex(path: impl AsRef<OsStr>) -> String {
    path.as_ref().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn words<'a>(words: &[&'a str], paths: &[&'a Path]) -> Vec<&'a OsStr> {
    words.iter().map(|word| OsStr::new(*word)).chain(paths.iter().map(|path| path.as_os_str())).collect()
}

/// Takes a mount away at the end.
struct Mounted(PathBuf);

impl Mounted {
    #[track_caller]
    fn at(path: PathBuf, options: &[&str], source: &OsStr) -> Self {
        let mut mount = Command::new(SHUNT);
        mount.args(["mount", "--log-file", "/dev/null"]).args(options).arg(source).arg(&path);
        run(&mut mount).ok();
        Self(path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new(SHUNT).args(["umount", "--lazy"]).arg(&self.0).status();
    }
}

#[test]
fn every_command_with_json_has_a_schema() {
    fn walk(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        let has = |argument: &clap::Arg| {
            argument.get_long() == Some("json") && !argument.get_action().takes_values()
        };
        if command.get_arguments().any(has) {
            found.push(path.to_owned());
        }
        for one in command.get_subcommands() {
            let name = if path.is_empty() {
                one.get_name().to_owned()
            } else {
                format!("{path}-{}", one.get_name())
            };
            walk(one, &name, found);
        }
    }
    let mut found = Vec::new();
    walk(&shunt::cli::definition(), "", &mut found);
    assert!(found.len() > 15 && found.contains(&"seal-trust-list".to_owned()), "{found:?}");
    let (schema, page) = (schema(), include_str!("../../../docs/json.md"));
    for path in found {
        let family = path.split('-').next().expect("has a name");
        let of = |name: &str| schema["$defs"].get(name).is_some() && page.contains(&format!("`{name}`"));
        let alone = ["seal", "mover", "rules"].contains(&family);
        assert!(of(&path) || !alone && of(family), "neither schema nor page has {path}");
    }
    jsonschema::meta::validate(&schema).expect("is a schema");
}

#[test]
fn documents_without_a_mount_are_as_described() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path();
    let tree = odd(top, "tree");
    fs::create_dir(&tree).expect("makes");
    fs::write(odd(&tree, "file"), "x").expect("writes");
    let key = top.join("key");
    run(Command::new(SHUNT).args(words(&["seal", "key", "new"], &[&key]))).ok();
    let sealed = checked("seal", &words(&["seal", "--json"], &[&tree]));
    assert_eq!(
        (&sealed[0]["path_hex"], &sealed[0]["store_hex"]),
        (&hex(&tree).into(), &hex(tree.join(".shunt")).into())
    );
    checked("seal", &words(&["seal", "--json", "--key"], &[&key, &tree]));
    let list = checked("seal-show", &words(&["seal", "show", "--json", "--list"], &[&tree]));
    assert_eq!(list[0]["list"][0]["path_hex"], hex(odd(Path::new(""), "file")));
    checked("seal-show", &words(&["show", "--json"], &[&tree]));
    checked("seal-verify", &words(&["seal", "verify", "--json"], &[&tree]));
    fs::write(odd(&tree, "file"), "y").expect("writes");
    fs::write(tree.join("extra"), "").expect("writes");
    let found = checked("seal-verify", &words(&["seal", "verify", "--json"], &[&tree, top]));
    let faults: Vec<&Value> = found[0]["findings"].as_array().expect("a list").iter().collect();
    assert!(faults.iter().any(|one| one["path_hex"] == hex(odd(Path::new(""), "file"))), "{faults:?}");
    assert!(found[1]["error"].is_string(), "{found:?}");
    let single = odd(top, "single");
    fs::write(&single, "x").expect("writes");
    checked("seal", &words(&["seal", "--json"], &[&single]));
    checked("seal-verify", &words(&["seal", "verify", "--json"], &[&single]));
    let store = top.join("trust");
    run(Command::new(SHUNT).args(words(&["seal", "trust", "add"], &[&store, &top.join("key.pub")]))).ok();
    checked("seal-show", &words(&["seal", "show", "--json", "--trust-store"], &[&store, &tree]));
    let listed = checked("seal-trust-list", &words(&["seal", "trust", "list", "--json"], &[&store]));
    assert_eq!(listed[0]["keys"].as_array().map(Vec::len), Some(1));
    let rules = odd(top, "rules");
    fs::write(&rules, "[[rule]]\npath = 'a'\ndeny = 'EACCES'\n[[rule]]\npath = 'a'\nhide = 1\n")
        .expect("writes");
    let checks = checked("rules-check", &words(&["rules", "check", "--json"], &[&rules, &top.join("gone")]));
    assert_eq!(checks[0]["files"][0]["file_hex"], hex(&rules));
    assert_eq!(checks[0]["files"][0]["mistakes"][0]["line"], 6);
    checked("doctor", &["doctor", "--json"]);
    checked("list", &["list", "--json"]);
    let line = "/a:/b /m fuse.mergerfs category.create=mfs,statfs=full 0 0";
    checked("migrate", &["migrate", "mergerfs", "--json", line]);
    fs::write(top.join("fstab"), format!("{line}\n")).expect("writes");
    checked("migrate", &words(&["migrate", "mergerfs", "--json", "--fstab"], &[&top.join("fstab")]));
    let placed =
        checked("placement", &words(&["explain", "place", "--json"], &[&tree, &odd(Path::new(""), "new")]));
    assert_eq!(placed[0]["path_hex"], hex(odd(Path::new(""), "new")));
    assert_eq!(placed[0]["branches"][0]["branch_hex"], hex(&tree));
}

#[test]
fn privileged_documents_of_a_mount_are_as_described() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path().canonicalize().expect("is there");
    let (source, mnt, rules) = (odd(&top, "source"), odd(&top, "mnt"), top.join("rules"));
    fs::create_dir(&source).expect("makes");
    fs::create_dir(&mnt).expect("makes");
    fs::write(odd(&source, "file"), "x").expect("writes");
    fs::write(&rules, "[[rule]]\nname = 'no'\npath = 'secret'\ndeny = 'EACCES'\n").expect("writes");
    let _mounted = Mounted::at(mnt.clone(), &["--rules", rules.to_str().expect("text")], source.as_os_str());
    let file = odd(&mnt, "file");
    let lists = checked("list", &["list", "--json"]);
    let rows = lists[0]["mounts"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["mountpoint_hex"] == hex(&mnt)).expect("is listed");
    assert_eq!((&row["state"], &row["source_hex"]), (&"mounted".into(), &hex(&source).into()), "{row}");
    fs::read(&file).expect("reads");
    let status = checked("status", &words(&["status", "--json"], &[&mnt]));
    assert_eq!(
        (&status[0]["mountpoint_hex"], &status[0]["folder_hex"]),
        (&hex(&mnt).into(), &hex(&source).into())
    );
    let below = json!([hex(odd(Path::new(""), "file"))]);
    let why = checked("why", &words(&["why", "--json"], &[&file]));
    assert_eq!(
        (&why[0]["file_hex"], &why[0]["verdict"]["paths_hex"]),
        (&hex(&file).into(), &below),
        "{why:?}"
    );
    assert_eq!(why[0]["verdict"]["uses"][0]["answer"], "allowed");
    checked("why", &words(&["why", "--json"], &[&mnt]));
    let new = odd(&mnt, "new");
    let told = checked("explain", &words(&["explain", "create", "--json"], &[&new]));
    assert_eq!((&told[0]["path_hex"], &told[0]["mountpoint_hex"]), (&hex(&new).into(), &hex(&mnt).into()));
    checked("explain", &words(&["explain", "rename", "--json"], &[&file, &new]));
    checked("branches", &words(&["branches", "list", "--json"], &[&mnt]));
    checked("mover-status", &words(&["mover", "status", "--json"], &[&mnt]));
    checked("top", &words(&["top", "--once", "--json", "-n", "0.2"], &[&mnt]));
    let mut trace = Command::new(SHUNT)
        .args(words(&["trace", "--json", "--count", "1", "--op", "LOOKUP"], &[&mnt]))
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    // Until it listens, nothing is shown; and the kernel keeps in mind what is missing.
    let mut tries = 0;
    common::eventually("a lookup is shown", || {
        tries += 1;
        assert!(!odd(&mnt, &format!("gone{tries}")).exists());
        trace.try_wait().expect("is a child").is_some()
    });
    wait(&mut trace);
    let said = std::io::read_to_string(trace.stdout.take().expect("was piped")).expect("is text");
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    check("trace", &lines);
    assert_eq!(lines[0]["mountpoint_hex"], hex(&mnt));
    let name = lines[1]["name_hex"].as_str().expect("is there");
    assert!(name.starts_with(&hex("gone")) && name.ends_with("ff"), "{lines:?}");
}

#[test]
fn privileged_documents_of_a_pool_an_image_and_a_seal_are_as_described() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path().canonicalize().expect("is there");
    let (first, second) = (odd(&top, "first"), top.join("second"));
    for path in [&first, &second, &top.join("pool"), &top.join("sealed")] {
        fs::create_dir(path).expect("makes");
    }
    fs::write(odd(&first, "old"), "x").expect("writes");
    let rules = top.join("rules");
    let text = format!("[[rule]]\npath = '**'\nmove = {{ to = '{}', after = '0s' }}\n", second.display());
    fs::write(&rules, text).expect("writes");
    let list = OsString::from_iter([first.as_os_str(), ":".as_ref(), second.as_os_str()]);
    let mnt = top.join("pool");
    let pool = Mounted::at(mnt.clone(), &["--rules", rules.to_str().expect("text")], &list);
    let branches = checked("branches", &words(&["branches", "list", "--json"], &[&mnt]));
    assert_eq!(branches[0]["branches"][0]["path_hex"], hex(&first));
    checked("status", &words(&["status", "--json"], &[&mnt]));
    checked("top", &words(&["top", "--once", "--json", "-n", "0.2"], &[&mnt]));
    checked("explain", &words(&["explain", "mkdir", "--json"], &[&mnt.join("new")]));
    checked("why", &words(&["why", "--json"], &[&odd(&mnt, "old")]));
    let lines = checked("mover-run", &words(&["mover", "run", "--json"], &[&mnt]));
    assert_eq!(lines[0]["file"]["path_hex"], hex(odd(Path::new(""), "old")), "{lines:?}");
    checked("mover-status", &words(&["mover", "status", "--json"], &[&mnt]));
    checked("status", &words(&["status", "--json"], &[&mnt]));
    drop(pool);
    run(Command::new(SHUNT).args(words(&["seal"], &[&second]))).ok();
    let sealed = Mounted::at(top.join("sealed"), &["--verify", "required"], second.as_os_str());
    checked("why", &words(&["why", "--json"], &[&odd(&sealed.0, "old")]));
    checked("status", &words(&["status", "--json"], &[&sealed.0]));
    let (image, shown) = (odd(&top, "image"), top.join("shown"));
    fs::write(&image, vec![0; 1 << 16]).expect("writes");
    run(Command::new(SHUNT).args(words(&["export", "--log-file", "/dev/null"], &[&image, &shown]))).ok();
    let exported = Mounted(shown);
    let status = checked("status", &words(&["status", "--json"], &[&exported.0]));
    assert_eq!(status[0]["folder_hex"], hex(&image));
    let lists = checked("list", &["list", "--json"]);
    let rows = lists[0]["mounts"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["mountpoint"] == exported.0.to_str().expect("text"));
    assert_eq!(row.expect("is listed")["source_hex"], hex(&image));
}
