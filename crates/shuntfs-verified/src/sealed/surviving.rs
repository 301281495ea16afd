//! What of a sealed tree survives its server: open files. Nodes are numbers of the manifest.

use std::os::fd::AsFd;
use std::sync::Arc;

use shuntfs::takeover::{FileIdentity, KeptNodes, KeptOpen, LeftNodes, LeftOpen, NotTaken, Surviving};
use shuntfs::{Delegation, NodeId};

use super::fs::{Sealed, SealedDir, SealedFile};
use crate::checked::CheckedFile;

/// For a tree whose seal is the one of the server before ([`crate::TakenSeal`]).
impl Surviving for Sealed {
    fn take_nodes(&self, _: KeptNodes, left: LeftNodes) -> Result<(), NotTaken> {
        self.survives();
        if left.is_empty() { Ok(()) } else { Err("nodes of a sealed tree are not written down".into()) }
    }

    fn keep_file<'f>(&self, file: &'f SealedFile) -> KeptOpen<'f> {
        let kept = file.kept.as_ref();
        let kept = kept.and_then(|kept| FileIdentity::of(kept).ok().map(|of| (kept.as_fd(), of)));
        KeptOpen { file: kept, ..KeptOpen::default() }
    }

    fn take_file(&self, id: NodeId, left: LeftOpen) -> Result<Option<(SealedFile, Delegation)>, NotTaken> {
        let of_seal = |_| Some(self.seals());
        let checked = left.file.as_ref().and_then(|kept| CheckedFile::left(kept.as_fd(), of_seal, None));
        if checked.is_none() {
            tracing::error!(node = id.get(), "a file that is open cannot be checked any more");
        }
        let delegation = checked.as_ref().map_or(Delegation::Verified, CheckedFile::delegation);
        Ok(Some((SealedFile::new(checked.map(Arc::new), left.file), delegation)))
    }

    fn keep_dir<'f>(&self, _: &'f SealedDir) -> KeptOpen<'f> {
        KeptOpen::default()
    }

    fn take_dir(&self, _: NodeId, _: LeftOpen) -> Result<Option<SealedDir>, NotTaken> {
        Ok(Some(SealedDir))
    }
}
