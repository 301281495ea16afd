//! A server that listens for scrapes.
//!
//! Nobody who connects can hold anything up for long, or make much of it: each connection has one thread and a few seconds,
//! there are [`CONNECTIONS`] at most (a new one ends the oldest), and the state of the mount is examined once a second at
//! most, however many ask.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::expose;
use super::http::{self, Wish};
use super::snapshot::Snapshot;
use crate::failure::Failure;

/// So many connections are served at once.
const CONNECTIONS: usize = 8;
/// So long a client may take, from its connection to its last byte.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long what was made of the state is good for others who ask.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// What a thread needs: making the text takes little.
const STACK: usize = 512 << 10;
/// At the descriptor limit, accept fails at once, again and again.
const PAUSE: Duration = Duration::from_secs(1);

/// Gives the state of the mount.
type Look = Box<dyn Fn() -> Snapshot + Send + Sync>;

/// A socket that scrapes come to.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Listener {
    /// Listens at an address; nobody is answered before [`Listener::serve`].
    ///
    /// # Errors
    /// Where that cannot be.
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let bound = TcpListener::bind(address).and_then(|socket| Ok((socket.local_addr()?, socket)));
        let (address, socket) = bound.map_err(|error| {
            let failure = Failure::new(format!("cannot listen for scrapes at {address}: {error}"));
            match error.kind() {
                io::ErrorKind::AddrInUse => {
                    failure.hint("each mount needs a port of its own for --metrics-listen")
                }
                _ => failure,
            }
        })?;
        Ok(Self { socket, address })
    }

    /// One that another build of this program had bound. `None` where it is none.
    pub(crate) fn of(socket: OwnedFd) -> Option<Self> {
        let socket = TcpListener::from(socket);
        let address = socket.local_addr().ok()?;
        Some(Self { socket, address })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same socket once more.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, address: self.address })
    }

    /// Answers, until the process ends.
    ///
    /// # Errors
    /// Where there can be no thread.
    pub(crate) fn serve(self, look: impl Fn() -> Snapshot + Send + Sync + 'static) -> io::Result<()> {
        let desk = Arc::new(Desk { look: Box::new(look), text: Mutex::default() });
        let guests = Arc::new(Guests::default());
        let accept = move || {
            for stream in self.socket.incoming() {
                let started = stream.and_then(|stream| receive(stream, &guests, &desk));
                if let Err(error) = started {
                    tracing::debug!("scrapes: {error}");
                    std::thread::sleep(PAUSE);
                }
            }
        };
        std::thread::Builder::new().name("shunt-metrics".into()).spawn(accept).map(drop)
    }
}

/// Starts a thread for a client.
fn receive(stream: TcpStream, guests: &Arc<Guests>, desk: &Arc<Desk>) -> io::Result<()> {
    let guest = guests.enter(Arc::new(stream));
    let desk = Arc::clone(desk);
    let talk = move || {
        if let Err(error) = http::answer(&guest.stream, PATIENCE, |wish| desk.text(wish)) {
            tracing::debug!("scrapes: {error}");
        }
    };
    std::thread::Builder::new().name("shunt-scrape".into()).stack_size(STACK).spawn(talk).map(drop)
}

/// What is told to all who ask within a second.
struct Desk {
    look: Look,
    text: Mutex<Option<(Instant, Arc<str>)>>,
}

impl Desk {
    fn text(&self, wish: Wish) -> String {
        let text = self.openmetrics();
        if wish == Wish::OpenMetrics { text.to_string() } else { expose::prometheus(&text) }
    }

    /// Whoever comes while one looks waits for what that one sees.
    fn openmetrics(&self) -> Arc<str> {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        match &*text {
            Some((since, text)) if since.elapsed() < GOOD_FOR => Arc::clone(text),
            _ => {
                let made: Arc<str> = expose::openmetrics(&[(self.look)()]).into();
                *text = Some((Instant::now(), Arc::clone(&made)));
                made
            }
        }
    }
}

/// Those who are connected, the oldest first.
#[derive(Debug, Default)]
struct Guests {
    here: Mutex<VecDeque<Arc<TcpStream>>>,
    left: Condvar,
}

/// A client, until this is dropped.
#[derive(Debug)]
struct Guest {
    guests: Arc<Guests>,
    stream: Arc<TcpStream>,
}

impl Guests {
    /// Lets a client in. Where there is no room, the oldest has had its time: its reads and writes end at once.
    fn enter(self: &Arc<Self>, stream: Arc<TcpStream>) -> Guest {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        while here.len() >= CONNECTIONS {
            if let Some(oldest) = here.front() {
                let _gone_already = oldest.shutdown(Shutdown::Both);
            }
            here = self.left.wait(here).unwrap_or_else(PoisonError::into_inner);
        }
        here.push_back(Arc::clone(&stream));
        Guest { guests: Arc::clone(self), stream }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut here = self.guests.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.retain(|stream| !Arc::ptr_eq(stream, &self.stream));
        self.guests.left.notify_all();
    }
}

#[cfg(test)]
mod test {
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::metrics::snapshot::sample;

    const LIMIT: Duration = Duration::from_secs(60);

    fn listening() -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("is one")).expect("binds");
        let (address, looks) = (listener.address(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&looks);
        let look = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            sample("/mnt")
        };
        listener.serve(look).expect("serves");
        (address, looks)
    }

    fn get(address: SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(LIMIT)).expect("is a socket");
        stream.write_all(head.as_bytes()).expect("writes");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answers");
        text
    }

    #[test]
    fn a_scrape_gets_the_format_that_it_asks_for() {
        let (address, looks) = listening();
        let text = get(address, "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{text}");
        assert!(text.ends_with("# EOF\n") && text.contains("\nshuntfs_up{mount=\"/mnt\"} 1\n"), "{text}");
        let text = get(address, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(text.contains("text/plain; version=0.0.4") && !text.contains("# EOF"), "{text}");
        let text = get(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("\r\n\r\n"), "{text}");
        assert!(get(address, "GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(get(address, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
        assert!(looks.load(Ordering::Relaxed) <= 3, "looked at once a second at most");
    }

    #[test]
    fn a_head_without_an_end_is_cut_off() {
        let (address, _) = listening();
        let text = get(address, &format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(http_head_max())));
        assert!(text.starts_with("HTTP/1.1 400"), "{text}");
    }

    fn http_head_max() -> usize {
        // A multiple of what is read at once, so that nothing is left unread, which would reset the connection.
        (8 << 10) - "GET / HTTP/1.1\r\nA: ".len()
    }

    /// A thousand who connect and say nothing, and eight who never read what they asked for, keep nobody from a scrape.
    #[test]
    fn those_who_are_silent_or_never_read_hold_up_nobody() {
        let (address, _) = listening();
        let threads = || std::fs::read_dir("/proc/self/task").expect("is there").count();
        let before = threads();
        let mut held = Vec::new();
        let mut most = 0;
        for number in 0..1000 {
            let mut stream = TcpStream::connect(address).expect("connects");
            if number % 100 == 0 {
                let _cut_off = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            }
            held.push(stream);
            most = most.max(threads());
        }
        let started = Instant::now();
        let text = get(address, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(text.contains("shuntfs_up{"), "{text}");
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
        // Other tests of this program have threads, too.
        assert!(most < before + CONNECTIONS + 40, "{before} threads, then {most}");
        drop(held);
    }
}
