//! A folder shown again by paths and `std::fs` alone: the shortest file system that can be written to.
//!
//! ```text
//! cargo run --release --example mirror -- SRC MNT
//! ```
//!
//! It acts as whoever runs it, for everybody: files that are made belong to that user. What a mirror costs that has nodes of its own,
//! creates as its callers and lets the kernel move the bytes, `examples/passthrough.rs` shows.

use std::error::Error;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, DirEntryExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use shuntfs::{
    Attr, Blocking, ByteRange, Caller, DirEntry, Errno, FileType, MountOptions, New, OpSet, OpenFlags,
    Opened, PathFilesystem, Paths, Place, Result, SessionOptions, SetAttr, SetTime,
};

/// The file system.
#[derive(Debug)]
pub(crate) struct Mirror {
    source: PathBuf,
}

impl Mirror {
    /// Shows the folder at `source`.
    pub(crate) fn new(source: PathBuf) -> Self {
        Self { source }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.source.join(path)
    }
}

fn how(flags: OpenFlags) -> fs::OpenOptions {
    let mut how = File::options();
    // What is appended comes with its offset.
    how.read(flags.may_read()).write(flags.may_write()).truncate(flags.contains(OpenFlags::TRUNCATE));
    how
}

impl PathFilesystem for Mirror {
    type File = File;

    const OPS: OpSet = OpSet::OPEN.union(OpSet::CREATE).union(OpSet::FSYNC);

    fn getattr(&self, _: &Caller, place: Place<'_, File>) -> Result<Attr> {
        Ok(match place {
            Place::Path(path) => fs::symlink_metadata(self.at(path))?.into(),
            Place::Open(file) => file.metadata()?.into(),
        })
    }

    fn setattr(&self, _: &Caller, place: Place<'_, File>, set: SetAttr) -> Result<()> {
        let reached = match place {
            Place::Path(path) if set.size.is_some() => File::options().write(true).open(self.at(path))?,
            Place::Path(path) => File::open(self.at(path))?,
            Place::Open(file) => file.try_clone()?,
        };
        if set.uid.is_some() || set.gid.is_some() {
            std::os::unix::fs::fchown(&reached, set.uid, set.gid)?;
        }
        if let Some(mode) = set.mode {
            reached.set_permissions(Permissions::from_mode(mode))?;
        }
        if let Some(size) = set.size {
            reached.set_len(size)?;
        }
        let time = |time| match time {
            SetTime::Now => SystemTime::now(),
            SetTime::At(time) => time.into(),
        };
        let mut times = fs::FileTimes::new();
        times = set.atime.map_or(times, |at| times.set_accessed(time(at)));
        times = set.mtime.map_or(times, |at| times.set_modified(time(at)));
        if set.atime.is_some() || set.mtime.is_some() {
            reached.set_times(times)?;
        }
        Ok(())
    }

    fn readlink(&self, _: &Caller, path: &Path) -> Result<PathBuf> {
        Ok(fs::read_link(self.at(path))?)
    }

    fn mkdir(&self, _: &Caller, new: &New<PathBuf>) -> Result<()> {
        Ok(fs::DirBuilder::new().mode(new.mode).create(self.at(&new.place))?)
    }

    fn symlink(&self, _: &Caller, path: &Path, target: &Path) -> Result<()> {
        Ok(symlink(target, self.at(path))?)
    }

    fn unlink(&self, _: &Caller, path: &Path) -> Result<()> {
        Ok(fs::remove_file(self.at(path))?)
    }

    fn rmdir(&self, _: &Caller, path: &Path) -> Result<()> {
        Ok(fs::remove_dir(self.at(path))?)
    }

    fn rename(&self, _: &Caller, from: &Path, to: &Path, flags: u32) -> Result<()> {
        if flags == 0 { Ok(fs::rename(self.at(from), self.at(to))?) } else { Err(Errno::INVAL) }
    }

    fn open(&self, _: &Caller, path: &Path, flags: OpenFlags) -> Result<Opened<File>> {
        Ok(Opened::served(how(flags).open(self.at(path))?))
    }

    fn create(&self, _: &Caller, new: &New<PathBuf>, flags: OpenFlags) -> Result<Opened<File>> {
        let is_new = flags.contains(OpenFlags::EXCLUSIVE);
        // To make a file it must be opened for writing, too.
        let mut how = how(flags);
        how.write(true).create(true).create_new(is_new).mode(new.mode);
        Ok(Opened::served(how.open(self.at(&new.place))?))
    }

    fn read(&self, _: &Caller, file: &File, at: ByteRange) -> Result<Vec<u8>> {
        let mut bytes = vec![0; at.len as usize];
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], at.offset + done as u64)? {
                0 => break,
                more => done += more,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn write(&self, _: &Caller, file: &File, at: u64, data: &[u8]) -> Result<usize> {
        file.write_all_at(data, at)?;
        Ok(data.len())
    }

    fn fsync(&self, _: &Caller, file: &File, data_only: bool) -> Result<()> {
        Ok(if data_only { file.sync_data() } else { file.sync_all() }?)
    }

    fn list(&self, _: &Caller, path: &Path) -> Result<Vec<DirEntry>> {
        let record = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry?;
            let kind = FileType::of_mode(entry.metadata()?.permissions().mode());
            Ok(DirEntry { ino: entry.ino(), kind, name: entry.file_name() })
        };
        fs::read_dir(self.at(path))?.map(record).collect()
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut args = std::env::args_os().skip(1);
    let (Some(source), Some(path)) = (args.next(), args.next()) else {
        return Err("usage: mirror SRC MNT".into());
    };
    let mirror = Blocking::new(Paths::new(Mirror::new(fs::canonicalize(source)?)));
    let mount = MountOptions { source: "mirror".into(), ..MountOptions::default() };
    let status = shuntfs::serve(mirror, Path::new(&path), &mount, &SessionOptions::default())?;
    println!("{}", serde_json::to_string_pretty(&status)?);
    Ok(())
}
