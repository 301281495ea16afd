//! Where a photo says it was taken.
//!
//! The walkers name what they leave, not only what they hide: metadata of a kind that is not known to hold no location
//! is hidden, as is everything behind a photo's end, and a file whose structure does not add up is hidden whole. What
//! the walkers leave is then given to another reader (`kamadak-exif`), and hidden whole if that one still finds location.
//!
//! Not looked into: the makers' private notes (`MakerNote`), and what must be seen in the picture.

mod heif;
mod hidden;
mod iptc;
mod jpeg;
mod location;
mod part;
mod tiff;
mod xmp;

pub(crate) use location::location;
use part::Odd;
