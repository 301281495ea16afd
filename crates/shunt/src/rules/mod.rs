//! Files of rules: reading them for a mount, `shunt rules`, and who is asked about.

mod accounts;
mod command;
mod live;
mod source;

pub(crate) use accounts::caller;
pub(crate) use command::run;
pub(crate) use live::LiveRules;
pub(crate) use source::RuleSource;
