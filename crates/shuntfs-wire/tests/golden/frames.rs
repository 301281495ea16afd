//! The recorded requests.

/// Every recorded request with its file's name, in the order of their names.
pub(crate) fn all() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "bin"));
    files.sort();
    let read = |file: &std::path::PathBuf| {
        (file.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(file).unwrap())
    };
    files.iter().map(read).collect()
}
