//! GETATTR, SETATTR, STATX, ACCESS, STATFS.

use shuntfs_wire::{Fh, GetattrFlags, NodeId, Op, Result, SetattrIn, SetattrValid};

use super::answer::Answer;
use crate::args::{SetAttr, SetTime};
use crate::attr::Timestamp;
use crate::cx::Cx;
use crate::encode;
use crate::filesystem::Filesystem;
use crate::server::Server;

pub(super) async fn serve<F: Filesystem>(
    server: &Server<F>,
    cx: &Cx<'_>,
    node: NodeId,
    op: Op<'_>,
) -> Result<Answer> {
    let fs = &*server.fs;
    match op {
        Op::Getattr(arg) => {
            let with_fh = arg.getattr_flags.contains(GetattrFlags::FH);
            let open = if with_fh { server.files.get(Fh(arg.fh)) } else { None };
            let attr = fs.getattr(cx, node, open.as_ref().map(|open| &*open.file)).await?;
            Ok(Answer::Attr(encode::attr_out(&attr)))
        }
        Op::Setattr(arg) => {
            let with_fh = arg.valid.contains(SetattrValid::FH);
            let open = if with_fh { server.files.get(Fh(arg.fh)) } else { None };
            let attr = fs.setattr(cx, node, open.as_ref().map(|open| &*open.file), set_attr(&arg)).await?;
            Ok(Answer::Attr(encode::attr_out(&attr)))
        }
        Op::Statx(_) => {
            let (attr, birth) = fs.statx(cx, node).await?;
            Ok(Answer::Statx(encode::statx_out(&attr, &birth)))
        }
        Op::Access(arg) => fs.access(cx, node, arg.mask).await.map(|()| Answer::Empty),
        Op::Statfs => Ok(Answer::Statfs(encode::statfs_out(&fs.statfs(cx, node).await?))),
        _ => Ok(Answer::NotOffered),
    }
}

fn set_attr(arg: &SetattrIn) -> SetAttr {
    let valid = arg.valid;
    let has = |bit| valid.contains(bit);
    let at = |secs: u64, nanos| Timestamp { secs: secs.cast_signed(), nanos };
    let time = |set, now, value| match (has(set), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(value)),
        (false, false) => None,
    };
    SetAttr {
        mode: has(SetattrValid::MODE).then_some(arg.mode),
        uid: has(SetattrValid::UID).then_some(arg.uid),
        gid: has(SetattrValid::GID).then_some(arg.gid),
        size: has(SetattrValid::SIZE).then_some(arg.size),
        atime: time(SetattrValid::ATIME, SetattrValid::ATIME_NOW, at(arg.atime, arg.atimensec)),
        mtime: time(SetattrValid::MTIME, SetattrValid::MTIME_NOW, at(arg.mtime, arg.mtimensec)),
        ctime: has(SetattrValid::CTIME).then(|| at(arg.ctime, arg.ctimensec)),
        kill_priv: has(SetattrValid::KILL_SUIDGID),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_valid_fields_are_set() {
        let arg =
            SetattrIn { mode: 7, uid: 8, gid: 9, size: 10, atime: 11, mtime: 12, ..SetattrIn::default() };
        assert_eq!(set_attr(&arg), SetAttr::default(), "nothing named: strip");
        let valid =
            SetattrValid::MODE | SetattrValid::SIZE | SetattrValid::ATIME | SetattrValid::KILL_SUIDGID;
        let set = set_attr(&SetattrIn { valid, ..arg });
        let atime = Some(SetTime::At(Timestamp { secs: 11, nanos: 0 }));
        let expected =
            SetAttr { mode: Some(7), size: Some(10), atime, kill_priv: true, ..SetAttr::default() };
        assert_eq!(set, expected);
        let valid = SetattrValid::MTIME | SetattrValid::MTIME_NOW | SetattrValid::UID | SetattrValid::GID;
        let set = set_attr(&SetattrIn { valid, ..arg });
        let expected =
            SetAttr { uid: Some(8), gid: Some(9), mtime: Some(SetTime::Now), ..SetAttr::default() };
        assert_eq!(set, expected);
    }
}
