//! Lines of mergerfs, from the old fstab to a mount. What mounts needs root and /dev/fuse.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use common::{Ran, Room, SHUNT, can_mount, run, shunt};

#[test]
fn the_documentation_has_the_table() {
    let text = include_str!("../../../docs/from-mergerfs.md");
    let table = shunt::migrate::documentation();
    for row in table.lines() {
        assert!(
            text.contains(row),
            "docs/from-mergerfs.md does not have this row; all rows:\n{table}\nthis row:\n{row}"
        );
    }
    let (_, of_text) = text.split_once("\n| option of mergerfs |").expect("has the table");
    for row in of_text.lines().skip(1).filter(|line| line.starts_with('|')) {
        assert!(
            table.lines().any(|known| known == row),
            "docs/from-mergerfs.md has a row that is not in the table: {row}"
        );
    }
}

#[test]
fn our_line_goes_to_standard_output_and_what_differs_to_standard_error() {
    let line = "/a:/b /pool fuse.mergerfs allow_other,category.create=mfs,moveonenospc=false,use_ino 0 0";
    let ran = shunt(["migrate", "mergerfs", line]).ok();
    assert_eq!(ran.out, "/a:/b /pool fuse.shunt allow_other,category.create=mfs,moveonenospc=false 0 0\n");
    assert_eq!(ran.err, "", "nothing differs");
    let ran = shunt(["migrate", "mergerfs", "-o", "category.create=mfs,link_cow=true", "/a:/b", "/pool"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(1), "shunt mount -o category.create=mfs,allow_other /a:/b /pool\n")
    );
    assert!(ran.err.contains("\nlink_cow=true is missing here: "), "{ran:?}");
    shunt(["migrate", "mergerfs"]).fails_with_usage();
    shunt(["migrate", "mergerfs", "/dev/sda1 / ext4 defaults 0 1"]).fails(2, &["asks for no mergerfs"]);
    let page = shunt(["migrate", "mergerfs", "--help"]).ok().out;
    assert!(page.contains("--fstab"), "{page}");
}

#[test]
fn a_mount_names_all_options_that_it_cannot_take() {
    let ran = shunt([
        "mount",
        "-o",
        "category.create=mfs,minfreespace=10G,moveonenospc=most,link_cow=true,bogus",
        "/a:/b",
        "/pool",
    ]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 4, "{ran:?}");
    for words in ["`moveonenospc`", "`link_cow=true`", "`bogus`"] {
        assert_eq!(lines[1..].iter().filter(|line| line.contains(words)).count(), 1, "{words}: {ran:?}");
    }
}

/// Takes the escapes of a field away, as mount(8) does.
fn decoded(field: &str) -> String {
    field.replace("\\040", " ").replace("\\134", "\\")
}

/// Calls the helper as mount(8) does for a line of fstab.
fn mount_line(room: &Room, line: &str) -> Ran {
    let helper = room.path().join("mount.fuse.shunt");
    if !helper.exists() {
        std::os::unix::fs::symlink(SHUNT, &helper).expect("links");
    }
    let fields: Vec<String> = line.split_ascii_whitespace().map(decoded).collect();
    let [source, mountpoint, kind, options, ..] = fields.as_slice() else { panic!("no line: {line}") };
    assert_eq!(kind, "fuse.shunt");
    run(Command::new(helper).args([source, mountpoint, "-o", options]))
}

#[test]
fn privileged_a_line_of_mergerfs_becomes_a_mount() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let at = |path: &str| room.path().join(path);
    for name in ["disk 1", "disk 2", "ssd", "old"] {
        fs::create_dir(at(name)).expect("makes");
    }
    for (path, text) in
        [("disk 1/both", "of disk 1"), ("disk 2/both", "of disk 2, and newer"), ("old/kept", "of old")]
    {
        fs::write(at(path), text).expect("writes");
    }
    let top = room.path().to_str().expect("is text").to_owned();
    let old = format!(
        "{top}/disk\\040*=NC:{top}/{{ssd,old}}=RW,1K  {top}/mnt  fuse.mergerfs  \
         defaults,nonempty,use_ino,allow_other,noatime,cache.files=partial,dropcacheonclose=true,category.create=ff,minfreespace=2KB,\
         moveonenospc=false,fsname=pool\\134,1,x-systemd.requires=/srv,nofail,passthrough.io=rw  0  0"
    );
    let ours = shunt(["migrate", "mergerfs", &old]).ok().out;
    mount_line(&room, &ours).ok();
    assert!(room.is_mounted());
    assert_eq!([room.read("both"), room.read("kept")], ["of disk 1", "of old"]);
    fs::write(room.mnt().join("new"), "new").expect("writes");
    assert_eq!(fs::read_to_string(at("ssd/new")).expect("is the first that takes something new"), "new");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    let line = mounts.lines().find(|line| line.split(' ').nth(4) == room.mnt().to_str()).expect("is mounted");
    for words in [" fuse.shunt pool,1 ", "allow_other", "default_permissions"] {
        assert!(line.contains(words), "{words}: {line}");
    }
    let number = |name: &str| fs::metadata(room.mnt().join(name)).expect("is there").ino();
    fs::hard_link(room.mnt().join("new"), room.mnt().join("linked")).expect("links");
    assert_eq!(number("new"), number("linked"));
    // `mount -a` comes again.
    let again = mount_line(&room, &ours).ok();
    assert!(again.err.contains("is mounted at") && again.err.contains("already"), "{again:?}");
    room.umount(&[]).ok();
}

#[test]
fn privileged_one_folder_of_mergerfs_is_a_pool_of_one() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let line = format!(
        "{} {} mergerfs category.create=mfs,minfreespace=0,moveonenospc=false",
        room.src().display(),
        room.mnt().display()
    );
    let ours = shunt(["migrate", "mergerfs", &line]).ok().out;
    mount_line(&room, &ours).ok();
    assert_eq!(room.read("hello"), "hello there\n");
    // What changes beside the mount is seen at once, as for mergerfs's users.
    assert!(!room.mnt().join("late").exists());
    fs::write(room.src().join("late"), "late").expect("writes");
    assert_eq!(room.read("late"), "late");
    let status = shunt(["status".as_ref(), room.mnt().as_os_str()]).ok().out;
    assert!(status.contains("/src RW, "), "{status}");
    room.umount(&[]).ok();
}
