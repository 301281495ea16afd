//! Opening files and folders, and changing what belongs to a file, under rules.

use std::sync::Arc;

use shuntfs::{CacheHint, Errno, NodeId, OpenFlags, Result, SetAttr};
use shuntfs_rules::{CacheWord, Decision, FlowWord, OpenWord, Use};

use super::engine::{Engine, refused};
use crate::mode;
use crate::node::Node;
use crate::shared::Shared;
use crate::who::Who;

/// What the kernel adds to the flags of an open that is to be run (`FMODE_EXEC`).
const FMODE_EXEC: u32 = 0x20;

/// What becomes of one open, settled when it is made and kept until its close.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Course {
    /// How reads are to flow; `None` leaves it to the mount.
    pub(crate) reads: Option<FlowWord>,
    /// How writes are to flow; `None` leaves it to the mount.
    pub(crate) writes: Option<FlowWord>,
    /// What becomes of cached pages; `None` leaves it to the mount.
    pub(crate) cache: Option<CacheHint>,
    /// Nothing of the file may change through it.
    pub(crate) read_only: bool,
    /// What is written through it goes to the end.
    pub(crate) append_only: bool,
    /// What is not sealed must not be opened.
    pub(crate) needs_seal: bool,
    /// It is not checked, for nobody.
    pub(crate) unchecked: bool,
}

impl Course {
    /// The flows of reads and of writes of an open with these flags; what it does not do flows as what it does.
    pub(crate) fn flows(&self, flags: u32, of_mount: FlowWord) -> (FlowWord, FlowWord) {
        let (reads, writes) = (self.reads.unwrap_or(of_mount), self.writes.unwrap_or(of_mount));
        match flags & mode::O_ACCMODE {
            mode::O_RDONLY => (reads, reads),
            mode::O_WRONLY => (writes, writes),
            _ => (reads, writes),
        }
    }
}

/// How a file is used by an open with these flags.
pub(crate) fn use_of(flags: u32) -> Use {
    let access = flags & mode::O_ACCMODE;
    let mut how = Use::LOOK;
    for (holds, word) in [
        (access != mode::O_WRONLY, OpenWord::Read),
        (access != mode::O_RDONLY, OpenWord::Write),
        (access != mode::O_RDONLY && flags & mode::O_APPEND != 0, OpenWord::Append),
        (flags & mode::O_TRUNC != 0, OpenWord::Truncate),
        (flags & FMODE_EXEC != 0, OpenWord::Exec),
    ] {
        if holds {
            how = how.and(Use::of(word));
        }
    }
    how
}

/// The course of an open of a node that is there.
pub(crate) fn course_of_open(
    shared: &Shared,
    who: Who,
    node: &Arc<Node>,
    flags: OpenFlags,
) -> Result<Course> {
    let Some(engine) = &shared.rules else { return Ok(Course::default()) };
    let (rules, paths) = (engine.rules(), engine.paths_of(shared, node));
    let is_touched = paths.is_empty() || paths.iter().any(|path| rules.touches(path));
    if !is_touched && node.view.is_whole() {
        return Ok(Course::default());
    }
    if node.is_file() && (!node.view.is_whole() || rules.redacts()) {
        let look = engine.decide_paths(shared, node, &paths, &who, Use::LOOK)?;
        if shared.views.of(&look.redact) != node.view {
            // The name was looked up by somebody else, or for other rules: the caller is to look again.
            return Err(Errno::STALE);
        }
    }
    let course = course(engine.decide_paths(shared, node, &paths, &who, use_of(flags.0))?, flags.0)?;
    Ok(Course { unchecked: !paths.is_empty() && paths.iter().all(|path| rules.unchecked(path)), ..course })
}

/// The course of the open that a creation ends with; the decision was made before there was a file.
pub(crate) fn course_of_new(decision: Option<Decision>, flags: OpenFlags) -> Result<Course> {
    let Some(decision) = decision else { return Ok(Course::default()) };
    if decision.needs_seal() {
        // What is new is not sealed.
        refused(&decision)?;
        return Err(Errno::ACCES);
    }
    course(decision, flags.0)
}

fn course(decision: Decision, flags: u32) -> Result<Course> {
    refused(&decision)?;
    let writes = flags & mode::O_ACCMODE != mode::O_RDONLY;
    let cuts = flags & mode::O_TRUNC != 0;
    if decision.read_only && (writes || cuts) {
        return Err(Errno::ROFS);
    }
    let appends = flags & mode::O_ACCMODE == mode::O_WRONLY && flags & mode::O_APPEND != 0 && !cuts;
    if decision.append_only && (writes || cuts) && !appends {
        // For reading, too, would let it be mapped, and stores through a mapping land anywhere.
        return Err(Errno::PERM);
    }
    let append_only = decision.append_only && writes;
    let cache = decision.cache.map(|word| match word {
        CacheWord::Keep => CacheHint::Keep,
        CacheWord::Drop => CacheHint::Drop,
        CacheWord::Direct => CacheHint::Direct,
    });
    Ok(Course {
        reads: decision.flow_read,
        writes: if append_only { Some(FlowWord::Served) } else { decision.flow_write },
        cache: if append_only { Some(CacheHint::Direct) } else { cache },
        read_only: decision.read_only,
        append_only,
        needs_seal: decision.needs_seal(),
        unchecked: false,
    })
}

