//! Names under rules: seeing, listing, making, removing and moving them.
//!
//! A hidden name is not there for whoever it is hidden from, and cannot be made either: EACCES, whether there is such
//! a file or not, so that nothing is overwritten and nothing told.

use std::sync::Arc;

use shuntfs::{Errno, LowerFile, NodeId, Result};
use shuntfs_rules::{Access, Attributes, Decision, FileFacts, Listing, OpenWord, Use};
use shuntfs_sys::{stat_at, stat_of};

use super::engine::Engine;
use super::facts::{OfName, OfNew, OfNode};
use super::opens::unchangeable;
use crate::find::{self, Found};
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::Node;
use crate::shared::Shared;
use crate::view::Seen;
use crate::who::Who;

/// The uses under which a file's names are compared.
const USES: [Use; 3] = [Use::of(OpenWord::Read), Use::of(OpenWord::Write), Use::of(OpenWord::Exec)];

fn bytes(name: &NameBuf) -> &[u8] {
    name.as_c_str().to_bytes()
}

/// A path in a folder that the kernel named, so it knows the names that lead there.
fn path_of(engine: &Engine, parent: NodeId, name: &NameBuf) -> Result<Vec<u8>> {
    engine.paths.child(parent, bytes(name)).ok_or(Errno::STALE)
}

/// What a caller sees by a name that was found.
///
/// # Errors
/// ENOENT where the name is hidden from it, EACCES where a rule cannot be evaluated.
pub(crate) fn see(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    dir: &LowerFile,
    name: &NameBuf,
    found: &Found,
) -> Result<Seen> {
    let Some(engine) = &shared.rules else { return Ok(Seen::ALL) };
    let rules = engine.rules();
    if !rules.hides() && !rules.redacts() {
        return Ok(Seen::ALL);
    }
    let path = path_of(engine, parent, name)?;
    if found.stat.nlink <= 1 && !rules.touches(&path) {
        return Ok(Seen::ALL);
    }
    if is_hidden(engine, &OfName { shared, dir, name, path: &path }, who)? {
        return Err(Errno::NOENT);
    }
    let mut seen = Seen { varies: rules.possible(&path).varies, ..Seen::ALL };
    if !found.stat.is_file() {
        return Ok(seen);
    }
    let mut paths = vec![path];
    if found.stat.nlink > 1 {
        let others = shared.table.peek(&found.identity());
        paths.extend(others.iter().flat_map(|node| engine.paths.of(node.id)));
        paths.extend(engine.index.of(&found.identity()));
        paths.sort_unstable();
        paths.dedup();
    }
    let mut strictest = Decision::default();
    for path in paths {
        let possible = rules.possible(&path);
        if possible.redact {
            seen.varies |= possible.varies;
            let file = OfName { shared, dir, name, path: &path };
            strictest = strictest.strictest(engine.decide(&file, &who, Use::LOOK)?);
        }
    }
    seen.view = shared.views.of(&strictest.redact);
    Ok(seen)
}

/// How a name is seen that is about to be made: whole by its maker, who else could not have made it.
pub(crate) fn see_new(shared: &Shared, parent: NodeId, name: &NameBuf) -> Seen {
    Seen { varies: varies(shared, parent, name), ..Seen::ALL }
}

/// Whether callers may see what a name means in different ways.
pub(crate) fn varies(shared: &Shared, parent: NodeId, name: &NameBuf) -> bool {
    shared.rules.as_ref().is_some_and(|engine| {
        // Where no path is known nothing is taken for granted.
        path_of(engine, parent, name).map_or(true, |path| engine.rules().possible(&path).varies)
    })
}

/// Notes that a name leads to a node.
pub(crate) fn note(shared: &Shared, parent: NodeId, name: &NameBuf, node: &Node) {
    if let Some(engine) = &shared.rules {
        engine.paths.note(node.id, parent, bytes(name), node.is_dir());
    }
}

/// Notes that a file was made in a folder and has no name.
pub(crate) fn note_nameless(shared: &Shared, parent: NodeId, node: &Node) {
    if let Some(engine) = &shared.rules {
        engine.paths.note(node.id, parent, b"", false);
    }
}

/// Notes that a name leads to these nodes no more.
pub(crate) fn note_removed(shared: &Shared, parent: NodeId, name: &NameBuf, nodes: &[Arc<Node>]) {
    let Some(engine) = &shared.rules else { return };
    nodes.iter().for_each(|node| engine.paths.removed(node.id, parent, bytes(name)));
    if let (Some(node), Ok(path)) = (nodes.first(), path_of(engine, parent, name)) {
        engine.index.remove(&node.identity, &path);
    }
}

