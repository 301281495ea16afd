//! The server's side: one thread, one question at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{Trace, TraceFilter};
use shuntfs_pool::{BranchChange, MoverFacts, MoverNews};
use shuntfs_sys::spawn::{effective_uid, peer_of};

use super::farewell::Farewell;
use super::place::{self, SocketFile};
use super::protocol::{Asker, LINE_MAX, Question, Reply, Request, Spot, Status, Verdict, What, Why};
use crate::load::{self, Tally};
use crate::trace;

/// How long a connected asker may keep the thread waiting.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long whoever had the mover run may take to hear what it does, before it is ended: they have stopped, and disks wait.
const NEWS_PATIENCE: Duration = Duration::from_secs(60);

/// Why a mount without a keeper is not upgraded.
pub(crate) const NO_KEEPER: &str =
    "it has no keeper, so it keeps its program until it is unmounted; mount with --takeover crash";

/// Who can answer about a mount.
pub trait Answers: Send + Sync + 'static {
    /// Its state.
    fn status(&self) -> Status;
    /// The flow of one of its nodes, and what the rules say of it.
    fn why(&self, node: u64, asker: Option<&Asker>) -> Why;
    /// What would become of something that somebody does.
    ///
    /// # Errors
    /// Why that cannot be said: there are no rules, or nothing is known of the place.
    fn would(&self, question: &Question, asker: &Asker) -> Result<Verdict, String>;
    /// Which branches something would go to that somebody does; `None` where there is one folder. It may take as long as disks do.
    ///
    /// # Errors
    /// Why that cannot be said.
    fn place(&self, what: What, at: &Spot, asker: &Asker) -> Result<Option<serde_json::Value>, String> {
        let _ = (what, at, asker);
        Ok(None)
    }
    /// Has branches come, go or change. It may take as long as disks do.
    ///
    /// # Errors
    /// Why it cannot be.
    fn change_branches(&self, change: &BranchChange) -> Result<(), String> {
        let _ = change;
        Err("it has no branches".into())
    }
    /// Has the mover run once, and tells how it goes; `tell` says whether to go on. It may take as long as disks do.
    ///
    /// # Errors
    /// Why it does not run.
    fn run_mover(
        &self,
        dry_run: bool,
        tell: &mut (dyn FnMut(MoverNews) -> bool + Send),
    ) -> Result<MoverFacts, String> {
        let _ = (dry_run, tell);
        Err("it has no branches".into())
    }
    /// How far the mover is, or how its last run ended.
    fn mover(&self) -> Option<MoverFacts> {
        None
    }
    /// Looks at its requests.
    ///
    /// # Errors
    /// Why it cannot be looked at.
    fn trace(&self, filter: TraceFilter) -> Result<Trace, String> {
        let _ = filter;
        Err("its requests cannot be looked at".into())
    }
    /// Has another program go on. Where that is begun, `asker` is answered by whoever goes on ([`answer_upgrade`]).
    ///
    /// # Errors
    /// Why it is not begun.
    fn upgrade(&self, program: &Path, asker: UnixStream) -> Result<(), String> {
        drop((program, asker));
        Err(NO_KEEPER.into())
    }
    /// Where its last words must be heard, if its end is worth any.
    fn farewell(&self) -> Option<Arc<Farewell>> {
        None
    }
}

/// A control socket; it is removed when this is dropped.
#[derive(Debug)]
pub struct Server {
    file: SocketFile,
    end: Arc<Farewell>,
}

impl Server {
    /// Listens for questions about the connection of this number.
    ///
    /// # Errors
    /// Those of making the folder and the socket.
    pub fn start(connection: u64, answers: Arc<dyn Answers>) -> io::Result<Self> {
        Self::start_in(&place::made()?, connection, answers)
    }

    fn start_in(folder: &Path, connection: u64, answers: Arc<dyn Answers>) -> io::Result<Self> {
        // Bound under a name of its own and renamed: whoever had this number before may still be on its way out,
        // and nobody ever finds a socket at which nobody listens yet.
        let path = folder.join(connection.to_string());
        let own = folder.join(format!("{connection}.{}", std::process::id()));
        let _left_by_another_life = std::fs::remove_file(&own);
        let listener = UnixListener::bind(&own)?;
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o600))?;
        let file = {
            let _locked = place::lock(folder);
            std::fs::rename(&own, &path)?;
            SocketFile::of(&path)?
        };
        let end = Arc::new(Farewell::default());
        let server = Self { file, end: Arc::clone(&end) };
        let listen = move || serve(&listener, &answers, &end);
        std::thread::Builder::new().name("shunt-control".into()).spawn(listen)?;
        Ok(server)
    }

    /// The connection has ended: waits a little until those who trace it were told.
    pub(crate) fn part(&self) {
        self.end.say(Ok(()));
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.file.remove();
    }
}

