//! What `shunt status MNT --json` says, read without binding the tests to the whole shape of the document.

use serde_json::Value;

/// A parsed status document.
#[derive(Clone, Debug)]
pub struct Status(pub Value);

impl Status {
    /// Number of requests of one operation that reached the server, by the operation's name in any case.
    #[must_use]
    pub fn requests(&self, operation: &str) -> u64 {
        self.counted().filter(|(name, _)| same_word(name, operation)).map(|(_, count)| count).sum()
    }

    /// Number of all requests that reached the server, except those that say that the kernel forgot something.
    #[must_use]
    pub fn all_requests(&self) -> u64 {
        let forgets = |name: &str| same_word(name, "forget") || same_word(name, "batch_forget");
        self.counted().filter(|(name, _)| !forgets(name)).map(|(_, count)| count).sum()
    }

    /// The transport in use.
    #[must_use]
    pub fn transport(&self) -> &str {
        self.0.pointer("/session/transport/kind").and_then(Value::as_str).unwrap_or_default()
    }

    /// Number of opens that ended in a flow, by its name.
    #[must_use]
    pub fn flow(&self, name: &str) -> u64 {
        self.0
            .pointer("/session/flows")
            .and_then(|flows| flows.get(name))
            .and_then(Value::as_u64)
            .unwrap_or(0)
    }

    /// Every operation that came, by its name, and how often.
    pub fn counted(&self) -> impl Iterator<Item = (&str, u64)> {
        let ops = self.0.pointer("/session/ops").and_then(Value::as_object).into_iter().flatten();
        ops.filter_map(|(name, counts)| Some((name.as_str(), counts.get("requests")?.as_u64()?)))
    }
}

fn same_word(left: &str, right: &str) -> bool {
    let plain = |word: &str| word.replace(['_', '-'], "").to_ascii_lowercase();
    plain(left) == plain(right)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn counts_are_found() {
        let text = r#"{"session":{"transport":{"kind":"uring"},"flows":{"passthrough":2,"served":0},
            "ops":{"GETATTR":{"requests":3,"errors":0},"BATCH_FORGET":{"requests":9,"errors":0},
                "READ":{"requests":4,"errors":1}}}}"#;
        let status = Status(serde_json::from_str(text).unwrap());
        assert_eq!(status.requests("getattr"), 3);
        assert_eq!(status.requests("READ"), 4);
        assert_eq!(status.all_requests(), 7);
        assert_eq!(status.transport(), "uring");
        assert_eq!(status.flow("passthrough"), 2);
        assert_eq!(status.flow("served"), 0);
    }
}
