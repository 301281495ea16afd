//! What a server of ours says of itself, by `shunt status --json`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::process;
use crate::stop::Stop;

/// Asks the server of a mount.
///
/// # Errors
/// When it does not answer, or not in JSON.
pub(crate) fn of(shunt: &str, root: &Path, stop: &Stop) -> Result<Value> {
    const LIMIT: Duration = Duration::from_secs(10);
    let mut command = Command::new(shunt);
    let said = process::run_ok(command.arg("status").arg(root).arg("--json"), LIMIT, stop)?.stdout;
    serde_json::from_str(&said).context("cannot read what `shunt status --json` says")
}

/// Checks that a flow has moved what was read.
///
/// # Errors
/// When another one did; why, where the server says so.
pub(crate) fn check_flow(status: &Value, flow: &str) -> Result<()> {
    let flows = &status["session"]["read_flows"];
    if flows[flow].as_u64().is_some_and(|bytes| bytes > 0) {
        return Ok(());
    }
    let why = status["session"]["transport"]["zero_copy_off"].as_str().unwrap_or("no reason is known");
    bail!("nothing was read by `{flow}` ({why}); the server counts {flows}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn another_flow_is_reported_with_the_reason() {
        let moved = json!({ "session": { "read_flows": { "zero_copy": 5 }, "transport": {} } });
        assert!(check_flow(&moved, "zero_copy").is_ok());
        let off = json!({ "zero_copy_off": "the kernel refused it" });
        let copied = json!({ "session": { "read_flows": { "relay": 5 }, "transport": off } });
        let text = check_flow(&copied, "zero_copy").unwrap_err().to_string();
        assert!(text.contains("the kernel refused it") && text.contains("relay"), "{text}");
    }
}
