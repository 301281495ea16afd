//! Another seal, taken by a mount that is up: by SIGHUP, and by the trust that the mount was made with.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;

use common::{Ran, Room, SHUNT, apart, can_mount, eventually, run, shunt, signal};
use serde_json::Value;

const EIO: i32 = 5;

/// The folder of a [`Room`] with a key `one` and a seal by it, beside a key that nobody trusts.
struct Sealed(Room);

impl Sealed {
    fn new() -> Self {
        let sealed = Self(Room::new());
        for key in ["one", "two"] {
            sealed.words(&["key", "new", key]).ok();
        }
        fs::write(sealed.0.src().join("kept"), vec![7; 30_000]).expect("writes");
        sealed.seal("one");
        sealed
    }

    fn words(&self, words: &[&str]) -> Ran {
        run(Command::new(SHUNT).args(words).current_dir(self.0.path()))
    }

    fn shell(&self, script: &str) {
        run(Command::new("sh").args(["-ec", script]).current_dir(self.0.path())).ok();
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    fn seal(&self, key: &str) {
        self.words(&["seal", "src", "--key", key]).ok();
    }

    /// Changes a file below, and waits until a seal over it has another time than the earlier one.
    fn change(&self, text: &str) {
        self.shell("sleep 1.1");
        fs::write(self.0.src().join("hello"), text).expect("writes");
    }

    fn read(&self) -> Result<String, i32> {
        let read = fs::read_to_string(self.0.mnt().join("hello"));
        read.map_err(|error| error.raw_os_error().expect("of the kernel"))
    }

    fn verify(&self) -> Value {
        let status = shunt(["status".as_ref(), "--json".as_ref(), self.0.mnt().as_os_str()]).ok().out;
        let mut status: Value = serde_json::from_str(&status).expect("JSON");
        status["verify"].take()
    }

    fn status(&self) -> String {
        shunt(["status".as_ref(), self.0.mnt().as_os_str()]).ok().out
    }

    /// Sends SIGHUP, and waits until so many seals were taken since the mount.
    fn takes(&self, server: u32, reloads: u64) {
        signal(server, "HUP");
        eventually("the seal is taken", || self.verify()["reloads"] == reloads);
        assert_eq!(self.verify()["error"], Value::Null);
        assert!(!self.status().contains("the earlier seal holds"), "{}", self.status());
    }

    /// Sends SIGHUP, and waits until the status says why the seal is refused.
    fn refuses(&self, server: u32, words: &[&str]) {
        let before = self.verify();
        signal(server, "HUP");
        let said = || self.verify()["error"].as_str().unwrap_or_default().to_owned();
        eventually(words[0], || words.iter().all(|word| said().contains(word)));
        let (status, after) = (self.status(), self.verify());
        assert!(status.contains("the earlier seal holds: ") && status.contains(words[0]), "{status}");
        for key in ["manifest", "serial", "files", "reloads", "signed_by"] {
            assert_eq!(before[key], after[key], "{key}");
        }
    }
}

fn older(sealed: &Sealed, name: &str) -> PathBuf {
    sealed.shell(&format!("cp -a src {name}"));
    sealed.0.path().join(name)
}

#[test]
fn privileged_a_new_seal_is_taken_without_mounting_again() {
    if !can_mount() {
        return;
    }
    let sealed = Sealed::new();
    let server = sealed.0.mount_in_foreground(&["--verify=if-sealed", "--trust", &sealed.at("one.pub")]);
    let kept = File::open(sealed.0.mnt().join("kept")).expect("opens");
    let first = sealed.verify();
    // A seal that is the same is taken without a word.
    signal(server.id(), "HUP");
    eventually("it is said", || server.log().contains("the seal was read again, and is the same"));
    assert_eq!(sealed.verify()["reloads"], 0);

    older(&sealed, "before");
    sealed.change("hello again, everybody\n");
    assert_eq!(sealed.read(), Err(EIO));
    sealed.seal("one");
    assert_eq!(sealed.read(), Err(EIO), "nobody has said that there is another seal");
    sealed.takes(server.id(), 1);
    assert_eq!(sealed.read(), Ok("hello again, everybody\n".into()));
    assert!(sealed.status().contains("another seal was taken once"), "{}", sealed.status());
    assert_ne!(sealed.verify()["manifest"], first["manifest"]);
    // What is open keeps what it had.
    let mut bytes = vec![0; 30_000];
    kept.read_exact_at(&mut bytes, 0).expect("reads");
    assert_eq!(bytes, vec![7; 30_000]);

    // By somebody else, by nobody, an older one, none, and no seal at all.
    sealed.shell("cp -a src newer; rm -r src/.shunt");
    sealed.seal("two");
    sealed.refuses(server.id(), &["signed by"]);
    sealed.shell("rm -r src/.shunt");
    sealed.words(&["seal", "src"]).ok();
    sealed.refuses(server.id(), &["is not signed"]);
    sealed.shell("rm -r src/.shunt; cp -a before/.shunt src/.shunt");
    sealed.refuses(server.id(), &["rollback"]);
    sealed.shell("rm -r src/.shunt");
    sealed.refuses(server.id(), &["is not sealed"]);
    sealed.shell("mkdir src/.shunt; echo no seal > src/.shunt/seal");
    sealed.refuses(server.id(), &["src/.shunt/seal"]);
    sealed.shell("rm -r src/.shunt; ln -s ../newer/.shunt src/.shunt");
    sealed.refuses(server.id(), &["src/.shunt"]);
    assert!(server.log().contains("WARN"), "{}", server.log());
    assert!(server.log().contains("the seal stays as it was: SRC cannot be verified"), "{}", server.log());
    assert_eq!(sealed.read(), Ok("hello again, everybody\n".into()));
    // The good one is back, and the error gone.
    sealed.shell("rm src/.shunt; cp -a newer/.shunt src/.shunt");
    sealed.takes(server.id(), 2);
    sealed.change("once more\n");
    sealed.seal("one");
    sealed.takes(server.id(), 3);
    assert_eq!(sealed.read(), Ok("once more\n".into()));
}

#[test]
fn privileged_a_trust_store_lets_no_older_seal_in() {
    if !can_mount() {
        return;
    }
    let sealed = Sealed::new();
    sealed.words(&["trust", "add", "trust", "one.pub"]).ok();
    let server = sealed.0.mount_in_foreground(&[
        "--verify=if-sealed",
        "--trust-store",
        &sealed.at("trust"),
        "--tree",
        "src",
    ]);
    older(&sealed, "before");
    sealed.change("newer\n");
    sealed.seal("one");
    sealed.takes(server.id(), 1);
    let newer = sealed.verify();
    let listed = sealed.words(&["trust", "list", "trust", "--json"]).ok().out;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["seen"][0]["serial"], newer["serial"], "what was taken was seen");
    older(&sealed, "newer");
    sealed.shell("rm -r src/.shunt; cp -a before/.shunt src/.shunt");
    sealed.refuses(server.id(), &["rollback", "shunt seal trust forget DIR TREE"]);
    assert_eq!(sealed.read(), Ok("newer\n".into()), "the newer one holds");
    sealed.shell("rm -r src/.shunt");
    sealed.words(&["seal", "src", "--tree", "src"]).ok();
    sealed.refuses(server.id(), &["is not signed"]);
    // A key that was taken out of the store is trusted no more, a new one is.
    sealed.shell("rm -r src/.shunt; cp -a newer/.shunt src/.shunt; rm trust/one.pub; cp two.pub trust");
    sealed.change("newest\n");
    sealed.seal("one");
    sealed.refuses(server.id(), &["signed by"]);
    sealed.seal("two");
    sealed.takes(server.id(), 2);
    assert_eq!(sealed.read(), Ok("newest\n".into()));
}

