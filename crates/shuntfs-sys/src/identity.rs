//! Acting as the caller of a request, on one thread.
//!
//! File system ids, supplementary groups, umask and capabilities belong to a thread in the kernel. libc hides that for
//! the ids by changing every thread at once, so the raw calls are made here. Ids, groups and capabilities are put back when the
//! closure ends, by return or by panic; nothing of them may live across an await, and the closures make that impossible.
//!
//! The ids could stay until another caller comes only if nothing else looked at them, but much does. A backing file is read and written
//! with the credentials that registered it, a lower FUSE or network file system is told who asks, and the group decides whether a
//! chmod for the next caller keeps sgid. The umask does stay: nothing but a creation looks at it, and every creation of this crate takes
//! its mode from `mode_of_new`, which puts the thread's own umask back first where nobody is acted for. Whoever makes something on
//! such a thread by other means gets fewer permission bits than it asked for, never more.
//!
//! A server as root keeps its capabilities while it acts as somebody else (`SECBIT_NO_SETUID_FIXUP`), because the
//! kernel has checked the caller's permission on the mount already (`default_permissions`); what the ids decide is who
//! owns what is made, whose quota pays, and whether sgid survives.
//!
//! What cannot be done as the caller is not done: a file that another user makes must not become the server's, set-user-id
//! bit included. So a thread that cannot be prepared, an id that did not take and a caller who cannot be acted for are
//! errors, never a reason to go on as the server.
//!
//! # Safety
//! The calls take integers only; what they change is the calling thread's own.
#![expect(unsafe_code, reason = "per-thread setfsuid, setfsgid and unshare have no safe form")]

use std::cell::Cell;
use std::ffi::c_long;

use rustix::fs::{Gid, Mode};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, UnshareFlags};

use crate::caps::Cap;
use crate::open::{check_id, permissions};
use crate::{OsError, Result};

/// Whom to act for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// File system user.
    pub uid: u32,
    /// File system group.
    pub gid: u32,
    /// One supplementary group: the folder's, where the caller is a member.
    pub group: Option<u32>,
    /// Permission bits to leave out of what is made, unless a default ACL overrules it.
    pub umask: u32,
}

/// What a prepared thread can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadIdentity {
    /// The thread's own file system user.
    pub uid: u32,
    /// The thread's own file system group.
    pub gid: u32,
    /// Whether [`as_caller`] changes the ids; else it works for callers with the thread's own alone.
    pub switches_ids: bool,
    /// Whether capabilities stay while acting as another user.
    pub keeps_capabilities: bool,
    /// Whether CAP_FSETID and CAP_SYS_RESOURCE are out of the effective set.
    pub is_restrained: bool,
}

/// What the kernel holds for this thread right now, so that unneeded calls can be left out.
#[derive(Clone, Copy)]
struct State {
    identity: ThreadIdentity,
    now: Caller,
    sets: CapabilitySets,
    /// Whether somebody is acted for; else the umask may be the last caller's, and the rest is the thread's own.
    acts: bool,
    /// The thread could not be made itself again: nothing is done for anybody any more.
    is_lost: bool,
}

thread_local! {
    static STATE: Cell<Option<State>> = const { Cell::new(None) };
}

/// Capabilities that would let users pass limits through the server's hands: keeping suid and sgid on a write, and
/// passing quota. Blocks that are reserved for root are spent anyway where the file system goes by the user
/// number, too, as ext4 does (`ext4_has_free_clusters`).
const RESTRAINED: CapabilitySet = CapabilitySet::FSETID.union(CapabilitySet::SYS_RESOURCE);

