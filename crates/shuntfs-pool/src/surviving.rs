//! What of a pool survives its server: nodes, and open files and folders. Which branches are in force survives by itself ([`crate::KeptBranches`]).

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs::takeover::{
    FileIdentity, KeptNodes, KeptOpen, LeftNode, LeftNodes, LeftOpen, NotTaken, Surviving,
};
use shuntfs::{Delegation, Generation, LowerFile, NodeId, Result};
use shuntfs_sys::{reopen, stat_of};
use shuntfs_verified::Seals;

use crate::dir::{self, PoolDir};
use crate::error::errno;
use crate::file::{self, PoolFile};
use crate::find;
use crate::guard::MARKED_MAX;
use crate::keeping::{self, Keeping, LeftFolder, Parted, node_of};
use crate::keeping_renames;
use crate::keeping_seals;
use crate::lasting::Lasting;
use crate::ledger::{Earlier, Kind, Ledger};
use crate::leftover;
use crate::locks;
use crate::merge;
use crate::mode;
use crate::node::{Identity, Marks, Node, Parts, Place};
use crate::pool::Pool;
use crate::records::{self, Apart};
use crate::sealed;
use crate::shared::Shared;
use crate::table::Known;

/// Numbers of nodes that each server may give out.
const NUMBERS: u64 = 1 << 40;

const NO_NODE: &str = "a node is none that a pool has written down";

