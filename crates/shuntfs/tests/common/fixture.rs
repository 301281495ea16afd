//! A mount of [`Wishes`] over a lower file, for tests of opens.

use std::fs::{self, File};
use std::sync::Arc;

use shuntfs::{CacheHint, Delegation, Flow, Flows, Reason, Session, SessionOptions};
use tempfile::TempDir;

use super::Mounted;
use super::wishes::{Plan, Wishes, file_node};

pub(crate) struct Fixture {
    pub(crate) plan: Arc<Plan>,
    pub(crate) mounted: Mounted,
    pub(crate) lower: TempDir,
}

impl Fixture {
    pub(crate) fn new(bytes: &[u8], options: &SessionOptions) -> Self {
        let lower = tempfile::tempdir().expect("a folder");
        fs::write(lower.path().join("lower"), bytes).expect("a lower file");
        let plan = Arc::new(Plan::default());
        let wishes = Wishes { lower: lower.path().join("lower"), plan: Arc::clone(&plan) };
        let mounted = Mounted::new(wishes, options);
        Self { plan, mounted, lower }
    }

    pub(crate) fn open(&self, wish: Delegation, cache: CacheHint) -> File {
        self.plan.wishes.lock().expect("whole").clear();
        self.plan.push(wish, cache);
        File::options().read(true).write(true).open(self.mounted.join("file")).expect("no open fails")
    }

    /// The flows of the last open, and what is the same both ways.
    pub(crate) fn last_flows(&self) -> Flows {
        *self.plan.settled.lock().expect("whole").last().expect("an open")
    }

    pub(crate) fn last(&self) -> (Flow, Reason) {
        let flows = self.last_flows();
        assert_eq!(flows.reads, flows.writes);
        (flows.reads.flow, flows.reads.reason)
    }

    /// The flow of bytes that nobody has to see and that are not in passthrough.
    pub(crate) fn moved(&self) -> Flow {
        moved(self.mounted.session())
    }

    /// The same of an open that has no zero copy, because its reads must be seen or its node is in passthrough.
    pub(crate) fn copied(&self) -> Flow {
        if self.moved() == Flow::Splice { Flow::Splice } else { Flow::Relay }
    }

    /// Waits for the RELEASEs, which come in the background, and lets the backing id go.
    pub(crate) fn settle(&self) {
        for _ in 0..500 {
            if self.mounted.session().status().nodes_open == 0 {
                self.mounted.session().drop_backing(file_node());
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        panic!("opens are still counted");
    }
}

/// The flow of bytes that nobody has to see and that are not in passthrough.
pub(crate) fn moved(session: &Session) -> Flow {
    let transport = session.status().transport;
    match (transport.kind.as_str(), transport.zero_copy_off) {
        ("uring", None) => Flow::ZeroCopy,
        ("uring", Some(_)) => Flow::Relay,
        _ => Flow::Splice,
    }
}
