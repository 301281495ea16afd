//! Merges on the fake kernel: what is shown is what the branches hold together, and the kernel's books balance.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod fake;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fake::{Fixture, rules, settings};
use shuntfs::{Errno, Opcode, TransportKind};
use shuntfs_fake::{O_RDONLY, O_RDWR, Settings};
use shuntfs_pool::policy::{BranchMode, Policy};
use shuntfs_pool::{BranchChange, BranchOptions, Cache, Calls, FlowWish, MergeOptions, Pool, PoolOptions};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn branches() -> (TempDir, Vec<BranchOptions>) {
    let top = fake::folder();
    let branches = NAMES.map(|name| {
        fs::create_dir(top.path().join(name)).unwrap();
        BranchOptions::new(top.path().join(name))
    });
    (top, branches.into())
}

fn options(branches: Vec<BranchOptions>, create: &str) -> PoolOptions {
    let mut merge = MergeOptions::new(branches);
    merge.min_free = 0;
    merge.create = Policy::of(create).unwrap();
    PoolOptions { merge: Some(merge), cache: Cache::None, ..PoolOptions::new("a:b:c") }
}

fn mount(options: &PoolOptions, settings: &Settings) -> Fixture {
    Fixture::new(Pool::open(options).unwrap(), Path::new("/nonexistent"), settings)
}

/// What the branches hold together: where each path is shown.
fn together(top: &Path) -> BTreeMap<String, PathBuf> {
    let (mut all, mut ahead) = (BTreeMap::new(), vec![String::new()]);
    while let Some(folder) = ahead.pop() {
        let mut names = BTreeMap::new();
        for branch in NAMES {
            let below = top.join(branch).join(folder.trim_start_matches('/'));
            // Beneath a file that is shown no folder is.
            for entry in fs::read_dir(below).into_iter().flatten().flatten() {
                names.entry(entry.file_name().into_string().unwrap()).or_insert(entry.path());
            }
        }
        for (name, path) in names {
            let named = format!("{folder}/{name}");
            if path.symlink_metadata().unwrap().is_dir() {
                ahead.push(named.clone());
            }
            all.insert(named, path);
        }
    }
    all
}

fn assert_together(fixture: &Fixture, top: &Path, what: &str) {
    let all = together(top);
    let mut folders: BTreeMap<&str, BTreeSet<String>> = BTreeMap::from([("/", BTreeSet::new())]);
    for (path, below) in &all {
        let (folder, name) = path.rsplit_once('/').unwrap();
        folders.entry(if folder.is_empty() { "/" } else { folder }).or_default().insert(name.to_owned());
        let (attr, there) = (fixture.fake.lstat(path), below.symlink_metadata().unwrap());
        let attr = attr.unwrap_or_else(|errno| panic!("{what}: {path}: {errno}"));
        let seen = (attr.mode, u64::from(attr.nlink), attr.size, attr.uid, attr.gid);
        assert_eq!(
            seen,
            (there.mode(), there.nlink(), there.size(), there.uid(), there.gid()),
            "{what}: {path}"
        );
        if there.is_dir() {
            folders.entry(path).or_default();
        } else if there.is_file() {
            let bytes = fixture.fake.open(path, O_RDONLY).and_then(|file| file.read_to_end());
            assert!(bytes == Ok(fs::read(below).unwrap()), "{what}: bytes of {path}");
        } else {
            assert!(there.is_symlink() || there.file_type().is_fifo(), "{what}: {path}");
        }
    }
    for (folder, names) in folders {
        let listed = fixture.fake.names(folder).unwrap();
        assert_eq!(listed, Vec::from_iter(names), "{what}: the listing of {folder}");
    }
}

