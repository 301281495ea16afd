//! A file on a disk that forgets: what was not made durable is, after a power cut, there or not, sector by sector.
//!
//! ```text
//! cargo run --release --example powercut -- FILE MNT [CUTS]
//! shunt export --writable MNT disk.raw     # work with it, then: shunt umount disk.raw, Ctrl-C here
//! qemu-img check FILE.cut.0                # and 1, 2, ...
//! ```
//!
//! MNT, a file, shows the bytes of FILE, which itself stays as it is. At the end, FILE.cut.N are states that the disk may be in
//! after a cut at some time of the work. This is what holds a program to its `fsync`s: the tests of disk images use it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use shuntfs::{MountOptions, Session, SessionOptions, Signals};

mod disk;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("powercut: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(file), Some(place)) = (args.next(), args.next()) else {
        return Err("usage: powercut FILE MNT [CUTS]".into());
    };
    let cuts: u64 = args.next().map_or(Ok(10), |text| text.to_string_lossy().parse())?;
    let signals = Signals::block()?;
    let base = std::fs::read(&file)?;
    let disk = Arc::new(disk::PowerCut::new(base.clone()));
    let mount = MountOptions { source: "powercut".into(), ..MountOptions::default() };
    let session = Session::mount(Arc::clone(&disk), Path::new(&place), &mount, &SessionOptions::default())?;
    session.run(&signals)?;
    let log = disk.log();
    println!(
        "{} changes, {} times made durable",
        log.len(),
        log.iter().filter(|op| **op == disk::Op::Sync).count()
    );
    // A generator of numbers that needs no crate (Marsaglia's xorshift).
    let mut number = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = move |end: usize| {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        usize::try_from(number % end.max(1) as u64).unwrap_or_default()
    };
    for cut in 0..cuts {
        let upto = below(log.len() + 1);
        let state = disk::after_cut(&base, &log, upto, &mut below);
        let mut path = PathBuf::from(&file).into_os_string();
        path.push(format!(".cut.{cut}"));
        std::fs::write(&path, state)?;
        println!("{}: after {upto} changes", path.display());
    }
    Ok(())
}
