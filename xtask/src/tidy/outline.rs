//! `lib.rs` and `mod.rs` hold docs and exports only; an alias of a type counts as an export.

/// Checks one file, given without comments and literals.
pub(crate) fn check(name: &str, code: &str) -> Vec<String> {
    let file = name.rsplit('/').next().unwrap_or(name);
    if !matches!(file, "lib.rs" | "mod.rs") || name.contains("/tests/") || name.starts_with("fuzz/") {
        return Vec::new();
    }
    let code = without_attributes(code);
    let foreign = code.split(';').map(str::trim).find(|item| !item.is_empty() && !is_export(item));
    let fault = foreign.map(|item| {
        let line = item.lines().next().unwrap_or_default();
        format!("{name}: holds `{line}`; docs and exports only")
    });
    fault.into_iter().collect()
}

fn is_export(item: &str) -> bool {
    let item = visible(item);
    let name = |rest: &str| rest.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    item.starts_with("use ")
        || item.starts_with("type ")
        || item.strip_prefix("mod ").is_some_and(|rest| name(rest.trim()))
}

/// Takes `pub` and `pub(..)` off.
fn visible(item: &str) -> &str {
    let Some(rest) = item.strip_prefix("pub") else { return item };
    let rest = rest.trim_start();
    match rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
        Some((_, rest)) => rest.trim_start(),
        None => rest,
    }
}

/// Takes `#[..]` and `#![..]` out, brackets counted.
fn without_attributes(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut depth = 0_usize;
    let mut rest = code;
    while let Some(letter) = rest.chars().next() {
        let opens = if rest.starts_with("#![") { 3 } else { 2 };
        if depth == 0 && (rest.starts_with("#[") || rest.starts_with("#![")) {
            depth = 1;
            rest = &rest[opens..];
            continue;
        }
        match letter {
            '[' if depth > 0 => depth += 1,
            ']' if depth > 0 => depth -= 1,
            _ if depth == 0 => out.push(letter),
            _ => {}
        }
        rest = &rest[letter.len_utf8()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_pass() {
        let code = "#![forbid(unsafe_code)]\nmod a;\npub mod b;\npub(crate) mod c;\n\
                    #[cfg(test)]\nmod tests;\npub use a::{A,\n B};\nuse b as c;\npub type E = a::A<B>;\n";
        assert!(check("crates/x/src/lib.rs", code).is_empty());
        assert!(check("crates/x/src/y/mod.rs", code).is_empty());
    }

    #[test]
    fn code_is_named() {
        for code in ["mod a;\npub fn b() {}\n", "pub const A: u32 = 1;", "mod a { fn b() {} }", "impl A {}"] {
            assert_eq!(check("crates/x/src/lib.rs", code).len(), 1, "{code}");
        }
    }

    #[test]
    fn other_files_may_hold_code() {
        assert!(check("crates/x/src/a.rs", "fn b() {}").is_empty());
    }
}
