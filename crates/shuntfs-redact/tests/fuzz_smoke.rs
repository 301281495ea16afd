//! The fuzz target for a short while, without libFuzzer: photos with mistakes put in.
//! How long, and which seeds: `shuntfs_testkit::seeded`.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

#[path = "../../../fuzz/fuzz_targets/entry/redact.rs"]
mod redact;

use shuntfs_testkit::photo::{Exif, Order, heif, jpeg, photo, photo_by_library, xmp};
use shuntfs_testkit::seeded::{Random, fuzz};

fn photos() -> Vec<Vec<u8>> {
    let (exif, _) = Exif { order: Order::Little, gps: true, thumbnail: None }.build();
    let big = photo(Order::Big, 24, 24).unwrap();
    let little = photo(Order::Little, 24, 24).unwrap();
    let two = [big.as_slice(), &little].concat();
    let plain = jpeg(24, 24, &[]).unwrap();
    let other = photo_by_library(24, 24).unwrap();
    vec![big, little, two, plain, other, heif(&[7; 64], &exif, xmp().as_bytes())]
}

#[test]
fn photos_hold_as_they_are() {
    photos().iter().for_each(|photo| redact::run(photo));
}

#[test]
fn photos_with_mistakes() {
    let photos = photos();
    fuzz(redact::run, |random| {
        let mut photo = photos[random.below(photos.len())].clone();
        for _ in 0..=random.below(4) {
            spoil(&mut photo, random, &photos);
        }
        photo
    });
}

/// One mistake; most of them where the metadata is.
fn spoil(photo: &mut Vec<u8>, random: &mut Random, others: &[Vec<u8>]) {
    let early = photo.len().min(700);
    let at = if random.below(4) == 0 { random.below(photo.len()) } else { random.below(early) };
    match random.below(8) {
        0 if random.below(4) == 0 => photo.truncate(at),
        1 => photo.insert(at, random.byte()),
        2 if !photo.is_empty() => photo[at] ^= 1 << random.below(8),
        3 if !photo.is_empty() => photo[at] = [0, 1, 8, 0x1c, 0x7f, 0x88, 0xd8, 0xff][random.below(8)],
        // A length, a count or an offset, or what is taken for one.
        4 | 5 if photo.len() >= at + 4 => {
            let number: u32 = [0, 1, 8, 10, 26, 0x100, 0x7fff_ffff, u32::MAX][random.below(8)];
            let bytes = if random.below(2) == 0 { number.to_be_bytes() } else { number.to_le_bytes() };
            photo[at..at + 4].copy_from_slice(&bytes);
        }
        6 if photo.len() >= at + 12 => {
            // An entry of a folder in another's place.
            let from = random.below(photo.len() - 12);
            photo.copy_within(from..from + 12, at);
        }
        _ => {
            let other = &others[random.below(others.len())];
            let from = random.below(other.len());
            let len = random.below(other.len() - from).min(300);
            photo.splice(at..at, other[from..from + len].iter().copied());
        }
    }
}
