//! Questions to merges on the fake kernel: where something is, and what the settings are.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod fake;

use std::fs;
use std::path::Path;

use fake::{Fixture, rules, settings};
use shuntfs::{Errno, TransportKind};
use shuntfs_fake::{Caller, O_RDONLY, O_RDWR, Process, Settings};
use shuntfs_pool::policy::{BranchMode, Policy};
use shuntfs_pool::{BranchOptions, Cache, Calls, MergeOptions, Pool, PoolOptions};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Flags of setxattr(2).
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// Three branches, laid out by words as `a/x/` for a folder and `b/y` for a file.
fn lay_out(tree: &[&str]) -> TempDir {
    let top = fake::folder();
    for path in NAMES.map(|name| format!("{name}/")).iter().map(String::as_str).chain(tree.iter().copied()) {
        let at = top.path().join(path);
        fs::create_dir_all(if path.ends_with('/') { &at } else { at.parent().unwrap() }).unwrap();
        if !path.ends_with('/') {
            fs::write(at, path).unwrap();
        }
    }
    top
}

fn options(top: &TempDir) -> PoolOptions {
    let branches = NAMES.map(|name| BranchOptions::new(top.path().join(name)));
    let create = Policy::of("ff").unwrap();
    let merge = MergeOptions { create, min_free: 0, ..MergeOptions::new(branches.into()) };
    PoolOptions { merge: Some(merge), cache: Cache::None, ..PoolOptions::new("a:b:c") }
}

fn mount(options: &PoolOptions) -> Fixture {
    Fixture::new(Pool::open(options).unwrap(), Path::new("/nonexistent"), &Settings::default())
}

fn asked(process: &Process, path: &str, what: &str) -> Result<String, Errno> {
    let value = process.get_xattr(path, &format!("user.mergerfs.{what}"))?;
    Ok(String::from_utf8(value).unwrap())
}

/// What is asked of a path, with `TOP` for the folder of the branches and a bar between paths.
fn places(fixture: &Fixture, top: &TempDir, path: &str) -> Result<String, Errno> {
    let answers =
        ["basepath", "relpath", "fullpath", "allpaths"].map(|what| asked(&fixture.fake, path, what));
    let [base, relative, full, all] = answers;
    let (base, relative, all) = (base?, relative?, all?);
    assert_eq!(full?, format!("{base}{relative}"));
    let text = format!("{base} {relative} {}", all.replace('\0', "|"));
    Ok(text.replace(top.path().canonicalize().unwrap().to_str().unwrap(), "TOP"))
}

#[test]
fn files_and_folders_say_where_they_are() {
    let tree =
        ["a/x/", "b/x/y/one", "c/x/y/one", "c/x/y/two", "c/x/y/in (deleted)", "c/x/y/line\nbreak", "b/top"];
    for (cache, calls) in [(Cache::None, Calls::Inline), (Cache::Default, Calls::Offload)] {
        let top = lay_out(&tree);
        let fixture = mount(&PoolOptions { cache, calls, ..options(&top) });
        let place = |path: &str| places(&fixture, &top, path).unwrap();
        assert_eq!(place("/"), "TOP/a / TOP/a/|TOP/b/|TOP/c/");
        assert_eq!(place("/x"), "TOP/a /x TOP/a/x|TOP/b/x|TOP/c/x");
        assert_eq!(place("/x/y"), "TOP/b /x/y TOP/b/x/y|TOP/c/x/y");
        assert_eq!(place("/x/y/one"), "TOP/b /x/y/one TOP/b/x/y/one|TOP/c/x/y/one");
        assert_eq!(place("/x/y/two"), "TOP/c /x/y/two TOP/c/x/y/two");
        assert_eq!(place("/top"), "TOP/b /top TOP/b/top");
        for odd in ["/x/y/in (deleted)", "/x/y/line\nbreak"] {
            assert_eq!(place(odd), format!("TOP/c {odd} TOP/c{odd}"));
        }
        // The names move with what has them.
        fixture.fake.rename("/x/y", "/z").unwrap();
        assert_eq!(place("/z/two"), "TOP/c /z/two TOP/c/z/two");
        assert_eq!(place("/z"), "TOP/b /z TOP/b/z|TOP/c/z");
        fixture.fake.rename("/z/one", "/x/1").unwrap();
        assert_eq!(place("/x/1"), "TOP/b /x/1 TOP/b/x/1|TOP/c/x/1");
        drop(fixture.fake.create("/z/new").unwrap());
        assert_eq!(place("/z/new"), "TOP/a /z/new TOP/a/z/new");
        assert!(place("/z").ends_with(" /z TOP/a/z|TOP/b/z|TOP/c/z"));
        // Of a file with two names it is the one that was used, where the kernel keeps none; else one of them.
        fixture.fake.link("/top", "/x/second").unwrap();
        for path in ["/top", "/x/second", "/top"] {
            let (one, used) = (place(path), format!("TOP/b {path} TOP/b{path}"));
            let is_name = ["TOP/b /top TOP/b/top", "TOP/b /x/second TOP/b/x/second"].contains(&one.as_str());
            assert!(is_name && (cache == Cache::Default || one == used), "{path}: {one}");
        }
        fixture.fake.unlink("/x/second").unwrap();
        assert_eq!(place("/top"), "TOP/b /top TOP/b/top");
        fixture.end("places");
    }
}

