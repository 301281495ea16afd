//! The command line itself: nothing here mounts anything.

mod common;
#[path = "../examples/reference.rs"]
#[allow(dead_code, reason = "its main is for the program")]
mod reference;

use std::process::Command;

use common::{SHUNT, run, shunt};

#[test]
fn help_and_version_are_no_failures() {
    for words in [&["--help"][..], &["--version"], &["mount", "--help"], &["help", "umount"]] {
        let ran = shunt(words).ok();
        assert!(ran.out.contains("shunt") && ran.err.is_empty(), "{ran:?}");
    }
    let help = shunt(["mount", "--help"]).ok().out;
    assert!(help.contains("allow_other") && help.contains("Accepted and ignored"), "{help}");
    assert!(!help.contains("ready-on-stdout"), "{help}");
}

#[test]
fn commands_of_seal_work_without_it() {
    for moved in ["verify", "show", "digest", "sign", "key", "trust"] {
        let ran = shunt([moved, "--help"]).ok();
        assert_eq!(ran.out, shunt(["seal", moved, "--help"]).ok().out);
        assert_eq!(ran.out, shunt(["help", moved]).ok().out);
        assert!(ran.out.contains(&format!("shunt seal {moved}")), "{ran:?}");
    }
    let help = shunt(["--help"]).ok().out;
    assert!(!help.contains("verify ") && help.contains("seal "), "{help}");
    // Without a command, or behind one, it seals; a folder of that name is written with its path.
    let folder = tempfile::tempdir().expect("a folder");
    let here = |words: &[&str]| run(Command::new(SHUNT).args(words).current_dir(folder.path()));
    std::fs::create_dir(folder.path().join("show")).expect("makes");
    here(&["seal", "show"]).fails(1, &["is not sealed"]);
    assert!(here(&["seal", "./show"]).ok().out.starts_with("./show: sha256:"));
    here(&["seal", "--unsigned", "show"]).ok();
    here(&["seal", "--", "show"]).ok();
    here(&["seal", "verify", "show"]).ok();
    here(&["seal"]).fails_with_usage();
}

#[test]
fn a_wrong_command_line_has_exit_code_2() {
    for words in [
        &[][..],
        &["mout", "/a", "/b"],
        &["mount", "/a"],
        &["mount", "/a", "/b", "/c"],
        &["mount", "/a", "/b", "--transport", "pigeon"],
        &["mount", "/a", "/b", "--threads", "0"],
        &["umount"],
        &["completions", "tcsh"],
    ] {
        let ran = shunt(words);
        assert_eq!(ran.code, Some(2), "{words:?}: {ran:?}");
        assert!(!ran.err.is_empty(), "{words:?}");
    }
}

#[test]
fn an_unknown_option_is_named_with_the_nearest_known_one() {
    shunt(["mount", "/", "/mnt", "-o", "ro,allow_othr"]).fails(2, &["`allow_othr`", "`allow_other`"]);
    shunt(["mount", "/", "/mnt", "-o", "zzzzzzzz"]).fails(2, &["`zzzzzzzz`", "shunt mount --help"]);
    shunt(["mount", "/", "/mnt", "-o", "threads=many"]).fails(2, &["`threads`", "`many`", "a number"]);
    shunt(["mount", "/", "/mnt", "-o", "auto_unmount"]).fails(2, &["not offered", "shunt umount"]);
    // The form of mount.fuse3, which has no command in it.
    shunt(["/", "/mnt", "-o", "trasport=device"]).fails(2, &["`trasport`", "`transport`"]);
}

#[test]
fn every_word_of_o_is_in_the_documentation() {
    let text = include_str!("../../../docs/options.md");
    for row in shunt::options::OPTIONS {
        assert!(text.contains(&format!("`{}", row.name)), "docs/options.md does not name `{}`", row.name);
    }
}

#[test]
fn pages_are_those_of_the_definitions() {
    let current = reference::commands() == include_str!("../../../docs/commands.md");
    assert!(current, "docs/commands.md is not that of the definitions: cargo xtask docs");
    let page = include_str!("../../../docs/options.md");
    let is_current = |text: &Result<String, String>| text.as_deref() == Ok(page);
    let named = reference::options(page);
    assert!(is_current(&named), "docs/options.md has other names: cargo xtask docs: {:?}", named.err());
    // What is wrong in a table or a list is repaired; a section that is missing is found.
    let wrong = |from: &str, to: &str| {
        assert!(page.contains(from), "{from}");
        reference::options(&page.replace(from, to))
    };
    assert!(is_current(&wrong("`--flow FLOW`", "`--flow F`")));
    assert!(is_current(&wrong("which flow opens ask for", "what opens ask for")));
    assert!(is_current(&wrong("`noauto`, ", "")));
    assert!(wrong("## Verification", "## Seals").is_err_and(|why| why.contains("Verification")));
}