/// Notes that a file got one more name.
pub(crate) fn note_second(shared: &Shared, parent: NodeId, name: &NameBuf, node: &Node) {
    note(shared, parent, name, node);
    if let Some(engine) = &shared.rules
        && let Ok(path) = path_of(engine, parent, name)
    {
        engine.index.add(&engine.rules(), &node.identity, path);
    }
}

/// Notes what a move brought to a name.
fn note_arrived(shared: &Shared, parent: NodeId, name: &NameBuf, nodes: &[Arc<Node>]) {
    nodes.iter().for_each(|node| note(shared, parent, name, node));
    if let Some(node) = nodes.first().filter(|node| !node.is_dir())
        && shared.descriptor(node).is_ok_and(|lower| stat_of(&lower).is_ok_and(|stat| stat.nlink > 1))
    {
        note_second(shared, parent, name, node);
    }
}

fn is_hidden(engine: &Engine, file: &dyn FileFacts, who: Who) -> Result<bool> {
    if !engine.rules().possible(file.path()).hide {
        return Ok(false);
    }
    Ok(engine.decide(file, &who, Use::LOOK)?.access == Access::Hide)
}

/// How one listing shows names.
pub(crate) struct Listed<'s> {
    shared: &'s Shared,
    engine: &'s Engine,
    who: Who,
    folder: NodeId,
}

/// What the rules do to the listing of a folder; `None` is nothing.
pub(crate) fn listed(shared: &Shared, who: Who, folder: NodeId) -> Option<Listed<'_>> {
    let engine = shared.rules.as_ref()?;
    match listing(engine, folder) {
        Listing::Whole => None,
        Listing::Fixed | Listing::Varies => Some(Listed { shared, engine, who, folder }),
    }
}

fn listing(engine: &Engine, folder: NodeId) -> Listing {
    let rules = engine.rules();
    if !rules.hides() {
        return Listing::Whole;
    }
    // Where no path is known nothing is taken for granted.
    engine.paths.folder(folder).map_or(Listing::Varies, |path| rules.listing(&path))
}

/// Whether all callers get the same listing of a folder, so that the kernel may keep it.
pub(crate) fn is_listing_common(shared: &Shared, folder: NodeId) -> bool {
    shared.rules.as_ref().is_none_or(|engine| listing(engine, folder) != Listing::Varies)
}

impl Listed<'_> {
    /// Whether the caller sees a name. What cannot be told is not shown.
    pub(crate) fn has(&self, dir: &LowerFile, name: &NameBuf) -> bool {
        let Ok(path) = path_of(self.engine, self.folder, name) else { return false };
        let file = OfName { shared: self.shared, dir, name, path: &path };
        is_hidden(self.engine, &file, self.who).is_ok_and(|hidden| !hidden)
    }
}

/// What somebody is about to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    /// Type and permission bits, the umask applied.
    pub(crate) mode: u32,
    /// How it will be open.
    pub(crate) how: Use,
}

/// Whether a name may be made (`None`: a file without one), and what the rules say of what it will be.
pub(crate) fn check_make(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    name: Option<&NameBuf>,
    new: New,
) -> Result<Option<Decision>> {
    let Some(engine) = &shared.rules else { return Ok(None) };
    let path = match name {
        Some(name) => path_of(engine, parent, name)?,
        None => engine.paths.child(parent, b"").ok_or(Errno::STALE)?,
    };
    let decision = decide_new(engine, who, &path, new)?;
    if new.mode & mode::TYPE == mode::FILE && !decision.redact.is_empty() {
        // A partial view is never written, so a file that has one for its maker would stay empty.
        return Err(Errno::ACCES);
    }
    match decision.access {
        Access::Allow => {}
        Access::Deny(number) => return Err(Errno::from_lower(number.get())),
        Access::Hide => return Err(Errno::ACCES),
    }
    unchangeable(decision.read_only, false)?;
    Ok(Some(decision))
}

fn decide_new(engine: &Engine, who: Who, path: &[u8], new: New) -> Result<Decision> {
    let attributes = Attributes { size: 0, owner: who.uid(), group: who.gid(), mode: new.mode & 0o7777 };
    let how = Use::of(OpenWord::Create).and(new.how);
    engine.decide(&OfNew { path, attributes }, &who, how)
}

