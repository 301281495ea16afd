//! Whose seals are taken: pins, thresholds, trust stores, signatures from another machine, keys with a passphrase.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Ran, SHUNT, can_mount, run};
use serde_json::Value;
use tempfile::TempDir;

struct Room(TempDir);

impl Room {
    /// A folder `photos` with files, and the keys `one`, `two` and `three`.
    fn new() -> Self {
        let room = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir_all(room.at("photos/a")).expect("makes");
        fs::write(room.at("photos/a/file"), vec![7; 30_000]).expect("writes");
        fs::write(room.at("photos/small"), "small").expect("writes");
        fs::create_dir(room.at("mnt")).expect("makes");
        for key in ["one", "two", "three"] {
            room.shunt("key new", &[key]).ok();
        }
        room
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Words of a command, and further ones that may have spaces in them.
    fn shunt(&self, words: &str, more: &[&str]) -> Ran {
        run(Command::new(SHUNT).args(words.split_whitespace()).args(more).current_dir(self.0.path()))
    }

    fn shell(&self, script: &str) -> Ran {
        run(Command::new("sh").args(["-ec", script]).current_dir(self.0.path()).env("SHUNT", SHUNT))
    }

    fn shown(&self) -> Value {
        serde_json::from_str(&self.shunt("show photos --json", &[]).ok().out).expect("JSON")
    }

    fn digest(&self) -> String {
        self.shown()["digest"].as_str().expect("a text").to_owned()
    }

    /// Mounts, and takes the mount away again.
    fn mount(&self, words: &str) -> Ran {
        let ran = self.shunt(&format!("mount --verify=required {words} photos mnt"), &[]);
        if ran.code == Some(0) {
            run(Command::new(SHUNT).arg("umount").arg(self.at("mnt"))).ok();
        }
        ran
    }
}

#[test]
fn a_pinned_digest_is_the_only_one_that_is_taken() {
    let room = Room::new();
    room.shunt("seal photos", &[]).ok();
    let good = room.digest();
    let digits = good.strip_prefix("sha256:").expect("its name");
    for pin in [good.as_str(), digits, &digits.to_uppercase()] {
        let said = room.shunt("verify photos --digest", &[pin]).ok().out;
        assert!(said.contains("of the digest that is asked for: as sealed"), "{said}");
    }
    let other = format!("sha256:{}", "ab".repeat(32));
    room.shunt("verify photos --digest", &[&other]).fails(1, &[&good, &other, "asked for"]);
    for wrong in ["", "abc", &digits[1..], &format!("{digits}00"), &"xy".repeat(32), "sha1:00"] {
        assert_eq!(room.shunt("verify photos --digest", &[wrong]).code, Some(2), "{wrong}");
    }
    room.shunt("mount -o verify=required,digest=abc photos mnt", &[])
        .fails(2, &["digest", "64 hexadecimal digits"]);
    // A single file and its signature are pinned in the same way, outside of a sealed folder, whose seal would decide.
    fs::copy(room.at("photos/small"), room.at("single")).expect("copies");
    room.shunt("seal single", &[]).ok();
    let said = room.shunt("digest --compact single", &[]).ok().out;
    room.shunt("verify single --digest", &[said.trim()]).ok();
    room.shunt("verify single --digest", &[&other]).fails(1, &["asked for"]);
    if !can_mount() {
        return;
    }
    let mounted = room.mount(&format!("--digest {digits}"));
    assert!(!mounted.ok().err.contains("nothing says whose"));
    room.mount(&format!("-o digest={good}")).ok();
    let refused = room.mount(&format!("--digest {other}"));
    refused.fails(1, &[&good, &other, "asked for"]);
    assert!(room.mount("").ok().err.contains("nosuid and nodev"));
}

#[test]
fn as_many_keys_as_are_asked_for_must_have_signed() {
    let room = Room::new();
    let three = "--trust one.pub --trust two.pub --trust three.pub --threshold 2";
    room.shunt("seal photos --key one --key three", &[]).ok();
    let said = room.shunt(&format!("verify photos {three}"), &[]).ok().out;
    assert!(said.contains("signed by 2 trusted keys"), "{said}");
    room.shunt("verify photos --trust two.pub --trust three.pub --threshold 2", &[])
        .fails(1, &["signed by 1 of 2 required trusted keys"]);
    room.shunt("verify photos --trust one.pub --trust one.pub --threshold 2", &[])
        .fails(1, &["2 different keys are needed, and 1 is trusted"]);
    room.shunt("verify photos --threshold 2", &[]).fails(2, &["--trust"]);
    room.shunt("verify photos --trust one.pub --threshold 0", &[]).fails_with_usage();
    room.shunt("seal photos", &["--key=one"; 17]).fails(2, &["at most 16"]);
    // One key of several is over: said, and no more than that, while there are enough.
    let key = fs::read_to_string(room.at("two.pub")).expect("reads");
    fs::write(room.at("two.pub"), format!("expires = 2024-01-01\n{key}")).expect("writes");
    let ran = room.shunt(&format!("verify photos {three}"), &[]).ok();
    assert!(ran.err.contains("two.pub: it expired, 2024-01-01 was its last day"), "{ran:?}");
    let ran = room.shunt("verify photos --trust one.pub --trust two.pub --threshold 2", &[]);
    assert!(
        ran.code == Some(1) && ran.err.contains("2024-01-01") && ran.err.contains("1 is trusted"),
        "{ran:?}"
    );
    room.shunt("verify photos --trust two.pub", &[]).fails(1, &["2024-01-01", "trust another key"]);
    fs::write(room.at("both.pub"), key.repeat(2)).expect("writes");
    room.shunt("verify photos --trust both.pub", &[]).fails(1, &["both.pub", "more than one key"]);
    if can_mount() {
        room.mount(three).ok();
        room.mount("--trust two.pub --trust three.pub").ok();
        room.shunt("seal photos --key one", &[]).ok();
        let (one, three) = (room.at("one.pub"), room.at("three.pub"));
        let options = format!("-o trust={},trust={},threshold=2", one.display(), three.display());
        room.mount(&options).fails(1, &["1 of 2"]);
    }
}

/// A key that could not be written whole stayed, and kept the next one from being made.
#[test]
fn a_part_of_a_key_does_not_stay() {
    let room = Room::new();
    room.shell("trap '' XFSZ; ulimit -f 0; \"$SHUNT\" seal key new key")
        .fails(1, &["cannot write key", "File too large"]);
    assert!(!room.at("key").exists() && !room.at("key.pub").exists());
    room.shunt("seal key new key", &[]).ok();
}

/// Keys were added, and the number of signatures refused: the store then trusted each of them alone.
#[test]
fn a_trust_store_takes_all_that_is_asked_for_or_nothing() {
    let room = Room::new();
    room.shell("mkdir other && cp two.pub other/one.pub && cp three.pub .three.pub").ok();
    room.shunt("seal photos --key one", &[]).ok();
    let names = || -> Vec<String> {
        let names = fs::read_dir(room.at("trust")).expect("is there").flatten();
        let mut names: Vec<String> =
            names.map(|name| name.file_name().into_string().expect("text")).collect();
        names.retain(|name| name != "lock");
        names.sort();
        names
    };
    for (words, said) in [
        ("one.pub two.pub --threshold 3", "3 of 2 keys cannot be asked for"),
        ("one.pub other/one.pub", "there is a key one.pub already"),
        ("one.pub two.pub two.pub", "is there already: two.pub"),
        ("one.pub .three.pub", ".three.pub would not be read"),
        ("one.pub gone.pub", "gone.pub"),
    ] {
        room.shunt(&format!("seal trust add trust {words}"), &[]).fails(1, &[said]);
        assert!(!room.at("trust").exists() || names().is_empty(), "{words}: {:?}", names());
    }
    room.shunt("verify photos --trust-store trust", &[]).fails(1, &["trust"]);
    let added = room.shunt("seal trust add trust one.pub two.pub --threshold 2", &[]).ok().out;
    assert!(added.contains("2 keys, 2 must sign"), "{added}");
    assert_eq!(names(), ["config", "one.pub", "two.pub"]);
    room.shunt("verify photos --trust-store trust", &[]).fails(1, &["1 of 2"]);
    // Refused, and not half done.
    room.shunt("seal trust add trust three.pub --threshold 4", &[]).fails(1, &["4 of 3 keys"]);
    assert_eq!(names(), ["config", "one.pub", "two.pub"]);
    room.shunt("seal trust add trust three.pub --threshold 1", &[]).ok();
    room.shunt("verify photos --trust-store trust", &[]).ok();
    let listed = room.shunt("seal trust list trust", &[]).ok().out;
    assert!(listed.starts_with("1 of these keys must sign") && listed.contains("three.pub"), "{listed}");
}

/// An attacker keeps what was sealed, and puts it back later: store and files.
#[test]
fn a_trust_store_refuses_what_is_older() {
    let room = Room::new();
    room.shunt("verify photos --trust-store trust", &[])
        .fails(1, &["no such trust store", "shunt seal trust add trust KEY.pub"]);
    room.shunt("trust add trust one.pub two.pub", &[]).ok();
    room.shunt("trust add trust one.pub", &[]).fails(1, &["is there already"]);
    room.shunt("trust add trust one", &[]).fails(1, &["private key"]);
    room.shunt("trust add trust --threshold 3", &[]).fails(1, &["3 of 2 keys"]);
    room.shunt("seal photos --key one", &[]).ok();
    room.shunt("verify photos --trust-store trust", &[]).ok();
    room.shell("cp -a photos kept; sleep 1.1; echo new > photos/new").ok();
    room.shunt("seal photos --key one", &[]).ok();
    room.shunt("verify photos --trust-store trust", &[]).ok();
    let listed: Value =
        serde_json::from_str(&room.shunt("trust list trust --json", &[]).ok().out).expect("JSON");
    assert_eq!(
        (&listed["seen"][0]["tree"], &listed["seen"][0]["serial"]),
        (&"photos".into(), &room.shown()["serial"])
    );
    assert!(room.shunt("trust list trust", &[]).ok().out.contains("tree photos, serial "));
    room.shell("rm -r photos; cp -a kept photos").ok();
    let rollback =
        ["rollback", "of tree `photos`, and serial", "was seen", "shunt seal trust forget DIR TREE"];
    room.shunt("verify photos --trust-store trust", &[]).fails(1, &rollback);
    room.shunt("show photos --trust-store trust", &[]).fails(1, &rollback[..3]);
    room.shunt("verify photos --trust one.pub", &[]).ok();
    if can_mount() {
        room.mount("--trust-store trust").fails(1, &rollback);
        room.mount(&format!("-o trust_store={}", room.at("trust").display())).fails(1, &rollback);
    }
    room.shunt("trust forget trust music", &[]).fails(1, &["nothing of tree music"]);
    room.shunt("trust forget trust photos", &[]).ok();
    room.shunt("verify photos --trust-store trust", &[]).ok();
    if can_mount() {
        room.mount("--trust-store trust --tree photos").ok();
    }
    room.shunt("verify photos --trust-store trust --tree music", &[])
        .fails(1, &["`photos`", "`music`", "asked for"]);
    room.shunt("verify photos --trust-store trust --trust one.pub", &[])
        .fails(2, &["a trust store has the keys"]);
    room.shunt("verify photos --tree photos", &[]).fails(2, &["anybody can write any name"]);
    room.shunt("trust add trust --threshold 2", &[]).ok();
    room.shunt("verify photos --trust-store trust", &[]).fails(1, &["1 of 2"]);
    fs::write(room.at("trust/seen"), "shunt serials 1\nphotos\nend 1\n").expect("writes");
    room.shunt("verify photos --trust-store trust", &[]).fails(1, &["trust/seen: line 2"]);
    fs::remove_file(room.at("trust/seen")).expect("removes");
    fs::set_permissions(room.at("trust"), fs::Permissions::from_mode(0o777)).expect("is ours");
    room.shunt("verify photos --trust-store trust", &[]).fails(1, &["others can write it (mode 777)"]);
}

/// The key is on a machine that never sees the tree.
#[test]
fn a_seal_is_signed_on_another_machine() {
    let room = Room::new();
    room.shunt("seal photos --unsigned", &[]).ok();
    room.shunt("show photos --to-sign carried", &[]).ok();
    let digest = room.digest();
    let other = "ab".repeat(32);
    room.shunt("sign carried --seal --key one --digest", &[&other]).fails(1, &[&digest, "nothing is signed"]);
    assert!(!room.at("carried.sig").exists());
    room.shunt("sign photos/small --seal --key one", &[])
        .fails(1, &["not what `shunt seal show --to-sign` writes"]);
    let said = room.shunt("sign carried --seal --key one --digest", &[&digest]).ok().out;
    assert!(said.contains(&digest) && said.contains("tree photos, serial "), "{said}");
    assert_eq!(fs::metadata(room.at("carried.sig")).expect("is there").len(), 64);
    room.shunt("seal photos --attach carried.sig", &[]).fails_with_usage();
    room.shunt("seal photos --attach carried.sig --trust two.pub", &[])
        .fails(1, &["not by any of these keys"]);
    room.shunt("verify photos --trust one.pub", &[]).fails(1, &["is not signed"]);
    room.shunt("seal photos --attach carried.sig --trust one.pub", &[]).ok();
    room.shunt("verify photos --trust one.pub", &[]).ok();
    // A second one, by openssl.
    if room.shell("command -v openssl").code == Some(0) {
        room.shell("openssl pkeyutl -sign -rawin -inkey two -in carried -out second").ok();
        room.shunt("seal photos --attach second --trust two.pub", &[]).ok();
        room.shunt("verify photos --trust one.pub --trust two.pub --threshold 2", &[]).ok();
    }
    // What was signed of an older seal is good for no newer one.
    room.shell("sleep 1.1; echo new > photos/new").ok();
    room.shunt("seal photos --unsigned", &[]).ok();
    room.shunt("seal photos --attach carried.sig --trust one.pub", &[]).fails(1, &["sealed again meanwhile"]);
    room.shunt("seal mnt --attach carried.sig --trust one.pub", &[]).fails(1, &["is not sealed"]);
    assert!(!room.at("mnt/.shunt").exists());
}

#[test]
fn a_key_may_have_a_passphrase() {
    let room = Room::new();
    fs::write(room.at("pass"), "open sesame\nand more\n").expect("writes");
    fs::write(room.at("wrong"), "open barley\n").expect("writes");
    room.shunt("key new locked --encrypt", &[]).fails(1, &["no terminal", "--passphrase-file"]);
    room.shunt("key new locked --encrypt --passphrase-file pass", &[]).ok();
    let text = fs::read_to_string(room.at("locked")).expect("reads");
    assert!(text.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"), "{text}");
    room.shunt("seal photos --key locked", &[]).fails(1, &["no terminal"]);
    room.shunt("seal photos --key locked --passphrase-file wrong", &[])
        .fails(1, &["locked: the passphrase is wrong"]);
    room.shunt("seal photos --key locked --passphrase-file pass", &[]).ok();
    room.shunt("verify photos --trust locked.pub", &[]).ok();
    let mut piped = Command::new("sh");
    piped
        .args(["-ec", "echo 'open sesame' | \"$SHUNT\" key show locked --passphrase-fd 0"])
        .env("SHUNT", SHUNT);
    let said = run(piped.current_dir(room.0.path()).stderr(Stdio::null())).ok().out;
    assert_eq!(said, room.shunt("key show locked.pub", &[]).ok().out);
    fs::write(room.at("empty"), "\n").expect("writes");
    room.shunt("key new void --encrypt --passphrase-file empty", &[]).fails(1, &["empty passphrase"]);
    assert!(!room.at("void").exists());
    // One that everybody can read is said.
    fs::set_permissions(room.at("one"), fs::Permissions::from_mode(0o644)).expect("is ours");
    let ran = room.shunt("sign photos/small --key one", &[]).ok();
    assert!(ran.err.contains("everybody can read this private key (mode 644)"), "{ran:?}");
}

/// What is no regular file is not opened, and nothing waits for it.
#[test]
fn nothing_waits_for_a_key() {
    let room = Room::new();
    room.shell("mkfifo pipe; mkdir store; mkfifo store/x.pub").ok();
    room.shunt("seal photos --key one", &[]).ok();
    for words in [
        "seal photos --key pipe",
        "sign photos/small --key pipe",
        "sign pipe --seal --key one",
        "key show pipe",
        "key new new --encrypt --passphrase-file pipe",
        "verify photos --trust pipe",
        "show photos --trust pipe",
        "trust add store pipe",
        "verify photos --trust-store store",
        "seal photos --attach pipe --trust one.pub",
        "mount --verify=required --trust pipe photos mnt",
        "mount --verify=required --trust-store store photos mnt",
    ] {
        let ran = room.shunt(words, &[]);
        assert!(ran.code == Some(1) && ran.err.contains("it is a FIFO"), "{words}: {ran:?}");
    }
    for words in ["seal photos --key /dev/zero", "verify photos --trust /dev/zero"] {
        room.shunt(words, &[]).fails(1, &["it is a device"]);
    }
}
