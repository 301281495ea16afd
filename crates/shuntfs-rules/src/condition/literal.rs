//! Literals that stand for something else: names of users and groups, octal modes, sizes with a unit. They mean in a
//! condition what they mean as values of keys.

use crate::kinds;
use crate::known::Known;
use crate::mistake::unknown_word;
use crate::model::OpenWord;
use crate::units;

use super::types::{Domain, Words};

/// The largest id; the one above it says "nobody" to the kernel.
const ID_MAX: i64 = 4_294_967_294;
const MODE_MAX: i64 = 0o7777;

/// The number that a text stands for where a number of this domain is compared to it.
pub(super) fn number(text: &str, domain: Domain, known: &dyn Known) -> Result<i64, String> {
    let account = |id: Option<u32>, what: &str| {
        id.map(i64::from).ok_or_else(|| format!("there is no {what} `{text}` on this machine"))
    };
    match domain {
        Domain::User => account(known.user(text), "user"),
        Domain::Group => account(known.group(text), "group"),
        Domain::Mode => units::mode(text).map(i64::from).ok_or_else(|| units::no_mode(text)),
        Domain::Size => {
            let size = units::size(text).ok_or_else(|| units::no_size(text))?;
            i64::try_from(size).map_err(|_| format!("no file has `{text}` bytes"))
        }
        Domain::Plain => Err(format!("a number is compared to the text `{text}`, which is never equal")),
    }
}

/// Says what is wrong with a number that is compared to one of this domain; `written` is how it stands in the source.
pub(super) fn check_number(number: i64, written: &str, domain: Domain) -> Result<(), String> {
    let digits = written.trim_start_matches('-');
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match domain {
        Domain::Plain => Ok(()),
        Domain::User | Domain::Group if !(0..=ID_MAX).contains(&number) => {
            Err(format!("no id is {number}: they go from 0 to {ID_MAX}"))
        }
        Domain::Size if number < 0 => Err(format!("no file has {number} bytes")),
        Domain::Mode if is_decimal && number > 7 => {
            let meant = digits.trim_start_matches('0');
            let hint = match units::mode(meant) {
                Some(_) => {
                    format!("; write \"{meant:0>4}\" for the mode, or \"{number:04o}\" for this number")
                }
                None => format!("; write \"{number:04o}\""),
            };
            Err(format!("modes are octal, and `{written}` is decimal here{hint}"))
        }
        Domain::Mode if !(0..=MODE_MAX).contains(&number) => {
            Err(format!("no mode is `{written}`: they go from \"0000\" to \"7777\", without a type"))
        }
        _ => Ok(()),
    }
}

/// Says what is wrong with a text that is compared to one of these words.
pub(super) fn check_word(text: &str, words: Words) -> Result<(), String> {
    let ways = OpenWord::ALL.map(OpenWord::word);
    match words {
        Words::Open if !ways.contains(&text) => Err(unknown_word("way to open", text, &ways)),
        Words::Kind if !text.is_empty() => kinds::check(text),
        _ => Ok(()),
    }
}
