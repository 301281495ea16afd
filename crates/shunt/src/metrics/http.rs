//! The little of HTTP that a scrape needs: one GET, one answer, and the connection is closed.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A request's head may be so long.
const HEAD_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;

/// What the OpenMetrics text is called, and that of Prometheus.
const OPENMETRICS: &str = "application/openmetrics-text";
const TYPE_OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TYPE_PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TYPE_PLAIN: &str = "text/plain; charset=utf-8";

/// What somebody asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// The metrics in OpenMetrics.
    OpenMetrics,
    /// The metrics in the text format of Prometheus.
    Prometheus,
    /// What is here.
    Index,
    /// Something that is not here.
    NotFound,
    /// To change something.
    NotAllowed,
    /// Nothing that could be understood.
    Nonsense,
}

/// Talks to a client, until the end of its time at the latest. `texts` gives the metrics in OpenMetrics, and in the other format.
///
/// # Errors
/// Those of the socket, and where the client takes too long.
pub(super) fn answer(
    stream: &TcpStream,
    limit: Duration,
    texts: impl FnOnce(Wish) -> String,
) -> io::Result<()> {
    let end = Instant::now() + limit;
    let Some((wish, with_body)) = read_wish(stream, end)? else { return Ok(()) };
    let (status, kind, body) = match wish {
        Wish::OpenMetrics => ("200 OK", TYPE_OPENMETRICS, texts(wish)),
        Wish::Prometheus => ("200 OK", TYPE_PROMETHEUS, texts(wish)),
        Wish::Index => ("200 OK", TYPE_PLAIN, "shunt: metrics are at /metrics\n".to_owned()),
        Wish::NotFound => ("404 Not Found", TYPE_PLAIN, "metrics are at /metrics\n".to_owned()),
        Wish::NotAllowed => ("405 Method Not Allowed", TYPE_PLAIN, "GET and HEAD are answered\n".to_owned()),
        Wish::Nonsense => ("400 Bad Request", TYPE_PLAIN, "this is no request\n".to_owned()),
    };
    let allow = if wish == Wish::NotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    write_all(stream, head.as_bytes(), end)?;
    if with_body {
        write_all(stream, body.as_bytes(), end)?;
    }
    stream.shutdown(std::net::Shutdown::Write)
}

/// What the client wants, and whether it wants the body; `None` where it left without a word.
fn read_wish(mut stream: &TcpStream, end: Instant) -> io::Result<Option<(Wish, bool)>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(end)?))?;
        let len = match stream.read(&mut piece) {
            Ok(0) if head.is_empty() => return Ok(None),
            Ok(0) => return Ok(Some((Wish::Nonsense, true))),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        head.extend_from_slice(&piece[..len]);
        if let Some(wish) = wish_of(&head) {
            return Ok(Some(wish));
        }
        if head.len() >= HEAD_MAX {
            return Ok(Some((Wish::Nonsense, true)));
        }
    }
}

/// What a head asks for; `None` where its end has not come.
fn wish_of(head: &[u8]) -> Option<(Wish, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(_) => return Some((Wish::Nonsense, true)),
    }
    let with_body = request.method != Some("HEAD");
    if !matches!(request.method, Some("GET" | "HEAD")) {
        return Some((Wish::NotAllowed, with_body));
    }
    let path = request.path.unwrap_or_default();
    let accepts_openmetrics = request.headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("accept")
            && String::from_utf8_lossy(header.value).to_ascii_lowercase().contains(OPENMETRICS)
    });
    let wish = match path.split('?').next().unwrap_or_default() {
        "/metrics" if accepts_openmetrics => Wish::OpenMetrics,
        "/metrics" => Wish::Prometheus,
        "/" => Wish::Index,
        _ => Wish::NotFound,
    };
    Some((wish, with_body))
}

/// As `write_all`, but in the time that is left: a client that takes a byte a second is not waited for.
fn write_all(mut stream: &TcpStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod test {
    use super::*;

    /// A client, and how a server that gives it this long fares.
    fn served(limit: Duration, body: usize) -> (TcpStream, std::thread::JoinHandle<(bool, Duration)>) {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let client = TcpStream::connect(socket.local_addr().expect("has one")).expect("connects");
        let (stream, _) = socket.accept().expect("connects");
        let serve = move || {
            let started = Instant::now();
            let outcome = answer(&stream, limit, |_| "x".repeat(body));
            (outcome.is_ok(), started.elapsed())
        };
        (client, std::thread::spawn(serve))
    }

    #[test]
    fn a_client_has_so_long_and_no_longer_however_it_spends_it() {
        const LIMIT: Duration = Duration::from_millis(300);
        let (mut slow, server) = served(LIMIT, 10);
        while !server.is_finished() {
            let _cut_off = slow.write_all(b"G");
            std::thread::sleep(Duration::from_millis(20));
        }
        let (is_ok, took) = server.join().expect("ends");
        assert!(!is_ok && took < Duration::from_secs(20), "{took:?}");

        let (mut deaf, server) = served(LIMIT, 64 << 20);
        deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("writes");
        let (is_ok, took) = server.join().expect("ends");
        assert!(!is_ok && took < Duration::from_secs(20), "{took:?}");
    }

    #[test]
    fn wishes_are_understood() {
        let wish = |head: &str| wish_of(head.as_bytes());
        let scrape = "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain\r\n\r\n";
        assert_eq!(wish(scrape), Some((Wish::OpenMetrics, true)));
        for (head, wanted) in [
            ("GET /metrics HTTP/1.1\r\n\r\n", Wish::Prometheus),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Wish::Prometheus),
            ("GET / HTTP/1.1\r\n\r\n", Wish::Index),
            ("GET /etc/passwd HTTP/1.1\r\n\r\n", Wish::NotFound),
            ("POST /metrics HTTP/1.1\r\n\r\n", Wish::NotAllowed),
            ("\u{16}\u{3}\u{1} hello\r\n\r\n", Wish::Nonsense),
        ] {
            assert_eq!(wish(head), Some((wanted, true)), "{head:?}");
        }
        assert_eq!(wish("HEAD /metrics HTTP/1.1\r\n\r\n"), Some((Wish::Prometheus, false)));
        for part in ["", "GET", "GET /metrics HTTP/1.1\r\n", "GET /metrics HTTP/1.1\r\nHost: a\r\n"] {
            assert_eq!(wish(part), None, "{part:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(wish(&many), Some((Wish::Nonsense, true)));
    }
}