impl Pool {
    /// Whether what it knows can survive its server.
    ///
    /// # Errors
    /// What it knows that cannot.
    pub fn survives(&self) -> std::result::Result<(), &'static str> {
        let shared = &*self.shared;
        let reasons = [
            (shared.branches.order().len() > MARKED_MAX, "more than 64 branches"),
            (
                shared.rules.is_some() && shared.ledger.get().is_none(),
                "rules, of which nothing is written down",
            ),
        ];
        reasons.into_iter().find(|(is_there, _)| *is_there).map_or(Ok(()), |(_, reason)| Err(reason))
    }

    /// Has what rules go by written down for the next server, and what is written taken from the one before. To be called before it is served.
    pub fn keep_in(&self, ledger: Arc<Ledger>) {
        if self.shared.is_ruled_merge() && ledger.earlier() != Earlier::Judged {
            ledger.note(Kind::Judges, &[]);
        }
        let _once = self.shared.ledger.set(ledger);
    }

    /// Goes on with the seal that the pool was opened with, as the next one after so many others, of which the last are known. To be called before
    /// it is served, by a server that follows another one.
    pub fn follow_seals(&self, number: u64, earlier: Vec<Arc<Seals>>) {
        if let Some(sealed) = &self.shared.sealed {
            sealed.follow(number, earlier);
        }
    }

    /// Takes the names and the views that a predecessor has written down.
    fn take_ledger(&self) -> std::result::Result<(), NotTaken> {
        let (shared, ledger) = (&*self.shared, self.shared.ledger.get());
        let Some((ledger, engine)) = ledger.zip(shared.rules.as_ref()) else { return Ok(()) };
        ledger.read(|kind, record| match kind {
            Kind::Rules | Kind::Judges => Ok(()),
            Kind::View => shared.views.take(record),
            Kind::Names => engine.paths.take(record),
        })?;
        shared.views.keep(ledger);
        Ok(())
    }

    /// Takes a folder of a merge that a predecessor knew.
    fn take_folder(
        &self,
        keeping: &Keeping,
        LeftNode { place, node: id, lookups, words, file, .. }: LeftNode,
        further: &mut HashMap<u64, LeftNode>,
    ) -> std::result::Result<(), NotTaken> {
        let shared = &*self.shared;
        let left = keeping::folder_of(words, further).ok_or(NO_NODE)?;
        let held = file.map(|file| Arc::new(LowerFile::new(file)));
        let removed = held.as_ref().filter(|held| left.way.is_none() || shared.is_removed(held));
        let node = match removed {
            Some(held) => shared.left_removed_folder(id, &left, held),
            None if left.way.is_none() => None,
            None => Some(shared.left_folder(id, &left).ok_or(NO_NODE)?),
        };
        let Some(node) = node else {
            tracing::warn!(
                node = id.get(),
                "a folder that was removed is not found: whoever has it open gets ESTALE"
            );
            keeping.drop_left(place);
            left.further.into_iter().for_each(|place| keeping.drop_left(place));
            return Ok(());
        };
        keeping.has_further(&node, left.further);
        shared.table.take(Known { node, lookups, place }, false)?;
        if let (Some(held), Some(node)) = (held, shared.table.find(id)) {
            // What is written down names the descriptor, and the name that the folder may have lost since.
            keeping.has_held(&node, held);
            keeping.keep_anew(&node, None);
            if node.has(Marks::KEPT_OPEN) {
                keeping.may_be_left(&node);
            }
        }
        Ok(())
    }

    /// Has nodes be where their files are that a server was moving to other branches when it was killed: the only name of each is that of the copy by then,
    /// or of what was copied. `left` are those that may have been moved. Which were.
    fn take_moved(&self, left: &mut [LeftNode], moving: &HashMap<u64, LeftNode>) -> Vec<MovedNode> {
        let shared = &*self.shared;
        let links = |words: &[u64; 8]| {
            let node = node_of(NodeId::ROOT, *words, None, &shared.views).filter(|node| {
                // One that was removed may have been asked for.
                shared.branches.has(node.mount().branch)
            })?;
            let held = shared.mount(node.mount()).open(node.place().handle()?).ok()?;
            stat_of(&held).ok().map(|stat| stat.nlink)
        };
        let mut moved = Vec::new();
        // What is reached by a descriptor is still there.
        for left in left.iter_mut().filter(|left| left.file.is_none()) {
            let Some(to) = moving.get(&left.node.get()).map(|to| to.words) else { continue };
            if links(&to).unwrap_or(0) > 0 && links(&left.words).unwrap_or(0) == 0 {
                let before = node_of(left.node, std::mem::replace(&mut left.words, to), None, &shared.views);
                let generation = before.and_then(|before| shared.lasting_generation(&before));
                moved.push(MovedNode { node: left.node, words: to, generation });
            }
        }
        moved
    }

    /// Takes the nodes that a predecessor knew. Which of them were moved meanwhile.
    fn take_known(
        &self,
        keeping: &Keeping,
        mut left: LeftNodes,
        (moving, further): (&HashMap<u64, LeftNode>, &mut HashMap<u64, LeftNode>),
    ) -> std::result::Result<Vec<MovedNode>, NotTaken> {
        let shared = &*self.shared;
        let may_have_moved = if moving.is_empty() {
            None
        } else {
            Some(left.extract(|node| moving.contains_key(&node.get())))
        };
        let mut may_have_moved =
            may_have_moved.into_iter().flatten().collect::<std::result::Result<Vec<_>, _>>()?;
        let moved = self.take_moved(&mut may_have_moved, moving);
        let folders = Mutex::new(Vec::new());
        let read = |left: LeftNode| {
            if keeping::is_folder(&left.words) {
                folders.lock().push(left);
                return Ok(None);
            }
            // Whoever was looking up the name of what was moved was not answered.
            if moved
                .iter()
                .any(|moved| left.node != moved.node && keeping::are_of_one(&left.words, &moved.words))
            {
                keeping.drop_left(left.place);
                return Ok(None);
            }
            shared.left_node(keeping, left)
        };
        let may_retire = shared.sealed.is_some();
        shared.table.take_all(left, may_retire, read)?;
        for left in may_have_moved {
            if let Some(known) = read(left)? {
                shared.table.take(known, may_retire)?;
            }
        }
        for left in folders.into_inner() {
            self.take_folder(keeping, left, further)?;
        }
        Ok(moved)
    }
}

