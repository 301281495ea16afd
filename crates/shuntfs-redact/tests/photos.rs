//! Photos made for real, without their location: what is hidden, what is left, and whether others still read it.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]
#![expect(clippy::single_range_in_vec_init, reason = "one range is meant")]

use std::io::Cursor;

use exif::{Context, In, Reader, Tag};
use shuntfs_redact::{LOOK_MAX, Ranges, Redaction};
use shuntfs_testkit::photo::{
    Exif, LATITUDE, LONGITUDE, MAKER, Order, PLACE, exif_segment, heif, iptc_segment, jpeg, photo,
    photo_by_library, segment, xmp, xmp_segment,
};

const ORDERS: [Order; 2] = [Order::Big, Order::Little];

fn find(bytes: &[u8]) -> Ranges {
    Redaction::ExifGps.find(bytes)
}

/// What somebody sees who must not see the location; not all of it may be hidden.
fn shown(bytes: &[u8]) -> Vec<u8> {
    let ranges = find(bytes);
    assert!(!ranges.is_whole(), "hidden whole");
    let mut shown = bytes.to_vec();
    ranges.blank(0, &mut shown);
    shown
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// Whether any number of the place is there, in either order of bytes.
fn tells_place(bytes: &[u8]) -> bool {
    let numbers = [LATITUDE[2], LONGITUDE[2]];
    numbers.iter().any(|number| has(bytes, &number.to_be_bytes()) || has(bytes, &number.to_le_bytes()))
        || has(bytes, PLACE.as_bytes())
        || has(bytes, b"47,33")
}

fn fields(bytes: &[u8]) -> exif::Exif {
    let mut reader = Reader::new();
    reader.continue_on_error(true);
    let read = reader.read_from_container(&mut Cursor::new(bytes));
    read.or_else(|error| error.distill_partial_result(|_| ())).unwrap()
}

/// What another reader says: the maker as before, and no location.
fn is_clean(bytes: &[u8]) {
    let fields = fields(bytes);
    let maker = fields.get_field(Tag::Make, In::PRIMARY).unwrap().display_value().to_string();
    assert!(maker.contains(MAKER), "{maker}");
    assert!(!fields.fields().any(|field| field.tag.context() == Context::Gps));
}

fn pixels(bytes: &[u8]) -> Vec<u8> {
    zune_jpeg::JpegDecoder::new(Cursor::new(bytes)).decode().unwrap()
}

#[test]
fn a_photo_loses_its_place_and_nothing_else() {
    for order in ORDERS {
        let photo = photo(order, 160, 120).unwrap();
        assert!(tells_place(&photo));
        assert!(fields(&photo).get_field(Tag::GPSLatitude, In::PRIMARY).is_some());
        let shown = shown(&photo);
        assert!(!tells_place(&shown), "{order:?}");
        is_clean(&shown);
        assert!(has(&shown, b"a caption"), "what is no place stays");
        assert_eq!(pixels(&shown), pixels(&photo));
        let hidden = photo.iter().zip(&shown).filter(|(before, after)| before != after).count();
        assert!(hidden < 1000, "{hidden} of {} bytes", photo.len());
    }
}

#[test]
fn a_photo_that_another_library_wrote_loses_its_place() {
    let photo = photo_by_library(64, 64).unwrap();
    assert!(fields(&photo).get_field(Tag::GPSLongitude, In::PRIMARY).is_some());
    let shown = shown(&photo);
    assert!(!tells_place(&shown));
    is_clean(&shown);
    assert_eq!(pixels(&shown), pixels(&photo));
}

#[test]
fn a_photo_without_a_place_is_left_alone() {
    for order in ORDERS {
        let plain = Exif { order, gps: false, thumbnail: Some(jpeg(16, 16, &[]).unwrap()) };
        let photo = jpeg(64, 64, &[exif_segment(&plain)]).unwrap();
        let ranges = find(&photo);
        // What the file might grow by is all that is hidden.
        assert_eq!(ranges.as_slice(), [photo.len() as u64..u64::MAX]);
    }
    assert!(find(b"").is_none());
}

#[test]
fn every_exif_of_several_is_found() {
    let [big, little] = ORDERS.map(|order| exif_segment(&Exif { order, gps: true, thumbnail: None }));
    let photo = jpeg(32, 32, &[big, little]).unwrap();
    assert!(!tells_place(&shown(&photo)));
}

#[test]
fn what_follows_the_first_image_is_an_image_or_hidden() {
    let exif = exif_segment(&Exif { order: Order::Big, gps: true, thumbnail: None });
    let first = jpeg(64, 64, std::slice::from_ref(&exif)).unwrap();
    let second = jpeg(32, 32, &[exif]).unwrap();
    // As cameras do it: a second image behind the first, perhaps with room in between.
    let both = [first.as_slice(), &[0; 7], &second].concat();
    let seen = shown(&both);
    assert!(!tells_place(&seen));
    assert_eq!(pixels(&seen[first.len() + 7..]), pixels(&second));
    // A video behind it, which has a place of its own.
    let video = [first.as_slice(), b"\0\0\0\x18ftypmp42....\xa9xyz+47.5579+013.6462/"].concat();
    let seen = shown(&video);
    assert!(!has(&seen, b"+47.5") && !tells_place(&seen));
    assert_eq!(seen.len(), video.len());
    assert_eq!(pixels(&seen), pixels(&first));
    // A second image that is cut off.
    let cut = [first.as_slice(), &second[..second.len() - 9]].concat();
    assert!(shown(&cut)[first.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn metadata_of_other_kinds_is_hidden_unless_it_is_known() {
    let more = b"http://ns.adobe.com/xmp/extension/\0";
    let piece = |offset: u32, text: &[u8]| {
        segment(0xe1, &[more, &[b'0'; 32], &30_u32.to_be_bytes(), &offset.to_be_bytes(), text])
    };
    let maker = segment(0xe5, &[b"RICOH at ", PLACE.as_bytes()]);
    let comment = segment(0xfe, &[b"location: ", PLACE.as_bytes()]);
    for segments in [
        vec![maker],
        vec![comment],
        // The word that gives it away is in two pieces.
        vec![piece(0, b"<exif:GP"), piece(8, format!("SLatitude>47,33 {PLACE}").as_bytes())],
        vec![piece(50, b"order unclear"), piece(0, PLACE.as_bytes())],
        vec![segment(0xed, &[b"Photoshop 3.0\0", b"8BIM no sense ", PLACE.as_bytes()])],
        vec![xmp_segment(&xmp())],
        vec![iptc_segment()],
        vec![segment(0xe1, &[b"FLIR\0", PLACE.as_bytes()])],
    ] {
        let photo = jpeg(32, 32, &segments).unwrap();
        assert!(tells_place(&photo));
        let seen = shown(&photo);
        assert!(!tells_place(&seen), "{segments:02x?}");
        assert_eq!(pixels(&seen), pixels(&photo));
    }
    for kept in [
        segment(0xfe, &[b"a comment"]),
        segment(0xe2, &[b"ICC_PROFILE\0\x01\x01profile"]),
        xmp_segment("<x:xmpmeta><dc:creator>somebody</dc:creator></x:xmpmeta>"),
        segment(0xed, &[b"Photoshop 3.0\0", b"8BIM\x03\xed\0\0\0\0\0\x02ab"]),
    ] {
        let photo = jpeg(32, 32, &[kept]).unwrap();
        assert_eq!(shown(&photo), photo);
    }
}

#[test]
fn exif_hidden_in_a_makers_note_is_found() {
    let (inner, _) = Exif { order: Order::Little, gps: true, thumbnail: None }.build();
    let (mut outer, _) = Exif { order: Order::Big, gps: false, thumbnail: None }.build();
    outer.extend_from_slice(b"Exif\0\0");
    outer.extend(inner);
    let photo = jpeg(32, 32, &[segment(0xe1, &[b"Exif\0\0", &outer])]).unwrap();
    assert!(!tells_place(&shown(&photo)));
}

#[test]
fn heif_loses_its_place_and_nothing_else() {
    let picture: Vec<u8> = (0..=255).cycle().take(3000).collect();
    for order in ORDERS {
        let (exif, _) = Exif { order, gps: true, thumbnail: None }.build();
        let photo = heif(&picture, &exif, xmp().as_bytes());
        assert!(tells_place(&photo));
        assert!(fields(&photo).get_field(Tag::GPSLatitude, In::PRIMARY).is_some());
        let seen = shown(&photo);
        assert!(!tells_place(&seen));
        assert!(has(&seen, &picture));
        is_clean(&seen);
        // A video behind the picture's boxes.
        let video = [photo.as_slice(), b"\0\0\0\x1cmoov....", PLACE.as_bytes()].concat();
        assert!(!tells_place(&shown(&video)));
        // Bytes that no item names.
        let mut stray = photo.clone();
        let len = u32::try_from(stray.len() - find_at(&stray, b"mdat") + 4 + PLACE.len()).unwrap();
        let head = find_at(&stray, b"mdat") - 4;
        stray[head..head + 4].copy_from_slice(&len.to_be_bytes());
        stray.extend_from_slice(PLACE.as_bytes());
        assert!(!tells_place(&shown(&stray)));
    }
}

fn find_at(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).unwrap()
}

/// Puts other bytes in place of some; what comes of it must be hidden whole.
fn lie(photo: &[u8], at: usize, with: &[u8]) {
    let mut lying = photo.to_vec();
    lying[at..at + with.len()].copy_from_slice(with);
    assert!(find(&lying).is_whole(), "{with:02x?} at {at}");
}

#[test]
fn photos_that_lie_are_hidden_whole() {
    let (exif, gps_at) = Exif { order: Order::Big, gps: true, thumbnail: None }.build();
    let photo = jpeg(32, 32, &[segment(0xe1, &[b"Exif\0\0", &exif])]).unwrap();
    let tiff = find_at(&photo, b"MM\0\x2a");
    let gps = tiff + gps_at;
    assert!(!find(&photo).is_whole());
    // The first folder: out of range, in the header, on itself, on the GPS folder.
    for offset in [u32::MAX, 0x10_0000, 2, 0] {
        lie(&photo, tiff + 4, &offset.to_be_bytes());
    }
    let pointer = tiff + 8 + 2 + 24 + 8;
    assert_eq!(photo[pointer..pointer + 4], u32::try_from(gps_at).unwrap().to_be_bytes());
    for offset in [u32::MAX, 8, 10, 0] {
        lie(&photo, pointer, &offset.to_be_bytes());
    }
    // The GPS folder points to many, is of a wrong type, has too many entries, values out of range, of no known
    // type, or in a folder.
    lie(&photo, pointer - 4, &u32::MAX.to_be_bytes());
    lie(&photo, pointer - 6, &2_u16.to_be_bytes());
    lie(&photo, gps, &u16::MAX.to_be_bytes());
    let latitude = gps + 2 + 24;
    lie(&photo, latitude + 8, &0xffff_fff0_u32.to_be_bytes());
    lie(&photo, latitude + 4, &u32::MAX.to_be_bytes());
    lie(&photo, latitude + 2, &99_u16.to_be_bytes());
    lie(&photo, latitude + 8, &8_u32.to_be_bytes());
    // A loop of folders.
    lie(&photo, tiff + 8 + 2 + 36, &8_u32.to_be_bytes());
    // No EXIF at all where it says so, and a length that ends in the middle of everything.
    lie(&photo, tiff, b"XX");
    lie(&photo, 4, &[0, 1]);
    lie(&photo, 4, &[0xff, 0xff]);
}

#[test]
fn what_is_cut_off_is_hidden_whole() {
    let photo = photo(Order::Little, 32, 32).unwrap();
    for len in (1..photo.len()).step_by(7).chain([photo.len() - 1]) {
        assert!(find(&photo[..len]).is_whole(), "{len} of {}", photo.len());
    }
    let (exif, _) = Exif { order: Order::Big, gps: true, thumbnail: None }.build();
    let photo = heif(&[1; 100], &exif, xmp().as_bytes());
    for len in 1..photo.len() {
        assert!(find(&photo[..len]).is_whole(), "{len} of {}", photo.len());
    }
}

#[test]
fn what_is_no_photo_or_too_long_is_hidden_whole() {
    for file in [
        b"\x89PNG\r\n\x1a\n".as_slice(),
        b"text",
        b"\xff\xd8",
        b"\0\0\0\x14ftypmp42\0\0\0\0mp42",
        b"II\x2a\0\x08\0\0\0",
    ] {
        assert!(find(file).is_whole(), "{file:02x?}");
    }
    let mut photo = jpeg(32, 32, &[]).unwrap();
    photo.resize(usize::try_from(LOOK_MAX).unwrap() + 1, 0);
    assert!(find(&photo).is_whole());
}
