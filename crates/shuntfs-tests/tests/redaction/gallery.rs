//! A folder of photos and tools, mounted under rules by which three users see three things.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use shuntfs_redact::{Pattern, Redaction};
use shuntfs_testkit::identity::Identity;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::photo::{Exif, Order, exif_segment, heif, jpeg, photo, photo_by_library, xmp};
use shuntfs_testkit::program::find;
use shuntfs_testkit::{Serial, serial, skipped};

/// Sees everything.
pub(crate) const OWNER: u32 = 4001;
/// Sees no places and no secrets.
pub(crate) const SECOND: u32 = 4002;
/// Sees nothing.
pub(crate) const THIRD: u32 = 4003;

/// What is hidden of tools.
pub(crate) const SECRET: &str = "SECRET-[0-9]+";
const SECRET_TEXT: &[u8] = b"\nSECRET-31415926\n";

pub(crate) const RULES: &str = r#"
[[rule]]
name = "the owner sees all"
uid = [0, 4001]
allow = true

[[rule]]
name = "no places"
path = "photos/**"
uid = 4002
redact = "exif-gps"

[[rule]]
name = "no secrets"
path = "tools/**"
uid = 4002
redact = { regex = "SECRET-[0-9]+", within = 16777216 }

[[rule]]
name = "no beginnings"
path = "notes/**"
uid = 4002
redact = { ranges = [[0, 6], [100]] }

[[rule]]
name = "nobody else"
path = ["photos/**", "tools/**", "notes/**"]
deny = "EACCES"
"#;

/// One file and what must be seen of it.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Its path below the mount.
    pub(crate) name: String,
    /// What the owner sees.
    pub(crate) whole: Vec<u8>,
    /// What the second sees.
    pub(crate) partial: Vec<u8>,
    /// Whether it can be run, to print itself.
    pub(crate) runs: bool,
}

pub(crate) struct Gallery {
    pub(crate) mount: Mounted,
    pub(crate) source: PathBuf,
    pub(crate) rules: PathBuf,
    pub(crate) pieces: Vec<Piece>,
    _lower: Lower,
    _serial: Serial,
}

/// A user, as a thread is one.
pub(crate) fn user(uid: u32) -> Identity {
    Identity::new(uid, uid)
}

impl Gallery {
    /// `None` where this machine lacks something, which was said.
    pub(crate) fn open(transport: Transport, flow: Flow, kind: LowerKind) -> Result<Option<Self>> {
        let serial = serial();
        let Some(lower) = Lower::make(kind)? else { return Ok(None) };
        let source = lower.folder("source")?;
        let pieces = pieces()?;
        for folder in ["photos", "tools", "notes", "free", "out"] {
            let path = source.join(folder);
            fs::create_dir(&path)?;
            fs::set_permissions(path, Permissions::from_mode(0o777))?;
        }
        for piece in &pieces {
            put(&source.join(&piece.name), &piece.whole)?;
        }
        let rules = lower.path().join("rules.toml");
        fs::write(&rules, RULES)?;
        let mut spec = MountSpec::new(&source, transport, flow).args(&["-o", "allow_other"]).limit(300);
        spec.args.extend(["--rules".into(), rules.clone().into_os_string()]);
        let Some(mount) = Mounted::start(&spec)? else { return Ok(None) };
        Ok(Some(Self { mount, source, rules, pieces, _lower: lower, _serial: serial }))
    }

    /// A piece's path on the mount.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    /// How many READs came so far.
    pub(crate) fn reads(&self) -> Result<u64> {
        Ok(self.mount.status()?.requests("READ"))
    }
}

/// Writes a file of the owner's that everybody may read and run, as far as permissions go.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| path.display().to_string())?;
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    chown(path, Some(OWNER), Some(OWNER))?;
    Ok(())
}

fn pieces() -> Result<Vec<Piece>> {
    let exif = |order| Exif { order, gps: true, thumbnail: None };
    let with_trailer = [photo(Order::Big, 64, 64)?, b"ftypmp42 +47.5579+013.6462/".to_vec()].concat();
    let two = [photo(Order::Little, 160, 120)?, jpeg(64, 64, &[exif_segment(&exif(Order::Big))])?].concat();
    let modern = heif(&[0x42; 9000], &exif(Order::Big).build().0, xmp().as_bytes());
    let mut pieces = Vec::new();
    for (name, whole) in [
        ("big.jpg", photo(Order::Big, 320, 240)?),
        ("little.jpg", photo(Order::Little, 200, 200)?),
        ("library.jpg", photo_by_library(200, 200)?),
        ("two.jpg", two),
        ("trailer.jpg", with_trailer),
        ("modern.heic", modern),
        ("cut.jpg", photo(Order::Big, 64, 64)?[..2000].to_vec()),
    ] {
        let partial = without(&Redaction::ExifGps, &whole);
        pieces.push(Piece { name: format!("photos/{name}"), whole, partial, runs: false });
    }
    if let Some(cat) = find("cat") {
        let whole = [fs::read(cat)?.as_slice(), SECRET_TEXT, &[b'x'; 5000], SECRET_TEXT].concat();
        let partial = without(&Redaction::Pattern(Pattern::new(SECRET, 0, 16 << 20)?), &whole);
        pieces.push(Piece { name: "tools/tool".into(), whole, partial, runs: true });
    } else {
        skipped("there is no cat to run");
    }
    let whole: Vec<u8> = (0..20_000_u32).map(|place| b'a' + place.to_le_bytes()[0] % 26).collect();
    let ranges = Redaction::Ranges([0..6, 100..u64::MAX].into_iter().collect());
    let partial = without(&ranges, &whole);
    pieces.push(Piece { name: "notes/note".into(), whole, partial, runs: false });
    Ok(pieces)
}

/// What is left of bytes.
pub(crate) fn without(redaction: &Redaction, whole: &[u8]) -> Vec<u8> {
    let mut partial = whole.to_vec();
    redaction.find(whole).blank(0, &mut partial);
    partial
}