/// Makes the calling thread fit for [`as_caller`]: a umask of its own, set to 0, no supplementary groups where it may
/// change them, and none of the capabilities by which callers could pass limits. A privilege that is lacking is no error: an
/// ordinary user acts for nobody else. A second call does nothing.
///
/// # Errors
/// What unshare(2) gives, where a sandbox forbids it; the process's umask must then not be touched. EPERM where the thread has
/// capabilities that it must drop, and cannot. Such a thread must serve nobody.
pub fn prepare_thread() -> Result<ThreadIdentity> {
    if let Some(state) = STATE.get() {
        return Ok(state.identity);
    }
    let mut sets = rustix::thread::capabilities(None)?;
    let may = |cap: Cap| sets.effective.contains(cap.bit());
    let (may_switch, may_keep) = (may(Cap::Setuid) && may(Cap::Setgid), may(Cap::Setpcap));
    // First, so that a thread which cannot have the rest is at least restrained.
    if sets.effective.intersects(RESTRAINED) {
        let effective = sets.effective.difference(RESTRAINED);
        rustix::thread::set_capabilities(None, CapabilitySets { effective, ..sets })?;
        if rustix::thread::capabilities(None)?.effective.intersects(RESTRAINED) {
            return Err(OsError::PERM);
        }
        sets.effective = effective;
    }
    // SAFETY: with CLONE_FS alone no descriptor table is shared or split; only cwd, root and umask become ours.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
    rustix::process::umask(Mode::empty());
    let switches_ids = may_switch && rustix::thread::set_thread_groups(&[]).is_ok();
    let keeps_capabilities = may_keep && keep_capabilities().is_ok();
    let (uid, gid) = (set_fsuid(u32::MAX), set_fsgid(u32::MAX));
    let identity = ThreadIdentity { uid, gid, switches_ids, keeps_capabilities, is_restrained: true };
    let now = Caller { uid, gid, group: None, umask: 0 };
    STATE.set(Some(State { identity, now, sets, acts: false, is_lost: false }));
    Ok(identity)
}

fn keep_capabilities() -> Result<()> {
    let held = rustix::thread::capabilities_secure_bits()?;
    rustix::thread::set_capabilities_secure_bits(held | CapabilitiesSecureBits::NO_SETUID_FIXUP)
}

/// Runs `work` with the caller's ids, group and umask, and puts the thread's own back, but for the umask, which whatever this crate
/// makes next sets itself.
///
/// A thread that was not prepared is prepared first, and keeps that. Costs two calls for the supplementary group where there is one, four
/// for each of user and group that are not the thread's own, and one for a umask that is not the last caller's.
///
/// # Errors
/// Those of `work`, and those of [`prepare_thread`]. EPERM, and `work` is not run, where the thread cannot act as the caller:
/// it may not change its ids and the caller's are not its own, an id did not take, or the caller has none (EOVERFLOW).
pub fn as_caller<T>(caller: &Caller, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let identity = prepare_thread()?;
    check_ids(caller)?;
    let group = if identity.switches_ids {
        // The group of files is in force as supplementary without being listed.
        caller.group.filter(|group| *group != caller.gid)
    } else if (caller.uid, caller.gid) == (identity.uid, identity.gid) {
        None
    } else {
        return Err(OsError::PERM);
    };
    let _restore = switch_to(Caller { group, ..*caller })?;
    work()
}

/// Ids that the kernel could not name: 2^32-1 means "leave it" to the calls that would set them.
fn check_ids(caller: &Caller) -> Result<()> {
    let ids = [Some(caller.uid), Some(caller.gid), caller.group];
    let all_valid = ids.into_iter().flatten().all(|id| check_id(id).is_ok());
    if all_valid { Ok(()) } else { Err(OsError::OVERFLOW) }
}

/// Whom the thread acted for before.
struct Restore {
    before: Caller,
    acted: bool,
}

impl Drop for Restore {
    fn drop(&mut self) {
        let Some(mut state) = STATE.get().filter(|state| !state.is_lost) else { return };
        let umask = if self.acted { self.before.umask } else { state.now.umask };
        state.acts = self.acted;
        // Where this fails `as_caller` says so from then on.
        state.is_lost = change(&mut state, Caller { umask, ..self.before }).is_err();
        STATE.set(Some(state));
    }
}

/// Makes the thread act as `wanted`, until what this gives is dropped.
fn switch_to(wanted: Caller) -> Result<Restore> {
    let mut state = STATE.get().filter(|state| !state.is_lost).ok_or(OsError::PERM)?;
    let restore = Restore { before: state.now, acted: state.acts };
    state.acts = true;
    let outcome = change(&mut state, wanted);
    STATE.set(Some(state));
    // Here an error has what changed before it put back.
    outcome?;
    Ok(restore)
}

