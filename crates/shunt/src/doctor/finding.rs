//! One thing that was found out.

use std::fmt;

use serde::Serialize;

/// How good it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Verdict {
    /// As good as can be.
    Ok,
    /// Mounts work, and something could be better.
    Note,
    /// Mounts do not work.
    Bad,
}

/// One thing that was found out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// How good it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    pub(super) fn note(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Note, found: found.into(), advice: None }
    }

    pub(super) fn bad(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Bad, found: found.into(), advice: None }
    }

    /// Adds a line of what to do about it.
    pub(super) fn advice(mut self, line: impl AsRef<str>) -> Self {
        let advice = self.advice.get_or_insert_default();
        if !advice.is_empty() {
            advice.push('\n');
        }
        advice.push_str(line.as_ref());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Bad => "bad",
        };
        write!(out, "{verdict:<5} {:<14} {}", self.what, self.found)?;
        for line in self.advice.iter().flat_map(|advice| advice.lines()) {
            write!(out, "\n{:20} -> {line}", "")?;
        }
        Ok(())
    }
}
