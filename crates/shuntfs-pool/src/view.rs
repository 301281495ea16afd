//! Views: what of a file somebody may see.
//!
//! A lower file has a node for each view of it that somebody looked up, all with the same inode number: the kernel keeps
//! pages, mappings and its io mode by node, so no view ever meets the pages of another, and the whole view stays in
//! passthrough whatever others read. Which node a name means is therefore a matter of who asks: such names are not kept
//! by the kernel ([`Seen::varies`]) but looked up at each walk, and an open by somebody whose view is not the node's is
//! told to look again (ESTALE). See `docs/redaction.md`.

use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use shuntfs_redact::{Pattern, Ranges, Redaction};
use shuntfs_rules::{ByteSpan, Redact, RegexRedaction};

use crate::ledger::{Kind, Ledger, Reading, Writing};

/// A view of a file: what is hidden of it. Two that hide the same are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct View(u32);

impl View {
    /// Nothing is hidden.
    pub(crate) const WHOLE: Self = Self(0);

    pub(crate) fn is_whole(self) -> bool {
        self == Self::WHOLE
    }

    /// Its number, by which the next server knows it.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// What a lookup is answered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// The caller's view.
    pub(crate) view: View,
    /// Whether another caller may have another view, so that the kernel must not answer for us.
    pub(crate) varies: bool,
}

impl Seen {
    /// Everybody sees everything.
    pub(crate) const ALL: Self = Self { view: View::WHOLE, varies: false };
}

/// Every view that was ever asked for: as many as the rules ever named.
#[derive(Debug, Default)]
pub(crate) struct Views {
    partial: RwLock<Vec<Arc<Redaction>>>,
    /// Where they are written down for the next server, if there may be one.
    ledger: OnceLock<Arc<Ledger>>,
}

impl Views {
    /// The view that hides all of `redact`.
    pub(crate) fn of(&self, redact: &[Redact]) -> View {
        if redact.is_empty() {
            return View::WHOLE;
        }
        let redaction = redaction_of(redact);
        if let Some(view) = place(&self.partial.read(), &redaction) {
            return view;
        }
        let mut partial = self.partial.write();
        if let Some(view) = place(&partial, &redaction) {
            return view;
        }
        // Before a node is written down that has it.
        if let Some(ledger) = self.ledger.get() {
            ledger.note(Kind::View, &written(redact));
        }
        partial.push(Arc::new(redaction));
        View(u32::try_from(partial.len()).expect("rules do not name 2^32 redactions"))
    }

    /// What a view hides; `None` is nothing.
    pub(crate) fn redaction(&self, view: View) -> Option<Arc<Redaction>> {
        let place = usize::try_from(view.0).ok()?.checked_sub(1)?;
        Some(Arc::clone(&self.partial.read()[place]))
    }

    /// Takes the next view that a predecessor had.
    ///
    /// # Errors
    /// What is written is not what a server writes.
    pub(crate) fn take(&self, record: &[u8]) -> Result<(), &'static str> {
        let redact = read_redact(record).ok_or("a view")?;
        self.partial.write().push(Arc::new(redaction_of(&redact)));
        Ok(())
    }

    /// Views are written down from now on.
    pub(crate) fn keep(&self, ledger: &Arc<Ledger>) {
        let _once = self.ledger.set(Arc::clone(ledger));
    }

    /// The view with this number, if there is one.
    pub(crate) fn numbered(&self, number: u32) -> Option<View> {
        let views = self.partial.read().len();
        (usize::try_from(number).ok()? <= views).then_some(View(number))
    }
}

fn place(partial: &[Arc<Redaction>], redaction: &Redaction) -> Option<View> {
    let place = partial.iter().position(|known| **known == *redaction)?;
    u32::try_from(place + 1).ok().map(View)
}

/// What rules said, to be found. Something that cannot be searched for hides everything.
fn redaction_of(redact: &[Redact]) -> Redaction {
    let mut parts: Vec<Redaction> = redact.iter().map(part_of).collect();
    match parts.len() {
        1 => parts.remove(0),
        _ => Redaction::All(parts),
    }
}

fn part_of(redact: &Redact) -> Redaction {
    match redact {
        Redact::Whole => Redaction::Whole,
        Redact::ExifGps => Redaction::ExifGps,
        Redact::Ranges(spans) => Redaction::Ranges(ranges_of(spans)),
        Redact::Regex(RegexRedaction { pattern, within, group }) => {
            match Pattern::new(pattern, *group, *within) {
                Ok(pattern) => Redaction::Pattern(pattern),
                Err(error) => {
                    tracing::error!(pattern, %error, "a pattern cannot be searched for; files are hidden whole");
                    Redaction::Whole
                }
            }
        }
    }
}

