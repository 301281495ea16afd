//! Waiting for disks that do not exist yet when a mount of several folders starts.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::list::of_source;
use crate::failure::Failure;
use crate::mounts::shown;

/// How often it is checked whether they are there.
const LOOK: Duration = Duration::from_millis(200);

/// Waits until each branch is there, on another file system than the folder around the mount point: an empty folder where a disk must be
/// mounted is no branch yet.
///
/// # Errors
/// What is missing when the time is over; what is wrong with the list, at once.
pub(crate) fn wait_for(source: &Path, mountpoint: &Path, limit: Duration) -> Result<(), Failure> {
    let end = Instant::now() + limit;
    loop {
        let Err(missing) = look(source, mountpoint) else { return Ok(()) };
        if missing.kind() == crate::failure::Kind::Usage {
            return Err(missing);
        }
        if Instant::now() >= end {
            let text = format!("after {} seconds {missing}", limit.as_secs_f32());
            return Err(Failure::new(text));
        }
        std::thread::sleep(LOOK);
    }
}

fn look(source: &Path, mountpoint: &Path) -> Result<(), Failure> {
    let Some(branches) = of_source(source)? else { return Ok(()) };
    let own = fs::metadata(mountpoint).map(|metadata| metadata.dev()).ok();
    for branch in branches {
        let path = shown(&branch.path);
        match fs::metadata(&branch.path) {
            Err(error) => return Err(Failure::new(format!("{path} is not there: {error}"))),
            Ok(metadata) if Some(metadata.dev()) == own => {
                return Err(Failure::new(format!("nothing is mounted at {path}, or around it")));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn branches_are_waited_for_until_they_are_on_another_file_system() {
        let (folder, limit) = (tempfile::tempdir().unwrap(), Duration::from_secs(20));
        let here = folder.path().to_str().unwrap();
        let other = tempfile::tempdir_in("/dev/shm").unwrap();
        let late = other.path().join("late");
        let list = format!("{}:{}", other.path().display(), late.display());
        let (list, mountpoint) = (Path::new(&list), folder.path());
        let said = wait_for(list, mountpoint, Duration::ZERO).unwrap_err().to_string();
        assert!(said.contains("late is not there"), "{said}");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait_for(list, mountpoint, limit));
            std::thread::sleep(2 * LOOK);
            fs::create_dir(&late).unwrap();
            waiting.join().unwrap().unwrap();
        });
        let list = format!("{here}:{}", other.path().display());
        let said = wait_for(Path::new(&list), mountpoint, Duration::ZERO).unwrap_err().to_string();
        assert!(said.contains("nothing is mounted"), "{said}");
        let start = Instant::now();
        let wrong = format!("{here}=ro:{here}");
        assert!(wait_for(Path::new(&wrong), mountpoint, limit).is_err() && start.elapsed() < limit);
    }
}