/// A node whose file a predecessor had moved when it died.
struct MovedNode {
    node: NodeId,
    words: [u64; 8],
    /// Of its number, if that lasts.
    generation: Option<Generation>,
}

/// For a pool that [`Pool::survives`]. What a predecessor had open without a name is found by its handle for as long as the descriptors of the
/// dead server are open, and held from then on. So is a folder without a name.
impl Surviving for Pool {
    fn take_nodes(&self, nodes: KeptNodes, left: LeftNodes) -> std::result::Result<(), NotTaken> {
        self.survives()?;
        let shared = &*self.shared;
        shared.is_mount(nodes.mount_number());
        self.take_ledger()?;
        let next = NodeId::ROOT.get() + 1 + u64::from(nodes.servers().saturating_sub(1)) * NUMBERS;
        let Apart { nodes: left, names, others } = records::apart(left)?;
        let (others, sealed) = keeping_seals::part(others);
        let (others, locks) = locks::part(others)?;
        let (others, exchanges) = keeping_renames::part(others);
        if let Some(merge) = &shared.merge {
            merge.renames.survive(nodes.clone(), exchanges);
        }
        let keeping = Keeping::new(nodes.clone());
        let Parted { mut further, moving, generations, useless } = keeping::part(others);
        useless.into_iter().for_each(|place| keeping.drop_left(place));
        let known = Sorted::of(&left, !names.is_empty());
        let moved = self.take_known(&keeping, left, (&moving, &mut further))?;
        let are_all = shared.table.len() == known.0.len();
        if let Some(merge) = &shared.merge {
            let is_known = |file| known.has(file) && (are_all || shared.table.find(file).is_some());
            merge.numbers.survive(nodes.clone(), names, &mut further, is_known)?;
        }
        // What they belong to had been forgotten, or got another name.
        further.into_values().for_each(|left| keeping.drop_left(left.place));
        for (node, (generation, place)) in generations {
            match shared.table.find(node) {
                Some(node) => {
                    shared.table.has_generation(node.id, generation);
                    keeping.has_further(&node, vec![place]);
                }
                None => keeping.drop_left(place),
            }
        }
        for node in shared.locks.survive(nodes.clone(), locks)? {
            shared.table.find(node).into_iter().for_each(|node| node.mark(Marks::LOCKED_BELOW));
        }
        if let Some(of_nodes) = &shared.sealed {
            of_nodes.survive(nodes, sealed, &shared.table)?;
        }
        for MovedNode { node, generation, .. } in moved {
            let Some(node) = shared.table.find(node) else { continue };
            // One that had been moved before has that of its first place.
            let generation = shared.table.generation_of(node.id).or(generation);
            generation.into_iter().for_each(|generation| shared.table.has_generation(node.id, generation));
            keeping.keep_anew(&node, generation);
        }
        moving.into_values().for_each(|left| keeping.drop_left(left.place));
        shared.table.keep(keeping, next)?;
        // From now on by descriptors of this server: those of the one before are about to be closed.
        shared.merge.iter().for_each(|merge| merge.note_in_force(shared));
        if let (Some(engine), Some(ledger)) = (&shared.rules, shared.ledger.get()) {
            engine.paths.keep(ledger, |node| shared.table.find(node).is_some());
        }
        Ok(())
    }

    fn keeps_locks(&self) -> bool {
        true
    }

    fn settled(&self) {
        self.shared.locks.settle();
        if self.shared.merge.is_some() {
            merge::settle_in(&self.shared);
        }
        leftover::sweep(&self.shared);
    }

