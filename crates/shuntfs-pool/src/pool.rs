//! The pool as a file system: each operation, on its way to where it is done.
//!
//! Every operation is written once, as a plain function over [`Shared`]. For a local lower file system it runs
//! in the queue; for one that can block it runs on the offload pool, which is why arguments are owned.

use std::ffi::CStr;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use shuntfs::{
    Access, AttrReply, Birth, ByteRange, CopyFileRange, Create, Cx, DirSink, Entry, Fallocate, Filesystem,
    Filled, Flows, InitError, Ioctl, IoctlReply, IoctlTarget, Link, Listed, LockOwner, LockRange,
    LockRequest, LookupCount, LowerFile, Mkdir, Mknod, Name, NodeId, NodePlace, Notifier, Offered, OpSet,
    OpenFlags, Opened, OpenedDir, ReadReply, Rename, Result, SetAttr, SetXattr, Statfs, Symlink, Tmpfile,
    Wanted, Whence, WriteData, Written,
};
use shuntfs_rules::Rules;
use shuntfs_verified::{Seals, seal_ioctl};

use crate::branch::Escape;
use crate::dir::{Collected, Noting, PoolDir};
use crate::error::PoolError;
use crate::file::PoolFile;
use crate::guard::{Guard, Made, ReadBelow, Reading, is_listing_common};
use crate::merge::Merge;
use crate::name_buf::NameBuf;
use crate::node::{Change, Marks};
use crate::op::rename::Named;
use crate::op::{
    attr, by_number, create, data, ioctl, lookup, make, open, readlink, remove, rename, room, xattr,
};
use crate::options::PoolOptions;
use crate::outcome::Outcome;
use crate::rules::{self, RuleControl};
use crate::seals::SealControl;
use crate::shared::Shared;
use crate::who::Who;
use crate::{dir, facts, file, init, locks, merge, mode, sealed, whereabouts};

/// A folder shown through shuntfs, with everything that its file system can do.
///
/// Nothing outside of the folder can be reached, except what is mounted below it. The mount itself must not be:
/// where it lies below the source, it is not shown inside itself.
#[derive(Debug)]
pub struct Pool {
    pub(crate) shared: Arc<Shared>,
}

impl Pool {
    /// Opens the source. This must happen before something is mounted over it.
    ///
    /// # Errors
    /// Where the source is missing, no folder, or cannot be read.
    pub fn open(options: &PoolOptions) -> std::result::Result<Self, PoolError> {
        Shared::open(options).map(|shared| Self { shared: Arc::new(shared) })
    }

