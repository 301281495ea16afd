//! A qcow2 image and the files that it stands on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use imago::FormatAccess;
use imago::qcow2::Qcow2 as Driver;
use imago::raw::Raw as RawDriver;
use pollster::block_on;
use shuntfs::LowerFile;
use shuntfs_sys::data;

use crate::error::ImageError;
use crate::header::{self, Header, HeaderError};
use crate::lanes::Lanes;
use crate::open::{LayerFile, MayBe, OpenFile, layer, probe};
use crate::options::{Backing, Format, ImageOptions};
use crate::order::{HEADER_LEN, Known};
use crate::pending::{Pending, Shelf};
use crate::qcow2::Qcow2;
use crate::refcounts;
use crate::snapshots;
use crate::status::Layer;
use crate::storage::Stored;
use crate::tables::Tables;
use crate::trust;

/// More layers than anybody has: each open file and each table of a layer costs memory.
const LAYERS_MAX: usize = 64;

/// One layer, read but not opened by imago yet.
struct Read {
    file: OpenFile,
    /// `None` for a raw one.
    header: Option<Header>,
}

/// An image and all that it stands on.
pub(crate) struct Chain {
    pub(crate) qcow2: Qcow2,
    pub(crate) layers: Vec<Layer>,
    pub(crate) is_locked: bool,
    /// The files that are locked.
    pub(crate) files: Vec<Arc<LowerFile>>,
}

/// Opens the files of an image's backing chain, which are locked as the image is.
pub(crate) fn files(file: OpenFile, options: &ImageOptions) -> Result<Vec<LayerFile>, ImageError> {
    let of_layer = |Read { file, header }| {
        let format = if header.is_some() { Format::Qcow2 } else { Format::Raw };
        LayerFile { file, format }
    };
    Ok(read_chain(file, options)?.into_iter().map(of_layer).collect())
}

/// Opens an image whose files are open, the image itself first. Where there is a shelf, another server may have written it before, and another
/// one may go on with it at any time.
pub(crate) async fn open(
    files: &[LayerFile],
    options: &ImageOptions,
    shelf: Option<&Shelf>,
) -> Result<Chain, ImageError> {
    let lanes = Lanes::default();
    let read = |LayerFile { file, format }: &LayerFile| -> Result<Read, ImageError> {
        let header = if *format == Format::Qcow2 { Some(read_header(file)?) } else { None };
        Ok(Read { file: file.clone(), header })
    };
    let mut chain = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let tables = match chain.first() {
        Some(image) if options.writable => {
            check_counts(image)?;
            Some(Arc::new(tables_of(image, &lanes, shelf)?))
        }
        _ => None,
    };
    let layers = chain.iter().map(|read| {
        let format = if read.header.is_some() { Format::Qcow2 } else { Format::Raw };
        layer(&read.file.path, format)
    });
    let layers = layers.collect();
    let is_locked = chain.iter().all(|read| read.file.is_locked);
    let files = chain.iter().map(|read| Arc::clone(&read.file.lower)).collect();
    let head = match &options.snapshot {
        Some(wanted) => Some(head_of_snapshot(&chain[0], wanted)?),
        None => None,
    };
    let mut below: Option<FormatAccess<Stored>> = None;
    while let Some(read) = chain.pop() {
        let is_top = chain.is_empty();
        let path = read.file.path.clone();
        let broken = |error| ImageError::Broken { path: path.clone(), error };
        let head = if is_top { head.clone() } else { None };
        let stored =
            Stored::new(read.file.lower, &path, &lanes).with_head(head).with_direct(read.file.direct);
        let stored = stored.with_tables(if is_top { tables.clone() } else { None });
        below = Some(if read.header.is_some() {
            let writable = is_top && options.writable;
            let mut driver = Driver::<Stored>::open_image(stored, writable).await.map_err(broken)?;
            driver.set_data_file(None);
            driver.set_backing(below.take());
            FormatAccess::new(driver)
        } else {
            FormatAccess::new(RawDriver::open_image(stored, false).await.map_err(broken)?)
        });
    }
    let access = below.ok_or(ImageError::Options("there is no image"))?;
    Ok(Chain { qcow2: Qcow2::new(access, tables), layers, is_locked, files })
}

