//! Opening an image: by path, under locks, with everything that it stands on.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shuntfs::LowerFile;
use shuntfs_sys::{Device, FsMagic, OsError, data, filesystem_of, open, open_target, stat_of};

use crate::chain::{self, Chain};
use crate::error::ImageError;
use crate::foreign;
use crate::header;
use crate::lock::{self, Refused, Use};
use crate::lost::Lost;
use crate::null::{DEFAULT_SIZE, Null};
use crate::options::{Format, HostCache, ImageOptions};
use crate::pending::Shelf;
use crate::qcow2::Qcow2;
use crate::raw::Raw;
use crate::status::{ImageStatus, Layer};
use pollster::block_on;

/// `O_NONBLOCK`, so that opening a FIFO by mistake does not wait forever.
const NONBLOCK: u32 = 0o4000;
const O_RDWR: u32 = 2;
pub(crate) const S_IFMT: u32 = 0o170_000;
pub(crate) const S_IFBLK: u32 = 0o060_000;
/// What direct I/O asks for where the file system does not say.
const ALIGN: u32 = 4096;

/// An image, open and locked.
#[derive(Debug)]
pub struct Image {
    pub(crate) disk: Disk,
    pub(crate) writable: bool,
    /// The image file itself, whose times and space are shown.
    pub(crate) file: Option<Arc<LowerFile>>,
    /// All files that are locked for as long as the image is in use.
    locked: Vec<Arc<LowerFile>>,
    status: ImageStatus,
}

/// The disk that an image holds.
#[derive(Debug)]
pub(crate) enum Disk {
    Raw(Raw),
    Qcow2(Box<Qcow2>),
    Null(Null),
}

/// The files of an image, open and locked, those that it stands on among them. They can be opened in one process and used in others that share
/// its table of descriptors: however many servers die, the locks stay, and nothing is looked for by its name again.
#[derive(Debug)]
pub struct ImageFiles {
    pub(crate) options: ImageOptions,
    /// From the image down; none of a null image.
    pub(crate) layers: Vec<LayerFile>,
    /// Of a qcow2 image that is written, where one server may go on after another.
    pub(crate) shelf: Option<Shelf>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct LayerFile {
    pub(crate) file: OpenFile,
    /// Never [`Format::Auto`].
    pub(crate) format: Format,
}

/// A file of an image, open and locked.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    pub(crate) lower: Arc<LowerFile>,
    /// The same file past the page cache, where that was asked for, and the alignment that it wants.
    pub(crate) direct: Option<(Arc<LowerFile>, u64)>,
    pub(crate) is_device: bool,
    /// What it is, whatever it is called.
    pub(crate) identity: (Device, u64),
    pub(crate) is_locked: bool,
}

impl Image {
    /// Opens an image and takes the locks on its files; they are held as long as it lives.
    ///
    /// # Errors
    /// Where the image, or what it stands on, cannot be opened, is in use or is not supported.
    pub fn open(options: &ImageOptions) -> Result<Self, ImageError> {
        Self::of(&ImageFiles::locked(options)?)
    }

    /// An image for one of several servers that follow each other. Whatever an operation is answered with, the next one knows: it is in the files,
    /// or, as for tables of a qcow2 image that may not be written yet, in memory that belongs to them.
    ///
    /// # Errors
    /// Where the image is not sound.
    pub fn surviving(files: &ImageFiles) -> Result<Self, ImageError> {
        Self::of(files)
    }

    fn of(files: &ImageFiles) -> Result<Self, ImageError> {
        let ImageFiles { options, layers, shelf } = files;
        let Some(LayerFile { file, format }) = layers.first() else { return Ok(Self::null(options)) };
        let (own, format) = (Some(Arc::clone(&file.lower)), *format);
        if format == Format::Raw {
            let status = status(options, format, vec![layer(&file.path, format)], file.is_locked);
            let raw = Raw::new(file.clone(), options.writable && options.format == Format::Auto);
            let raw = raw.map_err(|error| ImageError::Open { path: options.path.clone(), error })?;
            let locked = own.iter().cloned().collect();
            return Ok(Self { disk: Disk::Raw(raw), writable: options.writable, file: own, locked, status });
        }
        let Chain { qcow2, layers, is_locked, files } =
            block_on(chain::open(layers, options, shelf.as_ref()))?;
        let status = status(options, format, layers, is_locked);
        let disk = Disk::Qcow2(Box::new(qcow2));
        Ok(Self { disk, writable: options.writable, file: own, locked: files, status })
    }

    pub(crate) fn null(options: &ImageOptions) -> Self {
        let null = Null::new(options.size.unwrap_or(DEFAULT_SIZE));
        let status = status(options, Format::Null, Vec::new(), true);
        let disk = Disk::Null(null);
        Self { disk, writable: options.writable, file: None, locked: Vec::new(), status }
    }

