//! Small files that are read again and again: the headers of a project that is built.
//!
//! In passthrough each read makes the kernel take the file's time of access for unknown, so the next `fstat` is a request
//! that its caller waits for; and a compiler asks before each read. Building a kernel is 470,000 opens of 7,000
//! files, and was as many such requests. Pages that the kernel keeps cost one READ in all instead, so a file that is small, and
//! was opened for reading alone often enough, leaves passthrough for them. An open for writing brings it back.

use crate::guard::Terms;
use crate::mode;
use crate::node::{Marks, Node};
use crate::options::FlowWish;
use crate::shared::Shared;

/// The longest file whose pages are worth keeping twice: one READ of the usual readahead.
pub(crate) const LEN_MAX: u64 = 128 << 10;

/// Whether an open, of which this is told before it is counted, is better off with pages that the kernel keeps. The third
/// one in a row is the first: what is read but once or twice costs more that way.
pub(crate) fn is_reread(shared: &Shared, node: &Node, flags: u32, terms: &Terms) -> bool {
    let marks = Marks::READ_ONCE.and(Marks::READ_TWICE);
    if flags & (mode::O_ACCMODE | mode::O_TRUNC | mode::O_DIRECT) != mode::O_RDONLY {
        if node.has(marks) {
            node.unmark(marks);
        }
        return false;
    }
    let may_be = shared.options.flow == FlowWish::Passthrough
        && shared.is_ours_alone()
        && node.has(Marks::SMALL)
        // A mapping that stores into the lower file may be left.
        && !node.has(Marks::MAPPED.and(Marks::VARIES))
        && terms.are_none();
    if !may_be {
        return false;
    }
    match [Marks::READ_ONCE, Marks::READ_TWICE].into_iter().find(|mark| !node.has(*mark)) {
        Some(mark) => {
            node.mark(mark);
            false
        }
        None => true,
    }
}
