//! Requests under way: each is answered once, legally, or the breach is written down.

use std::collections::HashMap;
use std::ops::Range;

use shuntfs_sys::OsError;
use shuntfs_wire::{Errno, Opcode, OutHeader, abi};

use crate::breach::{Breach, Rule};
use crate::shape::Shape;

/// The answer to a request, as its caller gets it.
pub(crate) type Answer = Result<Vec<u8>, Errno>;

#[derive(Debug)]
struct Waiting {
    opcode: u32,
    shape: Shape,
    answer: Option<Answer>,
    /// Its bytes, once they are sent.
    message: Vec<u8>,
    /// Whether a server has it.
    is_read: bool,
    /// Whether it was sent again, with a number that has the mark.
    is_resent: bool,
}

/// What became of a request that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    Answered,
    /// The answer was refused, and its caller got EIO: another one comes to nothing.
    Refused,
    /// There must be no answer at all.
    Silent,
}

/// Every request of a connection.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    last: u64,
    waiting: HashMap<u64, Waiting>,
    over: HashMap<u64, Ended>,
    /// Requests that must be sent again.
    again: Vec<Vec<u8>>,
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
struct Ended {
    opcode: u32,
    over: Over,
    is_resent: bool,
}

/// Where a request's number lies in its header.
const NUMBER: Range<usize> = 8..16;

/// Error numbers from here on are the kernel's own, and refused.
const ERRNO_END: i32 = 512;

impl Requests {
    /// A new request; its number.
    pub(crate) fn begin(&mut self, opcode: u32, body: &[u8]) -> u64 {
        self.last += 2;
        let shape = Shape::of(opcode, body);
        if shape == Shape::None {
            self.over.insert(self.last, Ended { opcode, over: Over::Silent, is_resent: false });
        } else {
            let waiting = Waiting {
                opcode,
                shape,
                answer: None,
                message: Vec::new(),
                is_read: false,
                is_resent: false,
            };
            self.waiting.insert(self.last, waiting);
        }
        self.last
    }

    /// A request is sent with these bytes.
    pub(crate) fn posted(&mut self, unique: u64, message: &[u8]) {
        if let Some(waiting) = self.waiting.get_mut(&unique) {
            waiting.message = message.to_vec();
        }
    }

    /// A server has read a request.
    pub(crate) fn was_read(&mut self, number: u64) {
        if let Some(waiting) = self.waiting.get_mut(&(number & !abi::UNIQUE_RESEND)) {
            waiting.is_read = true;
        }
    }

    /// Every request that was read and not answered must be sent again; the number that it had is good for nothing.
    pub(crate) fn resend(&mut self) {
        let open = self.waiting.iter_mut().filter(|(_, waiting)| waiting.answer.is_none() && waiting.is_read);
        let mut again = Vec::new();
        for (unique, waiting) in open {
            let Some(number) = waiting.message.get_mut(NUMBER) else { continue };
            number.copy_from_slice(&(*unique | abi::UNIQUE_RESEND).to_ne_bytes());
            (waiting.is_read, waiting.is_resent) = (false, true);
            again.push((*unique, waiting.message.clone()));
        }
        again.sort_unstable();
        self.again.extend(again.into_iter().map(|(_, message)| message));
    }

