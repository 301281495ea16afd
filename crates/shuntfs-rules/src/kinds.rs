//! Types of content, as far as they can be told from the first bytes of a file.

/// The first halves of all types that there are.
const FAMILIES: [&str; 5] = ["application", "audio", "image", "text", "video"];

/// Types that are asked for by a name that the signatures do not have.
const ALIASES: [(&str, &str); 9] = [
    ("image/jpg", "image/jpeg"),
    ("image/heic", "image/heif"),
    ("image/x-icon", "image/vnd.microsoft.icon"),
    ("audio/mp3", "audio/mpeg"),
    ("audio/wav", "audio/x-wav"),
    ("audio/flac", "audio/x-flac"),
    ("application/x-gzip", "application/gzip"),
    ("application/x-zip-compressed", "application/zip"),
    ("application/x-rar-compressed", "application/vnd.rar"),
];

/// Says why no file can have this type (`image/jpeg`, or a family: `image/*`).
pub(crate) fn check(text: &str) -> Result<(), String> {
    let Some((family, second)) = text.split_once('/') else {
        return Err(format!("`{text}` is no type: `image/jpeg`, or `image/*`"));
    };
    if second == "*" && FAMILIES.contains(&family) || infer::is_mime_supported(text) {
        return Ok(());
    }
    if !FAMILIES.contains(&family) {
        let families = FAMILIES.map(|family| format!("{family}/*")).join(", ");
        return Err(format!("no file is `{text}`, so this never matches; types are of: {families}"));
    }
    if let Some((_, known)) = ALIASES.iter().find(|(alias, _)| *alias == text) {
        return Err(format!("no file is `{text}`, so this never matches; by its signature it is `{known}`"));
    }
    let why = if family == "text" { ", and text has none" } else { "" };
    Err(format!(
        "no file is `{text}`, so this never matches: types are told by signatures in the first bytes{why}"
    ))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn types_that_no_file_can_have_are_refused() {
        for text in
            ["image/jpeg", "image/*", "text/html", "text/*", "application/pdf", "video/mp4", "audio/*"]
        {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, said) in [
            ("text/plain", "and text has none"),
            ("image/jpg", "it is `image/jpeg`"),
            ("font/*", "types are of: application/*"),
            ("image", "is no type"),
            ("application/x-nothing", "told by signatures"),
        ] {
            assert!(check(text).unwrap_err().contains(said), "{text}: {:?}", check(text));
        }
        for (alias, known) in ALIASES {
            assert!(!infer::is_mime_supported(alias) && infer::is_mime_supported(known), "{alias} {known}");
        }
    }
}
