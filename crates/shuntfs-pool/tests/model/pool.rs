//! Several branches as one: what docs/pool.md says, without a kernel, and nothing of the code that does it.

use shuntfs::Errno;

use super::op::{FIFO, FILE, FOLDER, LINK, Stat};
use super::policy::{Action, Create};
use super::tree::{Attributes, Branch, Inode, Kind, Mode, ROOT};

type Result<T> = std::result::Result<T, Errno>;

/// An inode on a branch.
pub(crate) type At = (usize, usize);

/// As many symlinks are followed on one way.
const LINKS_MAX: usize = 40;

#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) branches: Vec<Branch>,
    pub(crate) create: Create,
    pub(crate) action: Action,
    /// Who calls.
    pub(crate) me: (u32, u32),
}

/// What has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// In the order of the branches: the first is shown.
    Folder(Vec<At>),
    Other(At),
}

/// The names on the way to something, without symlinks.
pub(crate) type Way = Vec<String>;

impl Found {
    pub(crate) fn shown(&self) -> At {
        match self {
            Self::Folder(parts) => parts[0],
            Self::Other(at) => *at,
        }
    }

    pub(crate) fn is_folder(&self) -> bool {
        matches!(self, Self::Folder(_))
    }
}

impl Pool {
    pub(crate) fn inode(&self, (branch, inode): At) -> &Inode {
        &self.branches[branch].inodes[inode]
    }

    pub(crate) fn inode_mut(&mut self, (branch, inode): At) -> &mut Inode {
        &mut self.branches[branch].inodes[inode]
    }

    pub(crate) fn is_read_only(&self, at: At) -> bool {
        self.branches[at.0].mode == Mode::ReadOnly
    }

    fn root(&self) -> Vec<At> {
        (0..self.branches.len()).map(|branch| (branch, ROOT)).collect()
    }

    /// Everything that has a name in a folder, with the part of the folder that it is in.
    pub(crate) fn all(&self, parts: &[At], name: &str) -> Vec<(At, At)> {
        let here = |at: &At| Some((*at, (at.0, self.branches[at.0].child(at.1, name)?)));
        parts.iter().filter_map(here).collect()
    }

    /// What comes first says what the name is; folders of the same name are one.
    pub(crate) fn look(&self, parts: &[At], name: &str) -> Option<Found> {
        let all = self.all(parts, name);
        let (_, first) = *all.first()?;
        if !self.inode(first).is_folder() {
            return Some(Found::Other(first));
        }
        let folders = all.into_iter().map(|(_, at)| at).filter(|at| self.inode(*at).is_folder());
        Some(Found::Folder(folders.collect()))
    }

    /// What is at the end of a way.
    pub(crate) fn at(&self, way: &[String]) -> Found {
        let step = |found, name: &String| match found {
            Found::Folder(parts) => self.look(&parts, name).unwrap(),
            Found::Other(_) => panic!("no folder on the way {way:?}"),
        };
        way.iter().fold(Found::Folder(self.root()), step)
    }

    pub(crate) fn parts(&self, way: &[String]) -> Vec<At> {
        match self.at(way) {
            Found::Folder(parts) => parts,
            Found::Other(_) => panic!("no folder: {way:?}"),
        }
    }

