//! The asker's side.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shuntfs_pool::{BranchChange, MoverFacts, MoverNews};
use shuntfs_sys::process;
use shuntfs_sys::spawn::{connect_within, effective_uid, peer_of};
use thiserror::Error;

use super::place;
use super::protocol::{Asker, LINE_MAX, Question, Reply, Request, Spot, Status, Verdict, What, Why};
use crate::load::Load;
use crate::trace::{TraceNews, TraceQuestion};

/// How long a server may take to let somebody in, and again for a whole answer. Its control thread touches no lower file, so
/// that it answers even where the mount is stuck.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long it may take where lower file systems are asked: disks spin up.
const DISK_PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// Nobody listens.
    #[error("no server answers for it")]
    NoServer,
    /// The socket is someone else's.
    #[error("only the user of the mount and root may ask")]
    NotAllowed,
    /// The socket is where that of a user's server should be, and somebody else listens there.
    #[error("user {uid} listens in place of its server")]
    Stranger {
        /// Who.
        uid: u32,
    },
    /// The server is there and does not answer.
    #[error("its server (process {pid}) does not answer")]
    Silent {
        /// The server's process.
        pid: u32,
    },
    /// The answer is an error, or makes no sense.
    #[error("its server says: {0}")]
    Refused(String),
    /// Others that do not answer were waited for.
    #[error("there was no time to ask it")]
    NotInTime,
    /// Another error of the socket.
    #[error("its control socket: {0}")]
    Socket(#[from] io::Error),
}

/// How long another program may take until it serves: it is tried first, and a server may be slow to die.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(120);

/// A connection to a server's control socket.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
    pid: u32,
    uid: u32,
    /// How long a whole answer may take; `None` where there is no limit.
    patience: Option<Duration>,
}

impl Client {
    /// Connects to the server of a connection. `owners` are the users who may have mounted it.
    ///
    /// # Errors
    /// Where no socket can be reached.
    pub fn of_connection(connection: u64, owners: &[u32]) -> Result<Self, AskError> {
        let mut outcome = Err(AskError::NoServer);
        let end = Instant::now() + PATIENCE;
        for owner in [effective_uid(), 0].iter().chain(owners) {
            for folder in place::folders_of(*owner) {
                match Self::connect_until(&folder.join(connection.to_string()), *owner, end) {
                    Ok(client) => return Ok(client),
                    Err(AskError::NoServer) => {}
                    Err(error) => outcome = Err(error),
                }
            }
        }
        outcome
    }

    /// Connects to the control socket of a server of `owner`.
    ///
    /// # Errors
    /// Where nobody listens there, or not for us, or somebody else than it should be.
    pub fn connect(path: &Path, owner: u32) -> Result<Self, AskError> {
        Self::connect_until(path, owner, Instant::now() + PATIENCE)
    }

