//! What a mistyped name may have meant.

/// Returns words to put behind a complaint: the nearest known name if it is near, else all of them.
pub(crate) fn nearest(name: &str, known: &[&str]) -> String {
    /// Half of the letters right.
    const NEAR: f64 = 0.5;
    let scored =
        known.iter().map(|&candidate| (strsim::normalized_damerau_levenshtein(name, candidate), candidate));
    match scored.reduce(|best, next| if next.0 > best.0 { next } else { best }) {
        Some((score, candidate)) if score >= NEAR => format!("; did you mean `{candidate}`?"),
        _ => format!("; there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_said_where_one_is_near() {
        let known = ["passthrough", "uring", "queues"];
        assert_eq!(nearest("queue", &known), "; did you mean `queues`?");
        assert_eq!(nearest("xyz", &known), "; there are passthrough, uring, queues");
    }
}