    fn keep_file<'f>(&self, file: &'f PoolFile) -> KeptOpen<'f> {
        let kept =
            file.kept.as_ref().and_then(|kept| FileIdentity::of(kept).ok().map(|of| (kept.as_fd(), of)));
        KeptOpen { file: kept, words: file.words() }
    }

    fn take_file(
        &self,
        id: NodeId,
        left: LeftOpen,
    ) -> std::result::Result<Option<(PoolFile, Delegation)>, NotTaken> {
        let shared: &Shared = &self.shared;
        let Some(node) = shared.table.find(id) else { return Ok(None) };
        // Before it may lose its last descriptor, where it has no name.
        let has_name =
            shared.descriptor(&node).is_ok_and(|held| stat_of(&held).is_ok_and(|stat| stat.nlink > 0));
        if !has_name && let Err(error) = file::hold(shared, &node) {
            tracing::warn!(node = id.get(), %error, "a file that is open has no name and is not found any more");
        }
        let is_checked = PoolFile::is_checked_by(left.words);
        let (copy, taken) = if is_checked { (None, left.file) } else { (left.file, None) };
        let file = PoolFile::of_words(shared, Arc::clone(&node), left.words, copy);
        let file = file.ok_or("an open file is none")?;
        let opened = if is_checked { sealed::left(shared, file, taken) } else { file::answer(shared, file) };
        Ok(Some((opened.file, opened.delegation)))
    }

    fn keep_dir<'f>(&self, dir: &'f PoolDir) -> KeptOpen<'f> {
        let kept = dir::kept(dir).and_then(|kept| FileIdentity::of(kept).ok().map(|of| (kept, of)));
        KeptOpen { file: kept, ..KeptOpen::default() }
    }

    fn take_dir(&self, id: NodeId, left: LeftOpen) -> std::result::Result<Option<PoolDir>, NotTaken> {
        Ok(self.shared.node(id).ok().map(|node| dir::of_node(&self.shared, node, left.file)))
    }
}

/// The numbers of nodes in order: whether one is among them is found faster than in the table, whose places are anywhere in memory.
struct Sorted(Vec<NodeId>);

impl Sorted {
    fn of(left: &LeftNodes, is_needed: bool) -> Self {
        let mut numbers: Vec<NodeId> = left.numbers().filter(|_| is_needed).collect();
        numbers.sort_unstable();
        Self(numbers)
    }

    fn has(&self, node: NodeId) -> bool {
        self.0.binary_search(&node).is_ok()
    }
}

/// How deep folders are in each other at most.
const DEPTH_MAX: usize = 4096;

impl Shared {
    /// Has the kernel look names up again that a dead server has given to it, where rules decide who sees them, or a seal what
    /// they lead to.
    pub(crate) fn doubt_names(&self) {
        if let Some(engine) = &self.rules {
            engine.doubt_names(self);
        }
        self.doubt_seals();
    }

    /// A folder of a merge that a predecessor knew, which is looked for when it is used. `None` where that cannot be.
    fn left_folder(&self, id: NodeId, left: &LeftFolder) -> Option<Node> {
        let serial = self.merge.as_ref()?.folders.adopt(left.way.clone()?)?;
        let parts = Parts::new(left.ino, Vec::new(), 0, left.way.clone()).with_generation(left.generation);
        let node = Node::folder(id, Identity::of_folder(serial), left.mode, parts);
        node.mark(Marks::UNSEEN);
        Some(node)
    }

    /// One that was removed, and is still in use: it is where its descriptor leads. `None` where it cannot be used any more.
    fn left_removed_folder(&self, id: NodeId, left: &LeftFolder, held: &Arc<LowerFile>) -> Option<Node> {
        let branch = left.held_on.branch;
        if !self.branches.has(branch) {
            return None;
        }
        let copy = reopen(held, mode::O_PATH).ok()?;
        let found = find::by_descriptor(self.branches.at(branch), copy).ok()?;
        let place = Place::new(found.identity);
        drop(place.keep(Arc::clone(held)));
        let serial = self.merge.as_ref()?.folders.adopt_removed();
        let parts = Parts::new(left.ino, vec![place], branch, None).with_generation(left.generation);
        let node = Node::folder(id, Identity::of_folder(serial), left.mode, parts);
        node.saw(&found.stat);
        node.mark(Marks::PINNED.and(Marks::KEPT_OPEN));
        Some(node)
    }

