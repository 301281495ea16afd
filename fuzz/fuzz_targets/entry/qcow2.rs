//! Any bytes for a qcow2 image: refused, or read and written without a panic and without more memory than its tables may take.

use std::io::Write;
use std::path::Path;

use shuntfs_image::{Backing, Format, Header, Image, ImageOptions};

/// Opens an image, for reading and for writing, and touches both ends of the disk and the middle.
pub(crate) fn run(image: &[u8]) {
    let _refused_or_read = Header::parse(image);
    let Ok(mut file) = tempfile::NamedTempFile::new() else { return };
    if file.write_all(image).is_err() {
        return;
    }
    for writable in [false, true] {
        let path = file.path().to_owned();
        let options = ImageOptions { path, format: Format::Qcow2, writable, ..ImageOptions::default() };
        let Ok(image) = Image::open(&options) else { continue };
        touch(&image, writable);
        let _said = image.close();
    }
    names(file.path(), image);
    let (path, snapshot) = (file.path().to_owned(), Some("1".to_owned()));
    let options = ImageOptions { path, format: Format::Qcow2, snapshot, ..ImageOptions::default() };
    if let Ok(image) = Image::open(&options) {
        touch(&image, false);
    }
}

/// What an image names is opened where that is wished, beside the image only: an image by itself shows one layer, and with a file
/// named for it two at most.
fn names(path: &Path, bytes: &[u8]) {
    let open = |backing| {
        let options = ImageOptions { path: path.to_owned(), backing, ..ImageOptions::default() };
        Image::open(&options)
    };
    if let Ok(image) = open(Backing::None) {
        assert!(image.status().layers.len() == 1, "{bytes:?}");
        touch(&image, false);
    }
    let Ok(mut below) = tempfile::NamedTempFile::new() else { return };
    if below.write_all(&[7; 5000]).is_err() {
        return;
    }
    for backing in [Backing::File(below.path().to_owned()), Backing::File(path.to_owned())] {
        if let Ok(image) = open(backing) {
            assert!(image.status().layers.len() <= 2, "{bytes:?}");
            touch(&image, false);
        }
    }
}

fn touch(image: &Image, writable: bool) {
    let size = image.size();
    let mut bytes = [0; 3000];
    for at in [0, 1000, size / 2, size.saturating_sub(2000)] {
        let Ok(len) = image.read_at(&mut bytes, at) else { continue };
        if writable && len > 0 {
            let _said = image.write_at(&bytes[..len], at);
            let _said = image.read_at(&mut bytes, at);
        }
    }
}