/// The permission bits of a mode, for a call that makes something. Where nobody is acted for, the thread's own umask is in force from
/// here on; a thread that was not prepared has one that is not ours to touch.
pub(crate) fn mode_of_new(mode: u32) -> Mode {
    if let Some(mut state) = STATE.get().filter(|state| !state.acts && state.now.umask != 0) {
        rustix::process::umask(Mode::empty());
        state.now.umask = 0;
        STATE.set(Some(state));
    }
    permissions(mode)
}

/// Changes what differs; after an error some of it may have changed.
fn change(state: &mut State, wanted: Caller) -> Result<()> {
    if state.now.group != wanted.group {
        let group = wanted.group.map(Gid::from_raw);
        rustix::thread::set_thread_groups(group.as_slice())?;
        state.now.group = wanted.group;
    }
    if state.now.gid != wanted.gid {
        set_fsgid(wanted.gid);
        state.now.gid = set_fsgid(u32::MAX);
    }
    if state.now.uid != wanted.uid {
        set_fsuid(wanted.uid);
        state.now.uid = set_fsuid(u32::MAX);
        if !state.identity.keeps_capabilities {
            // The kernel took capabilities on leaving root, or gave all of them back on becoming root again.
            restrain_again(state, wanted.uid)?;
        }
    }
    // These two calls report no error: what they did shows in what they say next.
    if (state.now.uid, state.now.gid) != (wanted.uid, wanted.gid) {
        return Err(OsError::PERM);
    }
    if state.now.umask != wanted.umask {
        rustix::process::umask(Mode::from_bits_retain(wanted.umask & 0o777));
        state.now.umask = wanted.umask;
    }
    Ok(())
}

fn restrain_again(state: &State, uid: u32) -> Result<()> {
    if uid == state.identity.uid && !apply(state.sets) { Err(OsError::PERM) } else { Ok(()) }
}

/// Runs `work` with CAP_FSETID in force, where the thread is permitted to have it: for the one change by which a
/// caller who has it keeps suid or sgid.
pub fn with_fsetid<R>(work: impl FnOnce() -> R) -> R {
    let _ = prepare_thread();
    let _lower = raise(CapabilitySet::FSETID).map(Lower);
    work()
}

/// Runs `work` with CAP_SYS_RESOURCE in force, where the thread is permitted to have it: for resources of the server's own
/// (a pipe above `fs.pipe-max-size`), never for what a caller asked for.
pub fn with_resource<R>(work: impl FnOnce() -> R) -> R {
    let _ = prepare_thread();
    let _lower = raise(CapabilitySet::SYS_RESOURCE).map(Lower);
    work()
}

struct Lower(CapabilitySets);

impl Drop for Lower {
    fn drop(&mut self) {
        set_capabilities(self.0);
    }
}

/// Adds to the effective set; gives the sets from before, `None` where nothing changed.
fn raise(wanted: CapabilitySet) -> Option<CapabilitySets> {
    let before = STATE.get()?.sets;
    if before.effective.contains(wanted) || !before.permitted.contains(wanted) {
        return None;
    }
    set_capabilities(CapabilitySets { effective: before.effective | wanted, ..before }).then_some(before)
}

fn set_capabilities(sets: CapabilitySets) -> bool {
    let applied = apply(sets);
    if let (true, Some(state)) = (applied, STATE.get()) {
        STATE.set(Some(State { sets, ..state }));
    }
    applied
}

fn apply(sets: CapabilitySets) -> bool {
    rustix::thread::set_capabilities(None, sets).is_ok()
}

/// Sets the thread's file system user and gives the one before; 2^32-1 only asks.
fn set_fsuid(uid: u32) -> u32 {
    // SAFETY: takes an integer and changes only this thread.
    let before = unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    id_from(before)
}

/// Sets the thread's file system group and gives the one before; 2^32-1 only asks.
fn set_fsgid(gid: u32) -> u32 {
    // SAFETY: takes an integer and changes only this thread.
    let before = unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    id_from(before)
}

/// These two calls cannot fail; they return the id as a number of 32 bits, with either sign.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the id is the low 32 bits")]
fn id_from(returned: c_long) -> u32 {
    returned as u32
}
