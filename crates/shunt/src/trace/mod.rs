//! `shunt trace`: each request of a mount as it is answered.

mod args;
mod command;
mod document;
mod news;
mod serve;
mod text;

pub(crate) use args::HELP;
pub use args::TraceArgs;
pub(crate) use command::run;
pub use document::TraceLine;
pub use news::{TraceNews, TraceQuestion};
pub(crate) use serve::{filter, may_trace, stream};
