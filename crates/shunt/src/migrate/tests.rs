//! What the table of options says, and what happens to lines that people have.

use std::ffi::{OsStr, OsString};

use serde_json::Value;
use shuntfs_pool::policy::{Category, POLICIES, Policy};

use super::fate::{Fate, Policies, When, fate_of};
use super::table::OPTIONS;
use crate::cli::{Cli, Command};
use crate::options::{self, OptionError, Unknown};

/// What `git show TAG:src/config.cpp` has in its map, of 2.33.5 to 2.42.0, and what the options of its FUSE library are besides; without
/// `pid` and `version`, which only answer.
const OF_MERGERFS: &str = "allow-idmap async-read atomic-o-trunc auto-cache big-writes branches branches-mount-timeout \
    branches-mount-timeout-fail cache.attr cache.entry cache.files cache.files.process-names cache.negative-entry cache.open \
    cache.readdir cache.statfs cache.symlinks cache.writeback category.action category.create category.search config debug defaults \
    direct-io direct-io-allow-mmap dropcacheonclose export-support flush-on-close follow-symlinks fsname func.access func.chmod \
    func.chown func.create func.getattr func.getxattr func.link func.listxattr func.mkdir func.mknod func.open func.readdir \
    func.readlink func.removexattr func.rename func.rmdir func.setxattr func.symlink func.truncate func.unlink func.utimens \
    fuse-msg-size gid gid-cache.expire-timeout gid-cache.remove-timeout handle-killpriv handle-killpriv-v2 hard-remove \
    ignorepponrename inodecalc kernel-cache kernel-permissions-check lazy-umount-mountpoint link-cow link-exdev log.file log.metrics \
    minfreespace mount mountpoint moveonenospc negative-entry never-forget-nodes nfsopenhack no-splice-move no-splice-read \
    no-splice-write noforget nonempty nullrw parallel-direct-writes passthrough.io passthrough.max-stack-depth pin-threads posix-acl \
    process-thread-count process-thread-queue-depth proxy-ioprio read-thread-count readahead readdirplus remember remember-nodes \
    rename-exdev scheduling-priority security-capability splice-move splice-read splice-write srcmounts statfs statfs-ignore symlinkify \
    symlinkify-timeout threads uid umask use-ino xattr \
    allow_other attr_timeout congestion_threshold default_permissions entry_timeout max_background no_remote_flock no_remote_lock \
    no_remote_posix_lock nogc nolazytime nostrictatime subtype sync_read";

#[test]
fn every_option_of_mergerfs_has_one_row() {
    let spelled = |name: &str| name.replace('-', "_");
    let mut known: Vec<String> = OF_MERGERFS.split_ascii_whitespace().map(spelled).collect();
    let mut rows: Vec<String> = OPTIONS.iter().flat_map(|row| row.names).map(|name| spelled(name)).collect();
    known.sort();
    rows.sort();
    assert_eq!(rows, known);
}

/// A value for which a case holds, if no case before it does.
fn sample(name: &str, when: When) -> Option<String> {
    let word = match when {
        When::Always => match name {
            "minfreespace" => "4G",
            "moveonenospc" => "mfs",
            "threads" | "read-thread-count" => "-2",
            name if name.starts_with("category.") || name.starts_with("func.") => "newest",
            "inodecalc" => "path-hash",
            "allow_other" => return None,
            _ => "something",
        },
        When::On | When::OnAndPathsAreKept => "true",
        When::Off => "false",
        When::Zero => "0",
        When::Above => "7",
        When::Is(words) => words[0],
        When::PolicyOf(category) => category.default_policy(),
    };
    Some(word.to_owned())
}

/// Words that libfuse or the kernel have, too, and that had a meaning here before mergerfs's was asked for.
const OURS_GO_FIRST: &[&str] = &[
    "allow_other",
    "attr-timeout",
    "auto-cache",
    "big-writes",
    "category.action",
    "category.create",
    "category.search",
    "default_permissions",
    "defaults",
    "direct-io",
    "entry-timeout",
    "fsname",
    "func.create",
    "func.getattr",
    "func.mkdir",
    "func.mknod",
    "func.rename",
    "func.symlink",
    "func.unlink",
    "gid",
    "inodecalc",
    "kernel-cache",
    "minfreespace",
    "moveonenospc",
    "noforget",
    "nonempty",
    "remember",
    "subtype",
    "threads",
    "uid",
    "umask",
];

