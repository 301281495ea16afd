//! The threads that take requests and make calls.

use std::io;
use std::sync::Arc;

use shuntfs_sys::{FuseDevice, OsError};
use shuntfs_transport::{Done, Exchange, Prepared, Settings, TransportKind};
use shuntfs_wire as wire;
use shuntfs_wire::{InHeader, Opcode};
use zerocopy::FromBytes;

use crate::dispatch::{Call, Door, is_answered};
use crate::errno::Errno;
use crate::filesystem::Filesystem;
use crate::sender::{Answer, Later};
use crate::session::Holder;
use crate::transport::Gate;

/// What all threads of a session share.
#[derive(Debug)]
pub(crate) struct Shared<FS: Filesystem> {
    pub(crate) holder: Holder<FS>,
    pub(crate) device: Arc<FuseDevice>,
    pub(crate) door: Door,
    /// How many calls run at once; `None` where there are no more threads than that.
    pub(crate) gate: Option<Gate>,
    /// The longest write, in bytes.
    pub(crate) max_write: u32,
    /// Whether SETXATTR has its long form.
    pub(crate) long_setxattr: bool,
}

/// What a request has beside the data of a write: its header and arguments, in whole pages.
const HEAD: usize = 4096;

impl<FS: Filesystem> Shared<FS> {
    /// Serves requests read from devices, on so many threads.
    pub(crate) fn serve_devices(self: &Arc<Self>, cloned: bool, threads: usize) -> io::Result<()> {
        let mut running = Vec::with_capacity(threads);
        for thread in 0..threads {
            let device = match thread {
                0 => Arc::clone(&self.device),
                _ if cloned => Arc::new(self.device.clone_of()?),
                _ => Arc::clone(&self.device),
            };
            let shared = Arc::clone(self);
            let thread = std::thread::Builder::new().name(format!("fuser-{thread}"));
            running.push(thread.spawn(move || shared.serve_device(&device))?);
        }
        let mut outcome = Ok(());
        for thread in running {
            let panicked = |_| Err(io::Error::other("a thread of the session panicked"));
            outcome = outcome.and(thread.join().unwrap_or_else(panicked));
        }
        outcome
    }

    /// Serves requests until the connection is gone.
    fn serve_device(&self, device: &Arc<FuseDevice>) -> io::Result<()> {
        let mut buffer = vec![0; self.max_write as usize + HEAD];
        loop {
            match device.read(&mut buffer) {
                Ok(len) => {
                    if !self.serve_request(device, &buffer[..len])? {
                        return Ok(());
                    }
                }
                // NOENT: the request went while it was being read.
                Err(OsError::INTR | OsError::NOENT | OsError::AGAIN) => {}
                Err(OsError::NODEV) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// False where it was the last one.
    fn serve_request(&self, device: &Arc<FuseDevice>, message: &[u8]) -> io::Result<bool> {
        let Ok((header, rest)) = InHeader::read_from_prefix(message) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a request without a header"));
        };
        let (fixed, rest) = rest.split_at(self.fixed_len(&header).min(rest.len()));
        let answer = is_answered(&header).then(|| Answer::at_once(device, header.unique));
        match wire::Request::parse(&header, fixed, rest) {
            Ok(request) => self.call(request, answer),
            Err(error) => malformed(&header, &error, answer),
        }
        Ok(header.operation() != Some(Opcode::Destroy))
    }

    fn fixed_len(&self, header: &InHeader) -> usize {
        match header.operation() {
            Some(Opcode::Setxattr) if !self.long_setxattr => wire::SetxattrIn::SHORT_LEN,
            operation => operation.map_or(0, Opcode::fixed_len),
        }
    }

    fn call(&self, request: wire::Request<'_>, answer: Option<Answer>) {
        let _inside = self.gate.as_ref().map(Gate::enter);
        let call = Call { fs: self.holder.fs(), door: self.door, device: &self.device, request };
        call.make(answer);
    }

    /// Serves requests that come through rings.
    pub(crate) fn serve_rings(self: Arc<Self>, settings: &Settings) -> io::Result<()> {
        let prepared = Prepared::prepare(TransportKind::Uring, &self.device, settings);
        let prepared = prepared.map_err(io::Error::other)?;
        let running = prepared.start(move |_| {
            let shared = Arc::clone(&self);
            move |exchange| Arc::clone(&shared).serve_exchange(exchange)
        });
        let running = running.map_err(io::Error::other)?;
        if let Some(error) = running.refused() {
            tracing::warn!(%error, "the kernel refused the rings; requests come through the device");
        }
        running.wait();
        Ok(())
    }

    async fn serve_exchange(self: Arc<Self>, mut exchange: Exchange) -> Done {
        let header = exchange.header();
        let later = Arc::new(Later::default());
        let answer = is_answered(&header).then(|| Answer::later(&self.device, header.unique, &later));
        let is_answered = answer.is_some();
        match exchange.request() {
            Ok(request) => self.call(request, answer),
            Err(error) => malformed(&header, &error, answer),
        }
        if !is_answered {
            return exchange.silent();
        }
        match later.wait().await {
            Ok(bytes) => match exchange.payload_mut().get_mut(..bytes.len()) {
                Some(place) => {
                    place.copy_from_slice(&bytes);
                    exchange.reply(bytes.len())
                }
                None => exchange.error(wire::Errno::IO),
            },
            Err(errno) => exchange.error(errno),
        }
    }
}

fn malformed(header: &InHeader, error: &wire::ParseError, answer: Option<Answer>) {
    tracing::error!(opcode = header.opcode, %error, "a request that makes no sense");
    if let Some(answer) = answer {
        answer.error(Errno::EIO);
    }
}
