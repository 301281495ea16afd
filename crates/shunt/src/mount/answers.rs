//! What the server says of itself at its control socket.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use shuntfs::{Trace, TraceFilter};
use shuntfs_pool::{BranchChange, BranchFacts, Health, MoverFacts, MoverNews};

use super::kept::SeatOf;
use super::session::Mounted;
use super::verdict;
use super::verify::{self, Verifying};
use crate::control::{
    Answers, Asker, Known, NO_KEEPER, ProcessStatus, Question, RightsStatus, RuleStatus, Spot, Status,
    Verdict, What, Why,
};
use crate::json;
use crate::meaning;
use crate::mounts::shown;
use crate::serving::mount_point_of;

/// Answers for one mount.
#[derive(Debug)]
pub(super) struct SessionAnswers {
    mounted: Arc<Mounted>,
    since: Instant,
}

impl SessionAnswers {
    pub(super) fn new(mounted: Arc<Mounted>) -> Self {
        Self { mounted, since: Instant::now() }
    }
}

impl Answers for SessionAnswers {
    fn status(&self) -> Status {
        let mut session = self.mounted.session().status();
        let mount_point = mount_point_of(&*self.mounted).unwrap_or_default();
        if let Some(seat) = self.mounted.seat() {
            // It was given a device, and knows neither.
            session.path = mount_point.to_string_lossy().into_owned();
            (session.source, session.connection) = (seat.source.clone(), seat.connection);
        }
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            mountpoint: json::text(&mount_point),
            mountpoint_hex: json::hex(&mount_point),
            folder: json::text(self.mounted.folder()),
            folder_hex: json::hex(self.mounted.folder()),
            uptime_s: self.since.elapsed().as_secs(),
            protocol: format!("7.{}", session.negotiated.minor),
            session,
            rights: RightsStatus::of_this_process(),
            pool: serde_json::to_value(self.mounted.facts()).unwrap_or_default(),
            image: None,
            rules: self.mounted.rules().map(|rules| {
                let facts = rules.control().facts();
                let (count, reloads, error, failures) =
                    (facts.rules, facts.reloads, facts.error, facts.failures);
                RuleStatus { file: rules.file(), rules: count, reloads, error, failures }
            }),
            verify: self.mounted.verifying().map(Verifying::status),
            mover: self.mounted.mover(),
            process: ProcessStatus::of_this_process(),
            takeover: self.mounted.seat().map(SeatOf::status),
        }
    }

    fn place(&self, what: What, at: &Spot, asker: &Asker) -> Result<Option<serde_json::Value>, String> {
        let explanation = self.mounted.explain(what, at, &verdict::caller_of(asker))?;
        explanation
            .map(|explanation| serde_json::to_value(explanation).map_err(|error| error.to_string()))
            .transpose()
    }

    fn change_branches(&self, change: &BranchChange) -> Result<(), String> {
        self.mounted.change_branches(change).map_err(|error| error.to_string())
    }

    fn run_mover(
        &self,
        dry_run: bool,
        tell: &mut (dyn FnMut(MoverNews) -> bool + Send),
    ) -> Result<MoverFacts, String> {
        self.mounted.run_mover(dry_run, tell).map_err(|error| error.to_string())
    }

    fn mover(&self) -> Option<MoverFacts> {
        self.mounted.mover()
    }

    fn trace(&self, filter: TraceFilter) -> Result<Trace, String> {
        self.mounted.session().trace(filter).map_err(|error| error.to_string())
    }

    fn upgrade(&self, program: &Path, asker: UnixStream) -> Result<(), String> {
        let seat = self.mounted.seat().ok_or(NO_KEEPER)?;
        let facts = self.mounted.facts();
        let hangs = |branch: &&BranchFacts| matches!(branch.health, Health::Silent | Health::Aside);
        if let Some(branch) = facts.iter().flat_map(|facts| &facts.branches).find(hangs) {
            return Err(format!(
                "the branch {} does not answer: a thread that waits for it would keep the server from ending, and all callers waiting",
                shown(&branch.path)
            ));
        }
        seat.upgrade(program, asker)
    }

    fn would(&self, question: &Question, asker: &Asker) -> Result<Verdict, String> {
        verdict::would(&self.mounted, question, asker)
    }

    fn why(&self, node: u64, asker: Option<&Asker>) -> Why {
        let seal = self.mounted.seal_of(node);
        let (known, (flow, reason)) = match (self.mounted.settled(node), &seal) {
            (Some(settled), _) => (Known::Settled, settled),
            (None, Some(seal)) => (Known::Expected, verify::expected(seal, self.mounted.expected())),
            (None, None) => (Known::Expected, self.mounted.expected()),
        };
        Why {
            node,
            known,
            flow: flow.name().into(),
            meaning: meaning::of_flow_by(flow, &self.mounted.session().status().transport),
            reason: reason.name().into(),
            reason_meaning: meaning::of_reason(reason),
            verdict: asker.and_then(|asker| verdict::of_node(&self.mounted, node, asker)),
            seal,
        }
    }
}
