//! What a server on io_uring does before it is replaced: it fills the slots of its rings, when its keeper asks for that.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::KeptRings;

use crate::channel::{Asked, Line, Said};

/// How long requests that were begun may take to end. Callers wait for as long.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// After so long a server that was to be killed, and was not, goes on.
const KILLED: Duration = Duration::from_secs(10);

/// Starts a thread that answers the keeper's questions for as long as the process lives.
///
/// # Errors
/// Those of starting a thread.
pub(crate) fn attend(rings: Arc<KeptRings>, line: Line, path: PathBuf) -> io::Result<()> {
    let attend = move || {
        // After an error nobody asks any more.
        while let Ok(Asked::Fill(server)) = line.asked() {
            // One that was killed before it read it may have been meant.
            if server != std::process::id() {
                continue;
            }
            let filled = rings.fill(&path, LIMIT);
            let said = match &filled {
                Ok(()) => Said::Filled,
                Err(why) => Said::NotFilled(why.to_string()),
            };
            let heard = line.say(&said).is_ok();
            if filled.is_ok() {
                if heard {
                    std::thread::sleep(KILLED);
                }
                tracing::warn!("the keeper does not replace this server, which goes on");
                rings.empty();
            }
        }
    };
    std::thread::Builder::new().name("shunt-fill".into()).spawn(attend).map(drop)
}
