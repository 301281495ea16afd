//! What keeps a case from being as fast as the bare folder, in a sentence.

use crate::case::{Engine, Fio, MetaStep, Pattern, TreeStep, Work};

/// Says what limits a case whose bytes the server moves.
pub(crate) const fn of_served(work: &Work) -> &'static str {
    match work {
        Work::Fio(fio) => of_data(fio),
        Work::Meta(meta) => of_meta(meta.step),
        Work::Tree(step) => of_tree(*step),
        Work::Build => {
            "LOOKUPs of headers that are not there, and an OPEN and RELEASE for each file that is read"
        }
        Work::RoundTrip => "two switches between threads, as the pipe has, and the protocol on top",
    }
}

/// Says what limits a data case whose bytes the kernel moves by itself.
pub(crate) const fn of_passthrough(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Read | Pattern::RandRead => {
            "no request reaches the server: what is left is the kernel's own call into the lower file"
        }
        Pattern::Write | Pattern::RandWrite => {
            "no request reaches the server, and each write goes through two file systems' write paths in the kernel"
        }
    }
}

const fn of_data(fio: &Fio) -> &'static str {
    match (fio.engine, fio.pattern, fio.direct) {
        (Engine::Mmap, ..) => "a page fault reads ahead by requests of 128 KiB, each a round trip",
        (Engine::Libaio { .. }, ..) => {
            "a request each: what a caller has in flight waits for the one queue of its CPU"
        }
        (_, Pattern::Write | Pattern::RandWrite, false) => {
            "a round trip for each write: the kernel's cache is not written back later"
        }
        (_, _, true) if fio.block.0 >= 1024 => "the server's thread copies what bare moves without a copy",
        (_, _, true) => "a round trip each",
        (_, Pattern::Read | Pattern::RandRead, false) => {
            "readahead by requests of 128 KiB; each byte is in two page caches and copied between them"
        }
    }
}

const fn of_meta(step: MetaStep) -> &'static str {
    match step {
        MetaStep::Create => "a LOOKUP and a CREATE that the caller waits for, and a RELEASE",
        MetaStep::Stat => "a LOOKUP that the caller waits for, beside the lower file system's own read",
        MetaStep::Delete => "a LOOKUP and an UNLINK that the caller waits for",
    }
}

const fn of_tree(step: TreeStep) -> &'static str {
    match step {
        TreeStep::Untar => {
            "nine requests a file with GNU tar, eight of which it waits for; each is a round trip to another thread"
        }
        TreeStep::FindCold => {
            "OPENDIR, READDIRPLUS and RELEASEDIR for each folder, beside the lower file system's own reads"
        }
        TreeStep::FindWarm => "OPENDIR and RELEASEDIR for each folder, where bare has no request",
        TreeStep::GrepCold => "OPEN, RELEASE and, where bytes are served, READ for each file",
        TreeStep::Remove => "an UNLINK for each file that the caller waits for, and FORGETs",
    }
}
