//! Hides the location in what any bytes claim to be, and looks for it in what is left. Runs under libFuzzer and in the
//! tests of `shuntfs-redact`.

use std::io::Cursor;

use exif::{Context, Reader};
use shuntfs_redact::Redaction;

pub(crate) fn run(bytes: &[u8]) {
    let hidden = Redaction::ExifGps.find(bytes);
    for pair in hidden.as_slice().windows(2) {
        assert!(pair[0].end < pair[1].start, "in order and apart: {hidden}");
    }
    assert!(hidden.as_slice().iter().all(|range| range.start < range.end));
    assert!(bytes.is_empty() || hidden.contains(bytes.len() as u64), "what the file grows by is hidden");
    let mut shown = bytes.to_vec();
    hidden.blank(0, &mut shown);
    if hidden.is_whole() {
        assert!(shown.iter().all(|byte| *byte == 0));
        return;
    }
    let mut reader = Reader::new();
    reader.continue_on_error(true);
    let read = reader.read_from_container(&mut Cursor::new(&shown));
    if let Ok(exif) = read.or_else(|error| error.distill_partial_result(|_| ())) {
        assert!(!exif.fields().any(|field| field.tag.context() == Context::Gps), "location is left");
    }
    // What was redacted once can be redacted again; that may hide more, where a hidden image no longer is one.
    let _ = Redaction::ExifGps.find(&shown);
}
