//! The server of a mount of folders.

use std::sync::Arc;

use super::answers::SessionAnswers;
use super::check::{self, At, Target};
use super::command::Asked;
use super::kept::Kept;
use super::session::Mounted;
use crate::control::Farewell;
use crate::failure::Failure;
use crate::mounts::shown;
use crate::serving::{self, Announce, Serving, Started, Task};
use crate::settings::{Settings, TakeoverChoice, VerifyChoice};

/// Mounts, and returns when the mount is gone.
///
/// # Errors
/// Where the mount cannot be, and where the connection ended by an error.
pub(super) fn serve(asked: &Asked, announce: Announce) -> Result<(), Failure> {
    let settings = &asked.settings;
    let target = check::check(&asked.source, &asked.mountpoint, settings)?;
    match settings.takeover {
        TakeoverChoice::Off => serving::serve(settings, announce, || {
            if settings.rules.is_some() || settings.verify.what == VerifyChoice::IfSealed {
                announce.doing("searching for hard links");
            }
            Ok(started(Mounted::start(&target, settings)?, &target, settings))
        }),
        TakeoverChoice::Crash | TakeoverChoice::Upgrade => keep(&target, settings, announce),
    }
}

/// Keeps the mount, whatever becomes of its servers.
fn keep(target: &Target, settings: &Settings, announce: Announce) -> Result<(), Failure> {
    let kept = Kept::open(target, settings)?;
    serving::keep(
        settings,
        announce,
        &kept.place(settings),
        || kept.mount(settings),
        |seat| Ok(started(Mounted::take_seat(&kept, settings, seat)?, target, settings)),
    )
}

pub(super) fn started(mounted: Mounted, target: &Target, settings: &Settings) -> Started<Mounted> {
    let notes = target.notes.iter().cloned().chain(mounted.notes(settings)).collect();
    let served = Arc::new(mounted);
    Started {
        answers: Arc::new(SessionAnswers::new(Arc::clone(&served))),
        served,
        notes,
        source: target.source.to_string_lossy().into_owned(),
        place: place(target),
        farewell: Arc::new(Farewell::default()),
    }
}

fn place(target: &Target) -> String {
    match &target.at {
        At::Folder(path) => shown(path),
        At::Device(number) => format!("the device /dev/fd/{number}"),
    }
}

impl Serving for Mounted {
    fn session(&self) -> &shuntfs::Session {
        Self::session(self)
    }

    fn connection(&self) -> Option<u64> {
        let of_keeper = self.seat().and_then(|seat| seat.connection);
        of_keeper.or_else(|| self.session().connection()).map(u64::from)
    }

    fn task(settings: &Settings) -> Task {
        match settings.verify.what {
            VerifyChoice::Required => Task::Sealed,
            _ => Task::Folder,
        }
    }

    fn read_again(&self) {
        // Each fails by itself.
        if let Some(rules) = self.rules() {
            rules.read_again();
        }
        if let Some(verifying) = self.verifying() {
            verifying.read_again();
        }
        if self.rules().is_none() && self.verifying().is_none() {
            tracing::info!("SIGHUP: there is nothing to read again");
        }
    }
}