#[test]
fn privileged_a_digest_takes_no_other_seal_and_required_needs_a_new_mount() {
    if !can_mount() {
        return;
    }
    let sealed = Sealed::new();
    let shown: Value =
        serde_json::from_str(&sealed.words(&["show", "src", "--json"]).ok().out).expect("JSON");
    let digest = shown["digest"].as_str().expect("a text");
    let server = sealed.0.mount_in_foreground(&["--verify=if-sealed", "--digest", digest]);
    sealed.change("other\n");
    sealed.seal("one");
    sealed.refuses(server.id(), &["mount again with the new digest"]);
    sealed.0.umount(&[]).ok();
    drop(server);
    let server = sealed.0.mount_in_foreground(&["--verify=required", "--trust", &sealed.at("one.pub")]);
    signal(server.id(), "HUP");
    eventually("it is said", || server.log().contains("a new seal needs a new mount"));
    assert_eq!(sealed.read(), Ok("other\n".into()));
}

/// A store that is elsewhere is the folder that it was at the mount.
#[test]
fn privileged_a_seal_of_a_store_elsewhere_is_taken() {
    if !can_mount() {
        return;
    }
    let sealed = Sealed::new();
    sealed.shell("rm -r src/.shunt");
    let seal = || sealed.words(&["seal", "src", "--key", "one", "--store", "store"]).ok();
    seal();
    let (trust, store) = (sealed.at("one.pub"), sealed.at("store"));
    let server =
        sealed.0.mount_in_foreground(&["--verify=if-sealed", "--trust", &trust, "--seal-store", &store]);
    sealed.change("newer\n");
    seal();
    sealed.takes(server.id(), 1);
    assert_eq!(sealed.read(), Ok("newer\n".into()));
}

