//! `shunt metrics`.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::args::{FormatChoice, MetricsArgs};
use super::expose;
use super::snapshot::Snapshot;
use crate::failure::Failure;
use crate::mounts::shown;
use crate::run::{complain, output_failure};
use crate::survey::Survey;

/// Prints the counters of mounts, or writes them to a file.
///
/// # Errors
/// Where one that is named is no mount, and where the file cannot be written. A server that does not answer is none: that
/// is what `shuntfs_up` says, which must be told and not to be missing.
pub(crate) fn run(args: &MetricsArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let asked = Survey::default().ask(&args.mountpoints, None)?;
    let snapshots = asked.into_iter().map(|asked| match asked.answer {
        Ok(status) => Snapshot::of(asked.mount, status),
        Err(error) => {
            complain(&format!("shunt: {}: {error}", asked.mount));
            Snapshot::silent(asked.mount)
        }
    });
    let snapshots: Vec<Snapshot> = snapshots.collect();
    let text = expose::openmetrics(&snapshots);
    let usual = if args.textfile.is_some() { FormatChoice::Prometheus } else { FormatChoice::Openmetrics };
    let text = match args.format.unwrap_or(usual) {
        FormatChoice::Openmetrics => text,
        FormatChoice::Prometheus => expose::prometheus(&text),
    };
    match &args.textfile {
        None => out.write_all(text.as_bytes()).map_err(|error| output_failure(&error)),
        Some(file) => write_whole(file, &text)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", shown(file)))),
    }
}

/// Writes a file as a whole or not at all, readable for all: node_exporter is another user. What it is called meanwhile
/// does not end in .prom, so that nobody takes it for one.
fn write_whole(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".shunt-").suffix(".tmp").permissions(Permissions::from_mode(0o644));
    let mut new = builder.tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_file_is_written_as_a_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("shunt.prom");
        std::fs::write(&file, "before").expect("writes");
        write_whole(&file, "after").expect("writes");
        assert_eq!(std::fs::read_to_string(&file).expect("is there"), "after");
        let mode = std::fs::metadata(&file).expect("is there").permissions().mode();
        assert_eq!(mode & 0o444, 0o444, "{mode:o}");
        assert!(write_whole(&folder.path().join("no/such.prom"), "x").is_err());
        let taken = folder.path().join("folder.prom");
        std::fs::create_dir(&taken).expect("makes");
        assert!(write_whole(&taken, "x").is_err(), "a folder is not written over");
        let names: Vec<_> = std::fs::read_dir(folder.path())
            .expect("is there")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}