    /// The same under rules.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn open_with_rules(options: &PoolOptions, rules: Rules) -> std::result::Result<Self, PoolError> {
        Self::open_with(options, Some(rules), None)
    }

    /// The same under rules, where there are any, and with sealed files checked, where there are seals of the source.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn open_with(
        options: &PoolOptions,
        rules: Option<Rules>,
        seals: Option<Arc<Seals>>,
    ) -> std::result::Result<Self, PoolError> {
        let has_rules = rules.is_some();
        let shared = Arc::new(Shared::open_with(options, rules, seals)?);
        if has_rules {
            rules::settle_in(&shared);
        }
        Ok(Self { shared })
    }

    /// A hold on the rules, where the pool was opened with some, that stays when the pool is mounted.
    #[must_use]
    pub fn rule_control(&self) -> Option<RuleControl> {
        RuleControl::of(&self.shared)
    }

    /// A hold on the seal, where the pool was opened with one, that stays when the pool is mounted.
    #[must_use]
    pub fn seal_control(&self) -> Option<SealControl> {
        SealControl::of(&self.shared)
    }

    /// A view of the pool that stays when the pool is mounted.
    #[must_use]
    pub fn observer(&self) -> facts::Observer {
        facts::Observer::of(Arc::clone(&self.shared))
    }

    /// Runs an operation where the lower file system allows: here and now, or on the offload pool. What is awaited is its outcome: the
    /// operation itself, with the names that it owns, takes no room in a future.
    pub(crate) fn run<T, W>(&self, cx: &Cx<'_>, operation: W) -> impl Future<Output = T> + use<T, W>
    where
        T: Outcome + Send + 'static,
        W: FnOnce(&Shared) -> T + Send + 'static,
    {
        let inline = self.shared.runs_inline();
        let outcome = if inline {
            Ok(self.shared.attempt(|| Escape::by(cx.hatch()), || operation(&self.shared)))
        } else {
            Err(self.run_aside(cx, operation))
        };
        async move {
            match outcome {
                Ok(outcome) => outcome,
                Err(away) => away.await,
            }
        }
    }

    /// Runs an operation that may wait for others: never in the queue.
    pub(crate) fn run_aside<T, W>(&self, cx: &Cx<'_>, operation: W) -> impl Future<Output = T> + use<T, W>
    where
        T: Outcome + Send + 'static,
        W: FnOnce(&Shared) -> T + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let parting = self.shared.merge.as_ref().and_then(Merge::may_part);
        let theirs = parting.clone();
        let escape = move || theirs.map_or(Escape::None, Escape::Parting);
        let work = cx.offload(move || shared.attempt(escape, || operation(&shared)));
        async move {
            let Some(parting) = parting else { return work.await };
            let mut work = pin!(work);
            poll_fn(|task| match T::unless_waited_for().filter(|_| parting.is_gone(task)) {
                Some(instead) => Poll::Ready(instead),
                None => work.as_mut().poll(task),
            })
            .await
        }
    }

    /// Whether a change of a file may have to wait until nobody looks at it: decided by what never changes back, so that nobody
    /// begins to look in between, and by who looks now at what was met before there were rules about it.
    fn may_wait_for_looks(&self, node: NodeId) -> bool {
        let varies = || self.shared.node(node).is_ok_and(|node| node.has(Marks::VARIES));
        self.shared.copies.may_be_in_the_way() || varies()
    }

    /// Runs an operation that answers with bytes: into the payload here, or through memory of its own.
    pub(crate) async fn fill<'q>(
        &self,
        cx: &Cx<'_>,
        reply: ReadReply<'q>,
        fill: impl FnOnce(&Shared, &mut [u8]) -> Result<usize> + Send + 'static,
    ) -> Result<Filled<'q>> {
        let room = reply.capacity();
        if self.shared.runs_inline() {
            if room == 0 {
                let filled = self.shared.attempt(|| Escape::by(cx.hatch()), || fill(&self.shared, &mut []));
                return filled.map(|len| reply.length(len));
            }
            let mut out = reply.cursor();
            out.with(room, |bytes| {
                self.shared.attempt(|| Escape::by(cx.hatch()), || fill(&self.shared, bytes))
            })?;
            return Ok(out.finish());
        }
        let filled = self.run_aside(cx, move |shared| -> Result<_> {
            let mut bytes = vec![0; room];
            let len = fill(shared, &mut bytes)?;
            bytes.truncate(len);
            Ok((len, bytes))
        });
        let (len, bytes) = filled.await?;
        if room == 0 { Ok(reply.length(len)) } else { reply.copy_from_slice(&bytes) }
    }
}

impl Filesystem for Pool {
    type File = PoolFile;
    type Dir = PoolDir;

    // Lower files are always ready. The kernel asks before each buffered read of an io_uring, and stops at the first refusal.
    const OPS: OpSet = OpSet::all().difference(OpSet::POLL);

    fn init(&self, offered: &Offered) -> std::result::Result<Wanted, InitError> {
        init::init(&self.shared, offered)
    }

    fn mounted(&self, notifier: Notifier) {
        if self.shared.notifier.set(notifier).is_err() {
            tracing::debug!("a pool is mounted once");
        } else {
            merge::watch(&self.shared);
            self.shared.doubt_names();
        }
    }

    fn forget(&self, node: NodeId, lookups: LookupCount) {
        self.shared.forget(node, lookups);
    }