#[test]
fn a_merge_is_wandered_through() {
    for (create, search) in [("ff", "ff"), ("rand", "ff"), ("epmfs", "ff"), ("all", "ff"), ("rand", "rand")] {
        for seed in 0..3 {
            for (flow, calls, kind) in [
                (FlowWish::Passthrough, Calls::Inline, TransportKind::Device),
                (FlowWish::Served, Calls::Offload, TransportKind::Cloned),
            ] {
                let (top, branches) = branches();
                let mut options = PoolOptions { flow, calls, ..options(branches, create) };
                options.merge.as_mut().unwrap().search = Policy::of(search).unwrap();
                let what = format!("create {create}, search {search}, seed {seed}, {flow:?}");
                let fixture = mount(&options, &settings(kind));
                let succeeded = fixture.fake.wander(seed, 400).unwrap();
                assert!(succeeded > 30, "{what}: only {succeeded} calls succeeded");
                if search == "ff" {
                    assert_together(&fixture, top.path(), &what);
                }
                fixture.end(&what);
            }
        }
    }
}

/// Where everything is made on one branch, a merge does what that folder alone does.
#[test]
fn a_merge_that_makes_everything_in_one_place_is_like_one_folder() {
    for seed in 0..4 {
        let (top, merged) = branches();
        let alone = fake::folder();
        let merge = mount(&options(merged, "ff"), &Settings::default());
        let one = PoolOptions { cache: Cache::None, ..PoolOptions::new(alone.path()) };
        let one = mount(&one, &Settings::default());
        let counts = [&merge, &one].map(|fixture| fixture.fake.wander(seed, 500).unwrap());
        assert_eq!(counts[0], counts[1], "seed {seed}");
        let tree = |folder: &Path| -> Vec<(PathBuf, u32, u64)> {
            let (mut all, mut ahead) = (Vec::new(), vec![folder.to_owned()]);
            while let Some(here) = ahead.pop() {
                for entry in fs::read_dir(here).unwrap().map(Result::unwrap) {
                    let found = entry.metadata().unwrap();
                    let path = entry.path().strip_prefix(folder).unwrap().to_owned();
                    let len = if found.is_dir() { 0 } else { found.len() };
                    all.push((path, found.mode(), len));
                    if found.is_dir() {
                        ahead.push(entry.path());
                    }
                }
            }
            all.sort();
            all
        };
        assert_eq!(tree(&top.path().join("a")), tree(alone.path()), "seed {seed}");
        assert!(tree(&top.path().join("b")).is_empty() && tree(&top.path().join("c")).is_empty());
        merge.end("the merge");
        one.end("the folder");
    }
}

#[test]
fn what_changes_on_branches_is_seen() {
    let (top, branches) = branches();
    let fixture = mount(&options(branches, "ff"), &Settings::default());
    let fake = &fixture.fake;
    let at = |path: &str| top.path().join(path);
    fs::create_dir(at("c/x")).unwrap();
    fs::write(at("c/x/f"), "c").unwrap();
    assert_eq!(fake.names("/x").unwrap(), ["f"]);
    fs::create_dir(at("a/x")).unwrap();
    fs::write(at("a/x/f"), "a").unwrap();
    fs::write(at("a/x/g"), "a").unwrap();
    assert_eq!(fake.open("/x/f", O_RDONLY).unwrap().read_to_end().unwrap(), b"a");
    assert_eq!(fake.names("/x").unwrap(), ["f", "g"]);
    fs::remove_dir_all(at("a/x")).unwrap();
    assert_eq!(fake.open("/x/f", O_RDONLY).unwrap().read_to_end().unwrap(), b"c");
    assert_eq!(fake.stat("/x/g").err(), Some(Errno::NOENT));
    fs::remove_dir_all(at("c/x")).unwrap();
    fs::write(at("b/x"), "b").unwrap();
    assert_eq!(fake.open("/x", O_RDONLY).unwrap().read_to_end().unwrap(), b"b");
    fixture.end("changes below");
}

/// An open file goes on when its name, and that of its copy, are gone.
#[test]
fn what_is_open_outlives_its_names() {
    let (top, branches) = branches();
    let fixture = mount(&options(branches, "ff"), &Settings::default());
    for name in ["a", "c"] {
        fs::write(top.path().join(name).join("f"), name).unwrap();
    }
    let file = fixture.fake.open("/f", O_RDWR).unwrap();
    fixture.fake.unlink("/f").unwrap();
    assert!(together(top.path()).is_empty());
    assert_eq!(file.write_at(1, b"!"), Ok(1));
    assert_eq!(file.read_to_end().unwrap(), b"a!");
    drop(file);
    fixture.end("an open file");
}