/// Rules and seal are read again by one signal, and a mistake in one does not keep the other back.
#[test]
fn privileged_rules_and_seal_fail_each_by_itself() {
    if !can_mount() {
        return;
    }
    let sealed = Sealed::new();
    let rules = sealed.at("rules.toml");
    let good = "[[rule]]\nbasename = 'kept'\nhide = true\n";
    fs::write(&rules, good).expect("writes");
    let trust = sealed.at("one.pub");
    let server = sealed.0.mount_in_foreground(&["--verify=if-sealed", "--trust", &trust, "--rules", &rules]);
    sealed.change("newer\n");
    sealed.seal("one");
    fs::write(&rules, "[[rule]]\nhide = 5\n").expect("writes");
    sealed.takes(server.id(), 1);
    assert!(sealed.status().contains("the earlier ones hold"), "{}", sealed.status());
    assert!(!sealed.0.mnt().join("kept").exists());
    fs::write(&rules, "[[rule]]\nbasename = 'other'\nhide = true\n").expect("writes");
    sealed.shell("rm -r src/.shunt");
    sealed.refuses(server.id(), &["is not sealed"]);
    assert!(!sealed.status().contains("the earlier ones hold"), "{}", sealed.status());
    eventually("the rules were taken", || sealed.0.mnt().join("kept").exists());
}

/// A mount that lies over SRC is not asked for the seal of SRC: it does not show it, and would be waited for.
#[test]
fn privileged_the_path_of_src_may_lead_to_the_mount_itself() {
    if !can_mount() {
        return;
    }
    let sealed = Sealed::new();
    let script = r#"
        mkdir below
        mount --bind src below
        "$1" mount --verify=if-sealed --trust "$PWD/one.pub" --log-file "$PWD/log" "$PWD/src" "$PWD/mnt"
        trap 'umount src || :; "$1" umount "$PWD/mnt"' EXIT
        mount --bind mnt src
        cat src/hello
        ! ls src/.shunt
        sleep 1.1
        echo through > below/hello
        "$1" seal below --key one --tree src > sealed
        kill -HUP "$("$1" status --json "$PWD/mnt" | grep -o '"pid": *[0-9]*' | head -1 | grep -o '[0-9]*')"
        for try in $(seq 100); do grep -q 'another seal was taken' log && break; sleep 0.1; done
        cat src/hello
        cat log
    "#;
    let ran = run(apart(script).current_dir(sealed.0.path())).ok();
    assert!(ran.out.starts_with("hello there\nthrough\n"), "{ran:?}");
}
