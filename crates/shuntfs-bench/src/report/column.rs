//! A column: one way to reach the same bytes.

use serde::{Deserialize, Serialize};

/// Whose a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// What must be reached: no server (the bare folder, a bind mount, a pipe), or one without contents, whose figure is the
    /// transport's own.
    Floor,
    /// shunt.
    Ours,
    /// Another program.
    Peer,
}

/// A column's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The target's name, unique in its table.
    pub name: String,
    /// Whose it is.
    pub kind: Kind,
    /// What is run.
    pub command: String,
    /// What the program says its version is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why nothing was measured in this column, if so: it does not mount, or the machine does not offer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}
