//! Asks the servers of all mounts at once. Other users' servers may be anything, and must not keep it from the rest.

mod turns;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shuntfs_sys::spawn::effective_uid;
use turns::Turns;

use crate::control::{AskError, Client, Load, Status};
use crate::failure::Failure;
use crate::list::{self, Found};
use crate::metrics::{cleaned_status, detached};
use crate::mounts::{self, Mounts, shown};
use crate::umount;

/// So many servers are asked at once. One that hangs holds up a thread for the seconds that it is waited for.
const THREADS: usize = 16;
/// So many servers count by file and process for whoever asks: each holds a connection open meanwhile.
const FOLLOWED_MAX: usize = 64;
/// So long all of them together are waited for.
const LIMIT: Duration = Duration::from_secs(10);

/// What became of asking a server.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The mount point, or what stands for it: no two are the same, and no terminal obeys it.
    pub(crate) mount: String,
    /// The number of its connection.
    pub(crate) connection: u64,
    /// What its server says, cleaned, or why it says nothing.
    pub(crate) answer: Result<Status, AskError>,
    /// When that came.
    pub(crate) at: Instant,
    /// What files and processes asked of it since the last time, or why that is not known; `None` where it is not followed.
    pub(crate) load: Option<Result<Load, String>>,
}

/// Whose files and processes must be known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Follow {
    /// How soon this will be asked again.
    pub(crate) interval: Duration,
    /// The one connection that is followed; all, where there is none.
    pub(crate) only: Option<u64>,
}

/// Who asks, again and again. A server that still owes an answer is not asked again, so that one that never answers holds up one
/// thread and not one more each time.
#[derive(Clone, Default, Debug)]
pub(crate) struct Survey {
    /// The connections that are being asked.
    open: Arc<Mutex<HashSet<u64>>>,
    /// The servers that count by file and process, by their connections. They do so until these are dropped.
    followed: Arc<Mutex<HashMap<u64, Client>>>,
}

impl Survey {
    /// Finds mounts and asks their servers: those at these mount points, or all. What is not asked in time is silent. Servers that are not to be
    /// followed any more cease to count.
    ///
    /// # Errors
    /// Where the list of mounts cannot be read, or one that is named is no mount of shunt.
    pub(crate) fn ask(&self, mountpoints: &[PathBuf], follow: Option<Follow>) -> Result<Vec<Asked>, Failure> {
        let list = Mounts::read()?;
        let found = if mountpoints.is_empty() {
            list::found(&list)
        } else {
            let mounts = mountpoints.iter().map(|path| umount::find(&list, path));
            mounts.map(|mount| mount.map(Found::of)).collect::<Result<_, _>>()?
        };
        let ask = Ask { status: ask_one, follow };
        let is_asked = |connection: &u64| found.iter().any(|one| one.connection == *connection);
        locked(&self.followed).retain(|connection, _| ask.follows(*connection) && is_asked(connection));
        Ok(self.ask_all(once_each(found), ask))
    }

    fn ask_all(&self, mounts: Vec<(String, Found)>, ask: Ask) -> Vec<Asked> {
        let own = effective_uid();
        let strangers =
            mounts.iter().map(|(_, found)| found.owners.iter().copied().find(|uid| ![0, own].contains(uid)));
        let (turns, mounts) = (Arc::new(Mutex::new(Turns::new(strangers))), Arc::new(mounts));
        let (send, answers) = mpsc::channel();
        for _ in 0..THREADS.min(mounts.len()) {
            let (survey, mounts, turns, send) =
                (self.clone(), Arc::clone(&mounts), Arc::clone(&turns), send.clone());
            let work = move || {
                loop {
                    // Those that must wait for their turn are taken by the threads that ask the same user's servers.
                    let Some(place) = locked(&turns).next() else { break };
                    let answer = survey.ask_once(&mounts[place].1, ask);
                    locked(&turns).done(place);
                    if send.send((place, answer, Instant::now())).is_err() {
                        break;
                    }
                }
            };
            if std::thread::Builder::new().name("shunt-ask".into()).spawn(work).is_err() {
                break;
            }
        }
        drop(send);
        collect(&mounts, &answers)
    }

