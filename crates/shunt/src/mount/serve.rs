//! The server of a mount of folders.

use std::sync::Arc;

use super::answers::SessionAnswers;
use super::check::{self, At, Target};
use super::command::Asked;
use super::session::Mounted;
use crate::control::Farewell;
use crate::failure::Failure;
use crate::mounts::shown;
use crate::serving::{self, Announce, Serving, Started, Task};
use crate::settings::{Settings, VerifyChoice};

/// Mounts, and returns when the mount is gone.
///
/// # Errors
/// Where the mount cannot be, and where the connection ended by an error.
pub(super) fn serve(asked: &Asked, announce: Announce) -> Result<(), Failure> {
    let target = check::check(&asked.source, &asked.mountpoint, &asked.settings)?;
    serving::serve(&asked.settings, announce, || {
        if asked.settings.rules.is_some() || asked.settings.verify.what == VerifyChoice::IfSealed {
            announce.doing("searching for hard links");
        }
        let mounted = Arc::new(Mounted::start(&target, &asked.settings)?);
        let notes = target.notes.iter().cloned().chain(mounted.notes(&asked.settings)).collect();
        let answers = Arc::new(SessionAnswers::new(Arc::clone(&mounted)));
        let (source, place) = (target.source.to_string_lossy().into_owned(), place(&target));
        Ok(Started {
            served: mounted,
            answers,
            notes,
            source,
            place,
            farewell: Arc::new(Farewell::default()),
        })
    })
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
