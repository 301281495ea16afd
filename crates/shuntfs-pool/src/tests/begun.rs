//! Requests that a server that is dead had begun: what it has made is taken for its own, and what somebody else has made below is not.

use std::os::unix::fs::{chown, lchown, symlink};

use super::*;

const SOMEBODY: u32 = 1234;
const FOLDER: Made = Made { mode: 0o755, umask: 0 };

/// Makes what exists already.
type Prepare = fn(&Path);

/// Who had begun it.
fn who() -> Who {
    Who::new(SOMEBODY, SOMEBODY, None).begun()
}

fn give(path: &Path) {
    lchown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
}

/// How it ends to make a file that must be new, where one is there already.
fn create_new(prepare: Prepare) -> Result<(), Errno> {
    let (folder, shared) = pool(|_| ());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    prepare(&folder.path().join("f"));
    let flags = OpenFlags(mode::O_RDWR | mode::O_EXCL);
    create::create(&shared, who(), NodeId::ROOT, &name("f"), FILE, flags).map(drop)
}

#[test]
fn a_new_file_is_ones_own_where_nobody_has_used_it() {
    assert_eq!(create_new(|_| ()), Ok(()));
    assert_eq!(create_new(|path| fs::write(path, "").map(|()| give(path)).unwrap()), Ok(()));
    let others: [(&str, Prepare); 5] = [
        ("another's", |path| fs::write(path, "").unwrap()),
        ("with bytes", |path| fs::write(path, "bytes").map(|()| give(path)).unwrap()),
        ("a second name", |path| {
            fs::write(path, "").map(|()| give(path)).unwrap();
            fs::hard_link(path, path.with_file_name("other")).unwrap();
        }),
        ("a folder", |path| fs::create_dir(path).map(|()| give(path)).unwrap()),
        ("a symlink", |path| symlink("nowhere", path).map(|()| give(path)).unwrap()),
    ];
    for (what, prepare) in others {
        assert_eq!(create_new(prepare), Err(Errno::EXIST), "{what}");
    }
}

#[test]
fn other_names_are_ones_own_where_they_are_what_was_asked_for() {
    let (folder, shared) = pool(|_| ());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let at = |name: &str| folder.path().join(name);
    let mkdir = |of: &str| make::mkdir(&shared, who(), NodeId::ROOT, &name(of), FOLDER).map(drop);
    for (of, is_full, is_given) in [("empty", false, true), ("full", true, true), ("another's", false, false)]
    {
        fs::create_dir(at(of)).unwrap();
        if is_given {
            give(&at(of));
        }
        if is_full {
            fs::write(at(of).join("x"), "").unwrap();
        }
        let expected = if is_given && !is_full { Ok(()) } else { Err(Errno::EXIST) };
        assert_eq!(mkdir(of), expected, "{of}");
    }
    for (of, target, uid) in [("own", "a", SOMEBODY), ("elsewhere", "ab", SOMEBODY), ("not own", "a", 0)] {
        symlink(target, at(of)).unwrap();
        lchown(at(of), Some(uid), None).unwrap();
        let made = make::symlink(&shared, who(), NodeId::ROOT, &name(of), c"a").map(drop);
        assert_eq!(made, if of == "own" { Ok(()) } else { Err(Errno::EXIST) }, "{of}");
    }
    let fifo = Made { mode: shuntfs::FileType::Fifo.mode_bits() | 0o644, umask: 0 };
    let mknod = |made, who| make::mknod(&shared, who, NodeId::ROOT, &name("node"), made, 0).map(drop);
    assert_eq!(mknod(fifo, who()), Ok(()));
    assert_eq!(mknod(fifo, who()), Ok(()), "it is there, and its own");
    assert_eq!(mknod(FILE, who()), Err(Errno::EXIST));
    chown(at("node"), Some(0), None).unwrap();
    assert_eq!(mknod(fifo, who()), Err(Errno::EXIST));
}

#[test]
fn a_name_was_moved_where_the_kernel_knows_what_is_there() {
    let (folder, shared) = pool(|_| ());
    let at = |name: &str| folder.path().join(name);
    let (from, to) = (name("from"), name("to"));
    let move_it = |who: Who| {
        let named = |name| Named { parent: NodeId::ROOT, name };
        rename::rename(&shared, who, named(&from), named(&to), 0)
    };
    fs::write(at("from"), "moved").unwrap();
    lookup(&shared, NodeId::ROOT, "from");
    fs::rename(at("from"), at("to")).unwrap();
    assert_eq!(move_it(Who::root()), Err(Errno::NOENT));
    assert_eq!(move_it(who()), Ok(()));
    fs::remove_file(at("to")).unwrap();
    assert_eq!(move_it(who()), Err(Errno::NOENT));
    fs::write(at("to"), "another's").unwrap();
    assert_eq!(move_it(who()), Err(Errno::NOENT), "nobody has looked it up");
}
