//! One after the other.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::mm::ProtFlags;
use rustix::process::Signal;
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::LowerKind;
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport, shunt};
use shuntfs_testkit::raw::Mapping;

use crate::gallery::{Gallery, OWNER, Piece, RULES, SECOND, THIRD, user};
use shuntfs_testkit::viewer::Way;

/// Runs a test on each transport with the kernel moving the owner's bytes, and once with each other flow.
pub(crate) fn everywhere(test: impl Fn(&Gallery) -> Result<()>) -> Result<()> {
    let mut cells: Vec<_> =
        Transport::ALL.map(|transport| (transport, Flow::Passthrough, LowerKind::Ext4)).into();
    cells.push((Transport::Device, Flow::Delegated, LowerKind::Tmpfs));
    cells.push((Transport::Cloned, Flow::Served, LowerKind::Xfs));
    for (transport, flow, kind) in cells {
        let what = format!("{transport:?} {flow:?} on {kind}");
        let Some(gallery) = Gallery::open(transport, flow, kind).with_context(|| what.clone())? else {
            continue;
        };
        test(&gallery).with_context(|| format!("{what}\n{}", gallery.mount.log()))?;
    }
    Ok(())
}

fn ways(piece: &Piece) -> impl Iterator<Item = Way> {
    let runs = piece.runs;
    Way::ALL.into_iter().filter(move |way| runs || *way != Way::Run)
}

/// What a user sees of a piece, by every way.
fn sees(gallery: &Gallery, uid: u32, piece: &Piece, bytes: &[u8]) -> Result<()> {
    let (path, out) = (gallery.at(&piece.name), gallery.at("out"));
    user(uid).run(|| {
        for way in ways(piece) {
            let seen =
                way.look(&path, &out).with_context(|| format!("{} by {way:?} as {uid}", piece.name))?;
            ensure!(seen == bytes, "{} by {way:?} as {uid} is not what is to be seen", piece.name);
        }
        Ok(())
    })
}

/// The same of a file that got a name below the mount: until all its names were searched for it is refused, and it is never seen
/// otherwise.
fn comes_to_see(gallery: &Gallery, uid: u32, piece: &Piece, bytes: &[u8]) -> Result<()> {
    let mut seen = Ok(());
    let is_refusal = |error: &anyhow::Error| {
        error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) == Some(libc::EACCES)
    };
    wait_until(Duration::from_secs(10), || {
        seen = sees(gallery, uid, piece, bytes);
        !seen.as_ref().is_err_and(is_refusal)
    });
    seen
}

fn is_refused(gallery: &Gallery, uid: u32, piece: &Piece) -> Result<()> {
    let (path, out) = (gallery.at(&piece.name), gallery.at("out"));
    user(uid).run(|| {
        for way in ways(piece) {
            let error = way.look(&path, &out).err().and_then(|error| error.raw_os_error());
            // Who may not open it may still name it.
            ensure!(error == Some(libc::EACCES), "{} by {way:?} as {uid}: {error:?}", piece.name);
        }
        Ok(())
    })
}

