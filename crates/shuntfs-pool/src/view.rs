//! Views: what of a file somebody may see.
//!
//! A lower file has a node for each view of it that somebody looked up, all with the same inode number: the kernel keeps
//! pages, mappings and its io mode by node, so no view ever meets the pages of another, and the whole view stays in
//! passthrough whatever others read. Which node a name means is therefore a matter of who asks: such names are not kept
//! by the kernel ([`Seen::varies`]) but looked up at each walk, and an open by somebody whose view is not the node's is
//! told to look again (ESTALE). See `docs/redaction.md`.

use std::sync::Arc;

use parking_lot::RwLock;
use shuntfs_redact::{Pattern, Ranges, Redaction};
use shuntfs_rules::{ByteSpan, Redact, RegexRedaction};

/// A view of a file: what is hidden of it. Two that hide the same are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct View(u32);

impl View {
    /// Nothing is hidden.
    pub(crate) const WHOLE: Self = Self(0);

    pub(crate) fn is_whole(self) -> bool {
        self == Self::WHOLE
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
        partial.push(Arc::new(redaction));
        View(u32::try_from(partial.len()).expect("rules do not name 2^32 redactions"))
    }

    /// What a view hides; `None` is nothing.
    pub(crate) fn redaction(&self, view: View) -> Option<Arc<Redaction>> {
        let place = usize::try_from(view.0).ok()?.checked_sub(1)?;
        Some(Arc::clone(&self.partial.read()[place]))
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

fn ranges_of(spans: &[ByteSpan]) -> Ranges {
    spans.iter().map(|span| span.start..span.end.unwrap_or(u64::MAX)).collect()
}

#[cfg(test)]
mod test {
    use super::*;

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
