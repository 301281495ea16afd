//! Two futures at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Polls both until both are done; the first one first, so that what it starts is under way before the second one may block.
pub(crate) async fn join<A: Future, B: Future>(one: A, other: B) -> (A::Output, B::Output) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(cx)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(cx)
        {
            second = Some(value);
        }
        match (first.take(), second.take()) {
            (Some(one), Some(other)) => Poll::Ready((one, other)),
            (one, other) => {
                first = one;
                second = other;
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod test {
    use super::*;
    use pollster::block_on;

    #[test]
    fn both_are_polled_whichever_is_done_first() {
        for (slow, fast) in [(3, 0), (0, 3), (2, 2)] {
            let wait = |mut turns: u32| {
                poll_fn(move |cx| {
                    if turns == 0 {
                        return Poll::Ready(7);
                    }
                    turns -= 1;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                })
            };
            assert_eq!(block_on(join(wait(slow), wait(fast))), (7, 7));
        }
    }
}