    fn place_of(&self, node: NodeId, file: Option<&PoolFile>) -> Option<NodePlace> {
        whereabouts::place_of(&self.shared, node, file)
    }

    fn lower_file(&self, _node: NodeId, file: &PoolFile, access: Access) -> Result<Arc<LowerFile>> {
        self.shared.under_way(|| file::lower_file(&self.shared, file, access))
    }

    fn keeps_set_ids(&self, file: &PoolFile) -> bool {
        file.node.has_privileges()
    }

    fn exchanges_lower(&self, file: &PoolFile) -> bool {
        file.node.mobile().is_some()
    }

    fn takes_unseen_data(&self, file: &PoolFile) -> bool {
        file.takes_unseen_data()
    }

    fn opened(&self, _node: NodeId, file: &PoolFile, flows: Flows) {
        file.flows_by(&self.shared, flows);
    }

    async fn lookup(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let (who, name) = (Who::of(cx), NameBuf::new(name)?);
        self.run(cx, move |shared| lookup::lookup(shared, who, parent, &name)).await
    }

    async fn lookup_node(&self, cx: &Cx<'_>, node: NodeId) -> Result<Entry> {
        self.run(cx, move |shared| by_number::node(shared, node)).await
    }

    async fn lookup_parent(&self, cx: &Cx<'_>, node: NodeId) -> Result<Entry> {
        self.run(cx, move |shared| by_number::parent(shared, node)).await
    }

    async fn getattr(&self, cx: &Cx<'_>, node: NodeId, _file: Option<&PoolFile>) -> Result<AttrReply> {
        self.run(cx, move |shared| attr::getattr(shared, node)).await
    }

    async fn setattr(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        file: Option<&PoolFile>,
        set: SetAttr,
    ) -> Result<AttrReply> {
        let who = Who::of(cx);
        let set_them = async || {
            // Looked for here, because they are others once the file was moved.
            let by = (file.map(|file| file.terms.limits), file.and_then(PoolFile::open_writer));
            if set.size.is_some() && self.may_wait_for_looks(node) {
                return self.run_aside(cx, move |shared| attr::setattr(shared, who, node, by, set)).await;
            }
            self.run(cx, move |shared| attr::setattr(shared, who, node, by, set)).await
        };
        if self.shared.merge.is_none() {
            return set_them().await;
        }
        // On the heap, as every request would have to have room for it.
        match file.zip(set.size) {
            Some((file, len)) => Box::pin(room::with_room(self, cx, (file, len), set_them)).await,
            None => {
                let _change = room::change_of(self, node).await;
                set_them().await
            }
        }
    }

    async fn access(&self, cx: &Cx<'_>, node: NodeId, mask: u32) -> Result<()> {
        self.run(cx, move |shared| attr::access(shared, node, mask)).await
    }

    async fn statx(&self, cx: &Cx<'_>, node: NodeId) -> Result<(AttrReply, Birth)> {
        self.run(cx, move |shared| attr::statx(shared, node)).await
    }