    /// Where errors of making it durable stay.
    pub(crate) fn lost(&self) -> Option<&Arc<Lost>> {
        match &self.disk {
            Disk::Raw(raw) => Some(raw.lost()),
            Disk::Qcow2(qcow2) => qcow2.tables().map(|tables| tables.lost()),
            Disk::Null(_) => None,
        }
    }

    /// The size of the disk in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.disk {
            Disk::Raw(raw) => raw.size(),
            Disk::Qcow2(qcow2) => qcow2.size(),
            Disk::Null(null) => null.size(),
        }
    }

    /// What is open.
    #[must_use]
    pub fn status(&self) -> ImageStatus {
        ImageStatus { size: self.size(), ..self.status.clone() }
    }

    /// Reads outside of any request, to the end of the disk at most; returns how many bytes.
    ///
    /// # Errors
    /// Those of the image.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let room = self.size().saturating_sub(offset).min(bytes.len() as u64);
        let bytes = &mut bytes[..usize::try_from(room).unwrap_or_default()];
        match &self.disk {
            Disk::Raw(raw) => Ok(data::read_at(&*raw.lower, bytes, offset)?),
            Disk::Null(_) => {
                bytes.fill(0);
                Ok(bytes.len())
            }
            Disk::Qcow2(qcow2) => block_on(qcow2.read_into(bytes, offset)).map(|()| bytes.len()),
        }
    }

    /// Writes outside of any request, inside of the disk.
    ///
    /// # Errors
    /// Those of the image, and where the end of the disk is in the way.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.size()) || !self.writable {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match &self.disk {
            Disk::Raw(raw) => Ok(data::write_at(&*raw.lower, bytes, offset).map(drop)?),
            Disk::Null(_) => Ok(()),
            Disk::Qcow2(qcow2) => block_on(qcow2.write_from(bytes, offset)),
        }
    }

    /// Writes what is kept in memory, makes everything durable, and gives the locks back, so that who is told of the end can open
    /// the image. To be called when nobody uses it any more.
    ///
    /// # Errors
    /// What the disk says; the image may then lack what was written last.
    pub fn close(&self) -> io::Result<()> {
        let outcome = match &self.disk {
            _ if !self.writable => Ok(()),
            Disk::Raw(raw) => raw.close(),
            Disk::Qcow2(qcow2) => block_on(qcow2.sync()),
            Disk::Null(_) => Ok(()),
        };
        self.locked.iter().for_each(|file| lock::unlock(&**file));
        outcome
    }
}

impl ImageFiles {
    /// Opens the files and takes the locks on them, which go with the last descriptor, in whichever process. No thread is started.
    ///
    /// # Errors
    /// As [`Image::open`], except that the tables of a qcow2 image are not looked at.
    pub fn open(options: &ImageOptions) -> Result<Self, ImageError> {
        let files = Self::locked(options)?;
        let has_tables = files.layers.first().is_some_and(|image| image.format == Format::Qcow2);
        let shelf = if has_tables && options.writable { Some(Shelf::new()) } else { None };
        let failed = |error| ImageError::Open { path: options.path.clone(), error };
        Ok(Self { shelf: shelf.transpose().map_err(failed)?, ..files })
    }

    fn locked(options: &ImageOptions) -> Result<Self, ImageError> {
        check(options)?;
        let options = options.clone();
        if options.format == Format::Null {
            return Ok(Self { options, layers: Vec::new(), shelf: None });
        }
        let file = OpenFile::open(&options.path, options.writable, options.cache, MayBe::Device)?;
        let format = match options.format {
            Format::Auto => probe(&file)?,
            said => said,
        };
        if format == Format::Raw && options.snapshot.is_some() {
            return Err(ImageError::Options("raw images have no snapshots"));
        }
        let layers = match format {
            Format::Raw => vec![LayerFile { file, format }],
            _ => chain::files(file, &options)?,
        };
        Ok(Self { options, layers, shelf: None })
    }

    /// Makes durable what servers have written, and gives the locks back, when there is no server any more: the last act where no server came to
    /// [`Image::close`].
    ///
    /// # Errors
    /// What the disk says; the image may then lack what was written last.
    pub fn close(&self) -> io::Result<()> {
        let image = self.layers.first().filter(|_| self.options.writable);
        let outcome = match (image, &self.shelf) {
            (Some(image), Some(shelf)) => chain::finish(image, shelf),
            (Some(image), None) => data::sync_all(&*image.file.lower).map_err(io::Error::from),
            (None, _) => Ok(()),
        };
        self.layers.iter().for_each(|layer| lock::unlock(&*layer.file.lower));
        outcome
    }
}

fn check(options: &ImageOptions) -> Result<(), ImageError> {
    if options.size.is_some() && options.format != Format::Null {
        return Err(ImageError::Options("a size is only said of null images"));
    }
    if options.snapshot.is_some() && options.writable {
        return Err(ImageError::Options("snapshots are shown read-only"));
    }
    if options.snapshot.is_some() && options.format == Format::Null {
        return Err(ImageError::Options("null images have no snapshots"));
    }
    Ok(())
}

