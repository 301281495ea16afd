//! Extended attributes.

use shuntfs_wire::{Errno, GetxattrIn, GetxattrOut, InitFlags, Opcode, SetxattrFlags, SetxattrIn};
use zerocopy::{FromBytes, IntoBytes};

use crate::breach::Rule;
use crate::process::Process;

impl Process {
    /// Reads an extended attribute: its length is asked for first, then its value.
    ///
    /// # Errors
    /// Those of the way and of GETXATTR; EOPNOTSUPP where the file system has none.
    pub fn get_xattr(&self, path: &str, name: &str) -> Result<Vec<u8>, Errno> {
        let node = self.walk(path, true)?;
        self.sized(Opcode::Getxattr, node, &[name.as_bytes(), b"\0"])
    }

    /// Lists the names of the extended attributes.
    ///
    /// # Errors
    /// Those of the way and of LISTXATTR.
    pub fn list_xattr(&self, path: &str) -> Result<Vec<String>, Errno> {
        let node = self.walk(path, true)?;
        let names = self.sized(Opcode::Listxattr, node, &[])?;
        let names = names.split_inclusive(|byte| *byte == 0).map(|name| match name.split_last() {
            Some((0, name)) => Ok(String::from_utf8_lossy(name).into_owned()),
            _ => Err(Errno::IO),
        });
        names.collect()
    }

    /// Sets an extended attribute, with the flags of `setxattr(2)`.
    ///
    /// # Errors
    /// Those of the way and of SETXATTR.
    pub fn set_xattr(&self, path: &str, name: &str, value: &[u8], flags: u32) -> Result<(), Errno> {
        let node = self.walk(path, true)?;
        if self.is_off(Opcode::Setxattr) {
            return Err(Errno::OPNOTSUPP);
        }
        let size = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
        let arg = SetxattrIn { size, flags, setxattr_flags: SetxattrFlags::empty(), padding: 0 };
        let long = self.kernel.books().has_agreed(InitFlags::SETXATTR_EXT);
        let arg = if long { arg.as_bytes() } else { &arg.as_bytes()[..SetxattrIn::SHORT_LEN] };
        let parts: [&[u8]; 4] = [arg, name.as_bytes(), b"\0", value];
        let outcome = self.kernel.ask(self.caller, (Opcode::Setxattr, node), &parts);
        self.off_at_nosys(Opcode::Setxattr, outcome, Errno::OPNOTSUPP)?;
        self.kernel.books().changed(node);
        Ok(())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of the way and of REMOVEXATTR.
    pub fn remove_xattr(&self, path: &str, name: &str) -> Result<(), Errno> {
        let node = self.walk(path, true)?;
        if self.is_off(Opcode::Removexattr) {
            return Err(Errno::OPNOTSUPP);
        }
        let outcome = self.kernel.ask(self.caller, (Opcode::Removexattr, node), &[name.as_bytes(), b"\0"]);
        self.off_at_nosys(Opcode::Removexattr, outcome, Errno::OPNOTSUPP)?;
        self.kernel.books().changed(node);
        Ok(())
    }

    fn sized(&self, opcode: Opcode, node: u64, name: &[&[u8]]) -> Result<Vec<u8>, Errno> {
        if self.is_off(opcode) {
            return Err(Errno::OPNOTSUPP);
        }
        let ask = |size| {
            let arg = GetxattrIn { size, padding: 0 };
            let parts = [&[arg.as_bytes()][..], name].concat();
            let outcome = self.kernel.ask(self.caller, (opcode, node), &parts);
            self.off_at_nosys(opcode, outcome, Errno::OPNOTSUPP)
        };
        let size = GetxattrOut::read_from_bytes(&ask(0)?).map_err(|_| Errno::IO)?.size;
        if size == 0 {
            return Ok(Vec::new());
        }
        let value = ask(size)?;
        if value.len() != size as usize {
            let what =
                format!("{opcode} of node {node} was said to have {size} bytes, and has {}", value.len());
            self.kernel.books().breach(Rule::Attributes, what);
        }
        Ok(value)
    }
}
