//! That an end was asked for, by signals and by servers.

use shuntfs_sys::signal::Signal;

use crate::keeper::Keeper;

/// How often an end was asked for. Ctrl-C reaches the keeper and its server, and counts once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    by_signals: u32,
    by_servers: u32,
    heeded: u32,
}

impl Keeper<'_> {
    pub(crate) fn heed_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.take() {
            if signal == Signal::Hup && !self.attendant.hangup_ends() {
                self.has_hangup = true;
                continue;
            }
            self.asked.by_signals = self.asked.by_signals.saturating_add(1);
            self.end();
        }
    }

    /// A signal came to a server, which passes it on.
    pub(crate) fn asked_by_server(&mut self) {
        self.asked.by_servers = self.asked.by_servers.saturating_add(1);
        self.end();
    }

    /// Ends it, where that was asked for more often than was heeded.
    fn end(&mut self) {
        let asked = self.asked.by_signals.max(self.asked.by_servers);
        if asked > self.asked.heeded {
            self.asked.heeded = asked;
            self.attendant.end(&self.mount, asked);
        }
    }

    pub(crate) fn is_asked_to_end(&self) -> bool {
        self.asked.heeded > 0
    }
}
