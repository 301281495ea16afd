//! The fuzz target for a short while, without libFuzzer: qcow2 images with mistakes put in.
//! How long, and which seeds: `shuntfs_testkit::seeded`.

#[path = "../../../fuzz/fuzz_targets/entry/qcow2.rs"]
mod qcow2;

use shuntfs_testkit::seeded::{Random, fuzz};

const CLUSTER: usize = 512;
const COPIED: u64 = 1 << 63;

/// A sound image of 32 KiB with clusters of 512 bytes: one with data, one that is zero, one compressed, one snapshot.
fn image() -> Vec<u8> {
    let mut bytes = vec![0; 9 * CLUSTER];
    let mut put = |place: usize, more: &[u8]| bytes[place..][..more.len()].copy_from_slice(more);
    put(0, b"QFI\xfb");
    put(4, &3_u32.to_be_bytes());
    put(20, &9_u32.to_be_bytes());
    put(24, &(32_u64 << 10).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &(3 * 512_u64).to_be_bytes());
    put(48, &512_u64.to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    put(60, &1_u32.to_be_bytes());
    put(64, &(7 * 512_u64).to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    // The table of reference counts, its one block, the first table, one of the second kind.
    put(CLUSTER, &1024_u64.to_be_bytes());
    for cluster in 0..9 {
        put(2 * CLUSTER + cluster * 2, &1_u16.to_be_bytes());
    }
    put(3 * CLUSTER, &(2048 | COPIED).to_be_bytes());
    put(4 * CLUSTER, &(2560 | COPIED).to_be_bytes());
    put(4 * CLUSTER + 8, &1_u64.to_be_bytes());
    put(4 * CLUSTER + 16, &(3072_u64 | (1 << 62)).to_be_bytes());
    put(5 * CLUSTER, &[7; CLUSTER]);
    // Deflate: one stored block of a whole cluster does not fit one, so a fixed one of repeated bytes.
    put(6 * CLUSTER, &[0x63, 0x60, 0x18, 0x05, 0xa3, 0x60, 0x14, 0x0c, 0x1d, 0x00, 0x00]);
    let snapshot = 7 * CLUSTER;
    put(snapshot, &(8 * 512_u64).to_be_bytes());
    put(snapshot + 8, &1_u32.to_be_bytes());
    put(snapshot + 12, &1_u16.to_be_bytes());
    put(snapshot + 14, &6_u16.to_be_bytes());
    put(snapshot + 40, b"1before");
    bytes
}

#[test]
fn a_sound_image_is_read() {
    let file = tempfile::NamedTempFile::new().expect("makes");
    std::fs::write(file.path(), image()).expect("writes");
    let options = shuntfs_image::ImageOptions {
        path: file.path().to_owned(),
        writable: true,
        ..shuntfs_image::ImageOptions::default()
    };
    let opened = shuntfs_image::Image::open(&options).expect("is one");
    assert_eq!((opened.size(), opened.status().format), (32 << 10, shuntfs_image::Format::Qcow2));
    let mut read = [1; 1024];
    assert_eq!(opened.read_at(&mut read, 0).expect("reads"), 1024);
    assert_eq!(read, [[7; CLUSTER], [0; CLUSTER]].concat()[..]);
    opened.write_at(&[9; 100], 700).expect("writes");
    opened.read_at(&mut read, 0).expect("reads");
    assert_eq!(read[700..800], [9; 100]);
    opened.close().expect("is durable");
    qcow2::run(&image());
}

#[test]
fn images_with_mistakes() {
    fuzz(qcow2::run, |random| {
        let mut image = image();
        for _ in 0..=random.below(4) {
            spoil(&mut image, random);
        }
        image
    });
}

/// One mistake; most of them in the header and the tables.
fn spoil(image: &mut Vec<u8>, random: &mut Random) {
    let tables = image.len().min(5 * CLUSTER);
    let at = if random.below(4) == 0 { random.below(image.len()) } else { random.below(tables) };
    match random.below(9) {
        // A name of a backing file: of the host, of a device, of what hangs, of the image itself, of nothing.
        8 if image.len() >= CLUSTER => {
            let names = [
                "/etc/hostname",
                "/dev/zero",
                "../../etc/hostname",
                "json:{}",
                "nbd:x",
                "file:/proc/self/mem",
                "/proc/self/fd/0",
                "\u{1b}\n",
                ".",
            ];
            let name = names[random.below(names.len())].as_bytes();
            image[8..16].copy_from_slice(&200_u64.to_be_bytes());
            image[16..20].copy_from_slice(&u32::try_from(name.len()).expect("short").to_be_bytes());
            image[200..200 + name.len()].copy_from_slice(name);
        }
        0 if random.below(3) == 0 => image.truncate(at),
        1 if at < image.len() => image[at] ^= 1 << random.below(8),
        2 if at < image.len() => image[at] = random.byte(),
        // A field of the header.
        3 | 4 if image.len() > 112 => {
            let place = random.below(28) * 4;
            let number: u32 =
                [0, 1, 2, 9, 16, 21, 22, 0x200, 0x1_0000, 0x7fff_ffff, u32::MAX][random.below(11)];
            image[place..place + 4].copy_from_slice(&number.to_be_bytes());
        }
        // An entry of a table.
        5 | 6 if image.len() >= at / 8 * 8 + 8 => {
            let flags = [0, COPIED, 1 << 62, 1, COPIED | 1][random.below(5)];
            let place = [0, 512, 1024, 1536, 2048, 3000, 1 << 20, 1 << 50, u64::MAX >> 9][random.below(9)];
            image[at / 8 * 8..][..8].copy_from_slice(&(place | flags).to_be_bytes());
        }
        _ => {
            let from = random.below(image.len());
            let len = random.below(image.len() - from).min(64);
            let to = random.below(image.len() - len);
            image.copy_within(from..from + len, to);
        }
    }
}