#[test]
fn a_branch_that_takes_nothing_is_read_all_the_same() {
    let (top, mut branches) = branches();
    fs::write(top.path().join("a/f"), "a").unwrap();
    branches[0].mode = BranchMode::ReadOnly;
    let fixture = mount(&options(branches, "ff"), &Settings::default());
    let fake = &fixture.fake;
    assert_eq!(fake.open("/f", O_RDONLY).unwrap().read_to_end().unwrap(), b"a");
    assert_eq!(fake.open("/f", O_RDWR).err(), Some(Errno::ROFS));
    assert_eq!(fake.truncate("/f", 0).map(drop), Err(Errno::ROFS));
    assert_eq!(fake.unlink("/f"), Err(Errno::ROFS));
    assert_eq!(fake.rename("/f", "/g"), Err(Errno::ROFS));
    drop(fake.create("/new").unwrap());
    assert!(top.path().join("b/new").exists());
    fixture.end("a read-only branch");
}

/// Open folders have to be heard of: what is read of several branches has no cookies that would mean something without.
#[test]
fn folders_of_merges_are_opened_and_listed_in_pieces() {
    let (top, branches) = branches();
    for number in 0..300 {
        let branch = top.path().join(NAMES[number % 3]);
        fs::write(branch.join(format!("file-{}", number / 2)), "").unwrap();
    }
    let with = PoolOptions { cache: Cache::Default, ..options(branches, "ff") };
    let fixture = mount(&with, &Settings::default());
    assert_eq!(fixture.fake.list_in_room("/", 2000).unwrap().len(), 150);
    assert!(fixture.fake.sent(Opcode::Opendir) > 0);
    fixture.end("pieces");
}

/// What rules hide or keep is so on every branch, whatever is done around it.
#[test]
fn a_merge_under_rules_is_wandered_through() {
    let text = "[[rule]]\nbasename = 'b'\nhide = true\n[[rule]]\nbasename = 'c'\nread_only = true\n";
    for (seed, cache) in (0..8).zip([Cache::None, Cache::Default, Cache::Second].into_iter().cycle()) {
        let (top, branches) = branches();
        for (path, bytes) in [("a/b", "first"), ("b/b", "second"), ("c/a/b", "third"), ("b/c", "kept")] {
            fs::create_dir_all(top.path().join(path).parent().unwrap()).unwrap();
            fs::write(top.path().join(path), bytes).unwrap();
        }
        fs::hard_link(top.path().join("c/a/b"), top.path().join("c/linked")).unwrap();
        let options = PoolOptions { cache, ..options(branches, "rand") };
        let pool = Pool::open_with_rules(&options, rules(text)).unwrap();
        let what = format!("seed {seed}, {cache:?}");
        let fixture = Fixture::new(pool, Path::new("/nonexistent"), &Settings::default());
        fixture.fake.wander(seed, 400).unwrap();
        assert_eq!(fixture.fake.lstat("/b").err(), Some(Errno::NOENT), "{what}");
        assert!(!fixture.fake.names("/").unwrap().contains(&"b".to_owned()), "{what}");
        let read = |path: &str| fs::read_to_string(top.path().join(path)).unwrap();
        assert_eq!((read("a/b"), read("b/b"), read("b/c")), ("first".into(), "second".into(), "kept".into()));
        assert!(!top.path().join("c/b").exists() && !top.path().join("a/c").exists(), "{what}");
        fixture.end(&what);
    }
}