/// The help of a flag has its default, its costs and its risks.
#[test]
fn help_says_what_the_page_of_options_says() {
    let help = shunt(["mount", "--help"]).ok().out.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [
        "Which flow opens ask for: `passthrough`",
        "[default: auto] Costs and risks: none makes a mount or an open fail",
        "suid, nosuid Whether set-uid and set-gid bits have effect [default: suid for root]",
        "category.create=POLICY As --create",
        "kernel_cache as `cache=auto`",
    ] {
        assert!(help.contains(text), "no {text} in {help}");
    }
    assert!(!help.contains("](") && !help.contains("allow_root"), "{help}");
    let short = shunt(["mount", "-h"]).ok().out;
    assert!(short.contains("[default: auto]") && !short.contains("Costs and risks"), "{short}");
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = shunt(["completions", shell]).ok().out;
        for word in ["umount", "doctor", "transport"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
    }
}

#[test]
fn man_pages_come_from_the_same_definitions() {
    let page = shunt(["man"]).ok().out;
    assert!(page.starts_with(".ie") || page.contains(".TH"), "{page}");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("man1");
    run(Command::new(SHUNT).args(["man", "--out"]).arg(&out)).ok();
    for page in [
        "shunt.1",
        "shunt-mount.1",
        "shunt-umount.1",
        "shunt-why.1",
        "shunt-doctor.1",
        "shunt-top.1",
        "shunt-metrics.1",
        "shunt-seal.1",
        "shunt-seal-verify.1",
        "shunt-seal-key-new.1",
    ] {
        let text = std::fs::read_to_string(out.join(page)).expect("was written");
        assert!(text.contains(".TH"), "{page}");
    }
    assert!(std::fs::read_to_string(out.join("shunt-mount.1")).expect("readable").contains("allow_other"));
    run(Command::new(SHUNT).args(["man", "--out", "/proc/no"]))
        .fails(1, &["cannot write man pages to /proc/no"]);
}

#[test]
fn the_doctor_has_a_verdict_on_everything() {
    let ran = shunt(["doctor", "--json"]);
    let findings: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let findings = findings["findings"].as_array().expect("a list");
    for what in [
        "kernel",
        "passthrough",
        "/dev/fuse",
        "capabilities",
        "fusermount3",
        "fuse io_uring",
        "seccomp",
        "open files",
    ] {
        let finding =
            findings.iter().find(|finding| finding["what"] == what).unwrap_or_else(|| panic!("no {what}"));
        assert!(["ok", "note", "bad"].contains(&finding["verdict"].as_str().expect("text")), "{finding}");
        assert!(!finding["found"].as_str().expect("text").is_empty(), "{finding}");
    }
    let bad = findings.iter().any(|finding| finding["verdict"] == "bad");
    assert_eq!(ran.code, Some(i32::from(bad)), "{ran:?}");
    let plain = shunt(["doctor"]);
    assert_eq!(plain.code, ran.code);
    assert!(plain.out.lines().any(|line| line.starts_with("ok ") || line.starts_with("note ")), "{plain:?}");
}

#[test]
fn output_that_nobody_reads_is_no_failure() {
    let ran = run(Command::new("sh")
        .arg("-c")
        .arg(format!("{SHUNT} completions bash | head -n 1; {SHUNT} doctor | true")));
    assert!(!ran.err.contains("panic") && !ran.err.contains("cannot print"), "{ran:?}");
}

#[test]
fn a_wrong_call_of_the_mount_helper_has_mounts_own_exit_codes() {
    let folder = tempfile::tempdir().expect("a folder");
    let helper = folder.path().join("mount.fuse.shunt");
    std::os::unix::fs::symlink(SHUNT, &helper).expect("links");
    let call = |words: &[&str]| run(Command::new(&helper).args(words));
    assert_eq!(call(&["/only"]).code, Some(1));
    call(&["/nonexistent", "/mnt", "-o", "rw"]).fails(32, &["mount.fuse.shunt: SRC /nonexistent"]);
    call(&["/", "/mnt", "-o", "allow_othr"]).fails(1, &["`allow_other`"]);
    let sloppy = call(&["/nonexistent", "/mnt", "-s", "-o", "allow_othr"]);
    assert_eq!(sloppy.code, Some(32));
    assert!(sloppy.err.contains("ignored: unknown mount option `allow_othr`"), "{sloppy:?}");
    call(&["/nonexistent", "/mnt", "-f"]).fails(32, &["SRC /nonexistent"]);
}

/// The bench is a program of its own. It is found beside `shunt`, or else on the PATH.
#[test]
fn bench_starts_the_program_that_it_is() {
    let [beside, path] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let shunt = beside.path().join("shunt");
    // By other processes: a program that this one had open for writing cannot be run while a child of a parallel test inherits that.
    run(Command::new("cp").arg(SHUNT).arg(&shunt)).ok();
    let call = || {
        run(Command::new(&shunt).args(["bench", "--help", "-x", "--table", "a b"]).env("PATH", path.path()))
    };
    call().fails(2, &["shunt-bench, which is not installed", "cargo install"]);
    let make = |folder: &std::path::Path, code: u8| {
        let script = format!("#!/bin/sh\nprintf '<%s>' \"$@\"; exit {code}");
        let write = r#"echo "$1" > shunt-bench; chmod +x shunt-bench"#;
        run(Command::new("bash").args(["-ec", write, "bash", &script]).current_dir(folder)).ok();
    };
    make(path.path(), 1);
    let ran = call();
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), "<--help><-x><--table><a b>"), "{ran:?}");
    make(beside.path(), 0);
    assert_eq!(call().code, Some(0));
}
