//! A machine of three users and files in memory.

use std::cell::Cell;

use shuntfs_rules::{
    Attributes, CallerFacts, Decision, Failed, FileFacts, Known, Mistakes, OpenWord, Rules, Unknown, Use,
};

/// Users `alice` (1000) and `bob` (1001), the group `staff` (50), and the policy `one`.
pub(crate) struct Machine;

impl Known for Machine {
    fn user(&self, name: &str) -> Option<u32> {
        match name {
            "alice" => Some(1000),
            "bob" => Some(1001),
            _ => None,
        }
    }
    fn group(&self, name: &str) -> Option<u32> {
        (name == "staff").then_some(50)
    }
    fn policies(&self) -> &[&str] {
        &["one"]
    }
}

/// A file.
#[derive(Default)]
pub(crate) struct File {
    pub(crate) path: &'static str,
    pub(crate) attributes: Attributes,
    pub(crate) head: &'static [u8],
    /// How often content was asked for.
    pub(crate) heads: Cell<usize>,
    /// How often attributes were asked for.
    pub(crate) stats: Cell<usize>,
    pub is_broken: bool,
}

impl File {
    pub(crate) fn at(path: &'static str) -> Self {
        Self { path, ..Self::default() }
    }
}

impl FileFacts for File {
    fn path(&self) -> &[u8] {
        self.path.as_bytes()
    }
    fn attributes(&self) -> Result<Attributes, Unknown> {
        self.stats.set(self.stats.get() + 1);
        if self.is_broken { Err(Unknown("EIO".into())) } else { Ok(self.attributes) }
    }
    fn head(&self) -> Result<Vec<u8>, Unknown> {
        self.heads.set(self.heads.get() + 1);
        if self.is_broken { Err(Unknown("EIO".into())) } else { Ok(self.head.to_vec()) }
    }
}

/// A caller.
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) groups: Option<Vec<u32>>,
    pub(crate) exe: Option<&'static str>,
    /// How often the process was asked.
    pub(crate) looks: Cell<usize>,
}

impl Caller {
    pub(crate) fn of(uid: u32) -> Self {
        Self { uid, groups: Some(vec![uid]), exe: Some("/bin/cat"), looks: Cell::new(0) }
    }
}

impl CallerFacts for Caller {
    fn uid(&self) -> Result<u32, Unknown> {
        Ok(self.uid)
    }
    fn gid(&self) -> Result<u32, Unknown> {
        Ok(self.uid)
    }
    fn groups(&self) -> Result<Vec<u32>, Unknown> {
        self.looks.set(self.looks.get() + 1);
        self.groups.clone().ok_or_else(|| Unknown("no such process".into()))
    }
    fn exe(&self) -> Result<Vec<u8>, Unknown> {
        self.looks.set(self.looks.get() + 1);
        self.exe.map(|exe| exe.as_bytes().to_vec()).ok_or_else(|| Unknown("no such process".into()))
    }
}

pub(crate) fn parse(source: &str) -> Result<Rules, Mistakes> {
    Rules::parse(source, "r.toml", None, &Machine)
}

pub(crate) fn rules(source: &str) -> Rules {
    parse(source).unwrap_or_else(|mistakes| panic!("{mistakes}\n{source}"))
}

pub(crate) fn reads(rules: &Rules, file: &File, uid: u32) -> Result<Decision, Failed> {
    rules.decide(file, &Caller::of(uid), Use::of(OpenWord::Read))
}
