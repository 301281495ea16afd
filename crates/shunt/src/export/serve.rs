//! The server of an export.

use std::io;
use std::path::Path;
use std::sync::Arc;

use shuntfs::{Flow, MountOptions, Reason, Session, SessionOptions, Transport, TransportKind};
use shuntfs_image::{
    Export, Exported, FlowWish, Format, HeaderError, HostCache, Image, ImageError, ImageOptions,
};

use super::answers::ExportAnswers;
use super::args::{AllowOther, ExportArgs, FormatChoice, HostCacheChoice};
use super::check::Place;
use crate::control::Farewell;
use crate::doctor::access;
use crate::failure::Failure;
use crate::mount::check::check_rights;
use crate::mount::session::{not_privileged, of_mount};
use crate::mounts::shown;
use crate::serving::{self, Announce, Serving, Started, Task, mount_point_of};
use crate::settings::{FlowChoice, Settings, Switch, TransportChoice};

/// The least that a READ or WRITE may carry at once.
const PAYLOAD_MIN: u64 = 128 << 10;

/// An export that answers.
#[derive(Debug)]
pub(super) struct Exporting {
    // Ends before the image does, whose locks are to be held for as long as anybody writes.
    session: Session,
    pub(super) export: Arc<Export>,
    image: Arc<Image>,
    place: Arc<Place>,
    pub(super) passthrough_off: Option<Reason>,
    pub(super) source: String,
    /// Whether another flow than `served` was asked for by name.
    flow_is_wished: bool,
}

/// Exports an image, and returns when it is gone.
///
/// # Errors
/// Where the image cannot be opened or shown, where the connection ended by an error, and where what was written could
/// not be made durable.
pub(super) fn serve(args: &ExportArgs, image: &Path, file: &Path, announce: Announce) -> Result<(), Failure> {
    let settings = settings_of(args);
    check_rights(&settings)?;
    // The image first: FILE may be the image itself, and is hidden once it is mounted over.
    let opened = Image::open(&image_options(args, image)).map_err(|error| of_image(&error))?;
    let opened = Arc::new(opened);
    let place = Arc::new(Place::find(file)?);
    let source = source_of(args, image);
    let outcome = serving::serve(&settings, announce, || {
        let exporting = Arc::new(Exporting::start(args, &opened, &place, &source)?);
        let notes = exporting.notes();
        let farewell = Arc::new(Farewell::default());
        let answers = ExportAnswers::new(Arc::clone(&exporting), Arc::clone(&farewell));
        Ok(Started {
            served: exporting,
            answers: Arc::new(answers),
            notes,
            source: source.clone(),
            place: shown(&place.path),
            farewell,
        })
    });
    // Where the last act did not come, or could not. The thread that answers questions still holds what was shown.
    place.remove();
    outcome
}

impl Exporting {
    fn start(
        args: &ExportArgs,
        image: &Arc<Image>,
        place: &Arc<Place>,
        source: &str,
    ) -> Result<Self, Failure> {
        let how = Exported::default()
            .growable(args.growable)
            .allow_other(others_allowed(args.allow_other))
            .flow(flow_wish(args.flow));
        let export = Arc::new(Export::new(Arc::clone(image), how));
        let mount = MountOptions {
            source: shown_source(source, &place.path),
            allow_other: others_allowed(args.allow_other),
            noexec: true,
            ..MountOptions::default()
        };
        let options = session_options(args);
        let session = Session::mount(Arc::clone(&export), &place.path, &mount, &options)
            .map_err(|error| of_mount(&error))?;
        let passthrough_off = session.negotiated().passthrough_off.or_else(not_privileged);
        let image = Arc::clone(image);
        let flow_is_wished = !matches!(args.flow, FlowChoice::Auto | FlowChoice::Served);
        let (place, source) = (Arc::clone(place), source.to_owned());
        Ok(Self { session, export, image, place, passthrough_off, source, flow_is_wished })
    }

    /// The flow that an open for reading wishes for.
    pub(super) fn expected_flow(&self) -> Flow {
        self.export.read_flow()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.export.status().locked {
            notes.push(
                "the image's file system keeps no locks, so other programs are not kept from writing it"
                    .to_owned(),
            );
        }
        if self.export.is_watched() {
            notes.push(
                "the image's format was not said, so writes pass by the server, which looks that no guest makes a qcow2 image of \
                 it: --format raw lets them take the short way"
                    .to_owned(),
            );
        }
        if self.flow_is_wished && matches!(self.expected_flow(), Flow::Served | Flow::Ranges) {
            let status = self.export.status();
            notes.push(format!(
                "--flow is of raw images whose bytes go through the page cache: those of this {} image are moved by the server",
                status.format.name()
            ));
        }
        notes
    }
}

impl Serving for Exporting {
    fn session(&self) -> &Session {
        &self.session
    }

    fn task(_: &Settings) -> Task {
        Task::OwnFiles
    }

    fn close(&self) -> Option<io::Result<()>> {
        let outcome = self.image.close();
        // Not below a mount that could not be taken away.
        if mount_point_of(self).is_none() {
            self.place.remove();
        }
        self.export.status().writable.then_some(outcome)
    }
}

