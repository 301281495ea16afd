//! All at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::mm::ProtFlags;
use shuntfs_redact::Redaction;
use shuntfs_testkit::lower::LowerKind;
use shuntfs_testkit::mounted::{Flow, Transport};
use shuntfs_testkit::photo::{Order, photo};
use shuntfs_testkit::raw::Mapping;
use shuntfs_testkit::say;
use shuntfs_testkit::seeded::Random;

use crate::gallery::{Gallery, OWNER, Piece, SECOND, THIRD, put, user, without};
use shuntfs_testkit::viewer::Way;

/// How long each race goes on, in seconds.
fn seconds() -> u64 {
    std::env::var("SHUNTFS_RACE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// What came of all the looks.
#[derive(Default)]
struct Tally {
    looks: AtomicU64,
    refused: AtomicU64,
    /// By error number, who, and what was tried.
    errors: Mutex<BTreeMap<(i32, u32, String), u64>>,
    wrong: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Tally {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn error(&self, error: &io::Error, uid: u32, what: &str) {
        let key = (error.raw_os_error().unwrap_or(0), uid, what.to_owned());
        *held(&self.errors).entry(key).or_default() += 1;
    }

    fn wrong(&self, text: String) {
        held(&self.wrong).push(text);
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody looks at pieces by all ways, in any order, and holds some open while looking at others.
fn look(gallery: &Gallery, uid: u32, seed: u64, tally: &Tally, sees: impl Fn(&Piece) -> Vec<Vec<u8>>) {
    let (random, out) = (&mut Random::new(seed), gallery.at("out"));
    let mut held: Vec<(usize, File)> = Vec::new();
    while !tally.is_over() {
        let place = random.below(gallery.pieces.len());
        let piece = &gallery.pieces[place];
        let way = Way::ALL[random.below(Way::ALL.len())];
        if way == Way::Run && !piece.runs {
            continue;
        }
        let path = gallery.at(&piece.name);
        let seen = match random.below(8) {
            0 => {
                if let Ok(file) = File::open(&path) {
                    held.push((place, file));
                }
                continue;
            }
            1 if !held.is_empty() => {
                let (place, file) = held.swap_remove(random.below(held.len()));
                check(&gallery.pieces[place], way.look_at(&file, &out), uid, way, tally, &sees);
                continue;
            }
            _ => way.look(&path, &out),
        };
        check(piece, seen, uid, way, tally, &sees);
    }
}

fn check(
    piece: &Piece,
    seen: io::Result<Vec<u8>>,
    uid: u32,
    way: Way,
    tally: &Tally,
    sees: &impl Fn(&Piece) -> Vec<Vec<u8>>,
) {
    tally.looks.fetch_add(1, Ordering::Relaxed);
    match seen {
        Ok(seen) if is_of(&seen, &sees(piece)) => {}
        Ok(seen) => {
            let place = sees(piece)[0].iter().zip(&seen).position(|(one, other)| one != other);
            tally.wrong(format!(
                "{} by {way:?} as {uid}: {} bytes, differs at {place:?}; is the whole: {}",
                piece.name,
                seen.len(),
                seen == piece.whole
            ));
        }
        Err(error) => tally.error(&error, uid, &format!("{way:?}")),
    }
}

/// Whether each byte is one of what may be seen at its place. Who reads while a file is rewritten may get some of what
/// it was and some of what it became, here as anywhere.
fn is_of(seen: &[u8], versions: &[Vec<u8>]) -> bool {
    versions.iter().any(|version| version.len() == seen.len())
        && (0..seen.len()).all(|at| versions.iter().any(|version| version.get(at) == seen.get(at)))
}

/// Somebody who may see nothing tries everything.
fn try_all(gallery: &Gallery, seed: u64, tally: &Tally) {
    let (random, out) = (&mut Random::new(seed), gallery.at("out"));
    while !tally.is_over() {
        let piece = &gallery.pieces[random.below(gallery.pieces.len())];
        let way = Way::ALL[random.below(Way::ALL.len())];
        match way.look(&gallery.at(&piece.name), &out) {
            Ok(_) => tally.wrong(format!("{} by {way:?} as {THIRD}", piece.name)),
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                tally.refused.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => tally.error(&error, THIRD, &format!("{way:?}")),
        }
    }
}

fn report(gallery: &Gallery, what: &str, tally: &Tally, expected: &[i32]) -> Result<()> {
    let (looks, refused) = (tally.looks.load(Ordering::Relaxed), tally.refused.load(Ordering::Relaxed));
    let (errors, wrong) = (held(&tally.errors).clone(), held(&tally.wrong).clone());
    say(&format!("{what}: {looks} looks, {refused} refused, errors {errors:?}"));
    ensure!(wrong.is_empty(), "{what}: {}\n{}", wrong.join("\n"), gallery.mount.log());
    ensure!(looks > 100 && refused > 10, "{what}: a race of {looks} looks and {refused} refusals");
    ensure!(errors.keys().all(|(error, ..)| expected.contains(error)), "{what}: errors {errors:?}");
    ensure!(!gallery.mount.was_bitten());
    Ok(())
}

fn cells() -> Vec<(Transport, Flow, LowerKind)> {
    let mut cells: Vec<_> =
        Transport::ALL.map(|transport| (transport, Flow::Passthrough, LowerKind::Ext4)).into();
    cells.push((Transport::Device, Flow::Served, LowerKind::Tmpfs));
    cells
}

#[test]
fn nobody_ever_sees_a_byte_that_is_not_theirs() -> Result<()> {
    for (transport, flow, kind) in cells() {
        let Some(gallery) = Gallery::open(transport, flow, kind)? else { continue };
        let (tally, end) = (Tally::default(), Instant::now() + Duration::from_secs(seconds()));
        thread::scope(|scope| {
            for seed in 0..3 {
                let (gallery, tally) = (&gallery, &tally);
                scope.spawn(move || {
                    user(OWNER).run(|| look(gallery, OWNER, seed, tally, |piece| vec![piece.whole.clone()]));
                });
                scope.spawn(move || {
                    let sees = |piece: &Piece| vec![piece.partial.clone()];
                    user(SECOND).run(|| look(gallery, SECOND, seed + 100, tally, sees));
                });
                scope.spawn(move || user(THIRD).run(|| try_all(gallery, seed + 200, tally)));
            }
            while Instant::now() < end && !tally.is_over() {
                thread::sleep(Duration::from_millis(20));
            }
            tally.stop.store(true, Ordering::Relaxed);
        });
        report(&gallery, &format!("{transport:?} {flow:?} on {kind}"), &tally, &[])?;
    }
    Ok(())
}

/// A photo that is rewritten again and again: now the place is told here, now there, in one length.
struct Moving {
    path: PathBuf,
    versions: [Vec<u8>; 2],
}

impl Moving {
    fn make(gallery: &mut Gallery) -> Result<Self> {
        let mut versions = [photo(Order::Big, 40, 40)?, photo(Order::Little, 90, 90)?];
        let len = versions[0].len().max(versions[1].len()).next_multiple_of(4096);
        versions.iter_mut().for_each(|version| version.resize(len, 0));
        let name = "photos/moving.jpg".to_owned();
        put(&gallery.source.join(&name), &versions[0])?;
        gallery.pieces = vec![Piece { name, whole: versions[0].clone(), partial: Vec::new(), runs: false }];
        Ok(Self { path: gallery.at("photos/moving.jpg"), versions })
    }

    /// Rewrites it: by writes, or by stores through a mapping that outlives its descriptor.
    fn rewrite(&self, turn: usize) -> io::Result<()> {
        let version = &self.versions[turn % 2];
        let file = File::options().read(true).write(true).open(&self.path)?;
        match turn % 3 {
            0 => file.write_all_at(version, 0),
            1 => {
                for (piece, bytes) in version.chunks(1000).enumerate().rev() {
                    file.write_all_at(bytes, piece as u64 * 1000)?;
                }
                Ok(())
            }
            _ => store(file, version),
        }
    }
}

fn store(file: File, version: &[u8]) -> io::Result<()> {
    let mapping = Mapping::new(&file, version.len(), ProtFlags::READ | ProtFlags::WRITE, true)?;
    drop(file);
    for (piece, bytes) in version.chunks(777).enumerate() {
        mapping.store(piece * 777, bytes);
    }
    Ok(())
}

fn rewrite(moving: &Moving, tally: &Tally) {
    let mut turn = 0;
    while !tally.is_over() {
        match moving.rewrite(turn) {
            Ok(()) => turn += 1,
            Err(error) => tally.error(&error, OWNER, &format!("rewriting {}", turn % 3)),
        }
        thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn a_place_that_moves_is_never_seen() -> Result<()> {
    for (transport, flow, kind) in cells() {
        let Some(mut gallery) = Gallery::open(transport, flow, kind)? else { continue };
        let moving = Moving::make(&mut gallery)?;
        let partials: Vec<_> =
            moving.versions.iter().map(|version| without(&Redaction::ExifGps, version)).collect();
        let (tally, end) = (Tally::default(), Instant::now() + Duration::from_secs(seconds()));
        thread::scope(|scope| {
            let (gallery, tally, moving, partials) = (&gallery, &tally, &moving, &partials);
            scope.spawn(move || user(OWNER).run(|| rewrite(moving, tally)));
            for seed in 0..3 {
                scope.spawn(move || {
                    user(SECOND).run(|| look(gallery, SECOND, seed, tally, |_| partials.clone()))
                });
                scope.spawn(move || user(THIRD).run(|| try_all(gallery, seed + 200, tally)));
            }
            while Instant::now() < end && !tally.is_over() {
                thread::sleep(Duration::from_millis(20));
            }
            tally.stop.store(true, Ordering::Relaxed);
        });
        report(&gallery, &format!("moving, {transport:?} {flow:?} on {kind}"), &tally, &[libc::EBUSY])?;
    }
    Ok(())
}