#[test]
fn the_mount_takes_what_the_table_says_and_refuses_the_rest() {
    for row in OPTIONS {
        for name in row.names {
            row.cases.iter().flatten().for_each(|(when, fate)| check_case(name, *when, *fate));
        }
    }
}

fn check_case(name: &str, when: When, fate: Fate) {
    let is_ours = OURS_GO_FIRST.contains(&name);
    let knows = options::OPTIONS.iter().any(|ours| ours.name == name.replace('-', "_"));
    assert_eq!(is_ours, knows, "{name}");
    let value = sample(name, when);
    let word = value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}"));
    // With another create policy this case does not hold.
    let kept = if when == When::OnAndPathsAreKept { "category.create=epmfs," } else { "" };
    let taken = options::parse(&[OsString::from(format!("{kept}{word}"))], Unknown::Refuse);
    match fate {
        Fate::Same(_) => assert!(is_ours && taken.is_ok(), "{word}: {taken:?}"),
        _ if is_ours => {}
        Fate::Ours(_) | Fate::NotNeeded(_) => assert!(taken.is_ok(), "{word}: {taken:?}"),
        Fate::Different(text) | Fate::Missing(text) => {
            let error = taken.expect_err(&word).to_string();
            assert!(error.contains(&word) && error.contains(text), "{word}: {error}");
        }
    }
    if let Fate::Ours(words) = fate {
        assert_eq!(options::check(OsStr::new(&words.replace("{}", "7"))), Ok(()), "{word}");
    }
}

#[test]
fn values_and_spellings_decide() {
    let fate = |word: &str, create: &str| {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let policies = Policies::among([("category.create", Some(create))].into_iter());
        fate_of(name, value, &policies).map(|fate| fate.map_or("no value", Fate::word))
    };
    for (word, create, expected) in [
        ("moveonenospc=false", "mfs", Some("same")),
        ("moveonenospc=0", "mfs", Some("same")),
        ("moveonenospc=true", "mfs", Some("same")),
        ("moveonenospc=lus", "mfs", Some("same")),
        ("moveonenospc=erofs", "mfs", Some("missing")),
        ("cache.files=auto-full", "mfs", Some("not needed")),
        ("cache.files=auto", "mfs", Some("no value")),
        ("cache.negative_entry=0", "mfs", Some("not needed")),
        ("cache.negative-entry=5", "mfs", Some("different")),
        ("async_read=false", "mfs", Some("different")),
        ("async-read", "mfs", Some("not needed")),
        ("link_cow=on", "mfs", Some("missing")),
        ("statfs_ignore=nc", "mfs", Some("missing")),
        ("ignorepponrename=true", "mfs", Some("not needed")),
        ("ignorepponrename=true", "mspmfs", Some("missing")),
        ("ignorepponrename=true", "epmfs", Some("missing")),
        ("func.mkdir=mfs", "mfs", Some("same")),
        ("func.mkdir=epmfs", "mfs", Some("same")),
        ("func.mkdir=erofs", "mfs", Some("missing")),
        ("func.getattr=newest", "mfs", Some("same")),
        ("func.open=ff", "mfs", Some("not needed")),
        ("func.open=newest", "mfs", Some("missing")),
        ("func.unlink=epff", "mfs", Some("same")),
        ("func.rmdir=epall", "mfs", Some("not needed")),
        ("func.rmdir=epff", "mfs", Some("missing")),
        ("func.readdir=cor:4", "mfs", Some("not needed")),
        ("read-thread-count=-4", "mfs", Some("different")),
        ("process-thread-count=-1", "mfs", Some("not needed")),
        ("passthrough.io=rw", "mfs", Some("not needed")),
        ("passthrough.io=ro", "mfs", Some("different")),
        ("noforget", "mfs", Some("different")),
        ("remember=0", "mfs", Some("not needed")),
        ("ro", "mfs", None),
        ("moveonenospace=true", "mfs", None),
    ] {
        assert_eq!(fate(word, create), expected, "{word} with {create}");
    }
}

#[test]
fn policies_are_mergerfss() {
    for category in Category::ALL {
        assert!(Policy::of(category.default_policy()).is_some());
    }
    // All of `src/policies.cpp` but `erofs`, which has no branch at all.
    let names = "all epall epff eplfs eplus epmfs eppfrd eprand ff lfs lus lup mfs msplfs msplus mspmfs msppfrd newest pfrd rand";
    let mut known: Vec<&str> = names.split(' ').collect();
    let mut ours: Vec<&str> = POLICIES.iter().map(Policy::name).collect();
    known.sort_unstable();
    ours.sort_unstable();
    assert_eq!(ours, known);
}

