//! Names that go, move, and come a second time.

use shuntfs::Errno;

use super::op::{EXCHANGE, NOREPLACE};
use super::policy::Action;
use super::pool::{At, Found, Pool};
use super::tree::Mode;

type Result<T> = std::result::Result<T, Errno>;

impl Pool {
    /// All copies go, but those on branches where nothing is changed.
    pub(crate) fn unlink(&mut self, path: &str) -> Result<()> {
        let (way, name) = self.place(path)?;
        let parts = self.parts(&way);
        if self.look(&parts, &name).ok_or(Errno::NOENT)?.is_folder() {
            return Err(Errno::ISDIR);
        }
        for ((branch, folder), _) in self.changed_files(&parts, &name)? {
            self.branches[branch].unlink(folder, &name);
        }
        Ok(())
    }

    /// The copies of a file that are changed.
    fn changed_files(&self, parts: &[At], name: &str) -> Result<Vec<(At, At)>> {
        let mut all = self.all(parts, name);
        all.retain(|(_, at)| !self.inode(*at).is_folder());
        if self.is_read_only(all[0].1) {
            return Err(Errno::ROFS);
        }
        all.retain(|(_, at)| !self.is_read_only(*at));
        if self.action == Action::First {
            all.truncate(1);
        }
        Ok(all)
    }

    fn folders(&self, parts: &[At], name: &str) -> Vec<(At, At)> {
        let mut all = self.all(parts, name);
        all.retain(|(_, at)| self.inode(*at).is_folder());
        all
    }

    /// All or none.
    pub(crate) fn rmdir(&mut self, path: &str) -> Result<()> {
        let (way, name) = self.place(path)?;
        let parts = self.parts(&way);
        if !self.look(&parts, &name).ok_or(Errno::NOENT)?.is_folder() {
            return Err(Errno::NOTDIR);
        }
        let all = self.folders(&parts, &name);
        self.must_be_writable()?;
        self.must_be_empty(all.iter().map(|(_, at)| *at))?;
        if all.iter().any(|(_, at)| self.is_read_only(*at)) {
            return Err(Errno::ROFS);
        }
        for ((branch, folder), _) in all {
            self.branches[branch].unlink(folder, &name);
        }
        Ok(())
    }

    /// Where nothing may be changed at all, that is said first.
    fn must_be_writable(&self) -> Result<()> {
        let is_writable = self.branches.iter().any(|branch| branch.mode != Mode::ReadOnly);
        if is_writable { Ok(()) } else { Err(Errno::ROFS) }
    }

    fn must_be_empty(&self, folders: impl Iterator<Item = At>) -> Result<()> {
        let mut folders = folders;
        let is_empty = folders.all(|(branch, folder)| self.branches[branch].names(folder).is_empty());
        if is_empty { Ok(()) } else { Err(Errno::NOTEMPTY) }
    }

    /// On the branch of the file.
    pub(crate) fn link(&mut self, old: &str, new: &str) -> Result<()> {
        let (_, found) = self.walk(old, false)?;
        let (way, name) = self.free_place(new)?;
        let Found::Other((branch, inode)) = found else { return Err(Errno::PERM) };
        if self.is_read_only((branch, inode)) {
            return Err(Errno::ROFS);
        }
        let folder = self.on_branch(&way, branch)?;
        self.branches[branch].link(folder, &name, inode);
        Ok(())
    }

    /// A folder for what comes from elsewhere on the same branch.
    fn on_branch(&mut self, way: &[String], branch: usize) -> Result<usize> {
        let is_there = self.parts(way).iter().any(|(other, _)| *other == branch);
        if self.create.keeps_paths() && !is_there { Err(Errno::XDEV) } else { self.grow(way, branch) }
    }

    pub(crate) fn rename(&mut self, old: &str, new: &str, flags: u32) -> Result<()> {
        let ((way, name), (new_way, new_name)) = (self.place(old)?, self.place(new)?);
        let (parts, new_parts) = (self.parts(&way), self.parts(&new_way));
        let from = self.look(&parts, &name).ok_or(Errno::NOENT)?;
        let to = self.look(&new_parts, &new_name);
        // What the kernel says by itself.
        match &to {
            Some(_) if flags & NOREPLACE != 0 => return Err(Errno::EXIST),
            None if flags & EXCHANGE != 0 => return Err(Errno::NOENT),
            Some(to) if *to == from => return Ok(()),
            _ => {}
        }
        let whole = |way: &[String], name: &String| [way, std::slice::from_ref(name)].concat();
        if new_way.starts_with(&whole(&way, &name)) {
            return Err(Errno::INVAL);
        }
        if to.is_some() && way.starts_with(&whole(&new_way, &new_name)) {
            return Err(if flags & EXCHANGE != 0 { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        if flags & EXCHANGE != 0 {
            return self.exchange((&parts, &name), (&new_parts, &new_name));
        }
        match (from.is_folder(), to.map(|to| to.is_folder())) {
            (true, Some(false)) => return Err(Errno::NOTDIR),
            (false, Some(true)) => return Err(Errno::ISDIR),
            _ => {}
        }
        self.replace((&parts, &name), (&new_way, &new_name), from.is_folder())
    }

    fn exchange(&mut self, (parts, name): (&[At], &str), (new_parts, new_name): (&[At], &str)) -> Result<()> {
        let (all, met) = (self.all(parts, name), self.all(new_parts, new_name));
        let ([((branch, folder), at)], [((other, new_folder), _)]) = (&all[..], &met[..]) else {
            return self.must_be_writable().and(Err(Errno::XDEV));
        };
        if branch != other {
            return self.must_be_writable().and(Err(Errno::XDEV));
        }
        if self.is_read_only(*at) {
            return Err(Errno::ROFS);
        }
        let on = &mut self.branches[*branch];
        let (one, two) = (on.unlink(*folder, name), on.unlink(*new_folder, new_name));
        on.link(*folder, name, two);
        on.link(*new_folder, new_name, one);
        Ok(())
    }

    fn replace(
        &mut self,
        (parts, name): (&[At], &str),
        (new_way, new_name): (&[String], &str),
        is_folder: bool,
    ) -> Result<()> {
        let met = self.all(&self.parts(new_way), new_name);
        let sources = if is_folder { self.folders(parts, name) } else { self.changed_files(parts, name)? };
        if sources.iter().any(|(_, at)| self.is_read_only(*at)) {
            return Err(Errno::ROFS);
        }
        let mut moves = Vec::new();
        for ((branch, folder), _) in sources {
            moves.push((branch, folder, self.on_branch(new_way, branch)?));
        }
        // Nothing may be left at the new name but what is moved there.
        let folders = met.iter().filter(|(_, at)| self.inode(*at).is_folder()).count();
        if is_folder && folders < met.len() {
            return Err(Errno::NOTDIR);
        }
        if !is_folder && folders > 0 {
            return Err(Errno::ISDIR);
        }
        let is_moved = |at: &At| moves.iter().any(|(branch, ..)| *branch == at.0);
        if met.iter().any(|(_, at)| !is_moved(at) && self.is_read_only(*at)) {
            return Err(Errno::ROFS);
        }
        if is_folder {
            self.must_be_empty(met.iter().map(|(_, at)| *at))?;
        }
        for ((branch, folder), _) in met {
            self.branches[branch].unlink(folder, new_name);
        }
        for (branch, folder, new_folder) in moves {
            let inode = self.branches[branch].unlink(folder, name);
            self.branches[branch].link(new_folder, new_name, inode);
        }
        Ok(())
    }
}
