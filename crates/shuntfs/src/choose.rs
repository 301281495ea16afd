//! Which transport a session takes, and why. Decided before INIT is answered: a set-up that fails half way
//! falls back, and a mount never hangs on it.

use std::sync::Arc;

use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::kernel;
use shuntfs_transport::{Pools, Prepared, Settings, TransportKind, Warm};
use shuntfs_wire::InitFlags;

use crate::mount::MountError;
use crate::options::{SessionOptions, Transport};

/// A transport, prepared, and why it is the one.
#[derive(Debug)]
pub(crate) struct Chosen<P = Prepared> {
    pub(crate) prepared: P,
    pub(crate) why: String,
}

pub(crate) fn choose(
    device: &Arc<FuseDevice>,
    offered: InitFlags,
    options: &SessionOptions,
) -> Result<Chosen, MountError> {
    let settings = Settings { pools: pools(offered, options), ..settings(options) };
    let prepare = |kind| Prepared::prepare(kind, device, &settings).map_err(|error| error.to_string());
    choose_by(offered, options, &prepare)
}

/// The choice, with the preparation as an argument.
fn choose_by<P>(
    offered: InitFlags,
    options: &SessionOptions,
    prepare: &dyn Fn(TransportKind) -> Result<P, String>,
) -> Result<Chosen<P>, MountError> {
    let over_ring = ring_offered(offered);
    if let Transport::Only(kind) = options.transport {
        let allowed = if kind == TransportKind::Uring { over_ring } else { Ok(()) };
        let prepared = allowed.and_then(|()| prepare(kind));
        let prepared = prepared.map_err(|why| MountError::Transport { kind, why })?;
        return Ok(Chosen { prepared, why: "it was asked for".into() });
    }
    let no_ring = match over_ring.and_then(|()| prepare(TransportKind::Uring)) {
        Ok(prepared) => {
            return Ok(Chosen { prepared, why: "the kernel offers io_uring".into() });
        }
        Err(why) => why,
    };
    // Where nobody says how many, there are several, on one CPU, too.
    let no_clones = if options.queues.is_none_or(|queues| queues > 1) {
        match prepare(TransportKind::Cloned) {
            Ok(prepared) => return Ok(Chosen { prepared, why: format!("no io_uring: {no_ring}") }),
            Err(why) => why,
        }
    } else {
        "one queue needs no clones".into()
    };
    let kind = TransportKind::Device;
    match prepare(kind) {
        Ok(prepared) => Ok(Chosen { prepared, why: format!("no io_uring: {no_ring}; {no_clones}") }),
        Err(why) => Err(MountError::Transport { kind, why }),
    }
}

pub(crate) fn ring_offered(offered: InitFlags) -> Result<(), String> {
    if offered.contains(InitFlags::OVER_IO_URING | InitFlags::INIT_EXT) {
        return Ok(());
    }
    Err(match kernel::fuse_module_param("enable_uring") {
        Some(_) => {
            "/sys/module/fuse/parameters/enable_uring is N (echo Y turns it on for later mounts)".into()
        }
        None => "the kernel has none for FUSE (Linux 6.14)".into(),
    })
}

/// What is asked for of what 7.46 brings.
fn pools(offered: InitFlags, options: &SessionOptions) -> Pools {
    match options.zero_copy {
        _ if !offered.contains(InitFlags::HAS_IO_URING_BUFPOOL | InitFlags::INIT_EXT) => Pools::Lacking,
        true => Pools::ZeroCopy,
        false => Pools::Plain,
    }
}

pub(crate) fn settings(options: &SessionOptions) -> Settings {
    let page_len = shuntfs_sys::limits::page_len();
    Settings {
        queues: options.queues,
        depth: options.depth,
        payload_len: options.payload_len.max(8192).next_multiple_of(page_len),
        payload_cap: options.payload_cap,
        offload_threads: options.offload_threads,
        plain_threads: false,
        sched_idle: options.sched_idle,
        warm: Warm::Nothing,
        pools: Pools::Lacking,
        pin: options.pin_payloads,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const RING: InitFlags = InitFlags::OVER_IO_URING.union(InitFlags::INIT_EXT);

    fn only(kinds: &'static [TransportKind]) -> impl Fn(TransportKind) -> Result<TransportKind, String> {
        move |kind| if kinds.contains(&kind) { Ok(kind) } else { Err(format!("no {kind} today")) }
    }

    #[test]
    fn auto_takes_the_best_that_works() {
        use TransportKind::{Cloned, Device, Uring};
        let two = SessionOptions { queues: Some(2), ..SessionOptions::default() };
        let one = SessionOptions { queues: Some(1), ..SessionOptions::default() };
        for (offered, options, works, expected, why) in [
            (RING, &two, &[Uring, Cloned, Device][..], Uring, "offers io_uring"),
            (RING, &two, &[Cloned, Device], Cloned, "no uring today"),
            (InitFlags::empty(), &two, &[Uring, Cloned, Device], Cloned, "no io_uring"),
            (InitFlags::empty(), &SessionOptions::default(), &[Cloned, Device], Cloned, "no io_uring"),
            (RING, &two, &[Device], Device, "no cloned today"),
            (InitFlags::empty(), &one, &[Uring, Cloned, Device], Device, "one queue"),
        ] {
            let chosen = choose_by(offered, options, &only(works)).unwrap();
            assert_eq!(chosen.prepared, expected);
            assert!(chosen.why.contains(why), "{}", chosen.why);
        }
        assert!(choose_by(RING, &two, &only(&[])).is_err());
    }

    #[test]
    fn what_is_asked_for_is_taken_or_refused() {
        use TransportKind::{Device, Uring};
        let uring = SessionOptions { transport: Transport::Only(Uring), ..SessionOptions::default() };
        assert_eq!(choose_by(RING, &uring, &only(&[Uring])).unwrap().prepared, Uring);
        assert!(choose_by(RING, &uring, &only(&[Device])).is_err());
        assert!(choose_by(InitFlags::INIT_EXT, &uring, &only(&[Uring])).is_err());
        let device = SessionOptions { transport: Transport::Only(Device), ..SessionOptions::default() };
        assert_eq!(choose_by(RING, &device, &only(&[Uring, Device])).unwrap().prepared, Device);
    }

    #[test]
    fn pools_are_asked_for_where_they_are_offered() {
        let on = SessionOptions::default();
        let off = SessionOptions { zero_copy: false, ..on.clone() };
        let offered = RING | InitFlags::HAS_IO_URING_BUFPOOL;
        assert_eq!(pools(offered, &on), Pools::ZeroCopy);
        assert_eq!(pools(offered, &off), Pools::Plain);
        assert_eq!(pools(RING, &on), Pools::Lacking);
        assert_eq!(
            pools(InitFlags::HAS_IO_URING_BUFPOOL, &on),
            Pools::Lacking,
            "the second word does not count"
        );
    }
}