/// Refuses a name that is there and hidden from whoever wants to make it or open it by making it.
pub(crate) fn refuse_hidden(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    dir: &LowerFile,
    name: &NameBuf,
) -> Result<()> {
    let Some(engine) = shared.rules.as_ref().filter(|engine| engine.rules().hides()) else { return Ok(()) };
    let path = path_of(engine, parent, name)?;
    match is_hidden(engine, &OfName { shared, dir, name, path: &path }, who) {
        Ok(true) => Err(Errno::ACCES),
        other => other.map(drop),
    }
}

/// Whether a name may be removed.
pub(crate) fn check_remove(
    shared: &Shared,
    who: Who,
    folder: &Node,
    dir: &LowerFile,
    name: &NameBuf,
) -> Result<()> {
    let Some(engine) = restricting(shared) else { return Ok(()) };
    check_leaves(shared, engine, who, folder, dir, name)?;
    let Some(node) = one_of(shared, folder, dir, name) else { return Ok(()) };
    let before = engine.paths_of(shared, &node);
    let path = path_of(engine, folder.id, name)?;
    let after: Vec<Vec<u8>> = before.iter().filter(|other| **other != path).cloned().collect();
    // With its last name a file goes.
    if after.is_empty() || node.is_dir() {
        Ok(())
    } else {
        check_loosens(shared, who, &node, &before, &after)
    }
}

/// A node that a name means, in one view or another: paths and lower inode are the same.
fn one_of(shared: &Shared, folder: &Node, dir: &LowerFile, name: &NameBuf) -> Option<Arc<Node>> {
    find::known(shared, folder, dir, name.as_c_str()).into_iter().next()
}

fn restricting(shared: &Shared) -> Option<&Engine> {
    shared.rules.as_ref().filter(|engine| engine.rules().restricts())
}

/// Whether what a name means may leave it: it must be visible, and neither read-only nor append-only.
fn check_leaves(
    shared: &Shared,
    engine: &Engine,
    who: Who,
    folder: &Node,
    dir: &LowerFile,
    name: &NameBuf,
) -> Result<()> {
    let path = path_of(engine, folder.id, name)?;
    let file = OfName { shared, dir, name, path: &path };
    if is_hidden(engine, &file, who)? {
        return Err(Errno::NOENT);
    }
    let possible = engine.rules().possible(&path);
    if !possible.read_only && !possible.append_only {
        return Ok(());
    }
    let decision = engine.decide(&file, &who, Use::of(OpenWord::Write))?;
    unchangeable(decision.read_only, decision.append_only)
}

/// Refuses a change of names that gives the caller more of a file than it had. Who may do everything with it could
/// copy it, too, and is not held up.
fn check_loosens(
    shared: &Shared,
    who: Who,
    node: &Arc<Node>,
    before: &[Vec<u8>],
    after: &[Vec<u8>],
) -> Result<()> {
    let Some(engine) = restricting(shared) else { return Ok(()) };
    for how in USES {
        let before = engine.decide_paths(shared, node, before, &who, how)?;
        if before.is_open() {
            continue;
        }
        let after = engine.decide_paths(shared, node, after, &who, how)?;
        let both = before.strictest(after.clone());
        if !after.restricts_like(&both) {
            return Err(Errno::ACCES);
        }
    }
    Ok(())
}

/// One end of a move.
#[derive(Clone, Copy)]
pub(crate) struct End<'n> {
    pub(crate) folder: &'n Node,
    pub(crate) dir: &'n LowerFile,
    pub(crate) name: &'n NameBuf,
}

/// Whether a name may be moved, or two exchanged.
pub(crate) fn check_rename(shared: &Shared, who: Who, from: End<'_>, to: End<'_>, flags: u32) -> Result<()> {
    let Some(engine) = restricting(shared) else { return Ok(()) };
    check_leaves(shared, engine, who, from.folder, from.dir, from.name)?;
    if stat_at(to.dir, to.name.as_c_str()).is_ok() {
        refuse_hidden(shared, who, to.folder.id, to.dir, to.name)?;
        check_leaves(shared, engine, who, to.folder, to.dir, to.name)?;
    }
    check_moves(shared, engine, who, from, to)?;
    if flags & mode::RENAME_EXCHANGE != 0 {
        check_moves(shared, engine, who, to, from)?;
    }
    Ok(())
}

