//! The screen, until somebody has seen enough.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use shuntfs_sys::event::{has_ended, wait_readable};
use shuntfs_sys::{OsError, Signal, SignalFd};

use super::draw::{self, View};
use super::rates::{self, Rates};
use crate::failure::Failure;
use crate::survey::{Asked, Follow, Survey};

/// How long a signal, or news, may wait for the keyboard.
const LOOK: Duration = Duration::from_millis(100);

/// What is new.
type News = Result<Vec<Rates>, Failure>;

/// Where no mount was picked yet: the busiest will be, whichever that is.
const NOT_YET: u64 = u64::MAX;

/// What is asked for: mounts, how often, and of which one files and processes must be known.
struct Question {
    paths: Vec<PathBuf>,
    interval: Duration,
    /// The connection of the mount that is shown in full. Others need not count for us.
    picked: Arc<AtomicU64>,
}

impl Question {
    fn ask(&self, survey: &Survey) -> Result<Vec<Asked>, Failure> {
        let only = Some(self.picked.load(Ordering::Relaxed)).filter(|connection| *connection != NOT_YET);
        survey.ask(&self.paths, Some(Follow { interval: self.interval, only }))
    }
}

/// What a key is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    End,
    Up,
    Down,
    First,
    Last,
}

/// Shows what the mounts do.
///
/// # Errors
/// Where the mounts cannot be asked at the start, and where the terminal cannot be drawn on.
pub(super) fn run(paths: Vec<PathBuf>, interval: Duration) -> Result<(), Failure> {
    let survey = Survey::default();
    let picked = Arc::new(AtomicU64::new(NOT_YET));
    let question = Question { paths, interval, picked: Arc::clone(&picked) };
    let first = question.ask(&survey)?;
    // Before the next thread, so that every thread leaves them to this one: the terminal must be put back. SIGHUP ends the process
    // as ever, because there is no terminal any more.
    let signals = SignalFd::new(&[Signal::Int, Signal::Term])
        .map_err(|error| Failure::new(format!("cannot take signals: {}", io::Error::from(error))))?;
    let mut view =
        View { mounts: rates::all(&[], &first), interval_s: interval.as_secs_f64(), ..View::default() };
    let (tell, news) = mpsc::sync_channel(1);
    let (_stays, over) = mpsc::channel::<()>();
    let ask = move || ask(&survey, &question, first, (&tell, &over));
    std::thread::Builder::new()
        .name("shunt-top".into())
        .spawn(ask)
        .map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
    let shown = show(&mut view, &news, &signals, &picked);
    ratatui::restore();
    shown.map_err(|error| Failure::new(format!("cannot draw on the terminal: {error}")))
}

/// Asks at each interval, until nobody listens.
fn ask(
    survey: &Survey,
    question: &Question,
    mut before: Vec<Asked>,
    (tell, over): (&SyncSender<News>, &Receiver<()>),
) {
    let mut due = Instant::now() + question.interval;
    loop {
        let wait = due.saturating_duration_since(Instant::now());
        if over.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        due = Instant::now() + question.interval;
        let news = question.ask(survey).map(|now| {
            let rates = rates::all(&before, &now);
            before = now;
            rates
        });
        if tell.send(news).is_err() {
            return;
        }
    }
}

fn show(view: &mut View, news: &Receiver<News>, signals: &SignalFd, picked: &AtomicU64) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    loop {
        loop {
            match news.try_recv() {
                Ok(news) => take(view, news),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other("nobody asks the servers any more"));
                }
            }
        }
        tell_picked(view, picked);
        terminal.draw(|frame| draw::screen(view, frame.area(), frame.buffer_mut()))?;
        if is_over(signals)? {
            return Ok(());
        }
        if event::poll(Duration::ZERO)? {
            match wish_of(&event::read()?) {
                Some(Wish::End) => return Ok(()),
                Some(wish) => pick(view, wish),
                None => {}
            }
        }
    }
}

/// Says which mount is shown in full.
fn tell_picked(view: &View, picked: &AtomicU64) {
    let has_rates = view.mounts.iter().any(|mount| mount.interval_s > 0.0);
    let mount = view.mounts.get(view.selected).filter(|_| has_rates);
    picked.store(mount.map_or(NOT_YET, |mount| mount.connection), Ordering::Relaxed);
}

