//! Exports on the fake kernel: without a mount, without /dev/fuse, and with the kernel's books checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shuntfs::Errno;
use shuntfs_fake::{Fake, O_RDONLY, O_RDWR, Settings};
use shuntfs_image::{Export, Exported, FlowWish, Format, Image, ImageOptions};

fn export(options: &ImageOptions, how: Exported) -> Fake {
    let image = Arc::new(Image::open(options).expect("it opens"));
    let settings = Settings { root_mode: 0o100_644, ..Settings::default() };
    Fake::mount_with(Arc::new(Export::new(image, how)), &settings).expect("mounts")
}

fn at(path: PathBuf, format: Format) -> ImageOptions {
    ImageOptions { path, format, writable: true, ..ImageOptions::default() }
}

/// A qcow2 image of 32 KiB with clusters of 512 bytes and no data.
fn empty_qcow2(path: &Path) {
    let mut bytes = vec![0; 4 * 512];
    let mut put = |place: usize, more: &[u8]| bytes[place..][..more.len()].copy_from_slice(more);
    put(0, b"QFI\xfb");
    put(4, &3_u32.to_be_bytes());
    put(20, &9_u32.to_be_bytes());
    put(24, &(32_u64 << 10).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &(3 * 512_u64).to_be_bytes());
    put(48, &512_u64.to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    put(512, &1024_u64.to_be_bytes());
    for cluster in 0..4 {
        put(1024 + cluster * 2, &1_u16.to_be_bytes());
    }
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn a_raw_image_is_read_and_written() {
    for flow in [FlowWish::Passthrough, FlowWish::Served] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw");
        std::fs::write(&path, vec![3; 100_000]).unwrap();
        let fake = export(&at(path.clone(), Format::Raw), Exported::default().flow(flow));
        assert_eq!(fake.stat("/").unwrap().size, 100_000);
        let file = fake.open("/", O_RDWR).unwrap();
        assert_eq!(file.read_at(50_000, 60_000).unwrap(), vec![3; 50_000]);
        assert_eq!(file.write_at(99_990, b"the end"), Ok(7));
        assert_eq!(file.read_at(99_988, 100).unwrap(), b"\x03\x03the end\x03\x03\x03");
        file.sync(false).unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap()[99_990..99_997], *b"the end");
        assert_eq!(fake.stat("/name").err(), Some(Errno::NOTDIR));
        fake.end();
    }
}

#[test]
fn a_qcow2_image_is_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qcow2");
    empty_qcow2(&path);
    let fake = export(&at(path.clone(), Format::Qcow2), Exported::default());
    let file = fake.open("/", O_RDWR).unwrap();
    assert_eq!(file.read_to_end().unwrap(), vec![0; 32 << 10]);
    assert_eq!(file.write_at(1000, &[9; 3000]), Ok(3000));
    let bytes = [vec![0; 1000], vec![9; 3000], vec![0; (32 << 10) - 4000]].concat();
    assert_eq!(file.read_to_end().unwrap(), bytes);
    file.sync(false).unwrap();
    drop(file);
    fake.end();
    let fake = export(&at(path, Format::Qcow2), Exported::default());
    assert_eq!(fake.open("/", O_RDONLY).unwrap().read_to_end().unwrap(), bytes, "it is in the image");
    fake.end();
}

#[test]
fn a_null_image_drops_what_is_written() {
    let options = ImageOptions { size: Some(1 << 20), ..at(PathBuf::new(), Format::Null) };
    let fake = export(&options, Exported::default());
    let file = fake.open("/", O_RDWR).unwrap();
    assert_eq!(file.write_at(5, b"gone"), Ok(4));
    assert_eq!(file.read_at(0, 100).unwrap(), [0; 100]);
    drop(file);
    fake.end();
}