    /// What must be sent again, once.
    pub(crate) fn take_again(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.again)
    }

    /// The number that a request has for servers now.
    pub(crate) fn number(&self, unique: u64) -> u64 {
        let is_resent = self.waiting.get(&unique).is_some_and(|waiting| waiting.is_resent);
        if is_resent { unique | abi::UNIQUE_RESEND } else { unique }
    }

    /// The answer of a request, where it is there.
    pub(crate) fn take(&mut self, unique: u64) -> Option<Answer> {
        let answer = self.waiting.get_mut(&unique)?.answer.take()?;
        self.waiting.remove(&unique);
        Some(answer)
    }

    /// What may be the answer of a request that waits for one.
    pub(crate) fn shape(&self, unique: u64) -> Option<Shape> {
        self.waiting.get(&unique).map(|waiting| waiting.shape)
    }

    /// The bytes of a request that waits for an answer.
    pub(crate) fn message(&self, unique: u64) -> Option<&[u8]> {
        self.waiting.get(&unique).map(|waiting| &*waiting.message)
    }

    /// Whether its answer is still to come, or to be taken.
    pub(crate) fn awaits(&self, unique: u64) -> bool {
        self.waiting.contains_key(&unique)
    }

    /// Nobody waits for it any longer.
    pub(crate) fn give_up(&mut self, unique: u64) -> String {
        let waiting = self.waiting.get(&unique);
        waiting.map_or_else(String::new, |waiting| name(waiting.opcode))
    }

    /// What was never answered, by name.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        let open = self.waiting.iter().filter(|(_, waiting)| waiting.answer.is_none());
        let mut named: Vec<_> = open.map(|(unique, waiting)| (*unique, name(waiting.opcode))).collect();
        named.sort();
        named.into_iter().map(|(unique, name)| format!("{name} (request {unique})")).collect()
    }

    /// An answer came. `Err` is what the server's `write` gets; a breach is told apart from it.
    pub(crate) fn answer(
        &mut self,
        header: OutHeader,
        body: &[u8],
        len: usize,
    ) -> (Result<(), OsError>, Option<Breach>) {
        let unique = header.unique & !abi::UNIQUE_RESEND;
        if header.len as usize != len {
            let what = format!("an answer of {len} bytes says that it has {}", header.len);
            return refused(OsError::INVAL, Rule::Shape, what);
        }
        if unique & abi::UNIQUE_INTERRUPT != 0 {
            // Answers to INTERRUPT are optional; one for a request that is over finds nothing.
            return (Ok(()), None);
        }
        let over = self.over.get(&unique).map(|ended| ended.is_resent);
        let is_resent = over.or_else(|| self.waiting.get(&unique).map(|waiting| waiting.is_resent));
        match (header.unique != unique, is_resent) {
            // By a server that is thought to be dead: its successor has the request.
            (false, Some(true)) => return (Err(OsError::NOENT), None),
            (true, Some(false)) => {
                let what =
                    format!("an answer to request {unique} as one that was sent again, which it was not");
                return refused(OsError::NOENT, Rule::AnsweredOnce, what);
            }
            _ => {}
        }
        if let Some(Ended { opcode, over, .. }) = self.over.get(&unique) {
            return again(*opcode, *over, unique);
        }
        let Some(waiting) = self.waiting.get_mut(&unique).filter(|waiting| waiting.answer.is_none()) else {
            if let Some(waiting) = self.waiting.get(&unique) {
                return again(waiting.opcode, Over::Answered, unique);
            }
            let what = format!("an answer to request {unique}, which was never sent");
            return refused(OsError::NOENT, Rule::AnsweredOnce, what);
        };
        let name = name(waiting.opcode);
        if header.error > 0 || header.error <= -ERRNO_END {
            // The request stays: the kernel looks at this before it looks for the request.
            let what = format!("{name} was answered with the error {}, which is none", header.error);
            return refused(OsError::INVAL, Rule::Shape, what);
        }
        let wrong = if header.error != 0 {
            (!body.is_empty()).then(|| format!("{name} was answered with an error and {} bytes", body.len()))
        } else if waiting.shape.takes(body.len()) {
            None
        } else {
            Some(format!(
                "{name} was answered with {} bytes, and may be with {:?}",
                body.len(),
                waiting.shape
            ))
        };
        let over = if wrong.is_some() { Over::Refused } else { Over::Answered };
        waiting.answer = Some(match &wrong {
            Some(_) => Err(Errno::IO),
            None if header.error != 0 => Err(errno(header.error)),
            None => Ok(body.to_vec()),
        });
        self.over.insert(unique, Ended { opcode: waiting.opcode, over, is_resent: waiting.is_resent });
        match wrong {
            Some(what) => refused(OsError::INVAL, Rule::Shape, format!("{what}: its caller gets EIO")),
            None => (Ok(()), None),
        }
    }
}

/// The error of an answer, with its minus sign, which was looked at already.
fn errno(error: i32) -> Errno {
    u16::try_from(error.unsigned_abs()).ok().and_then(Errno::new).unwrap_or(Errno::IO)
}

fn again(opcode: u32, over: Over, unique: u64) -> (Result<(), OsError>, Option<Breach>) {
    let name = name(opcode);
    match over {
        Over::Refused => (Err(OsError::NOENT), None),
        Over::Answered => {
            let what = format!("{name} (request {unique}) was answered twice");
            refused(OsError::NOENT, Rule::AnsweredOnce, what)
        }
        Over::Silent => {
            let what = format!("{name} (request {unique}) was answered, and is not to be");
            refused(OsError::NOENT, Rule::AnsweredOnce, what)
        }
    }
}

fn refused(error: OsError, rule: Rule, what: String) -> (Result<(), OsError>, Option<Breach>) {
    (Err(error), Some(Breach { rule, what }))
}