#[test]
fn a_mount_names_all_that_it_cannot_take_in_one_message() {
    let list = "category.create=mfs,link_cow=true,cache.files=partial,func.open=newest,bogus,allow_root,threads=x,cache.files=most";
    let error = options::parse(&[list.into()], Unknown::Refuse).expect_err("is refused").to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 7, "{error}");
    assert!(
        lines[0].starts_with("6 mount options cannot be taken (")
            && lines[0].contains("shunt migrate mergerfs"),
        "{error}"
    );
    for (line, words) in lines[1..].iter().zip([
        ["`link_cow=true` is missing here", ""],
        ["`func.open=newest` is missing here", "func.getattr="],
        ["unknown mount option `bogus`", ""],
        ["`allow_root` is not offered", "allow_other"],
        ["`threads` has the value `x`", "a number from 1 on"],
        ["`cache.files` has no value `most`", ""],
    ]) {
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    let (settings, notes) = options::parse(&["link_cow=true,ro".into()], Unknown::Ignore).expect("is sloppy");
    assert!(settings.mount.read_only && notes.len() == 1 && notes[0].contains("link_cow=true"), "{notes:?}");
    let of_both = options::check(OsStr::new("category.create=erofs"));
    assert!(matches!(of_both, Err(OptionError::BadValue { .. })), "{of_both:?}");
}

/// What `shunt migrate mergerfs` says, as JSON.
fn migrate(words: &[&str]) -> Result<Value, String> {
    let line = ["shunt", "migrate", "mergerfs", "--json"].iter().chain(words);
    let cli = <Cli as clap::Parser>::try_parse_from(line).expect("it parses");
    let Command::Migrate(args) = cli.command else { panic!("another command") };
    let mut out = Vec::new();
    let outcome = super::run(&args, &mut out);
    if out.is_empty() {
        return Err(outcome.expect_err("says nothing").to_string());
    }
    let document: Value = serde_json::from_slice(&out).expect("JSON");
    let report = document["lines"][0].clone();
    let lost = report["lost"].as_bool();
    assert_eq!(outcome.is_err(), lost.unwrap_or(false) || lost.is_none(), "{outcome:?}: {report}");
    Ok(report)
}

/// Our line, and what is lost.
fn migrated(words: &[&str]) -> (String, Vec<String>) {
    let report = migrate(words).expect("is one of mergerfs");
    let options = report["options"].as_array().expect("a list").iter();
    let lost = options
        .filter(|said| said["lost"] == true)
        .map(|said| said["option"].as_str().expect("text").to_owned());
    (report["to"].as_str().expect("text").to_owned(), lost.collect())
}

/// A line of mergerfs's, ours, and what is lost.
type Migrated = (&'static str, &'static str, &'static [&'static str]);

