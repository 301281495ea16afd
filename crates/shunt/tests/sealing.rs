//! Sealed files from the command line: keys, digests, signatures, folders sealed, shown and verified.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ran, SHUNT, run, shunt};
use serde_json::Value;
use tempfile::TempDir;

const EMPTY: &str = "sha256:3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";

struct Room(TempDir);

impl Room {
    /// A folder `t` with some files, and the keys `key` and `other`.
    fn new() -> Self {
        let room = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir_all(room.at("t/a")).expect("makes");
        fs::write(room.at("t/empty"), "").expect("writes");
        fs::write(room.at("t/a/file"), vec![7; 300_000]).expect("writes");
        for key in ["key", "other"] {
            room.shunt(&["seal", "key", "new", key]).ok();
        }
        room
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn shunt(&self, words: &[&str]) -> Ran {
        run(Command::new(SHUNT).args(words).current_dir(self.0.path()))
    }

    fn openssl(&self, words: &[&str]) -> Option<Ran> {
        has("openssl", "openssl").then(|| run(Command::new("openssl").args(words).current_dir(self.0.path())))
    }
}

/// Whether a program is installed; says so where it is not.
fn has(program: &str, package: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    if !is_there {
        println!("SKIPPED: {program} is not installed (apt-get install {package})");
    }
    is_there
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("reads");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("writes");
}

#[test]
fn keys_are_made_once_and_shown() {
    let room = Room::new();
    let said = room.shunt(&["seal", "key", "show", "key"]).ok().out;
    assert!(said.starts_with("ed25519 ") && said.trim_end().len() == 8 + 32, "{said}");
    assert_eq!(room.shunt(&["seal", "key", "show", "key.pub"]).ok().out, said);
    assert_ne!(room.shunt(&["seal", "key", "show", "other"]).ok().out, said);
    room.shunt(&["seal", "key", "new", "key"]).fails(1, &["cannot write key", "exists"]);
    room.shunt(&["seal", "key", "show", "t/empty"]).fails(1, &["is no ed25519 key"]);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(room.at("key")).expect("is there").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    // A name is taken by a public key: no half of a pair is left.
    fs::write(room.at("third.pub"), "x").expect("writes");
    room.shunt(&["seal", "key", "new", "third"]).fails(1, &["third.pub"]);
    assert!(!room.at("third").exists());
}

#[test]
fn digests_are_printed_as_fsverity_does() {
    let room = Room::new();
    let digest = |words: &[&str]| room.shunt(&[&["digest"], words].concat()).ok().out;
    assert_eq!(digest(&["t/empty"]), format!("{EMPTY} t/empty\n"));
    assert_eq!(digest(&["--compact", "t/empty"]), format!("{}\n", &EMPTY[7..]));
    let formatted = format!("{}01002000{}", "465356657269747".to_owned() + "9", &EMPTY[7..]);
    assert_eq!(digest(&["--for-builtin-sig", "t/empty"]), format!("{formatted} t/empty\n"));
    assert_eq!(digest(&["--for-builtin-sig", "--compact", "t/empty"]), format!("{formatted}\n"));
    assert_eq!(digest(&["t/empty", "t/a/file"]).lines().count(), 2);
    digest(&["t/a/file", "--out-merkle-tree", "tree", "--out-descriptor", "descriptor"]);
    assert_eq!(fs::metadata(room.at("tree")).expect("is there").len(), 4096);
    assert_eq!(fs::metadata(room.at("descriptor")).expect("is there").len(), 256);
    room.shunt(&["seal", "digest", "t/empty", "t/a/file", "--out-descriptor", "d"])
        .fails(2, &["only of one file"]);
    room.shunt(&["seal", "digest", "--block-size", "4095", "t/empty"]).fails(2, &["block size"]);
    room.shunt(&["seal", "digest", "t"]).fails(1, &["cannot read t", "it is a folder, not a regular file"]);
    room.shunt(&["seal", "digest", "gone"]).fails(1, &["cannot read gone", "No such file"]);
    assert_eq!(room.shunt(&["seal", "digest", "--salt", "xyz", "t/empty"]).code, Some(2));
    if !has("fsverity", "fsverity") {
        return;
    }
    for words in [
        &["t/empty", "t/a/file"][..],
        &["--compact", "t/a/file"],
        &["--for-builtin-sig", "t/a/file"],
        &["--block-size=1024", "--salt=00ff", "t/a/file"],
    ] {
        let theirs = run(Command::new("fsverity").arg("digest").args(words).current_dir(room.0.path()));
        assert_eq!(digest(words), theirs.ok().out, "{words:?}");
        let words = [words, &["--hash=sha512"]].concat();
        let their_words = words.iter().map(|word| word.replace("--hash=", "--hash-alg="));
        let theirs = run(Command::new("fsverity").arg("digest").args(their_words).current_dir(room.0.path()));
        assert_eq!(digest(&words), theirs.ok().out, "{words:?}");
    }
}

#[test]
fn a_signature_is_the_keys_and_openssl_thinks_so_too() {
    let room = Room::new();
    room.shunt(&["seal", "sign", "t/a/file", "--key", "key", "--out", "sig"]).ok();
    room.shunt(&["seal", "digest", "--compact", "--for-builtin-sig", "t/a/file"]).ok();
    fs::copy(room.at("t/a/file"), room.at("file")).expect("copies");
    room.shunt(&["seal", "sign", "file", "--key", "key"]).ok();
    assert_eq!(fs::read(room.at("sig")).expect("reads"), fs::read(room.at("file.sig")).expect("reads"));
    let hex = room.shunt(&["seal", "digest", "--compact", "--for-builtin-sig", "file"]).ok().out;
    let message: Vec<u8> = hex
        .trim()
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex"))
        .collect();
    fs::write(room.at("message"), message).expect("writes");
    let words =
        ["pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "key.pub", "-in", "message", "-sigfile", "sig"];
    if let Some(ran) = room.openssl(&words) {
        ran.ok();
    }
    room.shunt(&["seal", "verify", "file", "--trust", "key.pub"]).ok();
    room.shunt(&["seal", "verify", "file", "--trust", "other.pub", "--trust", "key.pub"]).ok();
    room.shunt(&["seal", "verify", "file"]).fails(2, &["says nothing without a key"]);
    room.shunt(&["seal", "verify", "file", "--trust", "other.pub"]).fails(1, &["no trusted key's"]);
    room.shunt(&["seal", "verify", "file", "--trust", "key.pub", "--hash", "sha512"])
        .fails(1, &["no trusted key's"]);
    room.shunt(&["seal", "verify", "file", "--trust", "key"]).fails(1, &["private key"]);
    room.shunt(&["seal", "verify", "file", "--trust", "gone.pub"]).fails(1, &["cannot read gone.pub"]);
    room.shunt(&["seal", "verify", "file", "--trust", "t/a/file"]).fails(1, &["more than 65536 bytes"]);
    flip(&room.at("file"), 70_000);
    room.shunt(&["seal", "verify", "file", "--trust", "key.pub"]).fails(1, &["no trusted key's"]);
    room.shunt(&["seal", "sign", "file", "--key", "gone"]).fails(1, &["cannot read gone"]);
    room.shunt(&["seal", "sign", "file", "--key", "key.pub"])
        .fails(1, &["not an ed25519 private key", "shunt seal key new"]);
}

#[test]
fn signatures_of_fsverity_are_taken_with_a_certificate() {
    let room = Room::new();
    fs::copy(room.at("t/a/file"), room.at("file")).expect("copies");
    let hex = room.shunt(&["seal", "digest", "--compact", "--for-builtin-sig", "file"]).ok().out;
    let message: Vec<u8> = hex
        .trim()
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex"))
        .collect();
    fs::write(room.at("message"), message).expect("writes");
    // What `fsverity sign` does, which asks the same library for it.
    let make = |name: &str, days: &str| {
        let (key, cert) = (format!("{name}.key"), format!("{name}.pem"));
        room.openssl(&[
            "req", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-x509", "-out", &cert, "-subj",
            "/CN=t", "-days", days,
        ])
    };
    if make("one", "9").is_none() {
        return;
    }
    make("two", "9");
    let sign = [
        "smime", "-sign", "-binary", "-in", "message", "-signer", "one.pem", "-inkey", "one.key", "-noattr",
        "-nocerts", "-outform", "der", "-md", "sha256", "-out", "file.sig",
    ];
    room.openssl(&sign).expect("is installed").ok();
    room.shunt(&["seal", "verify", "file", "--trust", "one.pem"]).ok();
    room.shunt(&["seal", "verify", "file", "--trust", "two.pem"]).fails(1, &["file.sig"]);
    room.shunt(&["seal", "verify", "file", "--trust", "key.pub"]).fails(1, &["file.sig"]);
    flip(&room.at("file"), 5);
    room.shunt(&["seal", "verify", "file", "--trust", "one.pem"]).fails(1, &["file.sig"]);
    flip(&room.at("file"), 5);
    // The tool itself, with hash, block size and salt of its own.
    if has("fsverity", "fsverity") {
        let how = ["--block-size=1024", "--salt=00ff"];
        let mut sign = Command::new("fsverity");
        sign.args(["sign", "file", "file.sig", "--key=one.key", "--cert=one.pem", "--hash-alg=sha512"]);
        run(sign.args(how).current_dir(room.0.path())).ok();
        let verify = |more: &[&str], cert: &str| {
            room.shunt(&[&["verify", "file", "--trust", cert][..], more].concat())
        };
        verify(&["--hash=sha512", how[0], how[1]], "one.pem").ok();
        verify(&["--hash=sha512", how[0], how[1]], "two.pem").fails(1, &["file.sig"]);
        verify(&["--hash=sha512", how[0]], "one.pem").fails(1, &["file.sig"]);
        verify(&[], "one.pem").fails(1, &["file.sig"]);
    }
    // A certificate whose time is over is no trust file.
    let old = ["x509", "-in", "one.pem", "-signkey", "one.key", "-days", "-1", "-out", "old.pem"];
    if room.openssl(&old).is_some_and(|ran| ran.code == Some(0)) {
        room.shunt(&["seal", "verify", "file", "--trust", "old.pem"]).fails(1, &["old.pem", "expired"]);
    }
}

/// Who trusts a key may do so until some day; after it nothing that the key has signed passes anywhere.
#[test]
fn a_trust_file_expires() {
    let room = Room::new();
    room.shunt(&["seal", "t", "--key", "key"]).ok();
    fs::copy(room.at("t/a/file"), room.at("file")).expect("copies");
    fs::copy(room.at("t/a/file"), room.at("alone")).expect("copies");
    room.shunt(&["seal", "sign", "file", "--key", "key"]).ok();
    room.shunt(&["seal", "alone", "--key", "key"]).ok();
    fs::create_dir(room.at("mnt")).expect("makes");
    let key = fs::read_to_string(room.at("key.pub")).expect("reads");
    let trusting = |lines: &str, behind: &str| {
        fs::write(room.at("trust"), format!("{lines}{key}{behind}")).expect("writes");
        [
            &["verify", "t", "--trust", "trust"][..],
            &["show", "t", "--trust", "trust"],
            &["verify", "file", "--trust", "trust"],
            &["verify", "alone", "--trust", "trust"],
            &["verify", "t", "--trust", "trust", "--trust", "trust"],
        ]
        .map(|words| (words, room.shunt(words)))
    };
    for (lines, behind) in [
        ("expires = 2024-02-29\n", ""),
        ("# of the release\nexpires=\"1999-12-31\"\n", ""),
        ("", "expires = 2024-02-29\n"),
    ] {
        for (words, ran) in trusting(lines, behind) {
            let ran = ran.fails(1, &["trust", "expired", "last day"]);
            assert!(ran.out.is_empty(), "{words:?}: {ran:?}");
        }
        for what in ["--verify=required", "--verify=if-sealed"] {
            room.shunt(&["mount", what, "--trust", "trust", "t", "mnt"]).fails(1, &["trust", "expired"]);
        }
    }
    for (words, ran) in trusting("expires = 9998-12-31\n", "") {
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
    }
    // A line with a mistake must not make a key valid forever.
    for wrong in
        ["expire = 9998-12-31\n", "expires = 31.12.9998\n", "expires = 9998-12-31\nexpires = 9999-12-31\n"]
    {
        for (words, ran) in trusting(wrong, "") {
            assert!(ran.code == Some(1) && ran.err.contains("trust: "), "{words:?}: {ran:?}");
        }
    }
    room.shunt(&["seal", "key", "new", "brief", "--expires", "9998-01-01"]).ok();
    let said = room.shunt(&["seal", "key", "show", "brief.pub"]).ok().out;
    assert!(said.trim_end().ends_with(", expires after 9998-01-01"), "{said}");
    room.shunt(&["seal", "key", "new", "late", "--expires", "2024-01-01"])
        .fails(2, &["2024-01-01", "is over"]);
    assert!(!room.at("late").exists() && !room.at("late.pub").exists());
    assert_eq!(room.shunt(&["seal", "key", "new", "never", "--expires", "2024-13-01"]).code, Some(2));
    if let Some(ran) = room.openssl(&["pkey", "-pubin", "-in", "brief.pub", "-noout"]) {
        ran.ok();
    }
}

#[test]
fn a_folder_is_sealed_shown_and_verified() {
    let room = Room::new();
    room.shunt(&["seal", "verify", "t"]).fails(1, &["t is not sealed", "shunt seal"]);
    room.shunt(&["seal", "show", "t"]).fails(1, &["t is not sealed"]);
    let said = room.shunt(&["seal", "t", "--key", "key"]).ok().out;
    assert!(said.contains("2 hashed, 0 unchanged") && said.contains("signed by "), "{said}");
    let said = room.shunt(&["seal", "t", "--key", "key"]).ok().out;
    assert!(said.contains("0 hashed, 2 unchanged"), "{said}");
    let shown = room.shunt(&["seal", "show", "t", "--trust", "key.pub", "--list"]).ok().out;
    assert!(
        shown.contains(&format!("{EMPTY} empty\n")) && shown.contains("a key that is trusted"),
        "{shown}"
    );
    room.shunt(&["seal", "show", "t", "--trust", "other.pub"]).fails(1, &["not by a trusted key"]);
    let shown: Value =
        serde_json::from_str(&room.shunt(&["seal", "show", "t", "--json"]).ok().out).expect("JSON");
    assert_eq!(
        (&shown["files"], &shown["folders"], &shown["bytes"]),
        (&2.into(), &2.into(), &300_000.into())
    );
    room.shunt(&["seal", "verify", "t", "--trust", "key.pub"]).ok();
    room.shunt(&["seal", "verify", "t", "--trust", "other.pub"]).fails(1, &["not by a trusted key"]);
    run(Command::new(SHUNT).args(["verify", "--trust", "../../key.pub"]).current_dir(room.at("t/a"))).ok();
    let mtime = fs::metadata(room.at("t/a/file")).expect("is there").modified().expect("has one");
    flip(&room.at("t/a/file"), 4096 * 9);
    fs::File::options()
        .write(true)
        .open(room.at("t/a/file"))
        .expect("opens")
        .set_modified(mtime)
        .expect("sets");
    let ran = room.shunt(&["seal", "verify", "t", "--trust", "key.pub"]);
    assert!(ran.out.contains("t/a/file: 1 block of 4096 bytes differs: 9 (block 9: sha256:"), "{ran:?}");
    ran.fails(1, &["1 is not as sealed"]);
    room.shunt(&["seal", "verify", "t/empty"]).ok();
    let ran = room.shunt(&["seal", "verify", "t/a", "--json"]);
    let found: Value = serde_json::from_str(&ran.out).expect("JSON");
    let finding = &found["findings"][0];
    assert_eq!((&finding["path"], &finding["fault"]), (&"a/file".into(), &"data".into()));
    assert_eq!(finding["blocks"], serde_json::json!([[9, 9]]));
    assert_eq!(ran.code, Some(1));
    // Another seal makes it whole, unsigned this time.
    let words = ["seal", "t", "--json", "--unsigned"];
    let made: Value = serde_json::from_str(&room.shunt(&words).ok().out).expect("JSON");
    assert_eq!(
        (&made["hashed"], &made["unchanged"], &made["signed_by"]),
        (&2.into(), &0.into(), &serde_json::json!([])),
        "what a key has written is its own"
    );
    room.shunt(&["seal", "verify", "t"]).ok();
    room.shunt(&["seal", "verify", "t", "--trust", "key.pub"]).fails(1, &["is not signed"]);
}

#[test]
fn a_store_may_be_elsewhere_and_a_file_be_sealed_alone() {
    let room = Room::new();
    room.shunt(&[
        "seal",
        "t",
        "--store",
        "store",
        "--hash",
        "sha512",
        "--block-size",
        "1024",
        "--salt",
        "0a",
    ])
    .ok();
    assert!(!room.at("t/.shunt").exists());
    room.shunt(&["seal", "verify", "t", "--store", "store"]).ok();
    room.shunt(&["seal", "verify", "t", "t/a", "--store", "store"]).ok();
    room.shunt(&["seal", "verify", "t", "key", "--store", "store"]).fails(2, &["is not in"]);
    assert!(
        room.shunt(&["seal", "show", "t", "--store", "store"])
            .ok()
            .out
            .contains("sha512 in blocks of 1024 bytes, salted")
    );
    room.shunt(&["seal", "t", "t", "--store", "store"]).fails(2, &["one folder alone"]);
    room.shunt(&["seal", "t", "--block-size", "512"]).fails(2, &["power of two"]);
    room.shunt(&["seal", "gone"]).fails(1, &["cannot seal gone"]);
    room.shunt(&["seal", "t", "--key", "gone"]).fails(1, &["cannot read gone"]);
    fs::copy(room.at("t/a/file"), room.at("file")).expect("copies");
    room.shunt(&["seal", "file", "--key", "key"]).ok();
    room.shunt(&["seal", "verify", "file", "--trust", "key.pub"]).ok();
    room.shunt(&["seal", "verify", "file", "--trust", "other.pub"]).fails(1, &["not by a trusted key"]);
    flip(&room.at("file"), 8192);
    let ran = room.shunt(&["seal", "verify", "file"]);
    assert!(ran.out.contains("differs: 2 ("), "{ran:?}");
    ran.fails(1, &["1 is not as sealed"]);
    room.shunt(&["seal", "file", "--enable"]).fails(2, &["for folders"]);
}

#[test]
fn every_command_has_help() {
    for command in ["seal", "verify", "show", "digest", "sign", "key"] {
        let said = shunt([command, "--help"]).ok().out;
        assert!(said.contains("Usage: shunt"), "{said}");
    }
    assert!(shunt(["verify", "--help"]).ok().out.contains("Exit codes"));
}