/// What rules said, as it is written down: a number for each kind, and what it has.
fn written(redact: &[Redact]) -> Vec<u8> {
    let mut words = Writing::default();
    for redact in redact {
        match redact {
            Redact::Whole => words.number(0),
            Redact::ExifGps => words.number(1),
            Redact::Ranges(spans) => {
                words.number(2);
                words.number(spans.len() as u64);
                for span in spans {
                    words.number(span.start);
                    // No span ends at 0.
                    words.number(span.end.unwrap_or(0));
                }
            }
            Redact::Regex(RegexRedaction { pattern, within, group }) => {
                words.number(3);
                words.bytes(pattern.as_bytes());
                words.number(*within);
                words.number(*group as u64);
            }
        }
    }
    words.0
}

fn read_redact(record: &[u8]) -> Option<Vec<Redact>> {
    let (mut words, mut all) = (Reading(record), Vec::new());
    while !words.is_over() {
        all.push(match words.number()? {
            0 => Redact::Whole,
            1 => Redact::ExifGps,
            2 => {
                let count = words.number()?;
                let span = |words: &mut Reading<'_>| {
                    let (start, end) = (words.number()?, words.number()?);
                    let end = (end > 0).then_some(end);
                    end.is_none_or(|end| end > start).then_some(ByteSpan { start, end })
                };
                Redact::Ranges((0..count).map(|_| span(&mut words)).collect::<Option<_>>()?)
            }
            3 => Redact::Regex(RegexRedaction {
                pattern: str::from_utf8(words.bytes()?).ok()?.to_owned(),
                within: words.number()?,
                group: usize::try_from(words.number()?).ok()?,
            }),
            _ => return None,
        });
    }
    (!all.is_empty()).then_some(all)
}

fn ranges_of(spans: &[ByteSpan]) -> Ranges {
    spans.iter().map(|span| span.start..span.end.unwrap_or(u64::MAX)).collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_next_server_has_the_same_views() {
        let (views, next, ledger) =
            (Views::default(), Views::default(), Arc::new(Ledger::new().expect("memory")));
        views.keep(&ledger);
        let ranges =
            Redact::Ranges(vec![ByteSpan { start: 3, end: Some(9) }, ByteSpan { start: 20, end: None }]);
        let regex = RegexRedaction { pattern: "a(b)?".into(), within: 77, group: 1 };
        let all = [Redact::Whole, Redact::ExifGps, ranges, Redact::Regex(regex)];
        let made: Vec<_> = (1..=4).map(|count| views.of(&all[..count])).collect();
        ledger.read(|_, record| next.take(record)).expect("is whole");
        for view in made {
            assert_eq!(next.numbered(view.number()), Some(view));
            assert_eq!(next.redaction(view), views.redaction(view));
        }
        assert_eq!((next.numbered(0), next.numbered(5)), (Some(View::WHOLE), None));
        let record = written(&all);
        assert_eq!(read_redact(&record).as_deref(), Some(&all[..]));
        for cut in 0..record.len() {
            assert!(read_redact(&record[..cut]).is_none_or(|read| read.len() < all.len()), "{cut}");
        }
        assert!(read_redact(&[9; 8]).is_none());
    }

    #[test]
    fn what_hides_the_same_is_one_view() {
        let views = Views::default();
        let ranges = |end| Redact::Ranges(vec![ByteSpan { start: 3, end }]);
        let regex =
            |pattern: &str| Redact::Regex(RegexRedaction { pattern: pattern.into(), within: 100, group: 0 });
        assert!(views.of(&[]).is_whole() && views.redaction(View::WHOLE).is_none());
        let first = views.of(&[ranges(Some(9))]);
        assert!(!first.is_whole());
        for other in
            [vec![ranges(None)], vec![Redact::ExifGps], vec![regex("x")], vec![ranges(None), Redact::Whole]]
        {
            let view = views.of(&other);
            assert_ne!(view, first);
            assert_eq!(views.of(&other), view);
        }
        assert_eq!(views.of(&[ranges(Some(9))]), first);
        assert_eq!(views.redaction(first).unwrap().to_string(), "bytes 3-8");
        let broken = views.of(&[regex("(")]);
        assert_eq!(*views.redaction(broken).unwrap(), Redaction::Whole);
    }
}
