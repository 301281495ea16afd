//! A value of atomic words that lies in memory of words, such as memory that another process goes on with.
//!
//! # Safety
//! A [`Placed`] points into a slice that its owner had lent. The owner is shared and stays alive, so nobody can get at it exclusively, and what
//! a shared borrow of it gives out stays valid next to any other use of it.
#![expect(unsafe_code, reason = "the words are used as a type that consists of words")]

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A type that consists of [`AtomicU64`] and nothing else, so that any such words are a value of it.
///
/// # Safety
/// It is `repr(C)` or `repr(transparent)` and has no padding, and all of its fields are `AtomicU64`, arrays of them, or types that are
/// `AtomicWords` themselves.
pub unsafe trait AtomicWords: Sync + 'static {}

/// A `T` in the words of somebody else, who stays alive as long as it is used.
pub struct Placed<T> {
    at: NonNull<T>,
    _owner: Arc<dyn Any + Send + Sync>,
    _words: PhantomData<T>,
}

// SAFETY: it gives out shared references to atomic words alone, and its owner can go to any thread.
unsafe impl<T: AtomicWords> Send for Placed<T> {}
// SAFETY: as above.
unsafe impl<T: AtomicWords> Sync for Placed<T> {}

impl<T: AtomicWords> Placed<T> {
    /// How many words a value has.
    pub const WORDS: usize = size_of::<T>() / size_of::<AtomicU64>();

    /// The value in the first words that `find` finds with the owner; `None` where these are too few or not aligned as a value must be.
    pub fn new<O: Any + Send + Sync>(
        owner: Arc<O>,
        find: impl for<'o> FnOnce(&'o O) -> &'o [AtomicU64],
    ) -> Option<Self> {
        let words = find(&owner);
        let at = NonNull::from(words).cast::<T>();
        let fits = words.len() >= Self::WORDS && at.is_aligned();
        fits.then_some(Self { at, _owner: owner, _words: PhantomData })
    }
}

impl<T: AtomicWords> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: there are enough words, they are aligned and stay where they are (see the module's text), and any words are a `T`.
        unsafe { self.at.as_ref() }
    }
}

impl<T> fmt::Debug for Placed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Placed").field(&self.at).finish()
    }
}

#[cfg(test)]
mod test {
    use std::sync::atomic::Ordering;

    use super::*;

    #[repr(C, align(16))]
    struct Two([AtomicU64; 2]);

    // SAFETY: it is `repr(C)`, its only field is an array of words, and its length is a multiple of its alignment.
    unsafe impl AtomicWords for Two {}

    #[test]
    fn a_value_is_the_words_at_its_place() {
        let words: Arc<[Two; 2]> = Arc::new(std::array::from_fn(|_| Two([const { AtomicU64::new(0) }; 2])));
        let place = |index: usize, from: usize| {
            Placed::<Two>::new(Arc::clone(&words), move |all| &all[index].0[from..])
        };
        assert_eq!(Placed::<Two>::WORDS, 2);
        let (first, second) = (place(0, 0).expect("fits"), place(1, 0).expect("fits"));
        first.0[1].store(7, Ordering::Relaxed);
        assert_eq!(words[0].0[1].load(Ordering::Relaxed), 7);
        assert_eq!(second.0[1].load(Ordering::Relaxed), 0);
        assert!(place(0, 1).is_none(), "too few");
        let many: Arc<[Two; 2]> = Arc::clone(&words);
        drop((words, many));
        assert_eq!(first.0[1].load(Ordering::Relaxed), 7, "the owner stays");
    }

    #[test]
    fn words_that_are_not_aligned_are_refused() {
        let words: Arc<[AtomicU64; 4]> = Arc::new([const { AtomicU64::new(0) }; 4]);
        let fit =
            [0, 1].map(|from| Placed::<Two>::new(Arc::clone(&words), move |all| &all[from..]).is_some());
        assert_eq!(fit.iter().filter(|fits| **fits).count(), 1, "one of two neighbours is aligned to 16");
    }
}
