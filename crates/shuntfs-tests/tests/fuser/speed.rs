//! What the same file system costs with fuser itself and with `shuntfs-fuser`, one after the other in each round. Prints the table of
//! `docs/fuser.md`, and asserts nothing of times.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use shuntfs_testkit::mounted::Transport;
use shuntfs_testkit::{say, serial};

use crate::build::{Package, Target, build, fuser_as_ours};
use crate::server::{How, Server};

const LIMIT: Duration = Duration::from_secs(300);
const ROUNDS: usize = 9;
const STATS: usize = 20_000;
const READS: usize = 20_000;
const CREATES: usize = 4_000;
const SIZE: usize = 256 << 20;

/// What one round costs: the time of a stat, of a read of 4 KiB past the cache, of 1 MiB through it, of a creation.
type Costs = [Duration; 4];
const NAMES: [&str; 4] =
    ["`stat`, one GETATTR", "read of 4 KiB, direct", "sequential read, each MiB", "create and close"];

#[test]
fn the_same_file_system_with_fuser_and_with_ours() -> Result<()> {
    let published = "fuser = \"=0.18.0\"".to_owned();
    let mut programs = Vec::new();
    for (name, fuser) in [("speed-of-fuser", published), ("speed-of-ours", fuser_as_ours())] {
        let manifest = format!(
            "version = \"0.0.0\"\nedition = \"2024\"\npublish = false\n[workspace]\n[dependencies]\n{fuser}\n\
             [profile.release]\ndebug = 0\n"
        );
        let targets =
            vec![Target { name: name.to_owned(), kind: "bin", source: None, path: "src/speed.rs".into() }];
        let files = [("src/speed.rs", include_str!("speed_fs.rs.txt"))];
        let package = Package { name, manifest: &manifest, targets, files: &files };
        let Some(built) = build(&package, &["build", "--quiet", "--release", "--bins"])? else {
            return Ok(());
        };
        programs.push(built.released(name)?);
    }
    let _serial = serial();
    let ours = Transport::ALL.into_iter().filter(|transport| transport.is_available());
    let ways: Vec<_> = std::iter::once(None).chain(ours.map(Some)).collect();
    let how = How { queues: None, ..How::default() };
    let mut all: Vec<Vec<Costs>> = vec![Vec::new(); ways.len()];
    for round in 0..ROUNDS {
        for place in 0..ways.len() {
            // Nobody is always first.
            let way = (place + round) % ways.len();
            let program = &programs[usize::from(ways[way].is_some())];
            let words = |point: &Path| vec![point.display().to_string()];
            let server = Server::start_by(how, program, ways[way], LIMIT, words)?;
            all[way].push(costs(&server.path())?);
            server.end(true)?;
        }
    }
    say(&table(&ways, &all)?);
    Ok(())
}

fn costs(folder: &Path) -> Result<Costs> {
    let stat = folder.join("stat");
    let stats = timed(STATS, |_| fs::metadata(&stat).map(|_| ()))?;
    let direct = File::open(folder.join("direct"))?;
    let mut page = [0; 4096];
    let reads = timed(READS, |index| direct.read_exact_at(&mut page, (index * 4096) as u64))?;
    let cached = File::open(folder.join("cached"))?;
    let mut piece = vec![0; 1 << 20];
    let pieces = timed(SIZE >> 20, |index| cached.read_exact_at(&mut piece, (index << 20) as u64))?;
    ensure!(page == [7; 4096] && piece.iter().all(|byte| *byte == 7), "the bytes");
    let creates = timed(CREATES, |index| File::create_new(folder.join(index.to_string())).map(drop))?;
    Ok([stats, reads, pieces, creates])
}

/// How long each of so many takes.
fn timed(count: usize, mut work: impl FnMut(usize) -> io::Result<()>) -> Result<Duration> {
    let start = Instant::now();
    (0..count).try_for_each(&mut work)?;
    Ok(start.elapsed() / u32::try_from(count)?)
}

/// The median of each cost, and the median of what it is of fuser's in the same round.
fn table(ways: &[Option<Transport>], all: &[Vec<Costs>]) -> Result<String> {
    let mut text = String::from("| |");
    for way in ways {
        write!(text, " {} |", way.map_or("fuser", Transport::name))?;
    }
    write!(text, "\n|---|{}", "---|".repeat(ways.len()))?;
    for (index, name) in NAMES.iter().enumerate() {
        write!(text, "\n| {name} |")?;
        for (way, costs) in all.iter().enumerate() {
            let micros = |costs: &Costs| costs[index].as_secs_f64() * 1e6;
            let cost = median(costs.iter().map(micros).collect());
            let ratio =
                median(costs.iter().zip(&all[0]).map(|(own, first)| micros(own) / micros(first)).collect());
            match way {
                0 => write!(text, " {cost:.1} µs |")?,
                _ => write!(text, " {cost:.1} µs, {:.0} % |", ratio * 100.0)?,
            }
        }
    }
    Ok(text)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
