//! The files of an image that another program continues with, in the same process: the descriptors stay open under their numbers, and so the
//! locks on them are never free; what is known of each is written down.
//!
//! Nothing is found out anew. In particular, the format of an image is not read from its first bytes again, because a guest may have
//! written a header of another format there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shuntfs_sys::stat_of;

use crate::chain::read_header;
use crate::error::ImageError;
use crate::open::{Image, ImageFiles, LayerFile, OpenFile, S_IFBLK, S_IFMT, lower_file};
use crate::options::{Format, ImageOptions};
use crate::pending::Shelf;

/// The layout that this release writes, and the only one that it reads.
const VERSION: u32 = 1;

/// Descriptors by names.
pub type Descriptors = BTreeMap<String, OwnedFd>;

/// What is known of the files of an image, without their descriptors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandedFiles {
    version: u32,
    layers: Vec<HandedLayer>,
    has_shelf: bool,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct HandedLayer {
    path: Vec<u8>,
    format: Format,
    /// The device and the inode number; of a block device, those of its file.
    file: (u64, u64),
    is_locked: bool,
    /// The alignment of direct I/O, where the file is open for that, too.
    align: Option<u64>,
}

const TABLES: &str = "image-tables";
const MARKS: &str = "image-marks";
const ENTRIES: &str = "image-entries";

fn file_name(index: usize) -> String {
    format!("image-{index}")
}

fn direct_name(index: usize) -> String {
    format!("image-{index}-direct")
}

impl ImageFiles {
    /// Writes down what another program needs to know of the files.
    ///
    /// # Errors
    /// If a file cannot be looked at.
    pub fn handed(&self) -> io::Result<HandedFiles> {
        let of_layer = |LayerFile { file, format }: &LayerFile| -> io::Result<HandedLayer> {
            Ok(HandedLayer {
                path: file.path.as_os_str().as_bytes().to_vec(),
                format: *format,
                file: identity(&*file.lower)?,
                is_locked: file.is_locked,
                align: file.direct.as_ref().map(|(_, align)| *align),
            })
        };
        let layers = self.layers.iter().map(of_layer).collect::<io::Result<_>>()?;
        Ok(HandedFiles { version: VERSION, layers, has_shelf: self.shelf.is_some() })
    }

    /// The descriptors that another program needs, by their names.
    #[must_use]
    pub fn descriptors(&self) -> Vec<(String, RawFd)> {
        let mut all = Vec::new();
        for (index, LayerFile { file, .. }) in self.layers.iter().enumerate() {
            all.push((file_name(index), file.lower.as_fd().as_raw_fd()));
            all.extend(
                file.direct.iter().map(|(direct, _)| (direct_name(index), direct.as_fd().as_raw_fd())),
            );
        }
        if let Some(Shelf { tables, marks, entries }) = &self.shelf {
            let files = [(TABLES, tables), (MARKS, marks), (ENTRIES, entries)];
            all.extend(files.map(|(name, file)| (name.to_owned(), file.as_raw_fd())));
        }
        all
    }

    /// Takes the files that another program in this process had open. On an error, all descriptors stay where they were.
    ///
    /// # Errors
    /// `InvalidData` if the layout is another one, or a descriptor is missing or leads to another file.
    pub fn taken(
        options: &ImageOptions,
        handed: &HandedFiles,
        descriptors: &mut Descriptors,
    ) -> io::Result<Self> {
        handed.check(options, descriptors)?;
        let mut take = |name: &str| descriptors.remove(name).ok_or_else(|| missing(name));
        let mut layers = Vec::new();
        for (index, layer) in handed.layers.iter().enumerate() {
            let lower = take(&file_name(index))?;
            let stat = stat_of(&lower)?;
            let is_device = stat.mode & S_IFMT == S_IFBLK;
            let direct = layer.align.map(|align| {
                let file = take(&direct_name(index))?;
                Ok::<_, io::Error>((Arc::new(lower_file(file)), align))
            });
            let file = OpenFile {
                path: PathBuf::from(OsStr::from_bytes(&layer.path)),
                direct: direct.transpose()?,
                is_device,
                identity: if is_device { (stat.rdev, 0) } else { (stat.dev, stat.ino) },
                is_locked: layer.is_locked,
                lower: Arc::new(lower_file(lower)),
            };
            layers.push(LayerFile { file, format: layer.format });
        }
        let mut memory = |name: &str| take(name).map(|file| Arc::new(File::from(file)));
        let shelf = if handed.has_shelf {
            Some(Shelf { tables: memory(TABLES)?, marks: memory(MARKS)?, entries: memory(ENTRIES)? })
        } else {
            None
        };
        Ok(Self { options: options.clone(), layers, shelf })
    }

    /// Checks whether this program can read the headers, while another one serves the image and changes its tables. Returns an image of nothing, to be
    /// shown instead of this one by whoever only tries.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn rehearsed(&self) -> Result<Image, ImageError> {
        let mut layers = self.layers.iter().filter(|layer| layer.format == Format::Qcow2);
        layers.try_for_each(|layer| read_header(&layer.file).map(drop))?;
        Ok(Image::null(&self.options))
    }
}

impl HandedFiles {
    /// Whether everything is there, and is what it was.
    fn check(&self, options: &ImageOptions, descriptors: &Descriptors) -> io::Result<()> {
        if self.version != VERSION {
            let found = self.version;
            return Err(invalid(format!("it has layout {found} of an image's files, and {VERSION} is read")));
        }
        let is_null = options.format == Format::Null;
        let is_other = self
            .layers
            .first()
            .is_some_and(|image| !matches!(options.format, Format::Auto) && image.format != options.format);
        if is_null != self.layers.is_empty() || is_other {
            return Err(invalid("the image has another format than the command line says".into()));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let direct = layer.align.map(|_| direct_name(index));
            for name in [file_name(index)].into_iter().chain(direct) {
                let file = descriptors.get(&name).ok_or_else(|| missing(&name))?;
                if identity(file)? != layer.file {
                    return Err(invalid(format!("{name} leads to another file")));
                }
            }
        }
        let mut shelf = [TABLES, MARKS, ENTRIES].into_iter().filter(|_| self.has_shelf);
        shelf.try_for_each(|name| descriptors.get(name).map(drop).ok_or_else(|| missing(name)))
    }
}

fn identity(file: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = stat_of(file)?;
    Ok((u64::from(stat.dev.major) << 32 | u64::from(stat.dev.minor), stat.ino))
}

fn missing(name: &str) -> io::Error {
    invalid(format!("{name} was not handed over"))
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
