//! The input is requests, each behind its length in two bytes. All of them are sent before the first answer is awaited.

use std::time::Duration;

use shuntfs_fake::{Fake, Settings};

use crate::common::{Bug, Mem};

pub(crate) fn run(bytes: &[u8]) {
    let settings = Settings { limit: Duration::from_secs(20), ..Settings::default() };
    let fake = Fake::mount_with(std::sync::Arc::new(Mem::new(Bug::None)), &settings).expect("mounts");
    let mut rest = bytes;
    let mut pending = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len));
        let (frame, after) = after.split_at(len.min(after.len()));
        if !frame.is_empty() {
            pending.extend(fake.replay(frame).expect("the server reads"));
        }
        rest = after;
    }
    for one in pending {
        // Whether it is answered, and how, is in the books; what it says is nobody's.
        let _any = one.wait();
    }
    fake.end();
}
