//! Where control sockets are.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use shuntfs_sys::spawn::{connect_within, effective_uid};
use shuntfs_sys::{OsError, process};

const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The folders that may hold the control sockets of a user's mounts, the one where new ones are made first: which of
/// them it was depends on how the server was started.
#[must_use]
pub fn folders_of(uid: u32) -> Vec<PathBuf> {
    if uid == 0 {
        return vec![PathBuf::from("/run/shunt")];
    }
    let own = (uid == effective_uid()).then(|| std::env::var_os("XDG_RUNTIME_DIR")).flatten();
    let own = own.map(PathBuf::from).filter(|folder| folder.is_absolute());
    let of_login = PathBuf::from(format!("/run/user/{uid}"));
    // A folder that is somebody else's, or not there at all, is no place: a wrong XDG_RUNTIME_DIR (su, cron) is common.
    let places = own.into_iter().chain([of_login]).filter(|folder| is_kept_by(folder, uid));
    let mut folders: Vec<PathBuf> = places.map(|folder| folder.join("shunt")).collect();
    // Without a login session /tmp is there for everybody; the check of the owner in `made` keeps others from standing
    // in for us.
    folders.push(PathBuf::from(format!("/tmp/shunt-{uid}")));
    folders.dedup();
    folders
}

/// Whether a folder is this user's and nobody else may change the names in it. A symlink is none.
fn is_kept_by(folder: &Path, uid: u32) -> bool {
    std::fs::symlink_metadata(folder).is_ok_and(|metadata| {
        metadata.is_dir() && metadata.uid() == uid && metadata.permissions().mode() & 0o022 == 0
    })
}