    fn ask_once(&self, found: &Found, ask: Ask) -> Answer {
        if !locked(&self.open).insert(found.connection) {
            return (Err(AskError::NotInTime), None);
        }
        let answer = (ask.status)(found);
        let follow = ask.follow.filter(|_| answer.is_ok() && ask.follows(found.connection));
        let load = follow.map(|follow| self.load_of(found, follow.interval));
        locked(&self.open).remove(&found.connection);
        (answer, load)
    }

    fn load_of(&self, found: &Found, interval: Duration) -> Result<Load, String> {
        let known = locked(&self.followed).remove(&found.connection);
        let again = known.and_then(|mut client| Some((client.load(interval).ok()?, client)));
        // A server that has another life is asked anew.
        let (load, client) = match again {
            Some(again) => again,
            None if locked(&self.followed).len() >= FOLLOWED_MAX => {
                return Err(format!("only those of {FOLLOWED_MAX} mounts are shown"));
            }
            None => {
                let client = Client::of_connection(found.connection, &found.owners);
                let first = client.and_then(|mut client| Ok((client.load(interval)?, client)));
                first.map_err(|error| match error {
                    AskError::Refused(why) => why,
                    other => other.to_string(),
                })?
            }
        };
        locked(&self.followed).insert(found.connection, client);
        Ok(load)
    }
}

/// How servers are asked.
#[derive(Clone, Copy, Debug)]
struct Ask {
    status: fn(&Found) -> Result<Status, AskError>,
    follow: Option<Follow>,
}

impl Ask {
    fn follows(&self, connection: u64) -> bool {
        self.follow.is_some_and(|follow| follow.only.is_none_or(|only| only == connection))
    }
}

