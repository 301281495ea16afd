//! RENAME and RENAME2.

use shuntfs::{NodeId, Result};

use crate::guard::{Guard, NameMoves};
use crate::name_buf::NameBuf;
use crate::shared::Shared;
use crate::who::Who;

/// A name and its folder, as a request has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'n> {
    pub(crate) parent: NodeId,
    pub(crate) name: &'n NameBuf,
}

/// RENAME and RENAME2: one lower call, and two to see whose names they are.
pub(crate) fn rename(shared: &Shared, who: Who, from: Named<'_>, to: Named<'_>, flags: u32) -> Result<()> {
    let (from_folder, to_folder) = (shared.folder(from.parent)?, shared.folder(to.parent)?);
    let (from, to) = (from_folder.spot(from.name), to_folder.spot(to.name));
    let guard = Guard::new(shared, who);
    let held = guard.hold(&[from, to])?;
    guard.judge(NameMoves { from, to, held: &held, flags })?.rename(shared)
}
