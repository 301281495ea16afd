//! One branch: a tree of names and inodes.

use std::collections::BTreeMap;

/// The top of a branch.
pub(crate) const ROOT: usize = 0;

const SGID: u32 = 0o2000;

/// What may be done on a branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    ReadWrite,
    ReadOnly,
    NoCreate,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    File(Vec<u8>),
    Folder(BTreeMap<String, usize>),
    Symlink(String),
    Fifo,
}

/// The attributes that calls set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Attributes {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// As it was set; `None` where the clock set it.
    pub(crate) mtime: Option<u64>,
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) kind: Kind,
    pub(crate) attributes: Attributes,
    pub(crate) links: u32,
}

impl Inode {
    pub(crate) fn is_folder(&self) -> bool {
        matches!(self.kind, Kind::Folder(_))
    }
}

/// A branch. An inode stays after its last name: it may be open.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) mode: Mode,
    /// Whether less is free than must be left.
    pub(crate) is_full: bool,
    /// How much is free, compared with others.
    pub(crate) free: u64,
    pub(crate) inodes: Vec<Inode>,
}

impl Branch {
    /// An empty one. `owner` made it.
    pub(crate) fn new(mode: Mode, is_full: bool, free: u64, (uid, gid): (u32, u32)) -> Self {
        let attributes = Attributes { mode: 0o755, uid, gid, mtime: None, xattrs: BTreeMap::new() };
        let root = Inode { kind: Kind::Folder(BTreeMap::new()), attributes, links: 1 };
        Self { mode, is_full, free, inodes: vec![root] }
    }

    pub(crate) fn names(&self, folder: usize) -> &BTreeMap<String, usize> {
        match &self.inodes[folder].kind {
            Kind::Folder(names) => names,
            other => panic!("no folder: {other:?}"),
        }
    }

    fn names_mut(&mut self, folder: usize) -> &mut BTreeMap<String, usize> {
        // Whatever changes the names sets the time.
        self.inodes[folder].attributes.mtime = None;
        match &mut self.inodes[folder].kind {
            Kind::Folder(names) => names,
            other => panic!("no folder: {other:?}"),
        }
    }

    pub(crate) fn child(&self, folder: usize, name: &str) -> Option<usize> {
        self.names(folder).get(name).copied()
    }

    /// Something new, owned by whoever makes it, but for what a set-group-id folder hands on.
    pub(crate) fn make(
        &mut self,
        folder: usize,
        name: &str,
        kind: Kind,
        mode: u32,
        (uid, mut gid): (u32, u32),
    ) -> usize {
        let around = &self.inodes[folder].attributes;
        let mut mode = mode;
        if around.mode & SGID != 0 {
            gid = around.gid;
            if matches!(kind, Kind::Folder(_)) {
                mode |= SGID;
            }
        }
        let attributes = Attributes { mode, uid, gid, mtime: None, xattrs: BTreeMap::new() };
        self.inodes.push(Inode { kind, attributes, links: 0 });
        let inode = self.inodes.len() - 1;
        self.link(folder, name, inode);
        inode
    }

    pub(crate) fn link(&mut self, folder: usize, name: &str, inode: usize) {
        assert_eq!(self.names_mut(folder).insert(name.to_owned(), inode), None);
        self.inodes[inode].links += 1;
    }

    pub(crate) fn unlink(&mut self, folder: usize, name: &str) -> usize {
        let inode = self.names_mut(folder).remove(name).unwrap();
        self.inodes[inode].links -= 1;
        inode
    }

    /// Every path but the top's, with its inode.
    pub(crate) fn walk(&self) -> Vec<(String, usize)> {
        let (mut all, mut ahead) = (Vec::new(), vec![(String::new(), ROOT)]);
        while let Some((path, folder)) = ahead.pop() {
            for (name, inode) in self.names(folder) {
                let path = format!("{path}/{name}");
                if self.inodes[*inode].is_folder() {
                    ahead.push((path.clone(), *inode));
                }
                all.push((path, *inode));
            }
        }
        all
    }
}