fn check_moves(shared: &Shared, engine: &Engine, who: Who, from: End<'_>, to: End<'_>) -> Result<()> {
    let Some(node) = one_of(shared, from.folder, from.dir, from.name) else { return Ok(()) };
    let old = path_of(engine, from.folder.id, from.name)?;
    let new = path_of(engine, to.folder.id, to.name)?;
    if is_hidden(engine, &OfNode { shared, node: &node, path: &new }, who)? {
        return Err(Errno::ACCES);
    }
    let moved =
        engine.decide(&OfNode { shared, node: &node, path: &new }, &who, Use::of(OpenWord::Create))?;
    unchangeable(moved.read_only, false)?;
    let before = engine.paths_of(shared, &node);
    let mut after: Vec<Vec<u8>> = before.iter().filter(|path| **path != old).cloned().collect();
    after.push(new);
    check_loosens(shared, who, &node, &before, &after)?;
    if !node.is_dir() {
        return Ok(());
    }
    let rules = engine.rules();
    for path in [&old, after.last().unwrap_or(&old)] {
        let folder = OfNode { shared, node: &node, path };
        let concerns = rules.concerns_below(&folder, &who);
        if concerns.map_err(|failed| engine.refuse(&rules, path, &failed))? {
            return Err(Errno::ACCES);
        }
    }
    Ok(())
}

/// Whether a node may get one more name: the caller must not get more of it there than it has now.
pub(crate) fn check_second_name(
    shared: &Shared,
    who: Who,
    node: &Arc<Node>,
    parent: NodeId,
    name: &NameBuf,
) -> Result<()> {
    let Some(engine) = restricting(shared) else { return Ok(()) };
    let before = engine.paths_of(shared, node);
    let decision = engine.decide_paths(shared, node, &before, &who, Use::of(OpenWord::Write))?;
    unchangeable(decision.read_only, decision.append_only)?;
    let new = path_of(engine, parent, name)?;
    let named = engine.decide(&OfNode { shared, node, path: &new }, &who, Use::of(OpenWord::Create))?;
    match named.access {
        Access::Hide => return Err(Errno::ACCES),
        Access::Deny(number) => return Err(Errno::from_lower(number.get())),
        Access::Allow => unchangeable(named.read_only, false)?,
    }
    check_loosens(shared, who, node, &before, &[new])
}

/// A move that was allowed and is about to happen.
pub(crate) struct Moving<'s> {
    shared: &'s Shared,
    from: (NodeId, &'s NameBuf),
    to: (NodeId, &'s NameBuf),
    /// The nodes that lose the first name for the second, and those of the second name.
    moved: Vec<Arc<Node>>,
    met: Vec<Arc<Node>>,
    exchanges: bool,
}

impl<'s> Moving<'s> {
    /// Notes which nodes move.
    pub(crate) fn begin(shared: &'s Shared, from: End<'s>, to: End<'s>, flags: u32) -> Self {
        let known = |end: End<'_>| match &shared.rules {
            Some(_) => find::known(shared, end.folder, end.dir, end.name.as_c_str()),
            None => Vec::new(),
        };
        let (moved, met) = (known(from), known(to));
        let exchanges = flags & mode::RENAME_EXCHANGE != 0;
        let (from, to) = ((from.folder.id, from.name), (to.folder.id, to.name));
        Self { shared, from, to, moved, met, exchanges }
    }

    /// It has happened.
    pub(crate) fn done(self) {
        let Some(engine) = &self.shared.rules else { return };
        let ((from, old), (to, new)) = (self.from, self.to);
        note_removed(self.shared, to, new, &self.met);
        note_removed(self.shared, from, old, &self.moved);
        note_arrived(self.shared, to, new, &self.moved);
        if self.exchanges {
            note_arrived(self.shared, from, old, &self.met);
        }
        let is_folder = |nodes: &[Arc<Node>]| nodes.iter().any(|node| node.is_dir());
        let moved_folder = is_folder(&self.moved) || self.exchanges && is_folder(&self.met);
        if moved_folder && let (Ok(from), Ok(to)) = (path_of(engine, from, old), path_of(engine, to, new)) {
            engine.index.moved(&from, &to, self.exchanges);
        }
        // The kernel takes a name along with the time that it was given for the old place.
        let arrives = |place: (NodeId, &NameBuf), nodes: &[Arc<Node>]| {
            nodes.iter().any(|node| is_touched(engine, place.0, place.1, node))
        };
        if arrives(self.to, &self.moved) || self.exchanges && arrives(self.from, &self.met) {
            engine.expire_names(moved_folder);
        }
    }
}

/// Whether what arrives under this name, or is in it, may be seen in another way than where it was.
fn is_touched(engine: &Engine, parent: NodeId, name: &NameBuf, node: &Node) -> bool {
    let rules = engine.rules();
    let Ok(path) = path_of(engine, parent, name) else { return true };
    let possible = rules.possible(&path);
    possible.hide || possible.redact || node.is_dir() && rules.holds_below(&path)
}
