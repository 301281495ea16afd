//! A pool whose server may die: of one folder, or of several branches, with colons between them; under rules, if a file is named.
//!
//! ```text
//! cargo run -p shuntfs-tests --example kept_pool -- MNT SRC [device|cloned] [CRASHES] [passthrough|relay|served] [without-handles|RULES]
//! ```

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use shuntfs::takeover::KeptMount;
use shuntfs::{FileType, MountOptions, SessionOptions, Transport};
use shuntfs_keeper::{Limits, Seat, keep};
use shuntfs_pool::{BranchOptions, FlowWish, KeptBranches, Ledger, MergeOptions, Pool, PoolOptions};
use shuntfs_rules::{Nobody, Rules};
use shuntfs_sys::caps::{self, Cap};
use shuntfs_sys::spawn::effective_uid;

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(source)) = (arguments.next(), arguments.next()) else {
        return Err(
            "usage: kept_pool MNT SRC [device|cloned] [CRASHES] [FLOW] [without-handles|RULES]".into()
        );
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
    let rules = arguments.next();
    let without_handles = rules.as_deref() == Some("without-handles");
    if without_handles {
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
    let rules = rules.filter(|_| !without_handles);
    let ledger = rules.map(|rules| ledger_of(&rules)).transpose()?;
    // Tests of ordinary users' programs work on it.
    let mount = MountOptions { source, allow_other: effective_uid() == 0, ..MountOptions::default() };
    let mount = KeptMount::mount(Path::new(&path), &mount, FileType::Directory)?;
    let serve = |seat: &Seat<'_>| -> Result<(), Box<dyn std::error::Error>> {
        let Some(ledger) = &ledger else { return Ok(seat.serve_surviving(Pool::open(&pool)?, &options)?) };
        // As it is now, and not as it was when the keeper began.
        let ledger = Ledger::of(ledger.file().try_clone()?)?;
        let text = String::from_utf8(ledger.rules())?;
        let rules = Rules::parse(&text, "rules", None, &Nobody).map_err(|mistakes| mistakes.to_string())?;
        let pool = Pool::open_with_rules(&PoolOptions { earlier: ledger.earlier(), ..pool.clone() }, rules)?;
        pool.keep_in(Arc::new(ledger));
        Ok(seat.serve_surviving(pool, &options)?)
    };
    keep(mount, &limits, serve)?;
    Ok(())
}

/// What is written down for the next server, with the rules in a file.
fn ledger_of(file: &str) -> io::Result<Ledger> {
    let ledger = Ledger::new()?;
    ledger.takes_rules(&fs::read(file)?)?;
    Ok(ledger)
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
