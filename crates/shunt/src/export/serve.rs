//! The server of an export.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shuntfs::{Flow, MountOptions, Reason, Session, SessionOptions, Transport, TransportKind};
use shuntfs_image::{
    Export, Exported, FlowWish, Format, HeaderError, HostCache, Image, ImageError, ImageOptions,
};
use shuntfs_keeper::Seat;

use super::answers::ExportAnswers;
use super::args::{AllowOther, ExportArgs, FormatChoice, HostCacheChoice};
use super::check::Place;
use super::kept::{self, Kept, LastWords};
use crate::control::Farewell;
use crate::doctor::access;
use crate::failure::Failure;
use crate::json;
use crate::mount::SeatOf;
use crate::mount::check::check_rights;
use crate::mount::session::{not_privileged, of_mount, of_takeover};
use crate::mounts::shown;
use crate::serving::{self, Announce, Serving, Started, Task, mount_point_of};
use crate::settings::{FlowChoice, Settings, Switch, TransportChoice};

/// The least that a READ or WRITE may carry at once.
const PAYLOAD_MIN: u64 = 128 << 10;

/// An export that answers.
#[derive(Debug)]
pub(super) struct Exporting {
    // Ends before the image does, whose locks must be held for as long as anybody writes.
    session: Session,
    pub(super) export: Arc<Export>,
    image: Arc<Image>,
    place: Arc<Place>,
    pub(super) passthrough_off: Option<Reason>,
    /// The image.
    pub(super) source: PathBuf,
    /// Whether another flow than `served` was asked for by name.
    flow_is_wished: bool,
    /// Of a server that a keeper started, with the way to tell it of the end.
    seat: Option<(SeatOf, Arc<LastWords>)>,
}

/// Exports an image, and returns when it is gone.
///
/// # Errors
/// Where the image cannot be opened or shown, where the connection ended by an error, and where what was written could
/// not be made durable.
pub(super) fn serve(args: &ExportArgs, image: &Path, file: &Path, announce: Announce) -> Result<(), Failure> {
    let settings = settings_of(args);
    check_rights(&settings)?;
    if args.takeover.has_keeper() {
        return kept::keep(args, (image, file), &settings, announce);
    }
    // The image first: FILE may be the image itself, and is hidden once it is mounted over.
    let opened = Image::open(&image_options(args, image)).map_err(|error| of_image(&error))?;
    let opened = Arc::new(opened);
    let place = Arc::new(Place::find(file)?);
    let source = source_of(args, image);
    let outcome = serving::serve(&settings, announce, || {
        Ok(started(Exporting::start(args, &opened, &place, &source)?, &source, &place))
    });
    // Where the last act did not come, or could not. The thread that answers questions still holds what was shown.
    place.remove();
    outcome
}

/// What goes with an export that answers.
pub(super) fn started(exporting: Exporting, source: &Path, place: &Place) -> Started<Exporting> {
    let (exporting, farewell) = (Arc::new(exporting), Arc::new(Farewell::default()));
    Started {
        answers: Arc::new(ExportAnswers::new(Arc::clone(&exporting), Arc::clone(&farewell))),
        notes: exporting.notes(),
        served: exporting,
        source: json::text(source),
        place: shown(&place.path),
        farewell,
    }
}

impl Exporting {
    fn start(
        args: &ExportArgs,
        image: &Arc<Image>,
        place: &Arc<Place>,
        source: &Path,
    ) -> Result<Self, Failure> {
        let export = Arc::new(Export::new(Arc::clone(image), exported(args)));
        let mount = mount_options(args, source, &place.path);
        let options = session_options(args);
        let session = Session::mount(Arc::clone(&export), &place.path, &mount, &options)
            .map_err(|error| of_mount(&error))?;
        let passthrough_off = session.negotiated().passthrough_off.or_else(not_privileged);
        let (image, place) = (Arc::clone(image), Arc::clone(place));
        let (source, flow_is_wished) = (source.to_owned(), is_flow_wished(args));
        Ok(Self { session, export, image, place, passthrough_off, source, flow_is_wished, seat: None })
    }