/// Waits for a key, a signal or a moment; whether it is time to end. A terminal that hung up is never asked for keys: crossterm reads
/// its end again and again, and does not come back.
fn is_over(signals: &SignalFd) -> io::Result<bool> {
    let stdin = io::stdin();
    match wait_readable(&[signals.as_fd(), stdin.as_fd()], Some(LOOK)) {
        Ok(_) | Err(OsError::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(!matches!(signals.take(), Ok(None)) || has_ended(stdin.as_fd())?)
}

/// Takes what is new; the mount that was picked stays so. A mount that is gone is said to be, and may come back.
fn take(view: &mut View, news: News) {
    let is_first = view.mounts.iter().all(|mount| mount.interval_s <= 0.0);
    let picked = view.mounts.get(view.selected).map(|mount| mount.mount.clone());
    (view.mounts, view.note) = match news {
        Ok(mounts) => (mounts, None),
        Err(failure) => (Vec::new(), Some(failure.to_string())),
    };
    // The first rates say which mount is worth a look.
    let picked = picked.filter(|_| !is_first).or_else(|| busiest(&view.mounts));
    let same = view.mounts.iter().position(|mount| Some(&mount.mount) == picked.as_ref());
    view.selected = same.unwrap_or(view.selected).min(view.mounts.len().saturating_sub(1));
}

fn busiest(mounts: &[Rates]) -> Option<String> {
    let busiest = mounts.iter().max_by(|one, other| one.ops_per_s.total_cmp(&other.ops_per_s));
    busiest.map(|mount| mount.mount.clone())
}

fn pick(view: &mut View, wish: Wish) {
    let last = view.mounts.len().saturating_sub(1);
    view.selected = match wish {
        Wish::End => view.selected,
        Wish::Up => view.selected.saturating_sub(1),
        Wish::Down => (view.selected + 1).min(last),
        Wish::First => 0,
        Wish::Last => last,
    };
}

fn wish_of(event: &Event) -> Option<Wish> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Wish::End,
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::End,
        KeyCode::Up | KeyCode::Char('k') => Wish::Up,
        KeyCode::Down | KeyCode::Char('j') => Wish::Down,
        KeyCode::Home | KeyCode::Char('g') => Wish::First,
        KeyCode::End | KeyCode::Char('G') => Wish::Last,
        _ => return None,
    })
}

#[cfg(test)]
mod test {
    use std::sync::mpsc::Sender;

    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    fn mount(name: &str) -> Rates {
        Rates { mount: name.into(), state: "mounted".into(), interval_s: 1.0, ..Rates::default() }
    }

    #[test]
    fn the_picked_mount_stays_picked() {
        let mut view = View::default();
        let busy = Rates { ops_per_s: 9.0, ..mount("/a") };
        take(&mut view, Ok(vec![mount("/0"), busy, mount("/b"), mount("/c")]));
        assert_eq!(view.selected, 1, "the busiest one");
        pick(&mut view, Wish::Down);
        take(&mut view, Ok(vec![mount("/0"), mount("/a"), mount("/b")]));
        assert_eq!(view.mounts[view.selected].mount, "/b");
        take(&mut view, Ok(vec![mount("/0")]));
        assert_eq!(view.selected, 0);
        take(&mut view, Err(Failure::new("/b is not a mount point")));
        assert!(view.mounts.is_empty() && view.note.as_deref() == Some("/b is not a mount point"));
        pick(&mut view, Wish::Last);
        take(&mut view, Ok(vec![mount("/b")]));
        assert!(view.note.is_none() && view.selected == 0);
    }

    /// All are followed until the busiest is known, and then the one that is shown alone.
    #[test]
    fn the_server_of_the_picked_mount_alone_counts_for_us() {
        let (mut view, picked) = (View::default(), AtomicU64::new(0));
        tell_picked(&view, &picked);
        assert_eq!(picked.load(Ordering::Relaxed), NOT_YET);
        let new = |connection, interval_s| Rates { connection, interval_s, ..mount("/a") };
        view.mounts = vec![new(7, 0.0), new(8, 0.0)];
        tell_picked(&view, &picked);
        assert_eq!(picked.load(Ordering::Relaxed), NOT_YET);
        take(&mut view, Ok(vec![new(7, 1.0), Rates { ops_per_s: 9.0, mount: "/b".into(), ..new(8, 1.0) }]));
        tell_picked(&view, &picked);
        assert_eq!(picked.load(Ordering::Relaxed), 8);
        pick(&mut view, Wish::First);
        tell_picked(&view, &picked);
        assert_eq!(picked.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn keys_are_known() {
        let key = |code, modifiers| wish_of(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Wish::End));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::End));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Down, KeyModifiers::NONE), Some(Wish::Down));
    }

    #[test]
    fn whoever_asks_ends_with_the_screen() {
        let (tell, news) = mpsc::sync_channel(1);
        let (stays, over): (Sender<()>, _) = mpsc::channel();
        let asking = std::thread::spawn(move || {
            let question = Question {
                paths: vec!["/".into()],
                interval: Duration::from_millis(10),
                picked: Arc::default(),
            };
            ask(&Survey::default(), &question, Vec::new(), (&tell, &over))
        });
        assert!(
            news.recv_timeout(Duration::from_secs(20)).expect("is told").is_err(),
            "/ is no mount of shunt"
        );
        drop((stays, news));
        asking.join().expect("ends");
    }
}