    async fn readlink<'q>(&self, cx: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        self.fill(cx, reply, move |shared, target| readlink::readlink(shared, node, target)).await
    }

    async fn mknod(&self, cx: &Cx<'_>, op: Mknod<'_>) -> Result<Entry> {
        let (who, name) = (Who::of(cx), NameBuf::new(op.name)?);
        let made = Made { mode: op.mode, umask: op.umask };
        let (parent, rdev) = (op.parent, op.rdev);
        self.run(cx, move |shared| make::mknod(shared, who, parent, &name, made, rdev)).await
    }

    async fn mkdir(&self, cx: &Cx<'_>, op: Mkdir<'_>) -> Result<Entry> {
        let (who, name) = (Who::of(cx), NameBuf::new(op.name)?);
        let made = Made { mode: op.mode, umask: op.umask };
        let parent = op.parent;
        self.run(cx, move |shared| make::mkdir(shared, who, parent, &name, made)).await
    }

    async fn symlink(&self, cx: &Cx<'_>, op: Symlink<'_>) -> Result<Entry> {
        let (who, name) = (Who::of(cx), NameBuf::new(op.name)?);
        let (parent, target) = (op.parent, op.target.to_owned());
        self.run(cx, move |shared| make::symlink(shared, who, parent, &name, &target)).await
    }

    async fn link(&self, cx: &Cx<'_>, op: Link<'_>) -> Result<Entry> {
        let (who, name) = (Who::of(cx), NameBuf::new(op.name)?);
        let (node, parent) = (op.node, op.parent);
        self.run(cx, move |shared| make::link(shared, who, node, parent, &name)).await
    }

    async fn unlink(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        let (who, name) = (Who::of(cx), NameBuf::new(name)?);
        self.note_removal(cx, parent, &name).await;
        self.run(cx, move |shared| remove::unlink(shared, who, parent, &name)).await
    }

    async fn rmdir(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        let (who, name) = (Who::of(cx), NameBuf::new(name)?);
        self.run(cx, move |shared| remove::rmdir(shared, who, parent, &name)).await
    }

    async fn rename(&self, cx: &Cx<'_>, op: Rename<'_>) -> Result<()> {
        let (who, from, to) = (Who::of(cx), NameBuf::new(op.name)?, NameBuf::new(op.new_name)?);
        let (parent, new_parent, flags) = (op.parent, op.new_parent, op.flags);
        // Once more would undo it.
        let exchanges = flags & mode::RENAME_EXCHANGE != 0;
        if exchanges && cx.keeps_notes() && self.was_exchanged(cx, op).await? {
            return Ok(());
        }
        if !exchanges {
            self.note_move(cx, (parent, &from), (new_parent, &to)).await;
        }
        self.run(cx, move |shared| {
            let (from, to) = (Named { parent, name: &from }, Named { parent: new_parent, name: &to });
            rename::rename(shared, who, from, to, flags)
        })
        .await
    }

    async fn open(&self, cx: &Cx<'_>, node: NodeId, flags: OpenFlags) -> Result<Opened<PoolFile>> {
        let who = Who::of(cx);
        let is_looked_at = self.shared.node(node).is_ok_and(|node| !node.view.is_whole());
        let cuts = flags.0 & mode::O_TRUNC != 0;
        let _change = if cuts { room::change_of(self, node).await } else { Change::NONE };
        if is_looked_at || flags.may_write() && self.may_wait_for_looks(node) {
            // It is read whole, or waits for others that do.
            return self.run_aside(cx, move |shared| open::open(shared, who, node, flags)).await;
        }
        self.run(cx, move |shared| open::open(shared, who, node, flags)).await
    }

    async fn create(&self, cx: &Cx<'_>, op: Create<'_>) -> Result<(Entry, Opened<PoolFile>)> {
        let (who, name) = (Who::of(cx), NameBuf::new(op.name)?);
        let made = Made { mode: op.mode, umask: op.umask };
        let (parent, flags) = (op.parent, op.flags);
        let create = move |shared: &Shared| create::create(shared, who, parent, &name, made, flags);
        // Where the name is there after all it is opened, and waits as any open.
        if flags.may_write() && (self.shared.redacts() || self.shared.copies.may_be_in_the_way()) {
            return self.run_aside(cx, create).await;
        }
        self.run(cx, create).await
    }

    async fn tmpfile(&self, cx: &Cx<'_>, op: Tmpfile) -> Result<(Entry, Opened<PoolFile>)> {
        let who = Who::of(cx);
        let made = Made { mode: op.mode, umask: op.umask };
        let (parent, flags) = (op.parent, op.flags);
        self.run(cx, move |shared| create::tmpfile(shared, who, parent, made, flags)).await
    }

    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        file: &PoolFile,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        data::read(self, cx, file, at, reply).await
    }

    async fn write(&self, cx: &Cx<'_>, file: &PoolFile, at: u64, data: WriteData<'_>) -> Result<Written> {
        data::write(self, cx, file, at, data).await
    }

    async fn flush(&self, cx: &Cx<'_>, file: &PoolFile, owner: LockOwner) -> Result<()> {
        let _ = cx;
        locks::flush(&self.shared, file, owner);
        Ok(())
    }

    async fn release(
        &self,
        cx: &Cx<'_>,
        _node: NodeId,
        file: Arc<PoolFile>,
        _flock_owner: Option<LockOwner>,
    ) {
        self.run(cx, move |shared| file::release(shared, file)).await;
    }

    async fn fsync(&self, cx: &Cx<'_>, file: &PoolFile, data_only: bool) -> Result<()> {
        data::fsync(self, cx, file, data_only).await
    }

    async fn fallocate(&self, cx: &Cx<'_>, file: &PoolFile, op: Fallocate) -> Result<()> {
        data::allocate(self, cx, file, op).await
    }

    async fn lseek(&self, cx: &Cx<'_>, file: &PoolFile, offset: u64, whence: Whence) -> Result<u64> {
        data::seek(self, cx, file, offset, whence).await
    }

    async fn copy_file_range(&self, cx: &Cx<'_>, op: CopyFileRange<'_, PoolFile>) -> Result<u64> {
        data::copy(self, cx, op).await
    }

    async fn ioctl<'q>(
        &self,
        cx: &Cx<'_>,
        file: IoctlTarget<'_, Self>,
        op: Ioctl<'_>,
        reply: IoctlReply<'q>,
    ) -> Result<Filled<'q>> {
        if let Some(digest) = sealed::digest(&self.shared, op.node)
            && let Some(outcome) = seal_ioctl(&digest, op.command, op.input, op.output_max as usize)
        {
            return reply.answer(0, &outcome?);
        }
        let (who, node) = (Who::of(cx), op.node);
        let command = ioctl::Command { number: op.command, output_max: op.output_max };
        let _change = if command.only_asks() { Change::NONE } else { room::change_of(self, node).await };
        let lower = match file {
            IoctlTarget::File(file) => {
                let change = ReadBelow { file, how: Reading::Ask };
                Guard::new(&self.shared, who).judge(change)?.source(&self.shared)?.into_lower()
            }
            IoctlTarget::Dir(dir) => dir::readable(&self.shared, dir)?,
        };
        let input = op.input.to_vec();
        let ioctl = move |shared: &Shared| ioctl::ioctl(shared, who, node, &lower, command, &input);
        let answer = self.run(cx, ioctl).await?;
        reply.answer(answer.result, &answer.data)
    }

    async fn getlk(
        &self,
        cx: &Cx<'_>,
        _node: NodeId,
        file: &PoolFile,
        lock: LockRequest,
    ) -> Result<LockRange> {
        locks::getlk(self, cx, file, lock).await
    }

    async fn setlk(&self, cx: &Cx<'_>, _node: NodeId, file: &PoolFile, lock: LockRequest) -> Result<()> {
        locks::setlk(self, cx, file, lock).await
    }

    async fn opendir(&self, cx: &Cx<'_>, node: NodeId, _flags: OpenFlags) -> Result<OpenedDir<PoolDir>> {
        let who = Who::of(cx);
        let dir = if self.shared.rules.is_some() {
            self.run(cx, move |shared| dir::open(shared, who, node)).await?
        } else {
            dir::open(&self.shared, who, node)?
        };
        // A cookie of a merge is good for one open folder alone, and the kernel would use it for others.
        let is_one = self.shared.merge.is_none();
        let cache = is_one && self.shared.is_ours_alone() && is_listing_common(&self.shared, who, node);
        Ok(OpenedDir { dir, cache })
    }

    async fn readdir<'q>(
        &self,
        cx: &Cx<'_>,
        _node: NodeId,
        dir: &PoolDir,
        cookie: u64,
        mut out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let who = Who::of(cx);
        if self.shared.runs_inline() {
            let may_be_left = self.shared.merge.as_ref().and_then(Merge::may_part).is_some();
            let mut noting = Noting::new(&mut out, may_be_left);
            let list = || -> Result<_> {
                dir::list(&self.shared, who, &dir.walk, cookie, &mut noting)?;
                Ok(noting.into_pushed())
            };
            self.shared.attempt(|| Escape::by(cx.hatch()), list)?;
            return Ok(out.finish());
        }
        let walk = Arc::clone(&dir.walk);
        let mut records = Collected::for_sink(&out);
        let list =
            move |shared: &Shared| dir::list(shared, who, &walk, cookie, &mut records).map(|()| records);
        let records = self.run_aside(cx, list).await?;
        records.hand_to(&self.shared, &mut out);
        Ok(out.finish())
    }

    async fn releasedir(&self, cx: &Cx<'_>, _node: NodeId, dir: Arc<PoolDir>) {
        self.run(cx, move |shared| dir::close(shared, &dir)).await;
    }

    async fn fsyncdir(&self, cx: &Cx<'_>, dir: &PoolDir, data_only: bool) -> Result<()> {
        let lower = dir::readable(&self.shared, dir)?;
        data::sync(cx, lower, data_only).await?;
        for lower in dir::readable_elsewhere(&self.shared, dir)? {
            data::sync(cx, lower, data_only).await?;
        }
        Ok(())
    }

    async fn statfs(&self, cx: &Cx<'_>, node: NodeId) -> Result<Statfs> {
        self.run(cx, move |shared| attr::statfs(shared, node)).await
    }

    async fn getxattr<'q>(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        name: &CStr,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        if self.shared.runs_inline() {
            // The name is a copy, and so does not have to leave the queue.
            let room = reply.capacity();
            if room == 0 {
                let get = || xattr::get(&self.shared, node, name, &mut []);
                let got = self.shared.attempt(|| Escape::by(cx.hatch()), get);
                return got.map(|len| reply.length(len));
            }
            let mut out = reply.cursor();
            out.with(room, |value| {
                let get = || xattr::get(&self.shared, node, name, value);
                self.shared.attempt(|| Escape::by(cx.hatch()), get)
            })?;
            return Ok(out.finish());
        }
        let name = name.to_owned();
        self.fill(cx, reply, move |shared, value| xattr::get(shared, node, &name, value)).await
    }

    async fn listxattr<'q>(&self, cx: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let is_superuser = Who::of(cx).keeps_set_ids();
        self.fill(cx, reply, move |shared, list| xattr::list(shared, node, is_superuser, list)).await
    }

    async fn setxattr(&self, cx: &Cx<'_>, op: SetXattr<'_>) -> Result<()> {
        let (who, node, flags, kill_sgid) = (Who::of(cx), op.node, op.flags, op.kill_sgid);
        let _change = room::change_of(self, node).await;
        if flags & xattr::XATTR_CREATE != 0 {
            self.note_xattr(cx, node, op.name).await;
        }
        if self.shared.runs_inline() && self.shared.controls(node).is_none() {
            // What is set need not be copied to stay here.
            let set = xattr::Set { name: op.name, value: op.value, flags, kill_sgid };
            let set = || xattr::set(&self.shared, who, node, set);
            return self.shared.attempt(|| Escape::by(cx.hatch()), set);
        }
        let (name, value) = (op.name.to_owned(), op.value.to_vec());
        // A new branch may be on a disk that takes its time, or be asked of this very mount.
        self.run_aside(cx, move |shared| {
            xattr::set(shared, who, node, xattr::Set { name: &name, value: &value, flags, kill_sgid })
        })
        .await
    }

    async fn removexattr(&self, cx: &Cx<'_>, node: NodeId, name: &CStr) -> Result<()> {
        let (who, name) = (Who::of(cx), name.to_owned());
        let _change = room::change_of(self, node).await;
        self.note_xattr(cx, node, &name).await;
        self.run(cx, move |shared| xattr::remove(shared, who, node, &name)).await
    }
}