    /// A node that a predecessor knew, but for folders of a merge. `None` where no server can know it any more.
    fn left_node(
        &self,
        keeping: &Keeping,
        LeftNode { place, node, lookups, words, file, marks }: LeftNode,
    ) -> std::result::Result<Option<Known>, &'static str> {
        if file.is_none() && keeping::has_no_handle(&words) {
            tracing::warn!(
                node = node.get(),
                "its inode has another number now: whoever has it open gets ESTALE"
            );
            keeping.drop_left(place);
            return Ok(None);
        }
        let branch = keeping::mount_of(&words).branch;
        if !self.branches.has(branch) {
            // It was removed, and nothing there is open.
            if Lasting::lasts(node) {
                self.table.owes(node, lookups, keeping.keep_count(place, node, words));
            } else {
                keeping.drop_left(place);
            }
            return Ok(None);
        }
        let find = |file: &OwnedFd| self.left_inode(branch, file);
        let inode = match file.as_ref().map(|file| keeping::inode_of(&words, file, find)).transpose() {
            Ok(inode) => inode.flatten(),
            Err(error) => {
                tracing::warn!(node = node.get(), %error, "another mount: whoever has it open gets ESTALE");
                keeping.drop_left(place);
                return Ok(None);
            }
        };
        let node = node_of(node, words, inode, &self.views).ok_or(NO_NODE)?;
        // Its attributes, and whether the kernel has mapped it, is known to the dead alone.
        node.mark(Marks::UNSEEN);
        if node.is_file() {
            node.mark(Marks::UNLINKED.and(Marks::MAPPED));
            // An earlier release did not write that down.
            if marks.is_none_or(|marks| marks & keeping::MAPPED_BELOW != 0) {
                node.mark(Marks::MAPPED_BELOW);
            }
        }
        if let Some(file) = file {
            node.mark(Marks::KEPT_OPEN);
            node.pin(Arc::new(LowerFile::new(file)));
            keeping.may_be_left(&node);
        }
        if !node.view.is_whole() || self.rules.as_ref().is_some_and(|engine| engine.rules().redacts()) {
            // Another view of it may be open, or come.
            node.mark(Marks::VARIES);
        }
        Ok(Some(Known { node, lookups, place }))
    }

    /// The inode that a predecessor's descriptor leads to. It stays open under its number, which is written down.
    fn left_inode(&self, branch: u16, file: &OwnedFd) -> Result<Identity> {
        let copy = reopen(file, mode::O_PATH).map_err(errno)?;
        find::by_descriptor(self.branches.at(branch), copy).map(|found| found.identity)
    }

    /// Looks at a node that only a dead server has seen: at the attributes of a file, and for the places of a folder of a merge.
    ///
    /// # Errors
    /// Of a folder of a merge, those of looking for it; ESTALE where it is gone.
    #[cold]
    pub(crate) fn see(&self, node: &Arc<Node>) -> Result<()> {
        let Some(merge) = self.merge.as_ref().filter(|_| node.parts().is_some()) else {
            self.see_one(node);
            return Ok(());
        };
        // From the outside in, however deep it is.
        let (mut unseen, mut here) = (Vec::new(), Arc::clone(node));
        while here.has(Marks::UNSEEN) && unseen.len() < DEPTH_MAX {
            let outer = here.parts().and_then(Parts::way).and_then(|(outer, _)| self.table.find(outer));
            unseen.push(std::mem::replace(&mut here, outer.unwrap_or_else(|| Arc::clone(&self.root))));
        }
        unseen.iter().rev().try_for_each(|node| find::see_folder(self, merge, node))
    }

    fn see_one(&self, node: &Arc<Node>) {
        let found = self.descriptor(node).and_then(|held| stat_of(&held).map_err(errno));
        match found {
            Ok(stat) => {
                node.saw(&stat);
                node.unmark(Marks::UNSEEN);
            }
            Err(error) => tracing::debug!(node = node.id.get(), %error, "it cannot be looked at"),
        }
    }
}
