//! Photos that say where they were taken: pictures encoded for real, EXIF laid out by hand (in either byte order, so
//! that a test knows where each value is) or by a library that cameras' files are edited with, HEIF by hand.

use anyhow::{Context, Result};
use jpeg_encoder::{ColorType, Encoder};
use little_exif::exif_tag::ExifTag;
use little_exif::filetype::FileExtension;
use little_exif::metadata::Metadata;
use little_exif::rational::uR64;

/// Latitude in degrees, minutes, seconds; numbers that stand out among others.
pub const LATITUDE: [u32; 3] = [47, 33, 28_657];
/// Longitude.
pub const LONGITUDE: [u32; 3] = [13, 39, 46_368];
/// The text of a place, in XMP and IPTC.
pub const PLACE: &str = "Hallstatt am See";
/// The maker, which is nobody's secret.
pub const MAKER: &str = "Shunt Optics";

/// The order of bytes in EXIF.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Motorola's.
    Big,
    /// Intel's.
    Little,
}

/// What an EXIF is to have.
#[derive(Clone, Debug)]
pub struct Exif {
    /// The order of bytes.
    pub order: Order,
    /// Whether it has a folder of GPS tags.
    pub gps: bool,
    /// A small picture.
    pub thumbnail: Option<Vec<u8>>,
}

impl Exif {
    /// The bytes, from the TIFF header on, and where the folder of GPS tags starts in them.
    #[must_use]
    pub fn build(&self) -> (Vec<u8>, usize) {
        let mut out = Tiff { bytes: Vec::new(), big: self.order == Order::Big };
        out.bytes.extend_from_slice(if out.big { b"MM\0\x2a" } else { b"II\x2a\0" });
        out.u32(8);
        // Maker, orientation and, at the end, the GPS folder.
        let maker = format!("{MAKER}\0");
        let main_len = 2 + 12 * (2 + usize::from(self.gps)) + 4;
        let maker_at = 8 + main_len;
        let gps_at = (maker_at + maker.len()).next_multiple_of(2);
        let (gps_len, values_len) = if self.gps { (2 + 12 * 5 + 4, 6 * 8) } else { (0, 0) };
        let second_at = gps_at + gps_len + values_len;
        out.u16(2 + u16::from(self.gps));
        out.entry(0x010f, 2, maker.len(), maker_at);
        out.short(0x0112, 6);
        if self.gps {
            out.entry(0x8825, 4, 1, gps_at);
        }
        out.size(if self.thumbnail.is_some() { second_at } else { 0 });
        out.bytes.extend_from_slice(maker.as_bytes());
        out.bytes.resize(gps_at, 0);
        if self.gps {
            out.gps(gps_at + gps_len);
        }
        if let Some(thumbnail) = &self.thumbnail {
            out.u16(3);
            out.short(0x0103, 6);
            out.entry(0x0201, 4, 1, second_at + 2 + 36 + 4);
            out.entry(0x0202, 4, 1, thumbnail.len());
            out.u32(0);
            out.bytes.extend_from_slice(thumbnail);
        }
        (out.bytes, gps_at)
    }
}

struct Tiff {
    bytes: Vec<u8>,
    big: bool,
}

impl Tiff {
    fn u16(&mut self, number: u16) {
        self.bytes.extend(if self.big { number.to_be_bytes() } else { number.to_le_bytes() });
    }

    fn u32(&mut self, number: u32) {
        self.bytes.extend(if self.big { number.to_be_bytes() } else { number.to_le_bytes() });
    }

    fn size(&mut self, number: usize) {
        self.u32(u32::try_from(number).expect("test photos are small"));
    }

    fn entry(&mut self, tag: u16, kind: u16, count: usize, value: usize) {
        self.u16(tag);
        self.u16(kind);
        self.size(count);
        self.size(value);
    }

    fn short(&mut self, tag: u16, value: u16) {
        self.u16(tag);
        self.u16(3);
        self.u32(1);
        self.u16(value);
        self.u16(0);
    }

    fn letter(&mut self, tag: u16, letter: u8) {
        self.u16(tag);
        self.u16(2);
        self.u32(2);
        self.bytes.extend_from_slice(&[letter, 0, 0, 0]);
    }

    /// The folder, and the six numbers of two places behind it.
    fn gps(&mut self, values_at: usize) {
        self.u16(5);
        self.u16(0);
        self.u16(1);
        self.u32(4);
        self.bytes.extend_from_slice(&[2, 3, 0, 0]);
        self.letter(1, b'N');
        self.entry(2, 5, 3, values_at);
        self.letter(3, b'E');
        self.entry(4, 5, 3, values_at + 24);
        self.u32(0);
        for number in LATITUDE.into_iter().chain(LONGITUDE) {
            self.u32(number);
            self.u32(1);
        }
    }
}

/// One segment of a JPEG: a marker and what follows its length.
#[must_use]
pub fn segment(marker: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let len = u16::try_from(body.len() + 2).expect("a segment has at most 64 KiB");
    [&[0xff, marker], len.to_be_bytes().as_slice(), &body].concat()
}

/// A picture with something to see, with segments behind its start.
///
/// # Errors
/// The encoder's.
pub fn jpeg(width: u16, height: u16, segments: &[Vec<u8>]) -> Result<Vec<u8>> {
    let mut pixels = Vec::new();
    for y in 0..u32::from(height) {
        for x in 0..u32::from(width) {
            let noise = (x * 7919 + y * 104_729).wrapping_mul(2_654_435_761) >> 27;
            pixels.extend([x + noise, y + noise, x ^ y].map(|value| value.to_le_bytes()[0]));
        }
    }
    let mut plain = Vec::new();
    Encoder::new(&mut plain, 90).encode(&pixels, width, height, ColorType::Rgb)?;
    let mut file = plain[..2].to_vec();
    file.extend(segments.iter().flatten());
    file.extend_from_slice(&plain[2..]);
    Ok(file)
}