fn status(options: &ImageOptions, format: Format, layers: Vec<Layer>, locked: bool) -> ImageStatus {
    ImageStatus {
        format,
        size: 0,
        writable: options.writable,
        growable: false,
        cache: options.cache,
        snapshot: options.snapshot.clone(),
        layers,
        locked,
    }
}

pub(crate) fn layer(path: &Path, format: Format) -> Layer {
    Layer { path: path.to_string_lossy().into_owned(), format }
}

/// What the first bytes say, and the last.
pub(crate) fn probe(file: &OpenFile) -> Result<Format, ImageError> {
    let failed = |error: OsError| ImageError::Open { path: file.path.clone(), error: error.into() };
    let lower = &*file.lower;
    let (mut start, mut end) = ([0; foreign::START_LEN], [0; 8]);
    let read = data::read_at(lower, &mut start, 0).map_err(failed)?;
    // Of any version, so that one which is not supported is not taken for a raw image.
    if header::is_qcow(&start[..read]) {
        return Ok(Format::Qcow2);
    }
    let last = data::end_of(lower).map_err(failed)?.checked_sub(foreign::END_LEN);
    let ends = last.map_or(Ok(0), |last| data::read_at(lower, &mut end, last)).map_err(failed)?;
    match foreign::format(&start[..read], &end[..ends]) {
        Some(what) => Err(ImageError::Foreign { path: file.path.clone(), what }),
        None => Ok(Format::Raw),
    }
}

/// What a file may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MayBe {
    /// A regular file only, and none that the kernel makes up: an image names it.
    File,
    /// A block device, too: the user names it.
    Device,
}

/// File systems whose files are questions to the kernel, which may wait for their answer.
const MADE_UP: [FsMagic; 5] =
    [FsMagic(0x9fa0), FsMagic(0x6265_6572), FsMagic(0x6462_6720), FsMagic(0x7472_6163), FsMagic(0x6367_7270)];

impl OpenFile {
    /// Opens a file and takes the locks on it.
    ///
    /// The file is taken hold of first and opened then: nothing that could hang is opened, nor anything that replaced
    /// what was checked.
    pub(crate) fn open(
        path: &Path,
        writable: bool,
        cache: HostCache,
        may_be: MayBe,
    ) -> Result<Self, ImageError> {
        let failed = |error: io::Error| ImageError::Open { path: path.to_owned(), error };
        let os = |error: OsError| failed(error.into());
        let held = open_target(path).map_err(os)?;
        let kind = stat_of(&held).map_err(os)?;
        let is_device = kind.mode & S_IFMT == S_IFBLK;
        let made_up = filesystem_of(&held).is_ok_and(|found| MADE_UP.contains(&found.magic));
        let is_image = match may_be {
            MayBe::File => kind.is_file() && !made_up,
            MayBe::Device => kind.is_file() || is_device,
        };
        if !is_image {
            let path = path.to_owned();
            return Err(match may_be {
                MayBe::File => ImageError::NoFile { path },
                MayBe::Device => ImageError::NoImage { path },
            });
        }
        let file = open::reopen(&held, if writable { O_RDWR } else { 0 } | NONBLOCK).map_err(os)?;
        let is_locked = match lock::lock(&file, if writable { Use::Write } else { Use::Read }) {
            Ok(()) => true,
            Err(Refused::InUse(how)) => return Err(ImageError::InUse { path: path.to_owned(), how }),
            Err(Refused::NoLocks(error)) => {
                tracing::warn!("{} cannot be locked: {}", path.display(), io::Error::from(error));
                false
            }
        };
        let stat = stat_of(&file).map_err(|error| failed(error.into()))?;
        let direct = match cache {
            HostCache::Writeback => None,
            HostCache::None => {
                let flags = if writable { O_RDWR } else { 0 } | open::O_DIRECT;
                let fd = open::reopen(&file, flags).map_err(|error| failed(error.into()))?;
                let align = stat.dio_align.map_or(ALIGN, |align| align.offset.max(align.memory)).max(512);
                Some((Arc::new(lower_file(fd)), u64::from(align)))
            }
        };
        Ok(Self {
            path: path.to_owned(),
            lower: Arc::new(lower_file(file)),
            direct,
            is_device,
            identity: if is_device { (stat.rdev, 0) } else { (stat.dev, stat.ino) },
            is_locked,
        })
    }
}

/// An open file of an image. Where it is on another FUSE server, no queue waits for that.
pub(crate) fn lower_file(fd: OwnedFd) -> LowerFile {
    let is_on_fuse = filesystem_of(&fd).is_ok_and(|found| found.magic == FsMagic::FUSE);
    let file = LowerFile::new(fd);
    if is_on_fuse { file.that_ignores_nowait() } else { file }
}
