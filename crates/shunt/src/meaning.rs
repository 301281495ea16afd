//! What flows and reasons mean, and what to do about them, in words for users.

use shuntfs::{Flow, Reason, TransportKind, TransportStatus};

/// What a flow means.
pub(crate) fn of_flow(flow: Flow) -> &'static str {
    match flow {
        Flow::Passthrough => "the kernel moves the bytes, mapped pages too; no request reaches the server",
        Flow::Splice => "the kernel moves the bytes through a pipe; the server sees requests, and no bytes",
        Flow::Relay => "a queue of the server moves the bytes by io_uring, without looking at them",
        Flow::ZeroCopy => {
            "a queue of the server has the kernel move the bytes straight between the lower file and the caller, by io_uring"
        }
        Flow::Ranges => "the server decides for each range of the file",
        Flow::Verified => {
            "the server reads the lower file and checks each block against its seal before it answers"
        }
        Flow::Served => "the server reads and writes the bytes",
        _ => "a flow that this version does not know",
    }
}

/// The flow of bytes that no one has to see and that are not in passthrough, in a session whose requests come as `transport` says.
pub(crate) fn moved_by(transport: &TransportStatus) -> Flow {
    let is_ring = transport.kind == TransportKind::Uring.to_string();
    match &transport.zero_copy_off {
        None if is_ring => Flow::ZeroCopy,
        _ if is_ring => Flow::Relay,
        _ => Flow::Splice,
    }
}

/// What a flow means in a session whose requests come as `transport` says: where zero copy was possible, it tells why there is none.
pub(crate) fn of_flow_by(flow: Flow, transport: &TransportStatus) -> String {
    match (flow, &transport.zero_copy_off) {
        (Flow::Relay, Some(why)) => format!("{}; not by zero copy: {why}", of_flow(flow)),
        (Flow::Relay, None) => {
            format!("{}; not by zero copy, as the file is in passthrough for others", of_flow(flow))
        }
        _ => of_flow(flow).into(),
    }
}

/// What a reason means, and what to do about it.
pub(crate) fn of_reason(reason: Reason) -> String {
    let advice = match reason {
        Reason::KernelLacks => "; Linux 6.9 or newer has it",
        Reason::NotPrivileged => "; mount as root, outside of containers",
        Reason::TooDeep => "; name a folder that is not on a stacked file system",
        Reason::TurnedOff => "; see --flow",
        Reason::CachedOpens | Reason::DirectOpens => {
            "; once they are closed, the next open gets what it wishes"
        }
        Reason::NearFull => "; see --passthrough-reserve",
        _ => "",
    };
    format!("{reason}{advice}")
}

/// As [`of_reason`], for a reason that a server counted, maybe one of another version.
pub(crate) fn of_reason_name(name: &str) -> String {
    match Reason::ALL.into_iter().find(|reason| reason.name() == name) {
        Some(reason) => of_reason(reason),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn every_flow_and_reason_has_words() {
        for flow in Flow::ALL {
            assert!(!of_flow(flow).contains("does not know"), "{flow}");
        }
        for reason in Reason::ALL {
            assert_eq!(of_reason_name(reason.name()), of_reason(reason));
            assert!(of_reason(reason).contains(' '), "{reason}");
        }
        assert_eq!(of_reason_name("later"), "later");
    }
}