#[test]
fn what_lost_its_name_says_so() {
    let top = lay_out(&["b/f", "c/d/", "a/kept"]);
    let fixture = mount(&options(&top));
    let node = fixture.fake.open("/f", O_RDONLY).unwrap();
    fs::remove_file(top.path().join("b/f")).unwrap();
    assert_eq!(asked(&fixture.fake, "/f", "relpath"), Err(Errno::NOENT));
    drop(node);
    // Somebody else's file has the name on the branch: it is not taken for the one that was asked about.
    fixture.fake.stat("/kept").unwrap();
    fs::rename(top.path().join("a/kept"), top.path().join("a/moved")).unwrap();
    fs::write(top.path().join("a/kept"), "other").unwrap();
    assert_eq!(places(&fixture, &top, "/kept").unwrap(), "TOP/a /kept TOP/a/kept");
    assert_eq!(places(&fixture, &top, "/moved").unwrap(), "TOP/a /moved TOP/a/moved");
    // A branch may be moved while it is mounted. Its path is then the one that it was mounted with.
    fs::rename(top.path().join("a"), top.path().join("elsewhere")).unwrap();
    assert_eq!(places(&fixture, &top, "/moved").unwrap(), "TOP/a /moved TOP/a/moved");
    fixture.end("lost names");
}

#[test]
fn answers_are_not_attributes() {
    let top = lay_out(&["b/f", "c/d/"]);
    let fixture = mount(&options(&top));
    let fake = &fixture.fake;
    for path in ["/f", "/d", "/"] {
        assert_eq!(asked(fake, path, "nothing"), Err(Errno::NODATA));
        assert_eq!(asked(fake, path, "version"), Err(Errno::NODATA), "only the control file has settings");
        for what in ["basepath", "nothing"] {
            let name = format!("user.mergerfs.{what}");
            assert_eq!(fake.set_xattr(path, &name, b"x", 0), Err(Errno::PERM));
            assert_eq!(fake.remove_xattr(path, &name), Err(Errno::NODATA));
        }
        let listed = fake.list_xattr(path).unwrap_or_default();
        assert!(!listed.iter().any(|name| name.starts_with("user.mergerfs")), "{listed:?}");
    }
    fixture.end("answers");
    // A pool of one branch has none of this.
    let pool = PoolOptions::new(top.path());
    let pool = Pool::open_with_rules(&pool, rules("[[rule]]\nbasename = 'x'\nhide = true\n")).unwrap();
    let alone = Fixture::new(pool, top.path(), &settings(TransportKind::Device));
    assert!(matches!(asked(&alone.fake, "/b/f", "basepath"), Err(Errno::NODATA | Errno::OPNOTSUPP)));
    assert_eq!(alone.fake.stat("/.mergerfs").err(), Some(Errno::NOENT));
    drop(alone.fake.create("/.mergerfs").unwrap());
    alone.assert_same(&[], "one branch");
    alone.end("one branch");
}