/// Whether a folder may be listed.
pub(crate) fn check_folder(shared: &Shared, who: Who, node: &Arc<Node>) -> Result<()> {
    let Some(engine) = &shared.rules else { return Ok(()) };
    if !engine.rules().restricts() {
        return Ok(());
    }
    refused(&engine.decide_node(shared, node, &who, Use::of(OpenWord::Read))?)
}

/// Whether a file may get another length, by an open file or without one.
fn check_size(shared: &Shared, who: Who, node: &Arc<Node>, file: Option<&Course>) -> Result<()> {
    let Some(engine) = &shared.rules else { return Ok(()) };
    let (read_only, append_only) = match file {
        Some(course) => (course.read_only, course.append_only),
        None => {
            let how = Use::of(OpenWord::Write).and(Use::of(OpenWord::Truncate));
            let decision = engine.decide_node(shared, node, &who, how)?;
            refused(&decision)?;
            (decision.read_only, decision.append_only)
        }
    };
    unchangeable(read_only, append_only)
}

/// Whether mode, owner, times, extended attributes and inode flags may change.
pub(crate) fn check_attributes(shared: &Shared, who: Who, id: NodeId) -> Result<()> {
    let Some(engine) = &shared.rules else { return Ok(()) };
    let node = shared.node(id)?;
    if !may_be_fixed(shared, engine, &node) {
        return Ok(());
    }
    let decision = engine.decide_node(shared, &node, &who, Use::of(OpenWord::Write))?;
    unchangeable(decision.read_only, decision.append_only)
}

/// Whether what a SETATTR names may change; `file` is the course of the open file that it came through.
pub(crate) fn check_setattr(
    shared: &Shared,
    who: Who,
    id: NodeId,
    set: &SetAttr,
    file: Option<&Course>,
) -> Result<()> {
    if shared.rules.is_none() {
        return Ok(());
    }
    if set.size.is_some() {
        check_size(shared, who, &shared.node(id)?, file)?;
    }
    // What names nothing takes suid away because somebody is about to write, which was asked about by itself.
    let attributes = SetAttr { kill_priv: false, size: None, ..*set };
    if attributes == SetAttr::default() { Ok(()) } else { check_attributes(shared, who, id) }
}

fn may_be_fixed(shared: &Shared, engine: &Engine, node: &Arc<Node>) -> bool {
    let possible = engine.possible(shared, node);
    possible.read_only || possible.append_only
}

pub(super) fn unchangeable(read_only: bool, append_only: bool) -> Result<()> {
    match (read_only, append_only) {
        (true, _) => Err(Errno::ROFS),
        (false, true) => Err(Errno::PERM),
        (false, false) => Ok(()),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_rules::{Access, ErrorNumber};

    #[test]
    fn flags_say_how_a_file_is_used() {
        let words = |flags| use_of(flags).words().map(OpenWord::word).collect::<Vec<_>>();
        assert_eq!(words(mode::O_RDONLY), ["read"]);
        assert_eq!(words(mode::O_WRONLY | mode::O_APPEND), ["write", "append"]);
        assert_eq!(words(mode::O_RDWR | mode::O_TRUNC), ["read", "write", "truncate"]);
        assert_eq!(words(mode::O_RDONLY | FMODE_EXEC), ["read", "exec"]);
        assert_eq!(words(mode::O_RDONLY | mode::O_APPEND), ["read"]);
    }

    #[test]
    fn what_a_decision_forbids_an_open_hears() {
        let decide = |change: fn(&mut Decision), flags| {
            let mut decision = Decision::default();
            change(&mut decision);
            course(decision, flags).map(|course| (course.writes, course.append_only))
        };
        let (read, write, append) = (mode::O_RDONLY, mode::O_RDWR, mode::O_WRONLY | mode::O_APPEND);
        let deny: fn(&mut Decision) = |decision| decision.access = Access::Deny(ErrorNumber::ACCES);
        assert_eq!(decide(deny, read), Err(Errno::ACCES));
        assert_eq!(decide(|decision| decision.access = Access::Hide, read), Err(Errno::NOENT));
        let read_only: fn(&mut Decision) = |decision| decision.read_only = true;
        assert_eq!(decide(read_only, read), Ok((None, false)));
        assert_eq!(decide(read_only, write), Err(Errno::ROFS));
        assert_eq!(decide(read_only, mode::O_TRUNC), Err(Errno::ROFS));
        let grows: fn(&mut Decision) = |decision| decision.append_only = true;
        assert_eq!(decide(grows, read), Ok((None, false)));
        assert_eq!(decide(grows, append), Ok((Some(FlowWord::Served), true)));
        for flags in [write, mode::O_WRONLY, write | mode::O_APPEND, append | mode::O_TRUNC, mode::O_TRUNC] {
            assert_eq!(decide(grows, flags), Err(Errno::PERM), "{flags:o}");
        }
    }

    #[test]
    fn an_open_for_both_flows_both_ways() {
        use FlowWord::{Passthrough, Served, Splice};
        let flows = |flags| {
            let decision = Decision {
                flow_read: Some(FlowWord::Served),
                flow_write: Some(FlowWord::Passthrough),
                ..Decision::default()
            };
            course(decision, flags).unwrap().flows(flags, Splice)
        };
        assert_eq!(flows(mode::O_RDONLY), (Served, Served));
        assert_eq!(flows(mode::O_WRONLY), (Passthrough, Passthrough));
        assert_eq!(flows(mode::O_RDWR), (Served, Passthrough));
        assert_eq!(Course::default().flows(mode::O_RDWR, Splice), (Splice, Splice));
    }
}
