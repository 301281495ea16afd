//! Until when a key is trusted: a line `expires = 2027-12-31` in the file that holds it, above or below the key itself.
//!
//! The line is not signed and need not be: the file is of whoever trusts, who decides for how long. The day is the last one,
//! as UTC has it.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Day {
    year: u16,
    month: u8,
    day: u8,
}

impl Day {
    /// Whether it is over.
    #[must_use]
    pub fn is_over(self, now: SystemTime) -> bool {
        let end = u32::try_from(self.days() + 1).ok().map(|days| SystemTime::UNIX_EPOCH + DAY * days);
        // What ends before 1970 is over.
        end.is_none_or(|end| now >= end)
    }

    /// Days since 1970-01-01, by the calendar of today throughout.
    fn days(self) -> i64 {
        // Years begin in March here, so that a leap day is a year's last.
        let (year, month) = (i64::from(self.year), i64::from(self.month));
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        365 * year + leap_days + (153 * month + 2) / 5 + i64::from(self.day) - 1 - 719_468
    }
}

impl FromStr for Day {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no day, as 2027-12-31 is one");
        let digits =
            |text: &str, len: usize| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        let parts: Vec<&str> = text.split('-').collect();
        let [year, month, day] = parts.as_slice() else { return Err(wrong()) };
        if !(digits(year, 4) && digits(month, 2) && digits(day, 2)) {
            return Err(wrong());
        }
        let number = |text: &str| text.parse::<u16>().map_err(|_| wrong());
        let (year, month, day) = (number(year)?, number(month)?, number(day)?);
        let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let last = match month {
            2 if is_leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return Err(wrong()),
        };
        let small = |number: u16| u8::try_from(number).map_err(|_| wrong());
        if !(1..=last).contains(&day) {
            return Err(wrong());
        }
        Ok(Self { year, month: small(month)?, day: small(day)? })
    }
}

impl fmt::Display for Day {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// Takes a PEM file apart: the first block in it, and what the lines around it say. Text that has no `=` is a comment, as
/// PEM has it; a line that has one must be known, so that a mistake in it does not make a key valid forever.
///
/// # Errors
/// A line that is not known, or no day, or two of them; a second block, which nobody would look at.
pub fn split_key_file(text: &str) -> Result<(String, Option<Day>), String> {
    let (mut block, mut expires) = (String::new(), None);
    let (mut is_inside, mut is_over) = (false, false);
    for line in text.lines().map(str::trim) {
        if !is_inside && !is_over && line.starts_with("-----BEGIN ") {
            is_inside = true;
        }
        if is_inside {
            block.push_str(line);
            block.push('\n');
            is_over = line.starts_with("-----END ");
            is_inside = !is_over;
        } else if line.starts_with("-----BEGIN ") {
            return Err(
                "it holds more than one key or certificate: each goes into a file of its own".to_owned()
            );
        } else if let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            if name.trim() != "expires" {
                return Err(format!("`{line}` is not known: only `expires = 2027-12-31` is"));
            }
            let day: Day = value.trim().trim_matches('"').parse()?;
            if expires.replace(day).is_some() {
                return Err("it says twice when it expires".to_owned());
            }
        }
    }
    Ok((block, expires))
}

#[cfg(test)]
mod test {
    use super::*;

    fn day(text: &str) -> Day {
        text.parse().expect("a day")
    }

    #[test]
    fn days_are_counted_as_the_calendar_has_them() {
        // As `date -u -d DAY +%s` says, by 86400.
        for (text, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11016),
            ("2000-03-01", 11017),
            ("2026-11-21", 20778),
            ("2100-02-28", 47540),
            ("2100-03-01", 47541),
            ("9999-12-31", 2_932_896),
        ] {
            assert_eq!((day(text).days(), day(text).to_string().as_str()), (days, text));
        }
        for wrong in
            ["", "2027", "2027-1-1", "2027-13-01", "2027-00-01", "2027-02-29", "2100-02-29", "2027-04-31"]
        {
            assert!(wrong.parse::<Day>().is_err(), "{wrong}");
        }
        for wrong in ["2027-01-00", "27-01-01", "2027-01-01-01", "+027-01-01", "2027-01-0x", "31.12.2027"] {
            assert!(wrong.parse::<Day>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_day_itself_counts() {
        let at = |days: u32, secs: u64| SystemTime::UNIX_EPOCH + DAY * days + Duration::from_secs(secs);
        assert!(!day("2000-02-29").is_over(at(11016, 86399)));
        assert!(day("2000-02-29").is_over(at(11017, 0)));
        assert!(day("1969-12-30").is_over(SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn lines_around_a_key_are_read_and_none_is_overlooked() {
        const KEY: &str = "-----BEGIN PUBLIC KEY-----\nAAA=\n-----END PUBLIC KEY-----\n";
        let expires = |text: &str| {
            split_key_file(text).map(|(block, day)| {
                assert_eq!(block, KEY, "{text}");
                day.map(|day| day.to_string())
            })
        };
        assert_eq!(expires(KEY), Ok(None));
        let december = Ok(Some("2027-12-31".to_owned()));
        for text in
            ["expires = 2027-12-31\n", "of the build machine\n# a = b\n\n  expires=\"2027-12-31\" \r\n"]
        {
            assert_eq!(expires(&format!("{text}{KEY}")), december);
            assert_eq!(expires(&format!("{KEY}{text}")), december);
        }
        for wrong in [
            "expire = 2027-12-31",
            "Expires = 2027-12-31",
            "expires = soon",
            "expires = 2027-12-31 12:00",
            "expires =",
        ] {
            assert!(split_key_file(&format!("{wrong}\n{KEY}")).is_err(), "{wrong}");
        }
        assert!(split_key_file(&format!("expires = 2027-12-31\n{KEY}expires = 2028-12-31")).is_err());
        // Another block would be a key that does not count.
        for second in [KEY, "-----BEGIN CERTIFICATE-----\nAAA=\n-----END CERTIFICATE-----\n"] {
            assert_eq!(
                expires(&format!("{KEY}{second}")).map_err(|error| error.contains("more than one key")),
                Err(true)
            );
        }
    }
}