#[test]
fn three_users_see_three_things() -> Result<()> {
    everywhere(|gallery| {
        // Twice, so that each comes after each other.
        for _ in 0..2 {
            for piece in &gallery.pieces {
                sees(gallery, OWNER, piece, &piece.whole)?;
                is_refused(gallery, THIRD, piece)?;
                sees(gallery, SECOND, piece, &piece.partial)?;
                is_refused(gallery, THIRD, piece)?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_file_is_one_file_to_all() -> Result<()> {
    everywhere(|gallery| {
        for piece in &gallery.pieces {
            let stat = |uid| user(uid).run(|| fs::metadata(gallery.at(&piece.name)));
            let (owner, second, third) = (stat(OWNER)?, stat(SECOND)?, stat(THIRD)?);
            let facts =
                |stat: &fs::Metadata| (stat.ino(), stat.len(), stat.mode(), stat.nlink(), stat.mtime());
            ensure!(facts(&owner) == facts(&second) && facts(&owner) == facts(&third), "{}", piece.name);
        }
        // What one changes the others see.
        let path = gallery.at(&gallery.pieces[0].name);
        let changed =
            |uid| user(uid).run(|| fs::metadata(&path)).map(|stat| (stat.len(), stat.mode() & 0o777));
        let len = gallery.pieces[0].whole.len() as u64;
        ensure!(changed(SECOND)? == (len, 0o755));
        user(OWNER).run(|| -> Result<()> {
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o744))?;
            Ok(File::options().write(true).open(&path)?.set_len(len + 5)?)
        })?;
        ensure!(changed(SECOND)? == (len + 5, 0o744));
        Ok(())
    })
}

#[test]
fn the_owner_is_in_passthrough_whatever_others_read() -> Result<()> {
    for transport in Transport::ALL {
        let Some(gallery) = Gallery::open(transport, Flow::Passthrough, LowerKind::Ext4)? else { continue };
        let piece = &gallery.pieces[0];
        let path = gallery.at(&piece.name);
        let held = user(SECOND).run(|| File::open(&path))?;
        let mapped = Mapping::new(&held, piece.partial.len(), ProtFlags::READ, true)?;
        ensure!(mapped.load(0, piece.partial.len()) == piece.partial);
        let before = (gallery.reads()?, gallery.mount.status()?.flow("passthrough"));
        sees(&gallery, OWNER, piece, &piece.whole)?;
        let after = (gallery.reads()?, gallery.mount.status()?.flow("passthrough"));
        // The copies that the test makes and reads back are the only others.
        ensure!(after.0 == before.0, "{} READs", after.0 - before.0);
        ensure!(after.1 > before.1);
        ensure!(mapped.load(0, piece.partial.len()) == piece.partial);
    }
    Ok(())
}

#[test]
fn a_partial_view_changes_nothing() -> Result<()> {
    everywhere(|gallery| {
        for piece in &gallery.pieces {
            fs::set_permissions(
                gallery.source.join(&piece.name),
                std::os::unix::fs::PermissionsExt::from_mode(0o777),
            )?;
            let path = gallery.at(&piece.name);
            user(SECOND).run(|| -> Result<()> {
                let refused = |what: &str, outcome: std::io::Result<()>| {
                    let error = outcome.err().and_then(|error| error.raw_os_error());
                    ensure!(error == Some(libc::EACCES), "{what} of {}: {error:?}", piece.name);
                    Ok(())
                };
                refused("writing", File::options().write(true).open(&path).map(drop))?;
                refused("writing and reading", File::options().read(true).write(true).open(&path).map(drop))?;
                refused("appending", File::options().append(true).open(&path).map(drop))?;
                refused("cutting", File::options().write(true).truncate(true).open(&path).map(drop))?;
                refused(
                    "creating",
                    File::options().create(true).write(true).truncate(false).open(&path).map(drop),
                )?;
                Ok(())
            })?;
            ensure!(fs::read(gallery.source.join(&piece.name))? == piece.whole);
        }
        Ok(())
    })
}

#[test]
fn a_second_name_shows_no_more() -> Result<()> {
    everywhere(|gallery| {
        let piece = &gallery.pieces[0];
        let (path, free) = (gallery.at(&piece.name), gallery.at("free/other.jpg"));
        user(SECOND).run(|| {
            for (what, outcome) in [
                ("linking", fs::hard_link(&path, &free)),
                ("moving", fs::rename(&path, &free)),
                ("moving the folder", fs::rename(gallery.at("photos"), gallery.at("free/photos"))),
            ] {
                let error = outcome.err().and_then(|error| error.raw_os_error());
                ensure!(matches!(error, Some(libc::EACCES | libc::EPERM)), "{what}: {error:?}");
            }
            Ok(())
        })?;
        // One that was there before: as strict as the strictest name that was met.
        sees(gallery, SECOND, piece, &piece.partial)?;
        fs::hard_link(gallery.source.join(&piece.name), gallery.source.join("free/below.jpg"))?;
        let other = Piece { name: "free/below.jpg".into(), ..piece.clone() };
        sees(gallery, OWNER, piece, &piece.whole)?;
        comes_to_see(gallery, SECOND, &other, &piece.partial)?;
        sees(gallery, OWNER, &other, &piece.whole)?;
        sees(gallery, SECOND, piece, &piece.partial)?;
        // It does not matter who met the strict name.
        let (piece, free) = (&gallery.pieces[1], "free/later.jpg");
        fs::hard_link(gallery.source.join(&piece.name), gallery.source.join(free))?;
        let other = Piece { name: free.into(), ..piece.clone() };
        sees(gallery, OWNER, piece, &piece.whole)?;
        let held = user(OWNER).run(|| File::open(gallery.at(&piece.name)))?;
        comes_to_see(gallery, SECOND, &other, &piece.partial)?;
        sees(gallery, OWNER, &other, &piece.whole)?;
        drop(held);
        // Nor that anybody has met it, where it was there before the rules.
        let (piece, free) = (&gallery.pieces[2], "free/early.jpg");
        fs::hard_link(gallery.source.join(&piece.name), gallery.source.join(free))?;
        gallery.mount.signal(Signal::HUP)?;
        let other = Piece { name: free.into(), ..piece.clone() };
        let took =
            wait_until(Duration::from_secs(10), || sees(gallery, SECOND, &other, &piece.partial).is_ok());
        ensure!(took, "the source is searched when the rules are read");
        sees(gallery, OWNER, &other, &piece.whole)
    })
}

#[test]
fn a_path_descriptor_of_somebody_else_opens_no_more() -> Result<()> {
    everywhere(|gallery| {
        let piece = &gallery.pieces[0];
        let find = |uid| {
            let path = gallery.at(&piece.name);
            user(uid).run(|| File::options().read(true).custom_flags(libc::O_PATH).open(path))
        };
        // Threads share descriptors, as processes do that are handed some.
        for (finder, opener, expected) in [
            (OWNER, SECOND, Err(libc::ESTALE)),
            (OWNER, THIRD, Err(libc::EACCES)),
            (SECOND, THIRD, Err(libc::ESTALE)),
            (SECOND, OWNER, Err(libc::ESTALE)),
            (SECOND, SECOND, Ok(&piece.partial)),
            (OWNER, OWNER, Ok(&piece.whole)),
        ] {
            let found = find(finder)?;
            let again = format!("/proc/self/fd/{}", found.as_raw_fd());
            let seen = user(opener).run(|| fs::read(&again)).map_err(|error| error.raw_os_error());
            let expected = expected.cloned().map_err(Some);
            ensure!(seen == expected, "found by {finder}, opened by {opener}: {:?}", seen.err());
        }
        Ok(())
    })
}

#[test]
fn what_is_being_written_is_busy_and_what_was_opened_stays() -> Result<()> {
    everywhere(|gallery| {
        let tool =
            gallery.pieces.iter().find(|piece| piece.name.starts_with("photos/little")).context("made")?;
        let path = gallery.at(&tool.name);
        let early = user(SECOND).run(|| File::open(&path))?;
        let writer = user(OWNER).run(|| File::options().read(true).write(true).open(&path))?;
        // A view that was looked at before the file changed may still be given out; a new one is not made.
        let mapping = Mapping::new(&writer, tool.whole.len(), ProtFlags::READ | ProtFlags::WRITE, true)?;
        drop(writer);
        mapping.store(0, &vec![0x77; tool.whole.len()]);
        mapping.sync()?;
        rustix::fs::utimensat(
            rustix::fs::CWD,
            gallery.source.join(&tool.name),
            &rustix::fs::Timestamps {
                last_access: rustix::fs::Timespec { tv_sec: 5, tv_nsec: 5 },
                last_modification: rustix::fs::Timespec { tv_sec: 5, tv_nsec: 5 },
            },
            rustix::fs::AtFlags::empty(),
        )?;
        let busy = user(SECOND).run(|| fs::read(&path)).err().and_then(|error| error.raw_os_error());
        ensure!(busy == Some(libc::EBUSY), "while a mapping may store: {busy:?}");
        let seen = Way::Pieces.look_at(&early, &gallery.at("out"))?;
        ensure!(seen == tool.partial, "what was opened shows what it was");
        drop(mapping);
        // It is no photo any more.
        let mut now = Vec::new();
        wait_until(Duration::from_secs(10), || {
            now = user(SECOND).run(|| fs::read(&path)).unwrap_or_default();
            !now.is_empty()
        });
        ensure!(now == vec![0; tool.whole.len()], "a file that is no photo is hidden whole");
        Ok(())
    })
}

#[test]
fn rules_change_live() -> Result<()> {
    everywhere(|gallery| {
        let piece = &gallery.pieces[0];
        sees(gallery, OWNER, piece, &piece.whole)?;
        sees(gallery, SECOND, piece, &piece.partial)?;
        // The second and the third change places.
        let changed = RULES.replace("uid = 4002", "uid = 4003");
        fs::write(&gallery.rules, changed)?;
        gallery.mount.signal(Signal::HUP)?;
        let path = gallery.at(&piece.name);
        let took = wait_until(Duration::from_secs(10), || user(SECOND).run(|| fs::read(&path)).is_err());
        ensure!(took, "the rules are read again");
        sees(gallery, THIRD, piece, &piece.partial)?;
        is_refused(gallery, SECOND, piece)?;
        sees(gallery, OWNER, piece, &piece.whole)?;
        // Rules that are wrong change nothing.
        fs::write(&gallery.rules, "[[rule]]\nuid = 4002\nalow = true\n")?;
        gallery.mount.signal(Signal::HUP)?;
        std::thread::sleep(Duration::from_millis(300));
        is_refused(gallery, SECOND, piece)?;
        sees(gallery, THIRD, piece, &piece.partial)
    })
}

#[test]
fn why_says_it_for_each() -> Result<()> {
    let Some(gallery) = Gallery::open(Transport::Device, Flow::Passthrough, LowerKind::Ext4)? else {
        return Ok(());
    };
    let path = gallery.at(&gallery.pieces[0].name);
    for (uid, words) in [
        (OWNER, ["the owner sees all", "passthrough"]),
        (SECOND, ["no places", "the place in a photo's tags"]),
        (THIRD, ["nobody else", "EACCES"]),
    ] {
        let said = shunt(&[&"why", &path, &"--as", &uid.to_string()])?.ok("shunt why")?;
        for word in words {
            ensure!(said.contains(word), "{word:?} is not said of {uid}:\n{said}");
        }
    }
    Ok(())
}

#[test]
fn a_mount_with_a_view_is_apart_from_one_without() -> Result<()> {
    let Some(gallery) = Gallery::open(Transport::Device, Flow::Passthrough, LowerKind::Ext4)? else {
        return Ok(());
    };
    let rules = gallery.rules.with_file_name("views.toml");
    fs::write(&rules, "[[rule]]\npath = 'photos/**'\nview = 'web'\nredact = 'exif-gps'\n")?;
    let view = |more: &[&str]| {
        let spec = MountSpec::new(&gallery.source, Transport::Device, Flow::Passthrough);
        let mut spec = spec.args(&["-o", "allow_other"]).args(more);
        spec.args.extend(["--rules".into(), rules.clone().into_os_string()]);
        Mounted::start(&spec)
    };
    let (Some(plain), Some(web)) = (view(&[])?, view(&["--view", "web"])?) else { return Ok(()) };
    let piece = &gallery.pieces[0];
    for uid in [0, OWNER, SECOND, THIRD] {
        let read = |mount: &Mounted| user(uid).run(|| fs::read(mount.path().join(&piece.name)));
        ensure!(read(&plain)? == piece.whole && read(&web)? == piece.partial, "{uid}");
    }
    Ok(())
}