/// The kernel keeps what it was told, and must be told when branches change it.
#[test]
fn branches_change_while_the_kernel_keeps_names() {
    let (top, branches) = branches();
    for (path, text) in
        [("a/one", "a"), ("b/one", "b"), ("b/f/two", "b"), ("c/f/three", "c"), ("c/g/four", "c")]
    {
        fs::create_dir_all(top.path().join(path).parent().unwrap()).unwrap();
        fs::write(top.path().join(path), text).unwrap();
    }
    let first = branches[..2].to_vec();
    let options = PoolOptions { cache: Cache::Default, ..options(first, "ff") };
    let fixture = mount(&options, &Settings::default());
    let fake = &fixture.fake;
    let read = |path: &str| fake.open(path, O_RDONLY).and_then(|file| file.read_to_end());
    let seen = || {
        let names = ["/", "/f", "/g"].map(|folder| fake.names(folder));
        let texts =
            ["/one", "/f/two", "/f/three", "/g/four"].map(|path| read(path).map(|text| text[0] as char));
        for path in ["/f", "/one"] {
            let _ = fake.stat(path);
        }
        (names, texts)
    };
    let list =
        |names: &[&str]| Ok::<_, Errno>(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let none = Err(Errno::NOENT);
    let of_ab = ([list(&["f", "one"]), list(&["two"]), Err(Errno::NOENT)], [Ok('a'), Ok('b'), none, none]);
    assert_eq!(seen(), of_ab);
    let change = |change: BranchChange| fixture.observer.change_branches(&change).unwrap();
    change(BranchChange::Append(vec![branches[2].clone()]));
    assert_eq!(
        seen(),
        (
            [list(&["f", "g", "one"]), list(&["three", "two"]), list(&["four"])],
            [Ok('a'), Ok('b'), Ok('c'), Ok('c')]
        )
    );
    change(BranchChange::Set(vec![branches[1].clone(), branches[0].clone()]));
    assert_eq!(
        seen(),
        ([list(&["f", "one"]), list(&["two"]), Err(Errno::NOENT)], [Ok('b'), Ok('b'), none, none])
    );
    change(BranchChange::Remove(vec![branches[1].path.clone()]));
    assert_eq!(seen(), ([list(&["one"]), Err(Errno::NOENT), Err(Errno::NOENT)], [Ok('a'), none, none, none]));
    fixture.end("changing branches");
}

/// Where a name was found is remembered beyond the name. What then came to it on several branches was shown from the remembered one:
/// the copy of a later branch, which is another file.
#[test]
fn what_comes_to_a_known_name_on_several_branches_is_shown_from_the_first() {
    let (top, branches) = branches();
    let at = |path: &str| top.path().join(path);
    for (path, bytes) in [("b/x", "b"), ("a/y", "of a"), ("b/y", "of b"), ("b/z", "b")] {
        fs::write(at(path), bytes).unwrap();
    }
    let options = PoolOptions { cache: Cache::Default, ..options(branches, "all") };
    let fixture = mount(&options, &Settings::default());
    let fake = &fixture.fake;
    let read = |path| fake.open(path, O_RDONLY).and_then(|file| file.read_to_end()).unwrap();
    assert_eq!(read("/x"), b"b");
    fake.rename("/y", "/x").unwrap();
    assert_eq!(read("/x"), b"of a");
    assert_eq!(read("/z"), b"b");
    fake.unlink("/z").unwrap();
    fake.mknod("/z", 0o100_644, 0).unwrap();
    fake.open("/z", O_RDWR).unwrap().write_at(0, b"new").unwrap();
    fake.drop_caches();
    assert_eq!(read("/z"), b"new");
    assert_eq!(["a/x", "a/z"].map(|path| fs::read_to_string(at(path)).unwrap()), ["of a", "new"]);
    fixture.end("known names");
}

/// A copy that nobody sees went instead of what is shown, and the call succeeded: the file was still there, or, moved, another one.
#[test]
fn copies_of_what_is_read_only_stay_with_it() {
    let (top, mut branches) = branches();
    for name in ["a", "b"] {
        fs::write(top.path().join(name).join("f"), name).unwrap();
    }
    branches[0].mode = BranchMode::ReadOnly;
    let fixture = mount(&options(branches, "ff"), &Settings::default());
    let fake = &fixture.fake;
    assert_eq!(fake.unlink("/f"), Err(Errno::ROFS));
    assert_eq!(fake.rename("/f", "/g"), Err(Errno::ROFS));
    assert!(top.path().join("b/f").exists());
    fixture.end("copies");
}

/// Where nobody looked it up again, a folder was still shown where it had been: on a read-only branch, which refuses changes.
#[test]
fn a_folder_that_was_made_on_an_earlier_branch_is_shown_there() {
    let (top, mut branches) = branches();
    fs::create_dir(top.path().join("b/d")).unwrap();
    branches[1].mode = BranchMode::ReadOnly;
    let options = PoolOptions { cache: Cache::Default, ..options(branches, "ff") };
    let fixture = mount(&options, &Settings { doubts: false, ..Settings::default() });
    assert_eq!(fixture.fake.chmod("/d", 0o700).err(), Some(Errno::ROFS));
    drop(fixture.fake.create("/d/new").unwrap());
    assert!(top.path().join("a/d/new").exists());
    fixture.fake.chmod("/d", 0o700).unwrap();
    assert_eq!(fixture.fake.stat("/d").unwrap().mode & 0o777, 0o700);
    fixture.end("an earlier branch");
}

/// On the second branch the two names are one file, of which rename(2) leaves both.
#[test]
fn copies_that_are_linked_to_what_they_replace_go_too() {
    // The second name might be the first one, where case is ignored.
    for name in ["y", "X"] {
        let (top, branches) = branches();
        let at = |path: &str| top.path().join(path);
        for path in ["a/x", &format!("a/{name}"), "b/x"] {
            fs::write(at(path), path).unwrap();
        }
        fs::hard_link(at("b/x"), at(&format!("b/{name}"))).unwrap();
        let fixture = mount(&options(branches, "ff"), &Settings::default());
        let to = format!("/{name}");
        fixture.fake.rename("/x", &to).unwrap();
        assert_eq!(fixture.fake.stat("/x").err(), Some(Errno::NOENT));
        assert_eq!(fixture.fake.open(&to, O_RDONLY).unwrap().read_to_end().unwrap(), b"a/x");
        fixture.end("linked copies");
    }
}

/// What others move away below keeps no space.
#[test]
fn idle_files_are_not_held_where_others_change_branches() {
    for (cache, held) in [(Cache::None, 1), (Cache::Default, 2)] {
        let (top, branches) = branches();
        fs::create_dir(top.path().join("a/d")).unwrap();
        fs::write(top.path().join("a/d/f"), "f").unwrap();
        let fixture = mount(&PoolOptions { cache, ..options(branches, "ff") }, &Settings::default());
        let fake = &fixture.fake;
        fake.chmod("/d/f", 0o600).unwrap();
        let file = fake.open("/d/f", O_RDWR).unwrap();
        assert_eq!(file.write_at(0, b"g"), Ok(1));
        drop(file);
        // That of the folder, and where the mount alone changes the branch that of the file.
        assert_eq!(fixture.observer.facts().descriptors, held, "{cache:?}");
        fixture.end("idle files");
    }
}

#[test]
fn copies_that_lose_a_link_are_seen_with_one_less() {
    for replaces in [false, true] {
        let (top, branches) = branches();
        let at = |path: &str| top.path().join(path);
        for path in ["a/x", "b/x", "b/z"] {
            fs::write(at(path), path).unwrap();
        }
        fs::hard_link(at("b/x"), at("b/y")).unwrap();
        let options = PoolOptions { cache: Cache::Default, ..options(branches, "ff") };
        let fixture = mount(&options, &Settings::default());
        let fake = &fixture.fake;
        assert_eq!((fake.stat("/y").unwrap().nlink, fake.stat("/x").unwrap().nlink), (2, 1));
        if replaces { fake.rename("/z", "/x") } else { fake.unlink("/x") }.unwrap();
        assert_eq!(fake.stat("/y").unwrap().nlink, 1);
        fixture.end("a link less");
    }
}