const LINES: &[Migrated] = &[
    (
        "/mnt/disk*:/mnt/cdrom /mnt/pool fuse.mergerfs allow_other,use_ino 0 0",
        "/mnt/disk*:/mnt/cdrom /mnt/pool fuse.shunt allow_other 0 0",
        &[],
    ),
    (
        "/mnt/hdd0:/mnt/hdd1 /media mergerfs cache.files=off,category.create=pfrd,func.getattr=newest,dropcacheonclose=false 0 0",
        "/mnt/hdd0:/mnt/hdd1 /media fuse.shunt category.create=pfrd,func.getattr=newest,allow_other 0 0",
        &[],
    ),
    (
        "/mnt/disk* /mnt/storage fuse.mergerfs defaults,nonempty,allow_other,use_ino,cache.files=off,moveonenospc=true,\
             dropcacheonclose=true,minfreespace=200GB,fsname=mergerfs 0 0",
        "/mnt/disk* /mnt/storage fuse.shunt allow_other,moveonenospc=true,minfreespace=200G,fsname=mergerfs 0 0",
        &[],
    ),
    (
        "/srv/dev-disk-by-uuid-1:/srv/dev-disk-by-uuid-2\t/srv/mergerfs/pool\tfuse.mergerfs\tdefaults,cache.files=off,\
             category.create=epmfs,minfreespace=4G,fsname=pool:1,x-systemd.requires=/srv/dev-disk-by-uuid-1,nofail\t0\t0",
        "/srv/dev-disk-by-uuid-1:/srv/dev-disk-by-uuid-2\t/srv/mergerfs/pool\tfuse.shunt\tcategory.create=epmfs,minfreespace=4G,\
             fsname=pool:1,x-systemd.requires=/srv/dev-disk-by-uuid-1,nofail,allow_other\t0\t0",
        &[],
    ),
    (
        r"/mnt/my\040disk=RW,10G:/mnt/{a,b}=RO:/c=NC,1T  /pool\040two  fuse.mergerfs  allow_other,category.create=mspmfs  0 0 # mine",
        r"/mnt/my\040disk=RW,10G:/mnt/{a,b}=RO:/c=NC,1T  /pool\040two  fuse.shunt  allow_other,category.create=mspmfs  0 0 # mine",
        &[],
    ),
    (
        "mergerfs#/a:/b /pool fuse rw,allow_other,fsname=a\\,b 0 0",
        "/a:/b /pool fuse.shunt rw,allow_other,fsname=a\\134,b 0 0",
        &[],
    ),
    (
        r#"/a:/b /pool mergerfs allow_other,x-systemd.mount-timeout=30,x-note="a,b",context="s0:c1,c2" 0 0"#,
        r#"/a:/b /pool fuse.shunt allow_other,x-systemd.mount-timeout=30,x-note="a,b" 0 0"#,
        &[r#"context="s0:c1,c2""#],
    ),
    ("/only /pool mergerfs allow_other", "/only=RW /pool fuse.shunt allow_other", &[]),
    ("/a:/b /pool mergerfs", "/a:/b /pool fuse.shunt allow_other", &[]),
    (
        "none /pool mergerfs branches=/a:/b=RO\\,5G,branches=+>/c 0 0",
        "/a:/b=RO,5G:/c /pool fuse.shunt allow_other 0 0",
        &[],
    ),
    (
        "/a:/b /pool mergerfs allow_other,cache.attr=120,cache.readdir=true,remember=300,bogus=1,minfreespace=1X,auto_unmount 0 0",
        "/a:/b /pool fuse.shunt allow_other 0 0",
        &[
            "cache.attr=120",
            "cache.readdir=true",
            "remember=300",
            "bogus=1",
            "minfreespace=1X",
            "auto_unmount",
        ],
    ),
    (
        "/a:/b /pool mergerfs allow_other,cache.entry=0,cache.attr=0,cache.negative_entry=0,cache.readdir=false",
        "/a:/b /pool fuse.shunt allow_other,cache=none",
        &[],
    ),
    (
        "/a:/b /pool mergerfs kernel_cache,auto_cache,direct_io,big_writes,read-thread-count=4,threads=0,passthrough.io=off,allow_other",
        "/a:/b /pool fuse.shunt threads=4,flow=relay,allow_other",
        &[],
    ),
];

/// What fails here goes on in mergerfs, and nothing said so.
#[test]
fn a_wait_for_disks_says_that_it_may_fail_the_mount() {
    for (options, is_said) in [
        ("branches-mount-timeout=30", true),
        ("branches_mount_timeout=30,branches-mount-timeout-fail=false", true),
        ("branches-mount-timeout=30,branches_mount_timeout_fail", false),
        ("branches-mount-timeout=30,branches-mount-timeout-fail=true", false),
        ("branches-mount-timeout=0", false),
        ("allow_other", false),
    ] {
        let report = migrate(&[&format!("/a:/b /pool mergerfs {options}")]).expect("is one of mergerfs");
        let notes = report["notes"].as_array().expect("a list").iter();
        let says = notes.filter_map(Value::as_str).any(|note| note.contains("nothing is mounted"));
        assert_eq!(says, is_said, "{options}: {report}");
    }
}

#[test]
fn lines_that_people_have_become_ours() {
    for (line, expected, lost) in LINES {
        let (ours, names) = migrated(&[line]);
        assert_eq!(ours, *expected);
        assert_eq!(names, *lost, "{line}");
        // Each blank of a line that a shell has split in words is one blank.
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        assert_eq!(migrated(&words).1, names);
    }
}

#[test]
fn calls_that_people_make_become_ours() {
    for (words, expected) in [
        (
            &["mergerfs -o category.create=mfs /a:/b /pool"][..],
            "shunt mount -o category.create=mfs,allow_other /a:/b /pool",
        ),
        (
            &["/usr/bin/mergerfs", "-o", "allow_other", "/a", "/b", "/pool"],
            "shunt mount -o allow_other /a:/b /pool",
        ),
        (
            &["sudo mergerfs -f -oallow_other /a:/b /pool"],
            "shunt mount --foreground -o allow_other /a:/b /pool",
        ),
        (&["-o", "mountpoint=/pool,allow_other", "/a", "/b"], "shunt mount -o allow_other /a:/b /pool"),
        (&["/a:/b", "/mnt/mergerfs"], "shunt mount -o allow_other /a:/b /mnt/mergerfs"),
        (
            &["-o allow_other '/mnt/a b':/mnt/d* /my\\ pool"],
            "shunt mount -o allow_other '/mnt/a b:/mnt/d*' '/my pool'",
        ),
        (&["mount -t fuse.mergerfs -o allow_other /a:/b /pool"], "shunt mount -o allow_other /a:/b /pool"),
    ] {
        assert_eq!(migrated(words), (expected.to_owned(), Vec::new()), "{words:?}");
    }
    assert_eq!(migrated(&["-o", "allow_other", "-z", "/a", "/b"]).1, ["-z"]);
}

#[test]
fn our_line_is_one_that_the_mount_takes() {
    let line = "/a:/b /pool mergerfs minfreespace=5GB,fsname=a\\,b\\\\c,xattr=passthrough,threads=3,noatime,nosuid,category.search=newest";
    let (ours, lost) = migrated(&[line]);
    assert!(lost.is_empty(), "{lost:?}");
    let options = ours.split(' ').nth(3).expect("has options").replace("\\134", "\\");
    let (settings, _) = options::parse(&[options.into()], Unknown::Refuse).expect("is taken");
    assert_eq!(settings.mount.fsname.as_deref(), Some(OsStr::new("a,b\\c")));
    assert_eq!((settings.merge.min_free, settings.threads.map(usize::from)), (Some(5 << 30), Some(3)));
    assert!(settings.mount.allow_other && settings.mount.nosuid);
}

/// The order decides, as in mergerfs: a category sets all of its functions.
#[test]
fn policies_of_functions_go_before_that_of_their_category_until_it_is_set_again() {
    let policies = |list: &str| {
        let (settings, _) = options::parse(&[list.into()], Unknown::Refuse).expect(list);
        let functions = settings.merge.functions.iter();
        let functions = functions.map(|(function, policy)| format!("{}={}", function.name(), policy.name()));
        (settings.merge.create.map(Policy::name), functions.collect::<Vec<_>>().join(","))
    };
    for (list, create, functions) in [
        ("category.create=mfs,func.mkdir=epff,func.getattr=newest", "mfs", "mkdir=epff,getattr=newest"),
        ("func.mkdir=epff,func.getattr=newest,category.create=mfs", "mfs", "getattr=newest"),
        ("category.create=mfs,func.mkdir=epff,func.mkdir=all,category.search=ff", "mfs", "mkdir=all"),
    ] {
        assert_eq!(policies(list), (Some(create), functions.to_owned()), "{list}");
    }
    // A flag comes after all words.
    let line = ["shunt", "mount", "-o", "func.mkdir=epff,func.unlink=epff", "/a:/b", "/pool"];
    let flags = ["--create", "mfs", "--policy-for", "mknod=all", "--policy-for", "getattr=newest"];
    let cli = <Cli as clap::Parser>::try_parse_from(line.iter().chain(&flags)).expect("it parses");
    let Command::Mount(args) = cli.command else { panic!("another command") };
    let (settings, _) = args.wishes.settle(Unknown::Refuse).expect("fits together");
    let functions: Vec<_> =
        settings.merge.functions.iter().map(|(function, policy)| (function.name(), policy.name())).collect();
    assert_eq!(functions, [("unlink", "epff"), ("mknod", "all"), ("getattr", "newest")]);
    let words = args.wishes.words().expect("a working folder");
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    assert!(words.join(" ").contains("--policy-for mknod=all --policy-for getattr=newest"), "{words:?}");
    for wrong in ["open=ff", "mkdir", "mkdir=", "mkdir=most"] {
        let flags = ["--policy-for", wrong];
        assert!(<Cli as clap::Parser>::try_parse_from(line.iter().chain(&flags)).is_err(), "{wrong}");
    }
}

#[test]
fn what_is_no_line_of_mergerfs_is_said_to_be_none() {
    for words in [
        &["/dev/sda1 / ext4 defaults 0 1"][..],
        &["/a /pool"],
        &[""],
        &["/a"],
        &["-o", "allow_other", "/pool"],
        &["/a:/b", ""],
        &["mergerfs"],
    ] {
        let outcome = migrate(words);
        // Two words are branches and a mount point.
        assert_eq!(outcome.is_ok(), words == ["/a /pool"], "{words:?}: {outcome:?}");
    }
}

#[test]
fn files_of_options_are_written_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let inner = file("inner", "fsname=a,b\n");
    let outer = file(
        "outer",
        &format!("# mine\n\n category.create = mfs\nbranches=/a:/b=RW,5G\nconfig={inner}\nlink_cow=true\n"),
    );
    let (ours, lost) = migrated(&[&format!("none /pool mergerfs allow_other,config={outer} 0 0")]);
    assert_eq!(ours, "/a:/b=RW,5G /pool fuse.shunt allow_other,category.create=mfs,fsname=a\\134,b 0 0");
    assert_eq!(lost, ["link_cow=true"]);
    let gone = format!("config={}/gone", folder.path().display());
    assert_eq!(migrated(&[&format!("/a:/b /pool mergerfs allow_other,{gone}")]).1, [gone]);
    let itself = folder.path().join("itself");
    std::fs::write(&itself, format!("config={}", itself.display())).unwrap();
    assert_eq!(
        migrated(&[&format!("/a:/b /pool mergerfs allow_other,config={}", itself.display())]).1.len(),
        1
    );
}