#[test]
fn settings_are_told_and_changed() {
    let top = lay_out(&[]);
    let mut options = options(&top);
    let branches = &mut options.merge.as_mut().unwrap().branches;
    branches[1] =
        BranchOptions { mode: BranchMode::NoCreate, min_free: Some(10 << 30), ..branches[1].clone() };
    let fixture = mount(&options);
    let fake = &fixture.fake;
    let told = |key: &str| {
        let text = asked(fake, "/.mergerfs", key).unwrap();
        text.replace(top.path().canonicalize().unwrap().to_str().unwrap(), "TOP")
    };
    assert_eq!(told("branches"), "TOP/a=RW:TOP/b=NC,10G:TOP/c=RW");
    assert_eq!(told("srcmounts"), "TOP/a:TOP/b:TOP/c");
    assert_eq!((told("pid"), told("minfreespace")), (std::process::id().to_string(), "0".into()));
    assert!(told("version").starts_with("shuntfs "));
    let categories = ["action", "create", "search"].map(|category| told(&format!("category.{category}")));
    assert_eq!(categories, ["epall", "ff", "ff"]);
    let listed = fake.list_xattr("/.mergerfs").unwrap();
    let keys = [
        "branches",
        "category.action",
        "category.create",
        "category.search",
        "func.create",
        "func.getattr",
        "func.mkdir",
        "func.mknod",
        "func.rename",
        "func.symlink",
        "func.unlink",
        "inodecalc",
        "minfreespace",
        "moveonenospc",
        "pid",
        "version",
    ];
    assert_eq!(listed, keys.map(|key| format!("user.mergerfs.{key}")));

    let set = |key: &str, value: &str| {
        fake.set_xattr("/.mergerfs", &format!("user.mergerfs.{key}"), value.as_bytes(), 0)
    };
    // What is set holds from the next request on.
    drop(fake.create("/first").unwrap());
    set("category.create", "all").unwrap();
    fake.mkdir("/everywhere", 0o755).unwrap();
    set("minfreespace", "15T").unwrap();
    // What is said of branches that take nothing new comes before space.
    assert_eq!(fake.create("/refused").err(), Some(Errno::ROFS));
    set("minfreespace", "4097").unwrap();
    assert_eq!(told("minfreespace"), "4097");
    let on = |name: &str| NAMES.map(|branch| top.path().join(branch).join(name).exists());
    assert_eq!((on("first"), on("everywhere")), ([true, false, false], [true, false, true]));
    for (branch, text) in [("a", "old"), ("c", "new")] {
        fs::write(top.path().join(branch).join("both"), text).unwrap();
    }
    let old = fs::File::options().write(true).open(top.path().join("a/both")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    let read = || fake.open("/both", O_RDONLY).unwrap().read_to_end().unwrap();
    assert_eq!(read(), b"old");
    set("category.search", "newest").unwrap();
    assert_eq!(read(), b"new");
    set("category.search", "ff").unwrap();
    assert_eq!(read(), b"old");
    set("category.action", "epff").unwrap();
    fake.unlink("/both").unwrap();
    assert_eq!(on("both"), [false, false, true]);
    assert_eq!(fixture.observer.facts().branches[0].min_free, 4097);
    assert_eq!(fixture.observer.facts().branches[1].min_free, 10 << 30);
    fixture.end("settings");
}

/// A category sets its functions, and tells all that they have.
#[test]
fn functions_have_policies_of_their_own() {
    let top = lay_out(&[]);
    let fixture = mount(&options(&top));
    let fake = &fixture.fake;
    let told = |key: &str| asked(fake, "/.mergerfs", key).unwrap();
    let set = |key: &str, value: &str| {
        fake.set_xattr("/.mergerfs", &format!("user.mergerfs.{key}"), value.as_bytes(), 0)
    };
    set("func.mkdir", "all").unwrap();
    set("func.create", "epff").unwrap();
    assert_eq!((told("category.create"), told("func.mkdir")), ("all,epff,ff".into(), "all".into()));
    set("category.create", "ff").unwrap();
    assert_eq!((told("category.create"), told("func.mkdir")), ("ff".into(), "ff".into()));
    set("func.getattr", "newest").unwrap();
    assert_eq!(told("category.search"), "newest");
    set("func.getattr", "ff").unwrap();
    assert_eq!(set("func.mkdir", "most"), Err(Errno::INVAL));
    assert_eq!(asked(fake, "/.mergerfs", "func.open").err(), Some(Errno::NODATA), "it has no policy here");
    fixture.end("functions");
}

#[test]
fn settings_are_for_the_owner_and_make_sense() {
    let top = lay_out(&[]);
    let fixture = mount(&options(&top));
    let user = fixture.fake.process(Caller { uid: 4000, gid: 0, ..fixture.fake.caller() });
    let set = |process: &Process, name: &str, value: &[u8], flags| {
        process.set_xattr("/.mergerfs", name, value, flags)
    };
    let create = "user.mergerfs.category.create";
    // Nothing is told before it is known who asks.
    for name in [create, "user.mergerfs.branches", "user.mergerfs.nothing", "user.x"] {
        assert_eq!(set(&user, name, b"mfs", 0), Err(Errno::ACCES), "{name}");
    }
    assert_eq!(asked(&user, "/.mergerfs", "category.create"), Ok("ff".into()));
    let owner = &fixture.fake;
    for (name, value, flags, refusal) in [
        (create, &b"none"[..], 0, Errno::INVAL),
        (create, b"", 0, Errno::INVAL),
        (create, b"mfs\0", 0, Errno::INVAL),
        (create, b"\xff", 0, Errno::INVAL),
        (create, b"mfs", CREATE, Errno::EXIST),
        ("user.mergerfs.minfreespace", b"much", 0, Errno::INVAL),
        ("user.mergerfs.pid", b"1", 0, Errno::ROFS),
        ("user.mergerfs.inodecalc", b"passthrough", 0, Errno::ROFS),
        ("user.mergerfs.srcmounts", b"/", 0, Errno::ROFS),
        ("user.mergerfs.branches", b"+relative", 0, Errno::INVAL),
        ("user.mergerfs.branches", b"", 0, Errno::INVAL),
        ("user.mergerfs.branches", b"-<x", 0, Errno::INVAL),
        ("user.mergerfs.branches", b"++/", 0, Errno::INVAL),
        ("user.mergerfs.branches", b"+/nowhere", 0, Errno::NOENT),
        ("user.mergerfs.branches", b"-/nowhere", 0, Errno::INVAL),
        ("user.mergerfs.branches", b"+/dev/shm=RW,much", 0, Errno::INVAL),
        ("user.mergerfs.nothing", b"1", 0, Errno::NODATA),
        ("user.mergerfs.", b"1", 0, Errno::NODATA),
        ("user.x", b"1", 0, Errno::NODATA),
        ("system.posix_acl_access", b"1", 0, Errno::NODATA),
    ] {
        assert_eq!(set(owner, name, value, flags), Err(refusal), "{name} {value:?}");
    }
    assert_eq!(asked(owner, "/.mergerfs", "category.create"), Ok("ff".into()));
    set(owner, create, b"mfs", REPLACE).unwrap();
    assert_eq!(asked(owner, "/.mergerfs", "category.create"), Ok("mfs".into()));
    for name in ["user.x", "security.capability", "system.posix_acl_access", "user.mergerfs.nothing"] {
        assert_eq!(owner.get_xattr("/.mergerfs", name), Err(Errno::NODATA), "{name}");
        assert_eq!(owner.remove_xattr("/.mergerfs", name), Err(Errno::NODATA), "{name}");
    }
    assert_eq!(owner.remove_xattr("/.mergerfs", create), Err(Errno::NODATA));
    fixture.end("the owner");
}

/// It is there for whoever asks for it, and nothing is done with it; what it hides is as it was.
#[test]
fn the_control_file_hides_and_protects_what_has_its_name() {
    for cache in [Cache::None, Cache::Default] {
        let top = lay_out(&["b/.mergerfs", "c/f", "b/d/.mergerfs"]);
        let fixture = mount(&PoolOptions { cache, ..options(&top) });
        let fake = &fixture.fake;
        let attr = fake.stat("/.mergerfs").unwrap();
        assert_eq!((attr.mode, attr.size, attr.nlink), (0o100_644, 0, 1));
        assert_eq!(fake.names("/").unwrap(), ["d", "f"]);
        let listed: Vec<_> = fake.list("/").unwrap().into_iter().map(|entry| entry.name).collect();
        assert!(!listed.iter().any(|name| name.as_slice() == b".mergerfs"), "{listed:?}");
        let control = "/.mergerfs";
        assert_eq!(fake.open(control, O_RDONLY).map(drop), Err(Errno::PERM));
        assert_eq!(fake.open(control, O_RDWR).map(drop), Err(Errno::PERM));
        assert_eq!(fake.chmod(control, 0o666).map(drop), Err(Errno::PERM));
        assert_eq!(fake.chown(control, 4000, 4000).map(drop), Err(Errno::PERM));
        assert_eq!(fake.truncate(control, 0).map(drop), Err(Errno::PERM));
        assert_eq!(fake.link(control, "/other").map(drop), Err(Errno::PERM));
        assert_eq!(fake.unlink(control), Err(Errno::PERM));
        assert_eq!(fake.rename(control, "/other"), Err(Errno::PERM));
        assert_eq!(fake.rename("/f", control), Err(Errno::PERM));
        assert_eq!(fake.rename_with("/f", control, 2), Err(Errno::PERM), "exchanged");
        assert!(fake.statfs().is_ok());
        // What a kernel that does not know of it would ask.
        fake.drop_caches();
        for outcome in [fake.mkdir(control, 0o755), fake.symlink("x", control), fake.link("/f", control)] {
            assert!(matches!(outcome, Err(Errno::PERM | Errno::EXIST)), "{outcome:?}");
        }
        // Elsewhere the name is one as any other.
        let file = fake.open("/d/.mergerfs", O_RDONLY).unwrap();
        assert_eq!(file.read_to_end().unwrap(), b"b/d/.mergerfs");
        drop(file);
        fake.unlink("/d/.mergerfs").unwrap();
        assert_eq!(fs::read(top.path().join("b/.mergerfs")).unwrap(), b"b/.mergerfs");
        let below: Vec<bool> =
            ["a", "c"].iter().map(|name| top.path().join(name).join(".mergerfs").exists()).collect();
        assert_eq!(below, [false, false]);
        fixture.end("the control file");
    }
}

#[test]
fn branches_are_changed_through_the_control_file() {
    let top = lay_out(&["b/f", "c/f"]);
    let fixture = mount(&options(&top));
    let real = top.path().canonicalize().unwrap();
    let real = real.to_str().unwrap();
    let told = || asked(&fixture.fake, "/.mergerfs", "branches").unwrap().replace(real, "TOP");
    let set = |value: &str| {
        let value = value.replace("TOP", real);
        fixture.fake.set_xattr("/.mergerfs", "user.mergerfs.branches", value.as_bytes(), 0)
    };
    for (value, branches) in [
        ("-TOP/a", "TOP/b=RW:TOP/c=RW"),
        ("+TOP/a=NC,2G", "TOP/b=RW:TOP/c=RW:TOP/a=NC,2G"),
        ("-<", "TOP/c=RW:TOP/a=NC,2G"),
        ("+<TOP/b=RO", "TOP/b=RO:TOP/c=RW:TOP/a=NC,2G"),
        ("->", "TOP/b=RO:TOP/c=RW"),
        ("+>TOP/a", "TOP/b=RO:TOP/c=RW:TOP/a=RW"),
        ("-TOP/a:TOP/b", "TOP/c=RW"),
        ("=TOP/c:TOP/b", "TOP/c=RW:TOP/b=RW"),
        ("TOP/a:TOP/c", "TOP/a=RW:TOP/c=RW"),
    ] {
        assert_eq!((set(value), told()), (Ok(()), branches.to_owned()), "{value}");
    }
    assert_eq!(places(&fixture, &top, "/f").unwrap(), "TOP/c /f TOP/c/f");
    set("+<TOP/b").unwrap();
    assert_eq!(places(&fixture, &top, "/f").unwrap(), "TOP/b /f TOP/b/f|TOP/c/f");
    for wrong in ["+TOP/c", "-TOP/none", "TOP/a:TOP/a", "-TOP/a:TOP/b:TOP/c"] {
        assert!(set(wrong).is_err(), "{wrong}");
    }
    assert_eq!(told(), "TOP/b=RW:TOP/a=RW:TOP/c=RW");
    fixture.end("branches");
}