    fn connect_until(path: &Path, owner: u32, end: Instant) -> Result<Self, AskError> {
        let left = end.saturating_duration_since(Instant::now());
        let stream =
            connect_within(path, left).map_err(io::Error::from).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::ConnectionRefused => {
                    AskError::NoServer
                }
                io::ErrorKind::PermissionDenied => AskError::NotAllowed,
                // So many wait before us, and it takes nobody.
                io::ErrorKind::WouldBlock => AskError::NotInTime,
                _ => AskError::Socket(error),
            })?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let peer = peer_of(&stream).map_err(io::Error::from)?;
        // A folder under /tmp can be someone else's, who would speak for a mount of others, and name a process that must
        // be ended by force; or lead to what listens for root.
        if peer.uid != owner {
            return Err(AskError::Stranger { uid: peer.uid });
        }
        // The socket of a server that was killed is open in its keeper until the next server closes it. A process of another
        // namespace has no number here.
        if peer.pid != 0 && !process::is_there(peer.pid) {
            return Err(AskError::NoServer);
        }
        let stream = BufReader::new(stream);
        let (path, patience) = (path.to_owned(), Some(PATIENCE));
        Ok(Self { stream, path, pid: peer.pid, uid: peer.uid, patience })
    }

    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The server's user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Where the server listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks for the mount's state.
    ///
    /// # Errors
    /// Where there is no such answer.
    pub fn status(&mut self) -> Result<Status, AskError> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(other)),
        }
    }

    /// Asks how the bytes of a node flow.
    ///
    /// # Errors
    /// Where there is no such answer.
    pub fn why(&mut self, node: u64, asker: Option<Asker>) -> Result<Why, AskError> {
        match self.ask(&Request::Why { node, asker })? {
            Reply::Why(why) => Ok(*why),
            other => Err(unexpected(other)),
        }
    }

    /// Asks what would become of something that somebody does.
    ///
    /// # Errors
    /// Where there is no such answer.
    pub fn would(&mut self, question: Question, asker: Asker) -> Result<Verdict, AskError> {
        match self.ask(&Request::Would { question, asker })? {
            Reply::Verdict(verdict) => Ok(*verdict),
            other => Err(unexpected(other)),
        }
    }

    /// Asks which branches something would go to; `None` where there is one folder.
    ///
    /// # Errors
    /// Where nothing is known of the name's folder, or a disk takes longer than a minute.
    pub fn place(
        &mut self,
        what: What,
        at: Spot,
        asker: Asker,
    ) -> Result<Option<serde_json::Value>, AskError> {
        self.patience = Some(DISK_PATIENCE);
        match self.ask(&Request::Place { what, at, asker })? {
            Reply::Place(place) => Ok(place),
            other => Err(unexpected(other)),
        }
    }

    /// Has branches come, go or change.
    ///
    /// # Errors
    /// Where it is refused, or a disk takes longer than a minute.
    pub fn change_branches(&mut self, change: BranchChange) -> Result<(), AskError> {
        self.patience = Some(DISK_PATIENCE);
        match self.ask(&Request::Branches { change })? {
            Reply::Changed => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Has the mover run once; `hear` is told how it goes. How it ended. There is no limit to the time: a large file may be on a slow disk.
    ///
    /// # Errors
    /// Where it does not run, or the server goes.
    pub fn run_mover(
        mut self,
        dry_run: bool,
        hear: &mut dyn FnMut(MoverNews),
    ) -> Result<MoverFacts, AskError> {
        self.patience = None;
        let mut reply = self.ask(&Request::Mover { dry_run })?;
        loop {
            match reply {
                Reply::News(news) => hear(*news),
                Reply::Mover(Some(facts)) => return Ok(*facts),
                other => return Err(unexpected(other)),
            }
            reply = self.hear()?;
        }
    }

    /// Asks for each request from now on; `hear` is told, and says whether to go on. Returns when it does not, and when the mount has ended.
    ///
    /// # Errors
    /// Where it is refused, and [`AskError::NoServer`] where the server goes, or ends it, without a word.
    pub fn trace(
        mut self,
        question: TraceQuestion,
        hear: &mut dyn FnMut(TraceNews) -> bool,
    ) -> Result<(), AskError> {
        let mut reply = self.ask(&Request::Trace(question))?;
        self.patience = None;
        loop {
            let Reply::Traced(news) = reply else { return Err(unexpected(reply)) };
            let is_last = news == TraceNews::Ends;
            if !hear(news) || is_last {
                return Ok(());
            }
            reply = self.hear()?;
        }
    }

    /// Asks what files and processes asked of the mount since this was last asked; nothing, the first time. The server counts until this client
    /// is dropped, or does not ask for much longer than `interval`.
    ///
    /// # Errors
    /// Where it is refused, and where there is no such answer.
    pub fn load(&mut self, interval: Duration) -> Result<Load, AskError> {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        match self.ask(&Request::Load { interval_ms })? {
            Reply::Load(load) => Ok(*load),
            other => Err(unexpected(other)),
        }
    }

    /// Has the mount go on with another program. Returns when callers are served again.
    ///
    /// # Errors
    /// [`AskError::Refused`] with the reason why the program before goes on; [`AskError::NoServer`] where the server died before it had asked.
    pub fn upgrade(mut self, program: &Path) -> Result<(), AskError> {
        self.patience = Some(UPGRADE_PATIENCE);
        match self.ask(&Request::Upgrade { program: program.to_owned() })? {
            Reply::Upgraded => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Asks how far the mover is, or how its last run ended; `None` where it did not run since the mount.
    ///
    /// # Errors
    /// Where there is no such answer.
    pub fn mover(&mut self) -> Result<Option<MoverFacts>, AskError> {
        match self.ask(&Request::MoverStatus)? {
            Reply::Mover(facts) => Ok(facts.map(|facts| *facts)),
            other => Err(unexpected(other)),
        }
    }

    /// Asks to be told of the end.
    ///
    /// # Errors
    /// Where the server's end is worth no words.
    pub fn farewell(mut self) -> Result<Awaited, AskError> {
        match self.ask(&Request::Farewell)? {
            Reply::Waiting => Ok(Awaited(self)),
            other => Err(unexpected(other)),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, AskError> {
        let mut line = serde_json::to_string(request).map_err(io::Error::from)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|error| self.silent(error))?;
        self.hear()
    }

    /// The next line. The limit is for all of it, however slowly it comes.
    fn hear(&mut self) -> Result<Reply, AskError> {
        let end = self.patience.map(|patience| Instant::now() + patience);
        let mut answer = Vec::new();
        while !answer.ends_with(b"\n") && answer.len() < LINE_MAX {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(AskError::Silent { pid: self.pid });
            }
            self.stream.get_ref().set_read_timeout(left)?;
            let part = match self.stream.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.silent(error)),
                // What was cut off in the middle is no answer.
                Ok([]) => return Err(AskError::NoServer),
                Ok(part) => part,
            };
            let line = part.iter().position(|byte| *byte == b'\n').map_or(part.len(), |end| end + 1);
            let taken = line.min(LINE_MAX - answer.len());
            answer.extend_from_slice(&part[..taken]);
            self.stream.consume(taken);
        }
        serde_json::from_slice(&answer)
            .map_err(|error| AskError::Refused(format!("something unknown: {error}")))
    }

    fn silent(&self, error: io::Error) -> AskError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Silent { pid: self.pid },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => AskError::NoServer,
            _ => AskError::Socket(error),
        }
    }
}

