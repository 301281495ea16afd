//! JSON as all commands print it: objects with a format number, and names that survive. `docs/json.md` describes them.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::run::output_failure;

/// The format of all documents: a number that rises when programs that read them have to know.
const FORMAT: u32 = 1;

/// A document with one field.
#[derive(Debug)]
pub(crate) struct One<'a, T>(pub(crate) &'static str, pub(crate) &'a T);

impl<T: Serialize> Serialize for One<'_, T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut fields = out.serialize_map(Some(1))?;
        fields.serialize_entry(self.0, self.1)?;
        fields.end()
    }
}

/// An object with the format before its fields.
#[derive(Serialize)]
struct Document<'a, T> {
    format: u32,
    #[serde(flatten)]
    fields: &'a T,
}

/// Prints an object, for people and programs.
///
/// # Errors
/// Those of printing.
pub(crate) fn print(object: &impl Serialize, out: &mut dyn Write) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(&Document { format: FORMAT, fields: object });
    let text = without_controls(&text.map_err(|error| cannot(&error))?);
    writeln!(out, "{text}").map_err(|error| output_failure(&error))
}

/// An object on one line.
///
/// # Errors
/// What is no object.
pub(crate) fn line(object: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(&Document { format: FORMAT, fields: object });
    text.map(|text| without_controls(&text)).map_err(|error| cannot(&error))
}

/// JSON may have control characters from 127 on as they are, and terminals obey them.
fn without_controls(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter.is_control() && letter != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            text.push(letter);
        }
    }
    text
}

fn cannot(error: &serde_json::Error) -> Failure {
    Failure::new(format!("cannot print: {error}"))
}

/// A name as text. Of one that is not UTF-8, [`hex`] has what this loses.
pub(crate) fn text(name: impl AsRef<OsStr>) -> String {
    name.as_ref().to_string_lossy().into_owned()
}

/// The bytes of a name that is not UTF-8, in hexadecimal digits; for the field `.._hex` beside its text, which may be that of another
/// name, too.
pub(crate) fn hex(name: impl AsRef<OsStr>) -> Option<String> {
    let bytes = name.as_ref().as_bytes();
    std::str::from_utf8(bytes).is_err().then(|| digits(bytes))
}

/// Those of all names, if one of them is not UTF-8.
pub(crate) fn hex_of_all(names: &[impl AsRef<OsStr>]) -> Vec<String> {
    if names.iter().all(|name| name.as_ref().to_str().is_some()) {
        return Vec::new();
    }
    names.iter().map(|name| digits(name.as_ref().as_bytes())).collect()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a name down as `field`, and as `field_hex` if it is not UTF-8.
pub(crate) fn name(document: &mut Map<String, Value>, field: &str, name: impl AsRef<OsStr>) {
    document.insert(field.into(), text(&name).into());
    if let Some(digits) = hex(&name) {
        document.insert(format!("{field}_hex"), digits.into());
    }
}

/// The name again.
pub(crate) fn bytes(text: &Option<String>, hex: &Option<String>) -> Option<Vec<u8>> {
    hex.as_deref().and_then(unhex).or_else(|| text.as_ref().map(|text| text.clone().into_bytes()))
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// A path at the control socket: text, or `{"hex": ..}` if it is not UTF-8.
pub(crate) mod path {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize as _, Serializer, de};

    #[derive(serde::Serialize, Deserialize)]
    #[serde(untagged)]
    enum Wire {
        Text(String),
        Bytes { hex: String },
    }

    pub(crate) fn serialize<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
        match super::hex(path) {
            None => Wire::Text(super::text(path)),
            Some(hex) => Wire::Bytes { hex },
        }
        .serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        match Wire::deserialize(from)? {
            Wire::Text(text) => Ok(text.into()),
            Wire::Bytes { hex } => super::unhex(&hex)
                .map(|bytes| OsString::from_vec(bytes).into())
                .ok_or_else(|| de::Error::custom("no hexadecimal digits")),
        }
    }
}

#[cfg(test)]
mod test {
    use std::os::unix::ffi::OsStringExt as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_document_begins_with_its_format() {
        assert_eq!(line(&json!({})).unwrap(), r#"{"format":1}"#);
        assert!(line(&json!([1])).is_err_and(|failure| failure.to_string().contains("cannot print")));
        assert_eq!(line(&json!({"a": [1]})).unwrap(), r#"{"format":1,"a":[1]}"#);
        let mut out = Vec::new();
        print(&json!({"a": {"b": 1}}), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\n  \"format\": 1,\n  \"a\": {\n    \"b\": 1\n  }\n}\n"
        );
    }

    #[test]
    fn json_has_no_control_characters_and_means_the_same() {
        let value = json!({ "name": "a\u{7f}b\u{9b}c\u{1b}\n\u{e9}" });
        let text = line(&value).unwrap();
        assert!(!text.chars().any(char::is_control), "{text:?}");
        let again: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(again["name"], value["name"]);
    }

    #[test]
    fn names_survive() {
        for name in [&b"plain"[..], b"a\x1b[2J\nb", b"\xff\xfe\x00", "\u{9b}".as_bytes(), b""] {
            let name = std::ffi::OsString::from_vec(name.to_vec());
            assert_eq!(bytes(&Some(text(&name)), &hex(&name)).as_deref(), Some(name.as_bytes()));
            let mut document = Map::new();
            super::name(&mut document, "path", &name);
            assert_eq!(document.contains_key("path_hex"), name.to_str().is_none());
            let wire = path::serialize(name.as_ref(), serde_json::value::Serializer).unwrap();
            assert_eq!(path::deserialize(wire).unwrap(), std::path::Path::new(&name));
        }
        assert_eq!(bytes(&None, &None), None);
        // What no server says.
        assert_eq!(bytes(&Some("x".into()), &Some("zz".into())), Some(b"x".to_vec()));
        assert!(path::deserialize(json!({"hex": "zz"})).is_err() && path::deserialize(json!(1)).is_err());
    }
}
