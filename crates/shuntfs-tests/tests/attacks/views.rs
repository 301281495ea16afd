//! A user of a view's mount waits for names that are changed through the other mount of the same folder.
//!
//! Rules go by names. A server that takes the folder for its own alone goes on with those that it was told first, so what was
//! moved to a place that the view hides was seen under its old name, and the other way about.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Result, ensure};
use shuntfs_testkit::mounted::{MountSpec, Mounted};

use crate::stage::{ATTACKER, Ground, OWNER, by, folder, on_each_transport, put};

const RULES: &str = "[[rule]]\nview = 'web'\npath = 'private/**'\ndeny = 'EACCES'\n\
     [[rule]]\nview = 'web'\npath = 'hidden/*'\nhide = true\n";

#[test]
fn a_view_follows_what_changes_through_another_mount() -> Result<()> {
    let ground = Ground::default();
    let flow = ground.flow;
    let prepare = |source: &Path, beside: &Path| {
        for name in ["public", "private", "hidden"] {
            folder(&source.join(name), OWNER, 0o755)?;
        }
        folder(&source.join("public/album"), OWNER, 0o755)?;
        put(&source.join("public/album/photo"), b"a secret", OWNER, 0o644)?;
        put(&source.join("public/letter"), b"a letter", OWNER, 0o644)?;
        put(&source.join("public/linked"), b"by two names", OWNER, 0o644)?;
        fs::write(beside.join("rules"), RULES)?;
        let rules: OsString = beside.join("rules").into();
        Ok(vec!["--rules".into(), rules, "--view".into(), "web".into()])
    };
    on_each_transport(&ground, prepare, |stage| {
        let transport = shuntfs_testkit::mounted::Transport::Device;
        let Some(plain) = Mounted::start(&MountSpec::new(&stage.source, transport, flow))? else {
            return Ok(());
        };
        let read = |name: &str| by(ATTACKER, || fs::read(stage.at(name)));
        // The view's mount gets to know all names.
        for name in ["public/album/photo", "public/letter", "public/linked"] {
            ensure!(!read(name)?.is_empty());
        }
        let changed =
            |from: &str, to: &str| by(OWNER, || fs::rename(plain.path().join(from), plain.path().join(to)));
        changed("public/album", "private/album")?;
        changed("public/letter", "hidden/letter")?;
        by(OWNER, || fs::hard_link(plain.path().join("public/linked"), plain.path().join("private/linked")))?;
        for (name, kind) in [
            ("private/album/photo", ErrorKind::PermissionDenied),
            ("public/album/photo", ErrorKind::NotFound),
            ("public/letter", ErrorKind::NotFound),
            ("hidden/letter", ErrorKind::NotFound),
            ("private/linked", ErrorKind::PermissionDenied),
        ] {
            let outcome = read(name);
            let error = outcome.err().map(|error| error.kind());
            ensure!(error == Some(kind), "{name}: {error:?}, not {kind:?}");
        }
        // And back, with another length.
        changed("hidden/letter", "public/letter")?;
        by(OWNER, || fs::write(plain.path().join("public/letter"), "a longer letter"))?;
        let seen = read("public/letter")?;
        ensure!(seen == b"a longer letter", "{}", String::from_utf8_lossy(&seen));
        ensure!(by(ATTACKER, || fs::metadata(stage.at("public/letter")))?.len() == 15);
        let said = stage.mount.log();
        ensure!(said.contains("a view is mounted with --cache none"), "{said}");
        Ok(())
    })
}