/// The operation's name, or its number where it has none.
pub(crate) fn name(opcode: u32) -> String {
    Opcode::new(opcode).map_or_else(|| format!("operation {opcode}"), |opcode| opcode.name().to_owned())
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_wire::InHeader;
    use zerocopy::{FromBytes, IntoBytes};

    fn answer(
        requests: &mut Requests,
        header: OutHeader,
        body: &[u8],
    ) -> (Result<(), OsError>, Option<Rule>) {
        let (outcome, breach) = requests.answer(header, body, OutHeader::LEN + body.len());
        (outcome, breach.map(|breach| breach.rule))
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let unlink = Opcode::Unlink.number();
        let mut requests = Requests::default();
        let unique = requests.begin(unlink, b"a\0");
        let good = OutHeader { len: 16, error: 0, unique };
        let bad = |header| (header, Some(Rule::Shape));
        for header in
            [OutHeader { len: 17, ..good }, OutHeader { error: 2, ..good }, OutHeader { error: -512, ..good }]
        {
            assert_eq!(answer(&mut requests, header, &[]), bad(Err(OsError::INVAL)), "{header:?}");
        }
        assert_eq!(answer(&mut requests, good, &[]), (Ok(()), None), "it was still there");
        assert_eq!(answer(&mut requests, good, &[]), (Err(OsError::NOENT), Some(Rule::AnsweredOnce)));
        assert_eq!(requests.take(unique), Some(Ok(Vec::new())));
        assert_eq!(answer(&mut requests, good, &[]).1, Some(Rule::AnsweredOnce), "for ever");

        let unique = requests.begin(unlink, b"a\0");
        let long = OutHeader { len: 20, error: 0, unique };
        assert_eq!(answer(&mut requests, long, &[0; 4]), bad(Err(OsError::INVAL)));
        let late = OutHeader { len: 16, error: -5, unique };
        assert_eq!(answer(&mut requests, late, &[]), (Err(OsError::NOENT), None), "EIO after a refusal");
        assert_eq!(requests.take(unique), Some(Err(Errno::IO)));

        let unique = requests.begin(unlink, b"a\0");
        let marked = OutHeader { len: 16, error: 0, unique: unique | abi::UNIQUE_RESEND };
        let outcome = answer(&mut requests, marked, &[]);
        assert_eq!(outcome, (Err(OsError::NOENT), Some(Rule::AnsweredOnce)), "it was not sent again");
        assert_eq!(answer(&mut requests, OutHeader { unique, ..marked }, &[]), (Ok(()), None));

        let unique = requests.begin(Opcode::Forget.number(), &[0; 8]);
        let forget = OutHeader { len: 16, error: 0, unique };
        assert_eq!(answer(&mut requests, forget, &[]).1, Some(Rule::AnsweredOnce));
        assert!(requests.unanswered().is_empty());
    }

    #[test]
    fn what_was_read_is_sent_again_and_nothing_else() {
        let mut requests = Requests::default();
        let [read, unread, answered] = [(); 3].map(|()| {
            let unique = requests.begin(Opcode::Unlink.number(), b"a\0");
            let header = InHeader { unique, ..InHeader::default() };
            requests.posted(unique, &[header.as_bytes(), b"a\0"].concat());
            unique
        });
        let good = |unique| OutHeader { len: 16, error: 0, unique };
        requests.was_read(read);
        requests.was_read(answered);
        assert_eq!(answer(&mut requests, good(answered), &[]), (Ok(()), None));
        requests.resend();
        let marked = read | abi::UNIQUE_RESEND;
        let again = requests.take_again();
        let numbers: Vec<u64> =
            again.iter().map(|bytes| InHeader::read_from_prefix(bytes).unwrap().0.unique).collect();
        assert_eq!((numbers, requests.number(read), requests.number(unread)), (vec![marked], marked, unread));
        requests.resend();
        assert!(requests.take_again().is_empty(), "nobody has read it since");
        let late = (Err(OsError::NOENT), None);
        assert_eq!(answer(&mut requests, good(read), &[]), late, "the number is good for nothing");
        requests.was_read(marked);
        requests.resend();
        assert_eq!(requests.take_again().len(), 1, "as often as it is read");
        assert_eq!(answer(&mut requests, good(marked), &[]), (Ok(()), None));
        assert_eq!(answer(&mut requests, good(read), &[]), late);
        assert_eq!(answer(&mut requests, good(marked), &[]).1, Some(Rule::AnsweredOnce), "twice");
    }
}
