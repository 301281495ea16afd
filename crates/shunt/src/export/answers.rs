//! What the server of an export says of itself at its control socket.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use shuntfs::{Flow, NodeId, Reason, Trace, TraceFilter};
use shuntfs_image::Format;

use super::serve::Exporting;
use crate::control::{
    Answers, Asker, Farewell, Known, NO_KEEPER, ProcessStatus, Question, RightsStatus, Status, Verdict, Why,
};
use crate::json;
use crate::meaning;
use crate::mount::SeatOf;
use crate::serving::{Serving, mount_point_of};

/// Answers for one export.
#[derive(Debug)]
pub(super) struct ExportAnswers {
    exporting: Arc<Exporting>,
    farewell: Arc<Farewell>,
    since: Instant,
}

impl ExportAnswers {
    pub(super) fn new(exporting: Arc<Exporting>, farewell: Arc<Farewell>) -> Self {
        Self { exporting, farewell, since: Instant::now() }
    }

    /// The flow that an open for reading would get while nobody has the export open, and why.
    fn expected(&self) -> (Flow, Reason) {
        let flows = self.exporting.expected_flow();
        match (flows, self.exporting.passthrough_off) {
            (Flow::Passthrough, Some(reason)) => (self.moved_by_us(), reason),
            (Flow::Relay | Flow::Splice | Flow::ZeroCopy, _) => (self.moved_by_us(), Reason::Wished),
            (flow, _) => (flow, Reason::Wished),
        }
    }

    fn moved_by_us(&self) -> Flow {
        meaning::moved_by(&self.exporting.session().status().transport)
    }
}

impl Answers for ExportAnswers {
    fn status(&self) -> Status {
        let mut session = self.exporting.session().status();
        let mount_point = mount_point_of(&*self.exporting).unwrap_or_default();
        if let Some(seat) = self.exporting.seat() {
            // It was given a device, and knows neither.
            session.path = mount_point.to_string_lossy().into_owned();
            (session.source, session.connection) = (seat.source.clone(), seat.connection);
        }
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            mountpoint: json::text(&mount_point),
            mountpoint_hex: json::hex(&mount_point),
            folder: json::text(&self.exporting.source),
            folder_hex: json::hex(&self.exporting.source),
            uptime_s: self.since.elapsed().as_secs(),
            protocol: format!("7.{}", session.negotiated.minor),
            session,
            rights: RightsStatus::of_this_process(),
            pool: serde_json::Value::Null,
            image: Some(self.exporting.export.status()),
            verify: None,
            rules: None,
            mover: None,
            process: ProcessStatus::of_this_process(),
            takeover: self.exporting.seat().map(SeatOf::status),
        }
    }

    fn why(&self, node: u64, _: Option<&Asker>) -> Why {
        let settled = NodeId::new(node).and_then(|node| self.exporting.session().flow_of(node));
        let (known, (flow, reason)) = match settled {
            Some(flows) => (Known::Settled, (flows.reads.flow, flows.reads.reason)),
            None => (Known::Expected, self.expected()),
        };
        let format = self.exporting.export.status().format;
        let meaning = match flow {
            Flow::Served | Flow::Ranges if format == Format::Qcow2 => {
                "the server finds the clusters, and moves their bytes".into()
            }
            flow => meaning::of_flow_by(flow, &self.exporting.session().status().transport),
        };
        Why {
            node,
            known,
            flow: flow.name().into(),
            meaning,
            reason: reason.name().into(),
            reason_meaning: meaning::of_reason(reason),
            seal: None,
            verdict: None,
        }
    }

    fn trace(&self, filter: TraceFilter) -> Result<Trace, String> {
        self.exporting.session().trace(filter).map_err(|error| error.to_string())
    }

    fn would(&self, _: &Question, _: &Asker) -> Result<Verdict, String> {
        Err("an export has no rules".into())
    }

    fn upgrade(&self, program: &Path, asker: UnixStream) -> Result<(), String> {
        let seat = self.exporting.seat().ok_or(NO_KEEPER)?;
        seat.upgrade(program, asker)
    }

    fn farewell(&self) -> Option<Arc<Farewell>> {
        self.exporting.export.status().writable.then(|| Arc::clone(&self.farewell))
    }
}