    /// Follows a path.
    pub(crate) fn walk(&self, path: &str, follows: bool) -> Result<(Way, Found)> {
        let mut ahead: Vec<String> = names(path).rev().collect();
        let (mut way, mut found, mut links) = (Way::new(), Found::Folder(self.root()), 0);
        while let Some(name) = ahead.pop() {
            let Found::Folder(parts) = &found else { return Err(Errno::NOTDIR) };
            let next = self.look(parts, &name).ok_or(Errno::NOENT)?;
            if let Kind::Symlink(target) = &self.inode(next.shown()).kind
                && (follows || !ahead.is_empty())
            {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP);
                }
                ahead.extend(names(target).rev());
                continue;
            }
            way.push(name);
            found = next;
        }
        Ok((way, found))
    }

    /// The folder of a path, and the last name of it.
    pub(crate) fn place(&self, path: &str) -> Result<(Way, String)> {
        let (folder, name) = path.rsplit_once('/').unwrap();
        let (way, found) = self.walk(folder, true)?;
        if found.is_folder() { Ok((way, name.to_owned())) } else { Err(Errno::NOTDIR) }
    }

    /// A place where nothing is.
    pub(crate) fn free_place(&self, path: &str) -> Result<(Way, String)> {
        let (way, name) = self.place(path)?;
        if self.look(&self.parts(&way), &name).is_some() { Err(Errno::EXIST) } else { Ok((way, name)) }
    }

    /// The folder on a branch, made there with those around it where it is missing.
    pub(crate) fn grow(&mut self, way: &[String], branch: usize) -> Result<usize> {
        let mut here = ROOT;
        for depth in 1..=way.len() {
            let parts = self.parts(&way[..depth]);
            if let Some((_, inode)) = parts.iter().find(|(other, _)| *other == branch) {
                here = *inode;
                continue;
            }
            let name = &way[depth - 1];
            if self.branches[branch].child(here, name).is_some() {
                // Hidden there, and not a folder.
                return Err(Errno::NOTDIR);
            }
            let attributes = self.inode(parts[0]).attributes.clone();
            let on = &mut self.branches[branch];
            here = on.make(here, name, Kind::Folder([].into()), 0, (0, 0));
            on.inodes[here].attributes = attributes;
        }
        Ok(here)
    }

    /// The branches on which something is made in a folder.
    pub(crate) fn for_new(&self, way: &[String]) -> Result<Vec<usize>> {
        let is_on = |branch, depth| self.parts(&way[..depth]).iter().any(|(other, _)| *other == branch);
        let depth_on = |branch| (1..=way.len()).take_while(|depth| is_on(branch, *depth)).count();
        let depths: Vec<usize> = (0..self.branches.len()).map(depth_on).collect();
        self.create.pick(&self.branches, way.len(), &depths)
    }

    /// Makes something on the branches that the policy picks; `everywhere`, or on the first of them.
    pub(crate) fn make(&mut self, path: &str, kind: &Kind, mode: u32, everywhere: bool) -> Result<At> {
        let (way, name) = self.free_place(path)?;
        let mut picked = self.for_new(&way)?;
        if !everywhere {
            picked.truncate(1);
        }
        let (first, others) = picked.split_first().unwrap();
        let folder = self.grow(&way, *first)?;
        let me = self.me;
        let made = self.branches[*first].make(folder, &name, kind.clone(), mode, me);
        for other in others {
            if let Ok(folder) = self.grow(&way, *other) {
                self.branches[*other].make(folder, &name, kind.clone(), mode, me);
            }
        }
        Ok((*first, made))
    }

    /// Changes attributes: of a folder on all branches that may be changed, of anything else where it is shown.
    pub(crate) fn change(&mut self, found: &Found, change: impl Fn(&mut Attributes)) -> Result<()> {
        if self.is_read_only(found.shown()) {
            return Err(Errno::ROFS);
        }
        let all = match found {
            Found::Folder(parts) => parts.clone(),
            Found::Other(at) => vec![*at],
        };
        for at in all {
            if !self.is_read_only(at) {
                change(&mut self.inode_mut(at).attributes);
            }
        }
        Ok(())
    }

    pub(crate) fn stat(&self, found: &Found) -> Stat {
        let inode = self.inode(found.shown());
        let (kind, size) = match &inode.kind {
            Kind::File(bytes) => (FILE, bytes.len()),
            Kind::Folder(_) => (FOLDER, 0),
            Kind::Symlink(target) => (LINK, target.len()),
            Kind::Fifo => (FIFO, 0),
        };
        let Attributes { mode, uid, gid, mtime, .. } = inode.attributes;
        let links = if kind == FOLDER { 0 } else { inode.links };
        Stat { mode: kind | mode, uid, gid, links, size: size as u64, mtime }
    }

    pub(crate) fn names(&self, parts: &[At]) -> Vec<String> {
        let of = |at: &At| self.branches[at.0].names(at.1).keys().cloned();
        let mut all: Vec<String> = parts.iter().flat_map(of).collect();
        all.sort();
        all.dedup();
        all
    }
}

fn names(path: &str) -> impl DoubleEndedIterator<Item = String> + '_ {
    path.split('/').filter(|name| !name.is_empty()).map(str::to_owned)
}
