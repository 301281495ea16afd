//! Serving a connection so that it lasts, and going on with one.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use shuntfs_sys::descriptors::LeftDescriptors;
use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::uring::forbid_rings;
use shuntfs_transport::{KeptRings, Prepared, Settings, TransportKind, Warm};
use shuntfs_wire::{InitFlags, InitIn};

use super::error::{HandoverError, TakeoverError};
use super::handover::Handover;
use super::resend::resend;
use super::restore::restore;
use super::stateless::{self, Stateless, kept_by};
use super::store::{KeptNodes, Requests, Store, StoreError, StoredRings};
use super::surviving::{self, Deaths, FileIdentity, Keeps, LeftBehind, NotTaken, Surviving};
use crate::args::OpSet;
use crate::choose::{self, Chosen};
use crate::filesystem::Filesystem;
use crate::handshake;
use crate::init::{Offered, Wanted};
use crate::mount::{self, MountPoint};
use crate::negotiate::{Negotiated, Terms, negotiate};
use crate::options::{MountOptions, SessionOptions, Transport};
use crate::server::Server;
use crate::session::{Guard, Parts, Session};

type Kept = &'static [(OpSet, &'static str)];

impl Session {
    /// Serves `fs` on a device that was mounted and not yet spoken to, as [`Session::serve`] does, and so that a successor can go on.
    ///
    /// Before INIT is answered, `tell` is told what a successor needs, and gets the clones of the device that requests will be read
    /// through, where there are any. It is to see to it that these, and the device, stay open when this process dies (by duplicates,
    /// in another process), in this order.
    ///
    /// Requests come through clones of the device, or through the device where [`SessionOptions`] ask for that or for one queue.
    ///
    /// # Errors
    /// [`TakeoverError`]; [`TakeoverError::Ring`] where io_uring was asked for.
    pub fn serve_lasting<F: Stateless>(
        fs: Arc<F>,
        device: FuseDevice,
        options: &SessionOptions,
        tell: impl FnOnce(&Handover, &[BorrowedFd<'_>]) -> std::io::Result<()>,
    ) -> Result<Self, TakeoverError> {
        if options.transport == Transport::Only(TransportKind::Uring) {
            return Err(TakeoverError::Ring);
        }
        let told = |_: &Server<F>, handover: &Handover, clones: &[BorrowedFd<'_>]| {
            tell(handover, clones).map_err(TakeoverError::Untold)
        };
        Self::first(fs, device, (options, &stateless::KEPT), |_, _| Ok(None), told)
    }

    /// As [`Session::serve_lasting`], for a file system with state. `tell` gets the file in memory that has the state, too, and is to see to it
    /// that what this process opens from now on also stays open: whoever keeps the descriptors shares their table with this process.
    ///
    /// From now on no thread of this process can make a ring that has a descriptor ([`shuntfs_sys::uring::forbid_rings`]).
    ///
    /// Where [`SessionOptions`] ask for io_uring, a successor can go on only if this server is replaced as planned: all slots of
    /// its rings must be full when it is killed ([`Session::kept_rings`]).
    ///
    /// # Errors
    /// [`TakeoverError`].
    pub fn serve_surviving<F: Surviving>(
        fs: Arc<F>,
        device: FuseDevice,
        options: &SessionOptions,
        tell: impl FnOnce(&Handover, &[BorrowedFd<'_>], BorrowedFd<'_>) -> std::io::Result<()>,
    ) -> Result<Self, TakeoverError> {
        forbid_rings();
        let store = Arc::new(Store::create()?);
        let keep = |fs: &F, rings: Option<&Arc<KeptRings>>| {
            if let Some(rings) = rings {
                store.rings_are(&descriptors_of(rings)?);
            }
            let (requests, _) = Requests::take(&store, store.server_begins()?, Deaths::default())?;
            let (nodes, left) = KeptNodes::take(&store, &mut LeftDescriptors::none())?;
            fs.take_nodes(nodes, left).map_err(not_taken)?;
            Ok(Some((Keeps::new(Arc::clone(&store)), requests)))
        };
        let told = |server: &Server<F>, handover: &Handover, clones: &[BorrowedFd<'_>]| {
            server.fs.settled();
            store.seal(&handover.write())?;
            tell(handover, clones, store.as_fd()).map_err(TakeoverError::Untold)
        };
        let kept = surviving::kept_of(&*fs);
        Self::first(fs, device, (options, kept), keep, told)
    }

    fn first<F: Filesystem>(
        fs: Arc<F>,
        device: FuseDevice,
        (options, kept): (&SessionOptions, Kept),
        keep: impl FnOnce(&F, Option<&Arc<KeptRings>>) -> Result<Option<(Keeps<F>, Requests)>, TakeoverError>,
        tell: impl FnOnce(&Server<F>, &Handover, &[BorrowedFd<'_>]) -> Result<(), TakeoverError>,
    ) -> Result<Self, TakeoverError> {
        let kind = transport(options);
        mount::check_identity()?;
        let guard = Guard::of(MountPoint::handed_over(&device));
        let device = Arc::new(device);
        let greeting = handshake::greet(&device)?;
        if !greeting.init.offered().contains(InitFlags::HAS_RESEND) {
            return Err(TakeoverError::NoResend);
        }
        let (wanted, ops) = wishes(&*fs, &greeting.init, kept)?;
        let terms = Terms::before_transport(options);
        // Refusals come before anything is set up.
        negotiate(&greeting.init, &wanted, ops, &terms)?;
        let greeted = (options, greeting.init.offered());
        let ready = prepare(&device, kind, greeted).or_else(|error| match options.transport {
            // Who was handed the device may not be allowed to open another one.
            Transport::Auto if kind == TransportKind::Cloned => {
                tracing::info!(%error, "one descriptor serves all queues");
                prepare(&device, TransportKind::Device, greeted)
            }
            _ => Err(error),
        });
        let Ready { clones, chosen, rings } = ready?;
        let terms = terms.with_transport(&chosen.prepared, options);
        let negotiated = negotiate(&greeting.init, &wanted, ops, &terms)?;
        let handover = Handover::new(&greeting.init, negotiated, 1 + clones.len());
        let keeping = keep(&fs, rings.as_ref())?;
        let source = MountOptions::default().source;
        let parts = Parts { fs, device: Arc::clone(&device), negotiated, chosen, guard, source, keeping };
        let session = Self::begin(parts, options, |server| {
            let clones: Vec<_> = clones.iter().map(|clone| clone.as_fd()).collect();
            tell(server, &handover, &clones)?;
            Ok::<_, TakeoverError>(handshake::agree(&device, &greeting, &negotiated)?)
        })?;
        session.on(rings)
    }

    /// With its rings, if the kernel took them.
    fn on(mut self, rings: Option<Arc<KeptRings>>) -> Result<Self, TakeoverError> {
        match self.rings_refused() {
            Some(error) if rings.is_some() => Err(TakeoverError::RingRefused(error)),
            _ => {
                self.rings = rings;
                Ok(self)
            }
        }
    }

    /// Goes on with a connection whose server is dead, all of its threads: on duplicates of the device and of the clones that it was
    /// served on, as [`Session::serve_lasting`] told. Requests that were read and not answered come again. Whoever mounted the device
    /// is to unmount it.
    ///
    /// `fs` is asked for its wishes again ([`crate::Filesystem::init`]), with the answers that the kernel gave to the first
    /// server, and must have the same. Of the options, the length of payloads, the transport and the number of queues are as they were.
    ///
    /// # Errors
    /// [`TakeoverError`]. The descriptors that were given are closed then, and the connection is as it was.
    pub fn take_over<F: Stateless>(
        fs: Arc<F>,
        device: FuseDevice,
        clones: Vec<FuseDevice>,
        handover: &Handover,
        options: &SessionOptions,
    ) -> Result<Self, TakeoverError> {
        let descriptors = (device, clones, handover, None);
        Self::next(fs, descriptors, (options, &stateless::KEPT), |_| Ok(None), |_| Ok(()))
    }

    /// As [`Session::take_over`], for a file system with state: what was open is open again, under its number and on the descriptors that the
    /// dead server had; everything else that this had open is closed. Requests are answered once, however often they come.
    ///
    /// # Errors
    /// [`TakeoverError`], [`TakeoverError::State`] where the state is not as it was written: then what the dead server had open may be closed. After
    /// other errors it stays open, and `fs` is not dropped, for another server that shares the table.
    pub fn take_over_surviving<F: Surviving>(
        fs: Arc<F>,
        left: LeftBehind,
        handover: &Handover,
        options: &SessionOptions,
    ) -> Result<Self, TakeoverError> {
        forbid_rings();
        let LeftBehind { device, clones, state, mut descriptors, deaths } = left;
        let store = Arc::new(Store::open(state)?);
        check_connection(&store, handover)?;
        let rings = store.rings()?.map(|rings| take_rings(&rings, &mut descriptors)).transpose();
        let rings = match rings {
            Ok(rings) => rings,
            Err(error) => {
                // Everything stays open.
                std::mem::forget((descriptors, fs));
                return Err(error);
            }
        };
        let server = store.server_begins()?;
        let (requests, unfinished) = Requests::take(&store, server, deaths)?;
        let (nodes, known) = KeptNodes::take(&store, &mut descriptors)?;
        tracing::info!(server, nodes = known.len(), "this server continues with the nodes of the dead one");
        // Where this fails, everything stays open for another server.
        let (mut descriptors, known) = (ManuallyDrop::new(descriptors), ManuallyDrop::new(known));
        let taker = Arc::clone(&fs);
        let keep = |fs: &F| {
            fs.take_nodes(nodes, ManuallyDrop::into_inner(known)).map_err(not_taken)?;
            Ok(Some((Keeps::new(Arc::clone(&store)), requests)))
        };
        let ready = |server: &Server<F>| {
            restore(server, &store, &mut descriptors, &unfinished)?;
            // What is left over nobody knows of.
            drop(ManuallyDrop::into_inner(descriptors));
            server.fs.settled();
            Ok(())
        };
        let kept = surviving::kept_of(&*fs);
        let outcome = Self::next(fs, (device, clones, handover, rings), (options, kept), keep, ready);
        if outcome.is_err() {
            std::mem::forget(taker);
        }
        outcome
    }

    fn next<F: Filesystem>(
        fs: Arc<F>,
        (device, clones, handover, rings): (FuseDevice, Vec<FuseDevice>, &Handover, Option<Arc<KeptRings>>),
        (options, kept): (&SessionOptions, Kept),
        keep: impl FnOnce(&F) -> Result<Option<(Keeps<F>, Requests)>, TakeoverError>,
        ready: impl FnOnce(&Server<F>) -> Result<(), TakeoverError>,
    ) -> Result<Self, TakeoverError> {
        let (ref options, negotiated) = agree_again(&*fs, handover, (options, kept), rings.is_some())?;
        look_at(&device, &clones, handover)?;
        mount::check_identity()?;
        let guard = Guard::of(MountPoint::handed_over(&device));
        let (device, clones) = (Arc::new(device), clones.into_iter().map(Arc::new).collect::<Vec<_>>());
        let settings = warm_settings(options);
        let kind = match &rings {
            Some(_) => TransportKind::Uring,
            None if clones.is_empty() => TransportKind::Device,
            None => TransportKind::Cloned,
        };
        let prepared = match &rings {
            Some(rings) => Prepared::on_kept_rings(&device, &settings, Arc::clone(rings), true),
            None => Prepared::on(&device, &clones, &settings),
        };
        let prepared = prepared.map_err(|error| TakeoverError::Transport { kind, why: error.to_string() })?;
        let chosen = Chosen { prepared, why: "a predecessor had chosen it".into() };
        let keeping = keep(&fs)?;
        let source = MountOptions::default().source;
        let parts = Parts { fs, device: Arc::clone(&device), negotiated, chosen, guard, source, keeping };
        let session = Self::begin(parts, options, |server| {
            ready(server)?;
            // Also what an earlier successor had read that died while it began.
            resend(&device).map_err(TakeoverError::Resend)
        })?;
        session.on(rings)
    }
}

/// Tries whether this program could go on with a connection that another server serves meanwhile, as [`Session::take_over_surviving`] would: it
/// would agree to the same, and knows the layout of the state. The state is examined and not changed; what its records say, which
/// the server changes, is not read.
///
/// # Errors
/// [`TakeoverError`]: why it could not.
pub fn rehearse<F: Surviving>(
    fs: &F,
    state: OwnedFd,
    handover: &Handover,
    options: &SessionOptions,
) -> Result<(), TakeoverError> {
    let store = Store::open(state)?;
    agree_again(fs, handover, (options, surviving::kept_of(fs)), store.rings()?.is_some())?;
    Ok(check_connection(&store, handover)?)
}

/// Agrees to what a predecessor had agreed to, with the options for it.
fn agree_again<F: Filesystem>(
    fs: &F,
    handover: &Handover,
    (options, kept): (&SessionOptions, Kept),
    uring: bool,
) -> Result<(SessionOptions, Negotiated), TakeoverError> {
    handover.check()?;
    if handover.agreed.init_flags().contains(InitFlags::OVER_IO_URING) != uring {
        return Err(TakeoverError::Ring);
    }
    let init = handover.offered.init();
    if !init.offered().contains(InitFlags::HAS_RESEND) {
        return Err(TakeoverError::NoResend);
    }
    let options = handover.options(options);
    let (wanted, ops) = wishes(fs, &init, kept)?;
    let terms = Terms { uring, ..Terms::before_transport(&options) };
    let negotiated = negotiate(&init, &wanted, ops, &terms)?;
    handover.compare(&negotiated)?;
    Ok((options, negotiated))
}

/// What the kernel copies requests to is in memory, and all of it at any time where that was asked for.
fn warm_settings(options: &SessionOptions) -> Settings {
    let warm = if options.warm_payloads { Warm::All } else { Warm::Read };
    Settings { warm, ..choose::settings(options) }
}

/// Why a file system did not take its nodes: they are read by it, so it may be the first that finds them damaged.
fn not_taken(error: NotTaken) -> TakeoverError {
    error.downcast().map_or_else(TakeoverError::FileSystem, |error| TakeoverError::State(*error))
}

/// Checks whether the state belongs to the connection of which `handover` tells.
fn check_connection(store: &Store, handover: &Handover) -> Result<(), StoreError> {
    if handover.is_in(&store.sealed()?) {
        Ok(())
    } else {
        Err(StoreError::Header("it is another connection's"))
    }
}

/// The transport that is asked for, of those that a successor can go on with.
fn transport(options: &SessionOptions) -> TransportKind {
    match options.transport {
        Transport::Only(kind) => kind,
        Transport::Auto if options.queues == Some(1) => TransportKind::Device,
        Transport::Auto => TransportKind::Cloned,
    }
}

/// What the file system wants, if a successor can do with it.
fn wishes<F: Filesystem>(fs: &F, init: &InitIn, kept: Kept) -> Result<(Wanted, OpSet), TakeoverError> {
    let offered = Offered { minor: init.minor, flags: init.offered() };
    let wanted = fs.init(&offered)?;
    let ops = F::OPS & wanted.ops.unwrap_or(F::OPS);
    kept_by(kept, ops).map_or(Ok((wanted, ops)), |operation| Err(TakeoverError::Keeps(operation)))
}

type Clones = Vec<Arc<FuseDevice>>;

/// A transport, with what a successor needs of it in our hands.
struct Ready {
    clones: Clones,
    chosen: Chosen,
    rings: Option<Arc<KeptRings>>,
}

fn prepare(
    device: &Arc<FuseDevice>,
    kind: TransportKind,
    (options, offered): (&SessionOptions, InitFlags),
) -> Result<Ready, TakeoverError> {
    let settings = warm_settings(options);
    let failed = |why: String| TakeoverError::Transport { kind, why };
    if kind == TransportKind::Uring {
        choose::ring_offered(offered).map_err(failed)?;
        let rings = KeptRings::create(&settings).map(Arc::new).map_err(|error| failed(error.to_string()))?;
        let prepared = Prepared::on_kept_rings(device, &settings, Arc::clone(&rings), false);
        let prepared = prepared.map_err(|error| failed(error.to_string()))?;
        let chosen = Chosen { prepared, why: "it was asked for".into() };
        return Ok(Ready { clones: Clones::new(), chosen, rings: Some(rings) });
    }
    let count = if kind == TransportKind::Cloned { settings.device_queues() - 1 } else { 0 };
    let clones = (0..count).map(|_| device.clone_of().map(Arc::new)).collect::<Result<Clones, _>>();
    let clones = clones.map_err(|error| failed(format!("the device cannot be cloned ({error})")))?;
    let prepared = Prepared::on(device, &clones, &settings).map_err(|error| failed(error.to_string()))?;
    let why = "a successor may go on with it, as with io_uring none can".into();
    Ok(Ready { clones, chosen: Chosen { prepared, why }, rings: None })
}

/// The descriptors of rings, which stay open for successors whatever becomes of this server.
fn descriptors_of(rings: &Arc<KeptRings>) -> Result<StoredRings, TakeoverError> {
    let [words, memory] = rings.descriptors().map(|fd| {
        FileIdentity::of(fd).map(|identity| (fd.as_raw_fd(), identity)).map_err(TakeoverError::Descriptor)
    });
    let stored = [words?, memory?];
    std::mem::forget(Arc::clone(rings));
    Ok(stored)
}

/// The rings that a predecessor served, if it was replaced as planned.
fn take_rings(stored: &StoredRings, left: &mut LeftDescriptors) -> Result<Arc<KeptRings>, TakeoverError> {
    let wrong = || StoreError::Header("the descriptors of its rings");
    let mut take = |(number, identity): (RawFd, FileIdentity)| {
        // Whatever comes of it, it stays open for another server.
        let file = left.take(number).map(ManuallyDrop::new)?;
        let is_it = FileIdentity::of(&*file) == Ok(identity);
        is_it.then(|| ManuallyDrop::into_inner(file))
    };
    let [words, memory] = stored.map(&mut take);
    let files = match (words, memory) {
        (Some(words), Some(memory)) => [words, memory],
        others => {
            std::mem::forget(others);
            return Err(wrong().into());
        }
    };
    let copies = files.each_ref().map(|file| file.try_clone());
    // The numbers that are written down are nobody's to close.
    std::mem::forget(files);
    let [Ok(words), Ok(memory)] = copies else { return Err(wrong().into()) };
    let rings = KeptRings::open([words, memory]).map_err(|_| wrong())?;
    if rings.are_full() { Ok(Arc::new(rings)) } else { Err(TakeoverError::RingDied) }
}

/// Checks whether the descriptors are what they should be, and has reading wait, as it does at first: that is a property of the open file,
/// and the predecessor may have died while it was otherwise.
fn look_at(device: &FuseDevice, clones: &[FuseDevice], handover: &Handover) -> Result<(), TakeoverError> {
    let given = 1 + clones.len();
    if given != handover.descriptors {
        let expected = handover.descriptors;
        return Err(HandoverError::Descriptors { expected, given }.into());
    }
    let connection = device.connection_id().map_err(TakeoverError::Descriptor)?;
    for (place, clone) in clones.iter().enumerate() {
        if clone.connection_id().map_err(TakeoverError::Descriptor)? != connection {
            return Err(HandoverError::Foreign(place + 1).into());
        }
    }
    let blocking = |device: &FuseDevice| device.set_nonblocking(false);
    std::iter::once(device).chain(clones).try_for_each(blocking).map_err(TakeoverError::Descriptor)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_asked_for_is_taken_and_auto_takes_what_survives() {
        for (name, queues, kind) in [
            ("uring", None, TransportKind::Uring),
            ("device", None, TransportKind::Device),
            ("cloned", Some(1), TransportKind::Cloned),
            ("auto", None, TransportKind::Cloned),
            ("auto", Some(2), TransportKind::Cloned),
            ("auto", Some(1), TransportKind::Device),
        ] {
            let wish = name.parse().unwrap();
            let options = SessionOptions { transport: wish, queues, ..SessionOptions::default() };
            assert_eq!(transport(&options), kind, "{name}");
        }
    }

    #[test]
    fn what_a_file_system_finds_damaged_is_the_state() {
        let damaged = StoreError::Header("a number");
        assert!(matches!(not_taken(damaged.clone().into()), TakeoverError::State(error) if error == damaged));
        assert!(matches!(not_taken("it is another's".into()), TakeoverError::FileSystem(_)));
    }
}