fn serve(listener: &UnixListener, answers: &Arc<dyn Answers>, end: &Arc<Farewell>) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => {
                if let Err(error) = answer(&stream, answers, end) {
                    tracing::debug!("control socket: {error}");
                }
            }
            Err(error) => {
                // At the descriptor limit, accept fails at once, again and again.
                tracing::debug!("control socket: {error}");
                std::thread::sleep(PATIENCE);
            }
        }
    }
}

fn answer(stream: &UnixStream, answers: &Arc<dyn Answers>, end: &Arc<Farewell>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = peer_of(stream)?;
    let allowed = peer.uid == 0 || peer.uid == effective_uid();
    let mut lines = BufReader::new(stream.take(LINE_MAX as u64));
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        let reply = match serde_json::from_str(&line) {
            _ if !allowed => Reply::Error("only the user of the mount and root may ask".into()),
            Ok(Request::Status) => Reply::Status(Box::new(answers.status())),
            Ok(Request::Branches { change }) => {
                return aside(stream, answers, move |answers| {
                    answers.change_branches(&change).map_or_else(Reply::Error, |()| Reply::Changed)
                });
            }
            Ok(Request::Mover { dry_run }) => {
                stream.set_write_timeout(Some(NEWS_PATIENCE))?;
                let news = stream.try_clone()?;
                return aside(stream, answers, move |answers| {
                    let mut tell = |told| send(&news, &Reply::News(Box::new(told))).is_ok();
                    let ran = answers.run_mover(dry_run, &mut tell);
                    ran.map_or_else(Reply::Error, |facts| Reply::Mover(Some(Box::new(facts))))
                });
            }
            Ok(Request::Upgrade { program }) => return upgrade(stream, answers, program),
            Ok(Request::MoverStatus) => Reply::Mover(answers.mover().map(Box::new)),
            Ok(Request::Place { what, at, asker }) => {
                return aside(stream, answers, move |answers| {
                    answers.place(what, &at, &asker).map_or_else(Reply::Error, Reply::Place)
                });
            }
            Ok(Request::Farewell) => match answers.farewell() {
                Some(farewell) => return wait_for_the_end(stream, farewell),
                None => Reply::Error("there is nothing to wait for".into()),
            },
            Ok(Request::Trace(question)) => {
                match trace::filter(&question, peer.pid).and_then(|filter| look(answers, peer.uid, filter)) {
                    Ok(traced) => return trace::stream(stream, traced, end),
                    Err(why) => Reply::Error(why),
                }
            }
            Ok(Request::Load { interval_ms }) => {
                let (tally, filter) = Tally::begin();
                match look(answers, peer.uid, filter) {
                    Ok(trace) => {
                        return load::stream(stream, Duration::from_millis(interval_ms), tally, trace);
                    }
                    Err(why) => Reply::Error(why),
                }
            }
            Ok(Request::Why { node, asker }) => Reply::Why(Box::new(answers.why(node, asker.as_ref()))),
            Ok(Request::Would { question, asker }) => match answers.would(&question, &asker) {
                Ok(verdict) => Reply::Verdict(Box::new(verdict)),
                Err(why) => Reply::Error(why),
            },
            Err(error) => Reply::Error(format!("not a question: {error}")),
        };
        send(stream, &reply)?;
        line.clear();
    }
    Ok(())
}

/// Looks at requests for a user, if that user may.
fn look(answers: &Arc<dyn Answers>, uid: u32, filter: TraceFilter) -> Result<Trace, String> {
    trace::may_trace(uid, effective_uid())?;
    answers.trace(filter)
}

fn send(mut stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut text = serde_json::to_string(reply)?;
    text.push('\n');
    stream.write_all(text.as_bytes())
}

/// Answers what waits for disks, in a thread of its own: others are answered meanwhile.
fn aside(
    stream: &UnixStream,
    answers: &Arc<dyn Answers>,
    answer: impl FnOnce(&dyn Answers) -> Reply + Send + 'static,
) -> io::Result<()> {
    let (own, answers) = (stream.try_clone()?, Arc::clone(answers));
    let act = move || send(&own, &answer(&*answers));
    std::thread::Builder::new().name("shunt-disks".into()).spawn(act)?;
    Ok(())
}

