//! The example on tokio, above an HTTP server on loopback. Needs CAP_SYS_ADMIN, /dev/fuse and python3; elsewhere it says so and passes.

mod common;

#[path = "../examples/web.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod web;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Mounted, on_each_transport};
use web::Web;

/// A server that does not outlive the test.
struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn of(folder: &Path) -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"]).arg(folder);
        let Ok(mut child) = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
            println!("SKIPPED: there is no python3");
            return None;
        };
        // "Serving HTTP on 127.0.0.1 port 36465 (http://127.0.0.1:36465/) ..."
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut said).expect("a line");
        let port = said.split(' ').skip_while(|word| *word != "port").nth(1).expect("a port");
        let at = format!("127.0.0.1:{port}");
        Some(Self { child, at })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _may_have_ended = self.child.kill();
        let _may_have_ended = self.child.wait();
    }
}

#[test]
fn a_tree_on_a_web_server_is_shown() {
    on_each_transport(|options| {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("sub/with space")).unwrap();
        fs::write(tree.path().join("sub/with space/100%"), "percent").unwrap();
        let big: Vec<u8> = (0..1_500_000_u32).map(|index| (index % 251) as u8).collect();
        fs::write(tree.path().join("big"), &big).unwrap();
        let Some(server) = Server::of(tree.path()) else { return };
        let mounted = Mounted::new(Web::new(&server.at).unwrap(), options);
        let mut names: Vec<_> =
            fs::read_dir(mounted.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["big", "sub"]);
        assert_eq!(fs::read_to_string(mounted.join("sub/with space/100%")).unwrap(), "percent");
        assert_eq!(fs::metadata(mounted.join("nothing")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::write(mounted.join("sub/new"), "").unwrap_err().raw_os_error(), Some(95));
        // More at once than there are queues: each waits for the server, and none for another.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(fs::read(mounted.join("big")).unwrap() == big));
            }
        });
        drop(server);
        assert_eq!(fs::read(mounted.join("big")).unwrap_err().raw_os_error(), Some(111), "refused");
        assert_eq!(mounted.session().status().panics, 0);
        mounted.end();
    });
}
