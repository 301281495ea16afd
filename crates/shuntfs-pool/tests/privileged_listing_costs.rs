//! What a listing without attributes costs below where handles last (`handles`), and where they do not. Needs root, because each branch is a file
//! system then.
//!
//! Faults hold for the whole process: every test here has them to itself.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod fake;

use std::fs;

use fake::Fixture;
use shuntfs::InitFlags;
use shuntfs_fake::{Faults, OsError, Settings};
use shuntfs_pool::policy::Policy;
use shuntfs_pool::{BranchOptions, Cache, MergeOptions, Pool, PoolOptions};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::say;

const BRANCHES: u64 = 3;

/// How many lower calls a listing of so many files and folders makes, all of them on the first branch.
fn calls(disks: &[Lower], handles: bool, files: u64, folders: u64) -> u64 {
    let faults = Faults::alone();
    let top = disks[0].path().join("x");
    disks.iter().for_each(|disk| fs::create_dir_all(disk.path().join("x")).unwrap());
    (0..files).for_each(|number| fs::write(top.join(format!("f{number}")), "").unwrap());
    (0..folders).for_each(|number| fs::create_dir(top.join(format!("d{number}"))).unwrap());
    let branches = disks.iter().map(|disk| BranchOptions::new(disk.path())).collect();
    let create = Policy::of("ff").unwrap();
    let merge = Some(MergeOptions { create, min_free: 0, ..MergeOptions::new(branches) });
    let options = PoolOptions { merge, handles, cache: Cache::None, ..PoolOptions::new("disks") };
    let mut settings = Settings { doubts: false, ..Settings::default() };
    // As `ls -f` is answered, but for its first records.
    settings.offered -= InitFlags::DO_READDIRPLUS;
    let fixture = Fixture::new(Pool::open(&options).unwrap(), disks[0].path(), &settings);
    // What it costs to open the folder is not of interest.
    fixture.fake.names("/x").unwrap();
    faults.fail(0..0, OsError::IO);
    let names = fixture.fake.names("/x").unwrap();
    let calls = faults.stop().calls;
    assert_eq!(names.len() as u64, files + folders);
    fixture.end("listing");
    disks.iter().for_each(|disk| fs::remove_dir_all(disk.path().join("x")).unwrap());
    calls
}

/// Files cost nothing. A folder is looked up on all branches, because its number is that of the branch on which it was made first, and that costs one call
/// more where it is.
#[test]
fn handles_cost_a_listing_a_look_at_each_folder_on_each_branch() {
    let disk = |_| Lower::make(LowerKind::Tmpfs).unwrap();
    let Some(disks) = (0..BRANCHES).map(disk).collect::<Option<Vec<_>>>() else { return };
    let grows = |handles: bool, more: [u64; 2]| {
        calls(&disks, handles, 10 + more[0], 10 + more[1]) - calls(&disks, handles, 10, 10)
    };
    let each = [[100, 0], [0, 100]].map(|more| [false, true].map(|handles| grows(handles, more)));
    say(&format!("lower calls for 100 more files and 100 more folders, without and with handles: {each:?}"));
    let [[files, files_with], [folders, folders_with]] = each;
    assert!(files.max(files_with).max(folders) < 10, "{each:?}");
    assert!(folders_with.abs_diff(100 * (BRANCHES + 1)) < 10, "{each:?}");
}
