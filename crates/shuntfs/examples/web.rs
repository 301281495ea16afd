//! The tree that an HTTP server shows, read-only, fetched by tokio.
//!
//! ```text
//! python3 -m http.server 8000 --bind 127.0.0.1 &
//! cargo run --example web -- 127.0.0.1:8000 MNT
//! ```
//!
//! The queues that serve the mount have no reactor for sockets and timers. The runtime has one, in threads of its own, which are
//! started before the mount is; a method spawns what must be fetched there and awaits the handle, and its queue goes on serving
//! others meanwhile.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, DirSink, Entry, Errno, FileType, Filesystem, Filled, Listed,
    LookupCount, MountOptions, Name, NodeId, NodeTable, OpSet, OpenFlags, Opened, OpenedDir, ReadReply,
    Result, SessionOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// How long the server may take for one answer, and how long the kernel may believe it.
const PATIENCE: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(1);

/// The file system. A node is a path as it is asked for; that of a folder ends with a slash.
#[derive(Debug)]
pub(crate) struct Web {
    runtime: Runtime,
    server: String,
    nodes: NodeTable<String, Attr>,
}

/// What a server answers.
struct Answer {
    status: u16,
    len: Option<u64>,
    body: Vec<u8>,
}

impl Web {
    /// Shows what the server at `server` (`HOST:PORT`) has. To be called before the mount starts its threads.
    ///
    /// # Errors
    /// Those of starting threads.
    pub(crate) fn new(server: &str) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let nodes = NodeTable::new("/".into(), Attr::new(1, FileType::Directory, 0o555));
        Ok(Self { runtime, server: server.into(), nodes })
    }

    /// Asks the server in a thread of the runtime.
    async fn ask(&self, method: &'static str, path: String) -> Result<Answer> {
        let asked = ask(self.server.clone(), method, path);
        let asked = self.runtime.spawn(async { tokio::time::timeout(PATIENCE, asked).await });
        let answered = asked.await.map_err(|_| Errno::IO)?;
        Ok(answered.map_err(|_| Errno::TIMEDOUT)??)
    }

    async fn fetch(&self, node: NodeId) -> Result<Vec<u8>> {
        match self.ask("GET", self.nodes.key(node)?).await? {
            Answer { status: 200, body, .. } => Ok(body),
            Answer { status: 404, .. } => Err(Errno::STALE),
            _ => Err(Errno::IO),
        }
    }
}

/// One request, one connection.
async fn ask(server: String, method: &str, path: String) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(&server).await?;
    let request = format!("{method} {path} HTTP/1.0\r\nHost: {server}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let malformed = || std::io::Error::other("it does not speak HTTP");
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(malformed)?;
    let body = answer.split_off(end + 4);
    let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(malformed)?;
    let len = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    if method == "GET" && len.is_some_and(|len| len != body.len() as u64) {
        return Err(malformed());
    }
    Ok(Answer { status, len, body })
}

/// A name as it stands in a path.
fn encoded(name: &[u8]) -> String {
    let mut text = String::new();
    for byte in name {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            let _never_fails = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let number = after.get(..2).filter(|_| *first == b'%');
        let number = number.and_then(|digits| std::str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => (bytes, rest) = ([bytes, vec![byte]].concat(), &after[2..]),
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// The names that a page links to, and what they are.
fn links(page: &str) -> Vec<(FileType, Vec<u8>)> {
    let link = |part: &str| {
        let link = part.split('"').next()?;
        let (kind, name) = match link.strip_suffix('/') {
            Some(folder) => (FileType::Directory, folder),
            None => (FileType::Regular, link),
        };
        let is_name = !name.is_empty() && !name.starts_with(['.', '?', '#']) && !name.contains(['/', ':']);
        is_name.then(|| (kind, decoded(name)))
    };
    page.split("href=\"").skip(1).filter_map(link).collect()
}

impl Filesystem for Web {
    type File = Vec<u8>;
    type Dir = Vec<(FileType, Vec<u8>)>;

    const OPS: OpSet = OpSet::OPEN.union(OpSet::OPENDIR);

    fn forget(&self, node: NodeId, lookups: LookupCount) {
        self.nodes.forget(node, lookups);
    }

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let path = self.nodes.key(parent)? + &encoded(name.as_bytes());
        let (path, attr) = match self.ask("HEAD", path.clone()).await? {
            Answer { status: 200, len, .. } => {
                (path, Attr::new(0, FileType::Regular, 0o444).with_size(len.ok_or(Errno::IO)?))
            }
            // A server sends whoever leaves out the slash of a folder there.
            Answer { status: 301 | 302 | 308, .. } => (path + "/", Attr::new(0, FileType::Directory, 0o555)),
            Answer { status: 404, .. } => return Ok(Entry::negative(TTL)),
            _ => return Err(Errno::IO),
        };
        let (node, attr) = self.nodes.enter(path, || attr)?;
        Ok(Entry::new(node, Attr { ino: node.get(), ..*attr }.valid_for(TTL)))
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Vec<u8>>) -> Result<AttrReply> {
        Ok(Attr { ino: node.get(), ..*self.nodes.get(node)? }.valid_for(TTL))
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<Opened<Vec<u8>>> {
        Ok(Opened::served(self.fetch(node).await?).with_cache(CacheHint::Drop))
    }

    async fn read<'q>(
        &self,
        _: &Cx<'_>,
        file: &Vec<u8>,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        reply.copy_from_slice(at.of(file))
    }

    async fn opendir(&self, _: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<OpenedDir<Self::Dir>> {
        let page = self.fetch(node).await?;
        Ok(OpenedDir::new(links(&String::from_utf8_lossy(&page))))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        listing: &Self::Dir,
        cookie: u64,
        out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        // Numbers are given at LOOKUP; a record must only not have zero.
        Ok(out.list(cookie, listing.iter().map(|(kind, name)| (u64::MAX, *kind, name))))
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [server, path] = &args[..] else { return Err("usage: web HOST:PORT MNT".into()) };
    let mount = MountOptions { source: server.clone(), read_only: true, ..MountOptions::default() };
    shuntfs::serve(Web::new(server)?, Path::new(path), &mount, &SessionOptions::default())?;
    Ok(())
}