/// Opens the files of a chain, from the image down.
fn read_chain(file: OpenFile, options: &ImageOptions) -> Result<Vec<Read>, ImageError> {
    let top = file.path.clone();
    let header = read_header(&file)?;
    let mut chain = vec![Read { file, header: Some(header) }];
    while let Some(below) = next_of(&chain, options)? {
        let within = |error| ImageError::Below { path: below.named_by.clone(), error: Box::new(error) };
        if chain.len() >= LAYERS_MAX {
            return Err(ImageError::TooDeep { path: top, most: LAYERS_MAX });
        }
        let path = &below.path;
        let file = OpenFile::open(path, false, options.cache, below.may_be);
        let file =
            file.map_err(
                |error| {
                    if is_own_lock(&error, &chain, path) { looped(&top, path) } else { within(error) }
                },
            )?;
        if chain.iter().any(|read| read.file.identity == file.identity) {
            return Err(looped(&top, path));
        }
        let format = if below.format == Format::Auto { probe(&file).map_err(within)? } else { below.format };
        let header = if format == Format::Qcow2 { Some(read_header(&file).map_err(within)?) } else { None };
        chain.push(Read { file, header });
    }
    Ok(chain)
}

/// A layer that must be opened.
struct Below {
    named_by: PathBuf,
    path: PathBuf,
    format: Format,
    may_be: MayBe,
}

/// What the last layer of a chain stands on, if it may.
fn next_of(chain: &[Read], options: &ImageOptions) -> Result<Option<Below>, ImageError> {
    let Some(last) = chain.last() else { return Ok(None) };
    let is_top = chain.len() == 1;
    let named_by = last.file.path.clone();
    let Some((name, format)) = backing_of(last)? else {
        return match &options.backing {
            Backing::File(_) if is_top => Err(ImageError::Options("the image names no backing file")),
            _ => Ok(None),
        };
    };
    if let (Backing::File(path), true) = (&options.backing, is_top) {
        return Ok(Some(Below { named_by, path: path.clone(), format, may_be: MayBe::Device }));
    }
    let refused = |name: &str| ImageError::Backing { path: named_by.clone(), name: name.to_owned() };
    let local = local_path(name).ok_or_else(|| refused(name))?;
    // A relative name starts at the folder of the image that has it, as that was named.
    let path = named_by.parent().unwrap_or(Path::new("")).join(local);
    trust::follows(&last.file, &path, &options.backing).map_err(|why| ImageError::Forbidden {
        path: named_by.clone(),
        name: path.clone(),
        why,
    })?;
    Ok(Some(Below { named_by, path, format, may_be: MayBe::File }))
}

fn looped(top: &Path, again: &Path) -> ImageError {
    ImageError::Loop { path: top.to_owned(), again: again.to_owned() }
}

/// Whether a layer is in use because it is the image itself, which we have open for writing.
fn is_own_lock(error: &ImageError, chain: &[Read], path: &Path) -> bool {
    let Ok(file) = shuntfs_sys::open_target(path).and_then(shuntfs_sys::stat_of) else { return false };
    matches!(error, ImageError::InUse { .. })
        && chain.iter().any(|read| read.file.identity == (file.dev, file.ino))
}

pub(crate) fn read_header(file: &OpenFile) -> Result<Header, ImageError> {
    let refused = |error| ImageError::Header { path: file.path.clone(), error };
    let start = read_start(file, 512)?;
    let cluster = header::cluster_size(&start).map_err(refused)?;
    Header::parse(&read_start(file, cluster)?).map_err(refused)
}

/// An image whose own tables are not counted is not written.
fn check_counts(read: &Read) -> Result<(), ImageError> {
    let Some(header) = &read.header else { return Ok(()) };
    let len = data::end_of(&*read.file.lower)
        .map_err(|error| ImageError::Open { path: read.file.path.clone(), error: error.into() })?;
    let part = |offset, len| read_part(&read.file, offset, len).map_err(std::io::Error::other);
    refcounts::check(header, len, &part)
        .map_err(|error| ImageError::Header { path: read.file.path.clone(), error })
}