/// The EXIF segment of a JPEG.
#[must_use]
pub fn exif_segment(exif: &Exif) -> Vec<u8> {
    segment(0xe1, &[b"Exif\0\0", &exif.build().0])
}

/// XMP that tells a place.
#[must_use]
pub fn xmp() -> String {
    format!(
        "<?xpacket begin='' id='W5M0MpCehiHzreSzNTczkc9d'?><x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF \
         xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'><rdf:Description \
         xmlns:exif='http://ns.adobe.com/exif/1.0/' exif:GPSLatitude='47,33.477N' \
         exif:GPSAreaInformation='{PLACE}'/></rdf:RDF></x:xmpmeta><?xpacket end='w'?>"
    )
}

/// The XMP segment of a JPEG.
#[must_use]
pub fn xmp_segment(xmp: &str) -> Vec<u8> {
    segment(0xe1, &[b"http://ns.adobe.com/xap/1.0/\0", xmp.as_bytes()])
}

/// A Photoshop segment with IPTC: a caption, and the place's sublocation.
#[must_use]
pub fn iptc_segment() -> Vec<u8> {
    let set = |set: u8, text: &str| {
        let len = u16::try_from(text.len()).expect("short").to_be_bytes();
        [&[0x1c, 2, set], len.as_slice(), text.as_bytes()].concat()
    };
    let sets = [set(120, "a caption"), set(92, PLACE)].concat();
    let len = u32::try_from(sets.len()).expect("short").to_be_bytes();
    segment(
        0xed,
        &[
            b"Photoshop 3.0\0",
            b"8BIM\x04\x04\0\0",
            &len,
            &sets,
            if sets.len() % 2 == 1 { b"\0" } else { b"" },
        ],
    )
}

/// A photo as cameras make them: EXIF with a small picture, XMP and IPTC, each of which tells the place.
///
/// # Errors
/// The encoder's.
pub fn photo(order: Order, width: u16, height: u16) -> Result<Vec<u8>> {
    let inner = exif_segment(&Exif { order, gps: true, thumbnail: None });
    let thumbnail = Some(jpeg(16, 16, &[inner])?);
    let outer = exif_segment(&Exif { order, gps: true, thumbnail });
    jpeg(width, height, &[outer, xmp_segment(&xmp()), iptc_segment()])
}

/// A photo whose EXIF another library wrote.
///
/// # Errors
/// The library's.
pub fn photo_by_library(width: u16, height: u16) -> Result<Vec<u8>> {
    let mut file = jpeg(width, height, &[])?;
    let number = |nominator: u32| uR64 { nominator, denominator: 1 };
    let mut metadata = Metadata::new();
    metadata.set_tag(ExifTag::Make(MAKER.to_owned()));
    metadata.set_tag(ExifTag::GPSLatitudeRef("N".to_owned()));
    metadata.set_tag(ExifTag::GPSLatitude(LATITUDE.map(number).to_vec()));
    metadata.set_tag(ExifTag::GPSLongitudeRef("E".to_owned()));
    metadata.set_tag(ExifTag::GPSLongitude(LONGITUDE.map(number).to_vec()));
    metadata.write_to_vec(&mut file, FileExtension::JPEG).context("writing EXIF")?;
    Ok(file)
}

fn boxed(kind: &[u8; 4], body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let len = u32::try_from(body.len() + 8).expect("test photos are small");
    [len.to_be_bytes().as_slice(), kind, &body].concat()
}

/// A HEIF with a picture's bytes (not a picture that a decoder would show), EXIF and XMP.
#[must_use]
pub fn heif(picture: &[u8], exif: &[u8], xmp: &[u8]) -> Vec<u8> {
    let ftyp = boxed(b"ftyp", &[b"heic\0\0\0\0mif1heic"]);
    let exif = [&6_u32.to_be_bytes(), b"Exif\0\0".as_slice(), exif].concat();
    let parts: [(&[u8; 4], &[u8], &[u8]); 3] =
        [(b"hvc1", b"", picture), (b"Exif", b"", &exif), (b"mime", b"application/rdf+xml\0", xmp)];
    let infos: Vec<Vec<u8>> = parts
        .iter()
        .zip(1_u16..)
        .map(|((kind, more, _), id)| {
            boxed(b"infe", &[&[2, 0, 0, 0], &id.to_be_bytes(), &[0, 0], *kind, &[0], more])
        })
        .collect();
    let iinf = boxed(b"iinf", &[&[0, 0, 0, 0, 0, 3], &infos.concat()]);
    let hdlr = boxed(b"hdlr", &[&[0; 8], b"pict", &[0; 13]]);
    let pitm = boxed(b"pitm", &[&[0, 0, 0, 0, 0, 1]]);
    let meta = |first: usize| {
        let mut at = first;
        let mut iloc = vec![0, 0, 0, 0, 0x44, 0, 0, 3];
        for ((_, _, bytes), id) in parts.iter().zip(1_u16..) {
            iloc.extend(id.to_be_bytes());
            iloc.extend([0, 0, 0, 1]);
            for number in [at, bytes.len()] {
                iloc.extend(u32::try_from(number).expect("test photos are small").to_be_bytes());
            }
            at += bytes.len();
        }
        boxed(b"meta", &[&[0; 4], &hdlr, &pitm, &iinf, &boxed(b"iloc", &[&iloc])])
    };
    let meta = meta(ftyp.len() + meta(0).len() + 8);
    [ftyp, meta, boxed(b"mdat", &[picture, &exif, xmp])].concat()
}
