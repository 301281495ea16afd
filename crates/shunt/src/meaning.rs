//! What flows and reasons mean, and what to do about them, in words for users.

use shuntfs::{Flow, Reason};

/// What a flow means.
pub(crate) fn of_flow(flow: Flow) -> &'static str {
    match flow {
        Flow::Passthrough => "the kernel moves the bytes, mapped pages too; no request reaches the server",
        Flow::Splice => "the kernel moves the bytes through a pipe; the server sees requests, and no bytes",
        Flow::Relay => "a queue of the server moves the bytes by io_uring, without looking at them",
        Flow::Ranges => "the server decides for each range of the file",
        Flow::Verified => {
            "the server reads the lower file and checks each block against its seal before it answers"
        }
        Flow::Served => "the server reads and writes the bytes",
        _ => "a flow that this version does not know",
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