/// What the disk leads to, before anything of it is changed.
fn tables_of(read: &Read, lanes: &Lanes, shelf: Option<&Shelf>) -> Result<Tables, ImageError> {
    let header = read.header.as_ref().ok_or(ImageError::Options("raw images have no tables"))?;
    let start = read_start(&read.file, HEADER_LEN as u64)?;
    let short = || ImageError::Header { path: read.file.path.clone(), error: HeaderError::Short };
    let start = start.first_chunk().ok_or_else(short)?;
    let l1 = read_part(&read.file, header.l1_offset, u64::from(header.l1_entries) * 8)?;
    let reftable_len = u64::from(header.refcount_clusters) * header.cluster_size;
    let reftable = read_part(&read.file, header.refcount_offset, reftable_len)?;
    let known = Known::new(*start, header.refcount_order, &l1, &reftable);
    let broken = |error| ImageError::Broken { path: read.file.path.clone(), error };
    let pending = shelf.map(|shelf| Pending::new(shelf.clone(), known.cluster())).transpose();
    let tables = Tables::new(Arc::clone(&read.file.lower), lanes, known, pending.map_err(broken)?);
    tables.goes_on().map_err(broken)?;
    Ok(tables)
}

/// Writes what dead servers left on a shelf, and makes the image durable.
pub(crate) fn finish(image: &LayerFile, shelf: &Shelf) -> io::Result<()> {
    let header = read_header(&image.file).map_err(io::Error::other)?;
    let read = Read { file: image.file.clone(), header: Some(header) };
    let tables = tables_of(&read, &Lanes::default(), Some(shelf)).map_err(io::Error::other)?;
    block_on(async {
        tables.drain().await?;
        tables.publish().await?;
        tables.sync().await
    })
}

fn read_start(file: &OpenFile, len: u64) -> Result<Vec<u8>, ImageError> {
    read_part(file, 0, len)
}

/// A part of a file, fewer bytes where that ends.
fn read_part(file: &OpenFile, offset: u64, len: u64) -> Result<Vec<u8>, ImageError> {
    let failed =
        |error: shuntfs_sys::OsError| ImageError::Open { path: file.path.clone(), error: error.into() };
    let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
    let mut filled = 0;
    while filled < bytes.len() {
        match data::read_at(&*file.lower, &mut bytes[filled..], offset + filled as u64).map_err(failed)? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// What a layer calls its backing file, and of which format that is.
fn backing_of(read: &Read) -> Result<Option<(&str, Format)>, ImageError> {
    let Some(header) = &read.header else { return Ok(None) };
    let Some(name) = &header.backing else { return Ok(None) };
    let format = match header.backing_format.as_deref() {
        None | Some("") => Format::Auto,
        Some("qcow2") => Format::Qcow2,
        Some("raw" | "file" | "host_device") => Format::Raw,
        Some(other) => {
            let name = format!("{name}, of format {other}");
            return Err(ImageError::Backing { path: read.file.path.clone(), name });
        }
    };
    Ok(Some((name, format)))
}

/// The path in a backing file's name; `None` where it is of another kind (`nbd:`, `json:`), which QEMU tells by a colon
/// before the first slash.
fn local_path(name: &str) -> Option<&str> {
    match name.split_once(':') {
        Some(("file", path)) => Some(path),
        Some((scheme, _)) if !scheme.contains('/') => None,
        _ => Some(name),
    }
}

/// The header of the image, changed so that it shows a snapshot.
fn head_of_snapshot(read: &Read, wanted: &str) -> Result<Box<[u8]>, ImageError> {
    let path = &read.file.path;
    let refused = |error| ImageError::Snapshot { path: path.clone(), error };
    let header = read.header.as_ref().ok_or(ImageError::Options("raw images have no snapshots"))?;
    let table = read_part(&read.file, header.snapshots_offset, snapshots::table_max(header.snapshots))?;
    let all = snapshots::parse(&table, header.snapshots).map_err(|error| refused(error.into()))?;
    let snapshot = snapshots::find(all, wanted).map_err(refused)?;
    let start = read_start(&read.file, 512)?;
    let head = snapshots::header_of(&start, &snapshot);
    head.ok_or_else(|| ImageError::Header { path: path.clone(), error: HeaderError::Short })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_paths_are_followed() {
        for (name, path) in [
            ("base.img", Some("base.img")),
            ("/a/b:c", Some("/a/b:c")),
            ("./b:c", Some("./b:c")),
            ("file:base.img", Some("base.img")),
            ("nbd:localhost:10809", None),
            ("json:{\"driver\":\"file\"}", None),
            ("https://example.org/disk", None),
        ] {
            assert_eq!(local_path(name), path, "{name}");
        }
    }
}
