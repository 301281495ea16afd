//! CREATE of a file system that answers no OPEN. The kernel learns that opens are not answered at the first OPEN, and from then on
//! sends no RELEASE, not even for a file that CREATE opened: whatever such an answer kept would be kept forever.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::shelf::{Shelf, State};
use common::{Mounted, on_each_transport};
use shuntfs::{OpSet, Opcode, Wanted};

#[test]
fn what_create_opens_is_not_kept_where_opens_are_not_answered() {
    const COUNT: u64 = 500;
    on_each_transport(|options| {
        let state = State::new();
        let wanted = Wanted { ops: Some(OpSet::CREATE), ..Wanted::default() };
        let mounted = Mounted::new(Shelf { state: Arc::clone(&state), wanted }, options);
        for index in 0..COUNT {
            let path = mounted.join("file");
            let mut file = File::create_new(&path).unwrap();
            file.write_all(index.to_string().as_bytes()).unwrap();
            file.sync_all().unwrap();
            drop(file);
            // The first such OPEN tells the kernel; there is no other.
            assert_eq!(fs::read_to_string(&path).unwrap(), index.to_string());
            fs::remove_file(&path).unwrap();
        }
        let status = mounted.session().status();
        assert_eq!((status.requests(Opcode::Create), status.requests(Opcode::Open)), (COUNT, 1));
        assert!(status.requests(Opcode::Release) <= 1, "the kernel sends none once it knows");
        assert_eq!(status.nodes_open, 0);
        assert_eq!(state.open.load(Ordering::SeqCst), 0, "open files of {COUNT}");
        assert_eq!(state.released.load(Ordering::SeqCst), 0, "there is nothing to be released");
        assert_eq!((status.malformed, status.panics), (0, 0));
        mounted.end();
    });
}