/// The end of a server, to come.
#[derive(Debug)]
pub struct Awaited(Client);

impl Awaited {
    /// Waits for the end, and says how it went.
    ///
    /// # Errors
    /// Where it does not come within `limit`, or without a word.
    pub fn wait(mut self, limit: Duration) -> Result<Result<(), String>, AskError> {
        self.0.patience = Some(limit);
        match self.0.hear()? {
            Reply::Ended(None) => Ok(Ok(())),
            Reply::Ended(Some(error)) => Ok(Err(error)),
            other => Err(unexpected(other)),
        }
    }
}

fn unexpected(reply: Reply) -> AskError {
    AskError::Refused(match reply {
        Reply::Error(text) => text,
        _ => "something else than was asked".into(),
    })
}

#[cfg(test)]
mod test {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A byte now and then kept an asker for as long as a server wished.
    #[test]
    fn a_limit_is_for_the_whole_answer() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("1");
        let listener = UnixListener::bind(&path).expect("binds");
        let drip = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("comes");
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut client = Client::connect(&path, effective_uid()).expect("connects");
        client.patience = Some(Duration::from_millis(300));
        let started = Instant::now();
        assert!(matches!(client.status(), Err(AskError::Silent { .. })));
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        drop(client);
        drip.join().expect("ends");
    }

    #[test]
    fn who_lets_nobody_in_is_waited_for_no_longer_than_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("1");
        let listener = UnixListener::bind(&path).expect("binds");
        rustix::net::listen(&listener, 0).expect("listens");
        let connect =
            || Client::connect_until(&path, effective_uid(), Instant::now() + Duration::from_millis(200));
        let mut inside = Vec::new();
        let refused = loop {
            match connect() {
                Ok(client) => inside.push(client),
                Err(error) => break error,
            }
        };
        assert!(!inside.is_empty() && matches!(refused, AskError::NotInTime), "{refused:?}");
    }

    #[test]
    fn answers_may_come_together_and_half_a_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("1");
        let listener = UnixListener::bind(&path).expect("binds");
        let mut client = Client::connect(&path, effective_uid()).expect("connects");
        let (mut stream, _) = listener.accept().expect("comes");
        stream.write_all(b"\"waiting\"\n\"changed\"\n\"wait").expect("writes");
        drop(stream);
        assert!(matches!(client.hear(), Ok(Reply::Waiting)));
        assert!(matches!(client.hear(), Ok(Reply::Changed)));
        assert!(matches!(client.hear(), Err(AskError::NoServer)));
    }
}