/// Has another program go on, in a thread of its own, which tries it.
fn upgrade(stream: &UnixStream, answers: &Arc<dyn Answers>, program: PathBuf) -> io::Result<()> {
    let (own, asker, answers) = (stream.try_clone()?, stream.try_clone()?, Arc::clone(answers));
    let act = move || answers.upgrade(&program, asker).or_else(|why| send(&own, &Reply::Error(why)));
    std::thread::Builder::new().name("shunt-upgrade".into()).spawn(act)?;
    Ok(())
}

/// Tells whoever had asked for another program how that went.
///
/// # Errors
/// Where nobody waits for it any more.
pub fn answer_upgrade(asker: OwnedFd, outcome: Result<(), String>) -> io::Result<()> {
    send(&UnixStream::from(asker), &outcome.map_or_else(Reply::Error, |()| Reply::Upgraded))
}

/// Tells an asker of the end, in a thread of its own, until that comes or the asker goes.
fn wait_for_the_end(stream: &UnixStream, farewell: Arc<Farewell>) -> io::Result<()> {
    const LOOK: Duration = Duration::from_millis(500);
    let own = stream.try_clone()?;
    let wait = move || -> io::Result<()> {
        let listener = farewell.listen();
        // Said only now: whoever hears it may take the mount away at once.
        send(&own, &Reply::Waiting)?;
        own.set_read_timeout(Some(Duration::from_millis(1)))?;
        loop {
            if let Some(outcome) = listener.hear(LOOK) {
                return send(&own, &Reply::Ended(outcome.err()));
            }
            if matches!((&own).read(&mut [0; 1]), Ok(0)) {
                return Ok(());
            }
        }
    };
    std::thread::Builder::new().name("shunt-farewell".into()).spawn(wait)?;
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::control::client::{AskError, Client};
    use crate::control::protocol::Known;

    fn question() -> Question {
        let at = Spot { folder: 1, name: "a".into() };
        Question { what: What::Create, path: "a".into(), at, node: None, to: None }
    }

    struct Fixed;

    impl Answers for Fixed {
        fn status(&self) -> Status {
            crate::control::protocol::sample()
        }
        fn would(&self, _: &Question, _: &Asker) -> Result<Verdict, String> {
            Err("the mount has no rules".into())
        }
        fn why(&self, node: u64, _: Option<&Asker>) -> Why {
            Why {
                node,
                known: Known::Expected,
                flow: "served".into(),
                meaning: String::new(),
                reason: "turned-off".into(),
                reason_meaning: String::new(),
                verdict: None,
                seal: None,
            }
        }
    }

    #[test]
    fn questions_are_answered_and_the_socket_goes_with_its_server() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(UnixListener::bind(folder.path().join("42")).expect("a stale socket"));
        let server = Server::start_in(folder.path(), 42, Arc::new(Fixed)).expect("starts");
        let mode = std::fs::metadata(server.path()).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let mut client = Client::connect(server.path(), effective_uid()).expect("connects");
        assert_eq!((client.pid(), client.uid()), (std::process::id(), effective_uid()));
        assert_eq!(client.status().expect("answers").folder, "/a");
        assert_eq!(client.why(u64::MAX, None).expect("answers").node, u64::MAX);

        let refused = client.would(question(), Asker::default()).expect_err("there are no rules");
        assert!(refused.to_string().contains("the mount has no rules"), "{refused}");

        let path = server.path().to_owned();
        drop(server);
        assert!(!path.exists());
        assert!(matches!(Client::connect(&path, effective_uid()), Err(AskError::NoServer)));
    }

    /// A mount right after an unmount found the socket of the server that was still ending, and had none.
    #[test]
    fn a_number_given_again_is_taken_over_and_not_taken_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let before = Server::start_in(folder.path(), 5, Arc::new(Fixed)).expect("starts");
        let after = Server::start_in(folder.path(), 5, Arc::new(Fixed)).expect("starts");
        drop(before);
        let mut client = Client::connect(after.path(), effective_uid()).expect("is still there");
        client.status().expect("answers");
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn nonsense_gets_an_error_and_a_silent_asker_delays_others_no_longer_than_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::start_in(folder.path(), 1, Arc::new(Fixed)).expect("starts");
        let silent = UnixStream::connect(server.path()).expect("connects");
        let mut noisy = UnixStream::connect(server.path()).expect("connects");
        noisy.write_all(b"hello\n").expect("writes");
        noisy.set_read_timeout(Some(PATIENCE * 5)).expect("is a socket");
        let mut text = String::new();
        BufReader::new(&noisy).read_line(&mut text).expect("answers");
        assert!(text.starts_with(r#"{"error":"not a question"#), "{text}");
        drop(silent);
    }
}
