//! What keeps a case from being as fast as the bare folder, in a sentence.

use crate::case::{Engine, Fio, GitStep, MetaStep, Pattern, TreeStep, Work};

/// Says what limits a case whose bytes the server moves.
pub(crate) const fn of_served(work: &Work) -> &'static str {
    match work {
        Work::Fio(fio) => of_data(fio),
        Work::Meta(meta) => of_meta(meta.step),
        Work::Tree(step) => of_tree(*step),
        Work::List(_) => {
            "each name goes through the server, which compares it with those of the branches before"
        }
        Work::Git(step) => of_git(*step),
        Work::Build => {
            "an OPEN that the caller waits for, and a RELEASE, each time that a file is read: 95 of 100 requests of a \
             kernel's tinyconfig"
        }
        Work::Sealed(_) => {
            "each byte is read as where it is served, and hashed by the same processors besides"
        }
        Work::RoundTrip | Work::Calls(_) => {
            "two switches between threads, as the pipe has, and the protocol on top"
        }
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
        (Engine::Mmap, ..) => "a page fault reads ahead by requests of 1 MiB at most, each a round trip",
        (Engine::Libaio { .. }, ..) => {
            "a request each: what a caller has in flight waits for the one queue of its CPU"
        }
        (_, Pattern::Write | Pattern::RandWrite, false) => {
            "a round trip for each write: the kernel's cache is not written back later"
        }
        (_, _, true) if fio.block.0 >= 1024 => "the server's thread copies what bare moves without a copy",
        (_, _, true) => "a round trip each",
        (_, Pattern::Read | Pattern::RandRead, false) => {
            "each byte is in two page caches and copied between them; readahead asks for 1 MiB at a time at most"
        }
    }
}

const fn of_meta(step: MetaStep) -> &'static str {
    match step {
        MetaStep::Create => {
            "GETATTR of the folder, LOOKUP and CREATE that the caller waits for, and a RELEASE"
        }
        MetaStep::Stat => "a LOOKUP that the caller waits for, beside the lower file system's own read",
        MetaStep::Delete => {
            "GETATTR of the folder (more, where several jobs change it), LOOKUP and UNLINK that the caller waits for"
        }
    }
}

const fn of_git(step: GitStep) -> &'static str {
    match step {
        GitStep::Checkout => "as unpacking: what git does for each new file is a round trip for each request",
        GitStep::Status => {
            "a GETATTR or a LOOKUP for each file whose attributes are not known any more, and the listing of each folder"
        }
    }
}

const fn of_tree(step: TreeStep) -> &'static str {
    match step {
        TreeStep::Untar => {
            "nine requests a file with GNU tar, eight of which it waits for; each is a round trip to another thread"
        }
        TreeStep::FindCold => {
            "two READDIRPLUS for each folder (the second tells the end), beside the lower file system's own reads"
        }
        TreeStep::FindWarm => {
            "a GETATTR for each folder: listing it made the kernel take its time of access for unknown; a third walk sends none"
        }
        TreeStep::GrepCold => "OPEN, RELEASE and, where bytes are served, READ for each file",
        TreeStep::Remove => {
            "UNLINK and GETATTR of the folder for each file that the caller waits for, three READDIRPLUS a folder, and FORGETs"
        }
    }
}
