//! A pool whose server may die: of one folder, or of several branches, with colons between them.
//!
//! ```text
//! cargo run -p shuntfs-tests --example kept_pool -- MNT SRC [device|cloned] [CRASHES] [passthrough|relay|served] [without-handles]
//! ```

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use shuntfs::takeover::KeptMount;
use shuntfs::{FileType, MountOptions, SessionOptions, Transport};
use shuntfs_keeper::{Limits, Seat, keep};
use shuntfs_pool::{BranchOptions, FlowWish, KeptBranches, MergeOptions, Pool, PoolOptions};
use shuntfs_sys::caps::{self, Cap};
use shuntfs_sys::spawn::effective_uid;

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(source)) = (arguments.next(), arguments.next()) else {
        return Err("usage: kept_pool MNT SRC [device|cloned] [CRASHES] [FLOW] [without-handles]".into());
    };
    let transport: Transport = arguments.next().as_deref().unwrap_or("auto").parse()?;
    let mut limits = Limits::default();
    if let Some(crashes) = arguments.next() {
        limits.crashes = crashes.parse()?;
    }
    let flow = match arguments.next().as_deref() {
        None | Some("passthrough") => FlowWish::Passthrough,
        Some("relay") => FlowWish::Relay,
        Some("served") => FlowWish::Served,
        Some(other) => return Err(format!("no flow is called {other}").into()),
    };
    if arguments.next().as_deref() == Some("without-handles") {
        // As an ordinary user, and on a file system that has none.
        let kept =
            [Cap::SysAdmin, Cap::DacOverride, Cap::Chown, Cap::Fowner, Cap::Fsetid, Cap::Setuid, Cap::Setgid];
        caps::keep_only(&kept)?;
    }
    let options = SessionOptions { transport, ..SessionOptions::default() };
    let mut pool = PoolOptions { flow, ..PoolOptions::new(&source) };
    if source.contains(':') {
        let branches = source.split(':').map(BranchOptions::new).collect();
        let merge = MergeOptions { min_free: 0, ..MergeOptions::new(branches) };
        pool.kept = Some(Arc::new(KeptBranches::open(&merge.branches)?));
        pool.merge = Some(merge);
    }
    // Tests of ordinary users' programs work on it.
    let mount = MountOptions { source, allow_other: effective_uid() == 0, ..MountOptions::default() };
    let mount = KeptMount::mount(Path::new(&path), &mount, FileType::Directory)?;
    let serve = |seat: &Seat<'_>| -> Result<(), Box<dyn std::error::Error>> {
        Ok(seat.serve_surviving(Pool::open(&pool)?, &options)?)
    };
    keep(mount, &limits, serve)?;
    Ok(())
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kept_pool: {error}");
            ExitCode::FAILURE
        }
    }
}