    /// Serves an export that a keeper keeps: from its begin, or where another server died.
    ///
    /// # Errors
    /// Where that cannot be begun, or gone on with.
    pub(super) fn take_seat(args: &ExportArgs, kept: &Kept, seat: &Seat<'_>) -> Result<Self, Failure> {
        let image = Arc::new(Image::surviving(&kept.files).map_err(|error| of_image(&error))?);
        let export = Arc::new(Export::new(Arc::clone(&image), exported(args)));
        let session = seat.begin_surviving(Arc::clone(&export), &kept_options(args));
        let session = session.map_err(|error| of_takeover(&error))?;
        let name = shown_source(&kept.source, &kept.place.path);
        Ok(Self {
            passthrough_off: session.negotiated().passthrough_off.or_else(not_privileged),
            session,
            export,
            image,
            place: Arc::clone(&kept.place),
            source: kept.source.clone(),
            flow_is_wished: is_flow_wished(args),
            seat: Some((SeatOf::of(seat, name), Arc::clone(&kept.words))),
        })
    }

    /// What is known of the keeper, where there is one.
    pub(super) fn seat(&self) -> Option<&SeatOf> {
        self.seat.as_ref().map(|(seat, _)| seat)
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

    fn connection(&self) -> Option<u64> {
        let of_keeper = self.seat().and_then(|seat| seat.connection);
        of_keeper.or_else(|| self.session.connection()).map(u64::from)
    }

    fn task(_: &Settings) -> Task {
        Task::OwnFiles
    }

    fn close(&self) -> Option<io::Result<()>> {
        let outcome = self.image.close();
        // Not below a mount that could not be removed.
        let is_gone = mount_point_of(self).is_none();
        if is_gone {
            self.place.remove();
        }
        if let Some((_, words)) = &self.seat {
            words.say(is_gone, &outcome);
        }
        self.export.status().writable.then_some(outcome)
    }
}

pub(super) fn settings_of(args: &ExportArgs) -> Settings {
    let mut settings = Settings {
        log: args.log.unwrap_or_default(),
        log_file: args.log_file.clone(),
        metrics: args.metrics_listen,
        ..Settings::default()
    };
    settings.mount.allow_other = args.allow_other == AllowOther::On;
    settings
}

pub(super) fn image_options(args: &ExportArgs, image: &Path) -> ImageOptions {
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

pub(super) fn source_of(args: &ExportArgs, image: &Path) -> PathBuf {
    if args.format == FormatChoice::Null {
        return "null".into();
    }
    std::path::absolute(image).unwrap_or_else(|_| image.to_owned())
}

pub(super) fn exported(args: &ExportArgs) -> Exported {
    Exported::default()
        .growable(args.growable)
        .allow_other(others_allowed(args.allow_other))
        .flow(flow_wish(args.flow))
}

pub(super) fn mount_options(args: &ExportArgs, source: &Path, place: &Path) -> MountOptions {
    MountOptions {
        source: shown_source(source, place),
        allow_other: others_allowed(args.allow_other),
        noexec: true,
        ..MountOptions::default()
    }
}

fn is_flow_wished(args: &ExportArgs) -> bool {
    !matches!(args.flow, FlowChoice::Auto | FlowChoice::Served)
}

/// What the list of mounts says. Programs that make file systems take the source of a mount for a device in use, so an
/// image that is shown over itself is called something else.
fn shown_source(source: &Path, place: &Path) -> String {
    let name = json::text(source);
    match source.canonicalize() {
        Ok(image) if image == place => format!("image:{name}"),
        _ => name,
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
    // On io_uring there is a queue for each CPU; together those that are online stay below the cap.
    let queues = (shuntfs_sys::threads::online_cpus().len() as u64).max(1);
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
        zero_copy: args.zero_copy == Switch::On,
        stall_after: args.stall_after.unwrap_or_default().0,
        payload_cap: defaults.payload_cap.max(all),
        passthrough: matches!(args.flow, FlowChoice::Auto | FlowChoice::Passthrough),
        ..defaults
    }
}

pub(super) fn kept_options(args: &ExportArgs) -> SessionOptions {
    serving::kept_options(session_options(args), true, args.takeover)
}

pub(super) fn of_image(error: &ImageError) -> Failure {
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
