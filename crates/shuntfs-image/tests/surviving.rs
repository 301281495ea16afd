//! One server after the other goes on with an image, and none of them closes it: whatever was answered is there. Needs qemu-img.

use std::path::Path;
use std::process::Command;

use shuntfs_image::{Format, Image, ImageError, ImageFiles, ImageOptions};
use shuntfs_testkit::seeded::Random;

const LEN: usize = 24 << 20;
const SERVERS: usize = 30;
const WRITES: usize = 12;

fn qemu_img(folder: &Path, words: &str) -> Option<i32> {
    let ran = Command::new("qemu-img").args(words.split(' ')).current_dir(folder).output().expect("runs");
    println!("{words}: {}", String::from_utf8_lossy(&ran.stdout));
    ran.status.code()
}

fn disk_in(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    assert_eq!(image.read_at(&mut bytes, 0).expect("reads"), LEN);
    bytes
}

#[test]
fn what_was_answered_is_there_for_the_next_server() {
    if Command::new("qemu-img").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no qemu-img (Debian: qemu-utils)");
        return;
    }
    for (seed, make) in (1..).zip([
        "create -q -f qcow2 image 24M",
        "create -q -f qcow2 -o cluster_size=4096 image 24M",
        "create -q -f qcow2 -o cluster_size=512,refcount_bits=1 image 24M",
        "create -q -f qcow2 -o compat=0.10 image 24M",
        "create -q -f qcow2 -b base -F raw -o cluster_size=4096 image 24M",
        "create -q -f raw image 24M",
    ]) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut model = vec![0; LEN];
        model[..1 << 20].fill(1);
        std::fs::write(folder.path().join("base"), &model).expect("writes");
        if !make.contains("base") {
            model.fill(0);
        }
        assert_eq!(qemu_img(folder.path(), make), Some(0), "{make}");
        let options =
            ImageOptions { path: folder.path().join("image"), writable: true, ..ImageOptions::default() };
        let files = ImageFiles::open(&options).expect("opens");
        let mut random = Random::new(seed);
        for server in 0..SERVERS {
            let image = Image::surviving(&files).expect("is sound");
            assert!(disk_in(&image) == model, "{make}: server {server}");
            for _ in 0..WRITES {
                let (len, byte) = (1 + random.below(40_000), random.byte());
                let start = random.below(LEN - len);
                image.write_at(&vec![byte; len], start as u64).expect("writes");
                model[start..start + len].fill(byte);
            }
            // Nobody else gets in, whether one serves or none.
            assert!(matches!(Image::open(&options), Err(ImageError::InUse { .. })));
            drop(image);
            assert!(matches!(Image::open(&options), Err(ImageError::InUse { .. })));
        }
        files.close().expect("is durable");
        let image = Image::open(&options).expect("is nobody's");
        assert!(disk_in(&image) == model, "{make}");
        image.close().expect("is durable");
        if !make.contains("raw image") {
            assert!(matches!(qemu_img(folder.path(), "check -f qcow2 image"), Some(0 | 3)), "{make}");
        }
        let format = if make.contains("raw image") { Format::Raw } else { Format::Qcow2 };
        assert_eq!(image.status().format, format);
    }
}