fn settings_of(args: &ExportArgs) -> Settings {
    let mut settings = Settings {
        log: args.log.unwrap_or_default(),
        log_file: args.log_file.clone(),
        metrics: args.metrics_listen,
        ..Settings::default()
    };
    settings.mount.allow_other = args.allow_other == AllowOther::On;
    settings
}

fn image_options(args: &ExportArgs, image: &Path) -> ImageOptions {
    ImageOptions {
        path: std::path::absolute(image).unwrap_or_else(|_| image.to_owned()),
        format: match args.format {
            FormatChoice::Auto => Format::Auto,
            FormatChoice::Raw => Format::Raw,
            FormatChoice::Qcow2 => Format::Qcow2,
            FormatChoice::Null => Format::Null,
        },
        size: args.size,
        writable: args.writable,
        cache: match args.host_cache {
            HostCacheChoice::Writeback => HostCache::Writeback,
            HostCacheChoice::None => HostCache::None,
        },
        snapshot: args.snapshot.clone(),
        backing: args.backing(),
    }
}

fn source_of(args: &ExportArgs, image: &Path) -> String {
    if args.format == FormatChoice::Null {
        return "null".to_owned();
    }
    std::path::absolute(image).unwrap_or_else(|_| image.to_owned()).to_string_lossy().into_owned()
}

/// What the list of mounts says. Programs that make file systems take the source of a mount for a device in use, so an
/// image that is shown over itself is called something else.
fn shown_source(source: &str, place: &Path) -> String {
    match Path::new(source).canonicalize() {
        Ok(image) if image == place => format!("image:{source}"),
        _ => source.to_owned(),
    }
}

fn others_allowed(choice: AllowOther) -> bool {
    match choice {
        AllowOther::Off => false,
        AllowOther::On => true,
        AllowOther::Auto => {
            shuntfs_sys::caps::has_effective(shuntfs_sys::Cap::SysAdmin) || access::allow_other_is_allowed()
        }
    }
}

fn flow_wish(choice: FlowChoice) -> FlowWish {
    match choice {
        FlowChoice::Auto | FlowChoice::Passthrough => FlowWish::Passthrough,
        FlowChoice::Relay | FlowChoice::Splice => FlowWish::Relay,
        FlowChoice::Served => FlowWish::Served,
    }
}

/// More requests at once than a mount of folders has: disks are read and written many blocks at once.
fn session_options(args: &ExportArgs) -> SessionOptions {
    const DEPTH: usize = 32;
    let defaults = SessionOptions::default();
    let depth = args.queue_depth.map_or(DEPTH, usize::from);
    // On io_uring there is a queue for each CPU that there may ever be; together they stay below the cap.
    let queues = u64::from(shuntfs_sys::threads::possible_cpus()).max(1);
    let share = defaults.payload_cap / (queues * depth as u64).max(1);
    let payload_len = (defaults.payload_len as u64).min(share.max(PAYLOAD_MIN));
    let payload_len = usize::try_from(payload_len).unwrap_or(defaults.payload_len) & !0xfff;
    let all = queues * (depth as u64 + 1) * (payload_len as u64 + 0x1000);
    SessionOptions {
        transport: match args.transport {
            TransportChoice::Auto => Transport::Auto,
            TransportChoice::Device => Transport::Only(TransportKind::Device),
            TransportChoice::Cloned => Transport::Only(TransportKind::Cloned),
            TransportChoice::Uring => Transport::Only(TransportKind::Uring),
        },
        queues: args.threads.map(usize::from),
        depth,
        payload_len,
        sched_idle: args.sched_idle == Switch::On,
        stall_after: args.stall_after.unwrap_or_default().0,
        payload_cap: defaults.payload_cap.max(all),
        passthrough: matches!(args.flow, FlowChoice::Auto | FlowChoice::Passthrough),
        ..defaults
    }
}

fn of_image(error: &ImageError) -> Failure {
    let failure = Failure::new(format!("IMAGE cannot be shown: {error}"));
    match hint_of(error) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn hint_of(error: &ImageError) -> Option<&'static str> {
    Some(match error {
        ImageError::InUse { .. } => "end the program that has it open, or show a copy",
        ImageError::Open { error, .. } if error.kind() == io::ErrorKind::NotFound => {
            "is it spelled right, and its disk mounted?"
        }
        ImageError::Open { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
            "its owner or root may"
        }
        ImageError::Forbidden { .. } => {
            "where you trust the image: --backing follow; to name the one file yourself: --backing FILE"
        }
        ImageError::Below { error, .. } => match **error {
            ImageError::Open { .. } | ImageError::NoFile { .. } => {
                "where it is elsewhere, or is a block device: --backing FILE"
            }
            ref error => return hint_of(error),
        },
        ImageError::Foreign { .. } => {
            "qemu-img convert makes a qcow2 or raw image of it; its bytes as they are: --format raw"
        }
        ImageError::Backing { .. } => "qemu-img convert makes an image that stands on no other",
        ImageError::Header { error: HeaderError::Unsupported(_), .. } => {
            "qemu-img convert makes an image without what is not supported"
        }
        ImageError::Header { error: HeaderError::NotQcow2, .. } => "its bytes as they are: --format raw",
        _ => return None,
    })
}
