//! Asks the servers of all mounts at once.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::control::{AskError, Client, Status};
use crate::failure::Failure;
use crate::list::{self, Found};
use crate::metrics::{cleaned_status, detached};
use crate::mounts::{self, Mounts, shown};
use crate::umount;

/// So many servers are asked at once. One that hangs holds up a thread for the seconds that it is waited for.
const THREADS: usize = 16;
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
}

/// Finds mounts and asks their servers: those at these mount points, or all. What is not asked in time is silent.
///
/// # Errors
/// Where the list of mounts cannot be read, or one that is named is no mount of shunt.
pub(crate) fn ask(mountpoints: &[PathBuf]) -> Result<Vec<Asked>, Failure> {
    let list = Mounts::read()?;
    let found = if mountpoints.is_empty() {
        list::found(&list)
    } else {
        let mounts = mountpoints.iter().map(|path| umount::find(&list, path));
        mounts.map(|mount| mount.map(Found::of)).collect::<Result<_, _>>()?
    };
    Ok(ask_all(once_each(found)))
}

/// A mount point and the connection behind it. Binds of one mount are one, and where mounts hide each other the number tells them apart.
fn once_each(found: Vec<Found>) -> Vec<(String, Found)> {
    let (mut connections, mut names) = (HashSet::new(), HashSet::new());
    let new = found.into_iter().filter(|one| connections.insert(one.connection));
    let named = new.map(|one| {
        let name = one.mount_point.as_ref().map_or_else(|| detached(one.connection), shown);
        let name = if names.insert(name.clone()) { name } else { format!("{name} #{}", one.connection) };
        (name, one)
    });
    named.collect()
}

fn ask_all(mounts: Vec<(String, Found)>) -> Vec<Asked> {
    let (mounts, next) = (Arc::new(mounts), Arc::new(AtomicUsize::new(0)));
    let (send, answers) = mpsc::channel();
    for _ in 0..THREADS.min(mounts.len()) {
        let (mounts, next, send) = (Arc::clone(&mounts), Arc::clone(&next), send.clone());
        let work = move || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some((_, found)) = mounts.get(place) else { break };
                let answer = ask_one(found);
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

/// The answers that come in time, in the order of the mounts. Threads that still wait for a server are left behind; each ends soon.
fn collect(
    mounts: &[(String, Found)],
    answers: &mpsc::Receiver<(usize, Result<Status, AskError>, Instant)>,
) -> Vec<Asked> {
    let end = Instant::now() + LIMIT;
    let mut all: Vec<Option<(Result<Status, AskError>, Instant)>> = mounts.iter().map(|_| None).collect();
    let mut missing = all.len();
    while missing > 0 {
        let left = end.saturating_duration_since(Instant::now());
        let Ok((place, answer, at)) = answers.recv_timeout(left) else { break };
        all[place] = Some((answer, at));
        missing -= 1;
    }
    let asked = all.into_iter().zip(mounts).map(|(answer, (mount, found))| {
        let (answer, at) = answer.unwrap_or_else(|| (Err(AskError::NotInTime), Instant::now()));
        Asked { mount: mount.clone(), connection: found.connection, answer, at }
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
        ];
        let names: Vec<String> = once_each(all).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["/a", "/a #2", "(detached 3)", "(detached 4)", "/a\\nb"]);
    }

    #[test]
    fn a_thousand_mounts_are_asked_at_once() {
        let found = (0..1000).map(|number| found(Some(&format!("/{number}")), u64::MAX - number)).collect();
        let started = Instant::now();
        let asked = ask_all(once_each(found));
        assert!(asked.iter().enumerate().all(|(place, one)| one.mount == format!("/{place}")));
        assert!(asked.len() == 1000 && started.elapsed() < LIMIT, "{:?}", started.elapsed());
    }

    #[test]
    fn a_connection_without_a_server_is_said_to_be_one() {
        let asked = ask_all(once_each(vec![found(Some("/a"), u64::MAX), found(Some("/b"), u64::MAX - 1)]));
        let mounts: Vec<&str> = asked.iter().map(|one| one.mount.as_str()).collect();
        assert_eq!(mounts, ["/a", "/b"]);
        assert!(asked.iter().all(|one| matches!(one.answer, Err(AskError::NoServer))), "{asked:?}");
    }
}
