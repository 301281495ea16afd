//! The recorded requests.

/// Every recorded request with its file's name, in the order of their names.
pub(crate) fn all() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../shuntfs-wire/golden");
    let entries = std::fs::read_dir(folder).expect("the folder is part of the source");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "bin"));
    files.sort();
    let name = |file: &std::path::Path| file.file_name().map(|name| name.to_string_lossy().into_owned());
    let read =
        |file: &std::path::PathBuf| Some((name(file)?, std::fs::read(file).expect("a file can be read")));
    files.iter().filter_map(read).collect()
}