/// Makes the folder of this user, and checks that it is nobody else's.
pub(super) fn made() -> io::Result<PathBuf> {
    let uid = effective_uid();
    let mut refused = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders_of(uid) {
        match made_at(&folder, uid) {
            Ok(()) => return Ok(folder),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn made_at(folder: &Path, uid: u32) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_kept_by(folder, uid) {
        return Ok(());
    }
    let text = format!("{} belongs to someone else or is open to others", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// The sockets in a folder, by connection number.
#[must_use]
pub fn sockets(folder: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let id = |name: OsString| name.to_str().and_then(|name| name.parse().ok());
    let mut found: Vec<(u64, PathBuf)> =
        entries.flatten().filter_map(|entry| Some((id(entry.file_name())?, entry.path()))).collect();
    found.sort_unstable();
    found
}

/// A socket's file: the same name may be another server's by now, because the kernel gives a connection's number
/// to the next one as soon as the mount is gone, while its server is still on its way out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
    /// Where /run is no tmpfs, inode numbers are used again at once.
    made: Option<SystemTime>,
}

impl SocketFile {
    /// The file of this name, as it is now.
    ///
    /// # Errors
    /// Where there is none.
    pub fn of(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), inode: metadata.ino(), made: metadata.created().ok() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the name still leads to it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        Self::of(&self.path).is_ok_and(|now| now == *self)
    }

    /// Whether it is a socket and nobody listens there. One at which so many wait that nobody else is admitted has a listener.
    fn is_stale(&self) -> bool {
        let is_socket =
            std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.file_type().is_socket());
        is_socket && connect_within(&self.path, Duration::ZERO).err() == Some(OsError::CONNREFUSED)
    }

    /// Removes it, and nobody else's.
    pub(super) fn remove(&self) {
        let _locked = self.path.parent().and_then(lock);
        if self.is_there() {
            let _gone_already = std::fs::remove_file(&self.path);
        }
    }
}

/// Keeps others from changing names in the folder until the file is dropped; not forever, because who holds it
/// may be stopped.
pub(super) fn lock(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// Removes sockets that nobody listens at and whose mount is gone: what a killed server left behind. Of this user alone:
/// another one may have made the folder a link to anywhere, and root would remove what it leads to.
pub fn sweep(folder: &Path, is_mounted: impl Fn(u64) -> bool) {
    if !is_kept_by(folder, effective_uid()) {
        return;
    }
    for (id, path) in sockets(folder) {
        if !is_mounted(id) {
            remove_stale(&path);
        }
    }
}

/// Removes what killed servers of a connection left: the socket of its number, and those that were to be called so.
pub(crate) fn remove_left(connection: u64) {
    for folder in folders_of(effective_uid()) {
        remove_left_in(&folder, connection);
    }
}

fn remove_left_in(folder: &Path, connection: u64) {
    if !is_kept_by(folder, effective_uid()) {
        return;
    }
    let name = connection.to_string();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let Some(rest) = found.to_str().and_then(|found| found.strip_prefix(&name)) else { continue };
        // Where a server lives that is about to listen there, it is its.
        let is_left = match rest.strip_prefix('.') {
            None => rest.is_empty(),
            Some(pid) => pid.parse().is_ok_and(|pid| !process::is_there(pid)),
        };
        if is_left {
            remove_stale(&entry.path());
        }
    }
}

/// Removes a socket that nobody listens at.
fn remove_stale(path: &Path) {
    // Which file it is comes first: by the time that is known of it, the name may be a living server's.
    if let Ok(file) = SocketFile::of(path)
        && file.is_stale()
    {
        file.remove();
    }
}

#[cfg(test)]
mod test {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_sockets_without_listener_and_mount_are_swept() {
        let folder = tempfile::tempdir().expect("a folder");
        let live = UnixListener::bind(folder.path().join("7")).expect("binds");
        drop(UnixListener::bind(folder.path().join("8")).expect("binds"));
        drop(UnixListener::bind(folder.path().join("9")).expect("binds"));
        std::fs::write(folder.path().join("note"), "kept").expect("writes");
        // connect(2) says of every file that nobody listens there.
        std::fs::write(folder.path().join("6"), "kept").expect("writes");
        sweep(folder.path(), |id| id == 9);
        let left: Vec<u64> = sockets(folder.path()).into_iter().map(|(id, _)| id).collect();
        assert_eq!(left, [6, 7, 9]);
        assert!(folder.path().join("note").exists());
        drop(live);
    }

    #[test]
    fn what_a_killed_server_left_goes_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        // No process has a number as high.
        let (dead, own) = (i32::MAX, std::process::id());
        let names = ["7".to_owned(), format!("7.{dead}"), format!("7.{own}"), "70".into(), "7.x".into()];
        for name in &names {
            drop(UnixListener::bind(folder.path().join(name)).expect("binds"));
        }
        let _next = UnixListener::bind(folder.path().join("8")).expect("binds");
        std::fs::write(folder.path().join(format!("8.{dead}")), "kept").expect("writes");
        remove_left_in(folder.path(), 7);
        remove_left_in(folder.path(), 8);
        let is_there = |name: &str| folder.path().join(name).exists();
        assert_eq!(names.map(|name| is_there(&name)), [false, false, true, true, true]);
        assert!(is_there("8") && is_there(&format!("8.{dead}")));
    }

    /// A server that was stopped kept `shunt list` waiting once its backlog was full.
    #[test]
    fn a_listener_that_takes_nobody_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("7");
        let listener = UnixListener::bind(&path).expect("binds");
        rustix::net::listen(&listener, 0).expect("listens");
        let mut inside = Vec::new();
        while let Ok(stream) = connect_within(&path, Duration::ZERO) {
            inside.push(stream);
        }
        let (done, seen) = std::sync::mpsc::channel();
        let swept = folder.path().to_owned();
        std::thread::spawn(move || {
            sweep(&swept, |_| false);
            remove_left_in(&swept, 7);
            let _heard = done.send(());
        });
        seen.recv_timeout(Duration::from_secs(10)).expect("does not wait");
        assert!(!inside.is_empty() && path.exists());
    }

    #[test]
    fn root_has_its_place_in_run() {
        assert_eq!(folders_of(0), [Path::new("/run/shunt")]);
        assert_eq!(folders_of(4_000_000), [Path::new("/tmp/shunt-4000000")]);
    }

    #[test]
    fn a_folder_that_others_may_change_is_no_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let (own, link) = (folder.path().join("own"), folder.path().join("link"));
        std::fs::create_dir(&own).expect("makes");
        std::os::unix::fs::symlink(&own, &link).expect("links");
        let uid = effective_uid();
        let mode =
            |mode| std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).expect("is ours");
        for (bits, kept) in [(0o700, true), (0o755, true), (0o770, false), (0o1777, false)] {
            mode(bits);
            assert_eq!((is_kept_by(&own, uid), made_at(&own, uid).is_ok()), (kept, kept), "{bits:o}");
        }
        mode(0o700);
        assert!(!is_kept_by(&own, uid + 1) && !is_kept_by(&link, uid));
        drop(UnixListener::bind(own.join("8")).expect("binds"));
        sweep(&link, |_| false);
        assert!(own.join("8").exists(), "a link is not followed");
        sweep(&own, |_| false);
        assert!(!own.join("8").exists());
    }
}