#[test]
fn a_whole_fstab_keeps_what_is_not_mergerfss() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fstab");
    let before = b"# \xff\n/dev/sda1 / ext4 defaults 0 1\n#/x /y mergerfs z\n";
    let after = b"\n/dev/sdb1 /b ext4 defaults 0 2";
    let line = b"/a:/b /pool mergerfs allow_other,category.create=mfs,link_cow=true 0 0\n";
    std::fs::write(&path, [&before[..], line, after].concat()).unwrap();
    let run = |json: &[&str], path: &std::path::Path| {
        let words = ["shunt", "migrate", "mergerfs", "--fstab", path.to_str().unwrap()];
        let cli = <Cli as clap::Parser>::try_parse_from(words.iter().chain(json)).unwrap();
        let Command::Migrate(args) = cli.command else { panic!("another command") };
        let mut out = Vec::new();
        let outcome =
            super::run(&args, &mut out).map_err(|failure| (failure.exit_code(), failure.to_string()));
        (out, outcome)
    };
    let (out, outcome) = run(&[], &path);
    let text = String::from_utf8_lossy(&out);
    assert!(out.starts_with(before) && out.ends_with(after), "{text}");
    let ours = "\n/a:/b /pool fuse.shunt allow_other,category.create=mfs 0 0\n";
    assert!(text.contains("\n# shunt: link_cow=true is missing here: ") && text.contains(ours), "{text}");
    let (code, said) = outcome.expect_err("something is lost");
    assert!(code == 1 && said.contains("one option is left out\nlink_cow=true"), "{said}");
    let document: Value = serde_json::from_slice(&run(&["--json"], &path).0).unwrap();
    let report = &document["lines"];
    assert_eq!(report[0]["to"], ours.trim());
    std::fs::write(&path, r"/a:/b /pool mergerfs allow_other,log.file=x\012/dev/sda\040/\040ext4 0 0")
        .unwrap();
    let text = String::from_utf8(run(&[], &path).0).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# ")).collect();
    assert_eq!(lines, ["/a:/b /pool fuse.shunt allow_other 0 0"], "a line break makes no line");
    std::fs::write(&path, "\n\n: /pool mergerfs").unwrap();
    let (_, outcome) = run(&[], &path);
    let (code, said) = outcome.expect_err("has no branches");
    assert!(code == 2 && said.contains("fstab:3: there are no branches"), "{said}");
    std::fs::write(&path, &before[..]).unwrap();
    let (out, outcome) = run(&[], &path);
    assert!(out.is_empty() && outcome.expect_err("has none").0 == 2);
    assert_eq!(run(&[], &folder.path().join("gone")).1.expect_err("is gone").0, 1);
}
