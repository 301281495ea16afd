//! `shunt null`: serves a file without contents, so that what is left is the cost of the way there. For `shunt bench`.

use std::sync::Arc;

use shuntfs::{MountOptions, Session, SessionOptions, Signals, Transport, TransportKind};

use crate::cli::NullArgs;
use crate::failure::Failure;
use crate::settings::TransportChoice;

// The example of the library, so that there is one.
#[path = "../../../shuntfs/examples/null.rs"]
#[expect(dead_code, reason = "the example has a `main` of its own")]
mod example;

/// Mounts and serves until told to end.
///
/// # Errors
/// Where it cannot be mounted, or the connection ended by an error.
pub(crate) fn run(args: &NullArgs) -> Result<(), Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Failure::new(format!("cannot {what}: {error}"));
    let signals = Signals::block().map_err(|error| failed("take signals", &error))?;
    let mount = MountOptions { source: "null".into(), ..MountOptions::default() };
    let options = SessionOptions {
        transport: match args.transport {
            TransportChoice::Auto => Transport::Auto,
            TransportChoice::Device => Transport::Only(TransportKind::Device),
            TransportChoice::Cloned => Transport::Only(TransportKind::Cloned),
            TransportChoice::Uring => Transport::Only(TransportKind::Uring),
        },
        queues: args.threads.map(std::num::NonZeroUsize::get),
        ..SessionOptions::default()
    };
    let session = Session::mount(Arc::new(example::Null), &args.mountpoint, &mount, &options)
        .map_err(|error| failed("mount", &error))?;
    session.run(&signals).map_err(|error| failed("serve", &error))
}