/// What comes of asking one.
type Answer = (Result<Status, AskError>, Option<Result<Load, String>>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mount point and the connection behind it. Binds of one mount are one, and where mounts hide each other the number tells them apart.
fn once_each(found: Vec<Found>) -> Vec<(String, Found)> {
    let (mut connections, mut names) = (HashSet::new(), HashSet::new());
    let new = found.into_iter().filter(|one| connections.insert(one.connection));
    let named = new.map(|one| {
        let mut name = one.mount_point.as_ref().map_or_else(|| detached(one.connection), shown);
        // A mount point may be named like another one with its number.
        while !names.insert(name.clone()) {
            name.push_str(&format!(" #{}", one.connection));
        }
        (name, one)
    });
    named.collect()
}

/// The answers that come in time, in the order of the mounts. Threads that still wait for a server are left behind; each ends soon.
fn collect(mounts: &[(String, Found)], answers: &mpsc::Receiver<(usize, Answer, Instant)>) -> Vec<Asked> {
    let end = Instant::now() + LIMIT;
    let mut all: Vec<Option<(Answer, Instant)>> = mounts.iter().map(|_| None).collect();
    let mut missing = all.len();
    while missing > 0 {
        let left = end.saturating_duration_since(Instant::now());
        let Ok((place, answer, at)) = answers.recv_timeout(left) else { break };
        all[place] = Some((answer, at));
        missing -= 1;
    }
    let asked = all.into_iter().zip(mounts).map(|(answer, (mount, found))| {
        let ((answer, load), at) =
            answer.unwrap_or_else(|| ((Err(AskError::NotInTime), None), Instant::now()));
        Asked { mount: mount.clone(), connection: found.connection, answer, at, load }
    });
    asked.collect()
}

fn ask_one(found: &Found) -> Result<Status, AskError> {
    let status = Client::of_connection(found.connection, &found.owners)?.status()?;
    cleaned_status(&status).map_err(|failure| AskError::Refused(failure.to_string()))
}

impl Found {
    /// A mount of the list.
    pub(crate) fn of(mount: &shuntfs_sys::mount::MountInfo) -> Self {
        Self {
            mount_point: Some(mount.mount_point.clone()),
            source: mount.source.clone(),
            connection: mounts::connection(mount).unwrap_or_default(),
            owners: Vec::from_iter(mounts::owner(mount)),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const EACH: Ask = Ask { status: ask_one, follow: None };

    fn found(mount_point: Option<&str>, connection: u64) -> Found {
        Found {
            mount_point: mount_point.map(PathBuf::from),
            source: String::new(),
            connection,
            owners: Vec::new(),
        }
    }

    #[test]
    fn no_two_mounts_have_one_name() {
        let all = vec![
            found(Some("/a"), 1),
            found(Some("/a"), 2),
            found(Some("/bind"), 1),
            found(None, 3),
            found(None, 4),
            found(Some("/a\nb"), 5),
            found(Some("/b #7"), 6),
            found(Some("/b"), 8),
            found(Some("/b"), 7),
        ];
        let names: Vec<String> = once_each(all).into_iter().map(|(name, _)| name).collect();
        let expected = ["/a", "/a #2", "(detached 3)", "(detached 4)", "/a\\nb", "/b #7", "/b", "/b #7 #7"];
        assert_eq!(names, expected);
    }

    /// A user's servers that never answer kept root from hearing of all other mounts.
    #[test]
    fn servers_that_do_not_answer_keep_others_from_nothing_and_are_asked_once() {
        fn status(found: &Found) -> Result<Status, AskError> {
            if found.owners == [4_000_000] {
                std::thread::sleep(Duration::from_secs(2));
                return Err(AskError::Silent { pid: 1 });
            }
            Err(AskError::NoServer)
        }
        let owned = |connection, uid| Found { owners: vec![uid], ..found(Some("/x"), connection) };
        let strangers = (0..8).map(|number| owned(number, 4_000_000));
        let mounts = once_each(strangers.chain([owned(100, 0), owned(101, 4_000_001)]).collect());
        let ask = Ask { status, follow: None };
        let survey = Survey::default();
        let heard = Instant::now();
        let asking = {
            let survey = survey.clone();
            std::thread::spawn(move || survey.ask_all(mounts, ask))
        };
        std::thread::sleep(Duration::from_millis(500));
        let open = locked(&survey.open).len();
        assert!(open <= turns::OF_STRANGER && open > 0, "{open}");
        let again = survey.ask_all(once_each((0..4).map(|number| owned(number, 4_000_000)).collect()), ask);
        assert!(again.iter().all(|one| matches!(one.answer, Err(AskError::NotInTime))), "{again:?}");
        let asked = asking.join().expect("ends");
        let at = |connection| asked.iter().find(|one| one.connection == connection).expect("is there");
        for connection in [100, 101] {
            let one = at(connection);
            assert!(matches!(one.answer, Err(AskError::NoServer)), "{one:?}");
            assert!(one.at.duration_since(heard) < Duration::from_secs(2), "{one:?}");
        }
        assert!(locked(&survey.open).len() <= turns::OF_STRANGER);
    }

    #[test]
    fn a_thousand_mounts_are_asked_at_once() {
        let found = (0..1000).map(|number| found(Some(&format!("/{number}")), u64::MAX - number)).collect();
        let started = Instant::now();
        let asked = Survey::default().ask_all(once_each(found), EACH);
        assert!(asked.iter().enumerate().all(|(place, one)| one.mount == format!("/{place}")));
        assert!(asked.len() == 1000 && started.elapsed() < LIMIT, "{:?}", started.elapsed());
    }

    #[test]
    fn a_connection_without_a_server_is_said_to_be_one() {
        let asked = Survey::default()
            .ask_all(once_each(vec![found(Some("/a"), u64::MAX), found(Some("/b"), u64::MAX - 1)]), EACH);
        let mounts: Vec<&str> = asked.iter().map(|one| one.mount.as_str()).collect();
        assert_eq!(mounts, ["/a", "/b"]);
        assert!(asked.iter().all(|one| matches!(one.answer, Err(AskError::NoServer))), "{asked:?}");
    }
}
