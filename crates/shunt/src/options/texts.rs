//! What the options of a mount do, cost and risk: for `--help`, man pages and `docs/options.md`.

use std::sync::LazyLock;

use super::OPTIONS;

/// A paragraph for each: names, default, effect, and costs and risks where there are any, with ` | ` between them. A name with dashes is that
/// of a flag, and of its option; further names are those of options. Texts are Markdown, and begin with a small letter.
const TEXTS: &str = include_str!("texts.txt");

/// The texts of one section of the page.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// Its rows.
    pub texts: Vec<Text>,
}

/// A flag of `shunt mount` and its options for `-o`, or options that belong together.
#[derive(Clone, Debug)]
pub struct Text {
    /// The flag, without its dashes.
    pub flag: Option<String>,
    /// The options, by their names in [`OPTIONS`].
    pub options: Vec<String>,
    /// What holds without them.
    pub default: String,
    /// What they do.
    pub effect: String,
    /// What they cost, and what must be feared; empty where there is nothing.
    pub risk: String,
}

/// All of them, in the order of the page.
pub static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let mut sections: Vec<Section> = Vec::new();
    let mut lines = TEXTS.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push(Section { title, texts: Vec::new() });
            continue;
        }
        let mut row = line.to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with(' ')) {
            row.push(' ');
            row.push_str(more.trim());
        }
        if let Some(section) = sections.last_mut().filter(|_| !row.is_empty()) {
            let cells: Vec<&str> = row.split(" | ").collect();
            section.texts.push(Text::of(cells[0], &cells[1..]));
        }
    }
    sections
});

/// A flag of `shunt mount`, as its definition calls it, with what it does.
pub(crate) fn described(flag: clap::Arg) -> clap::Arg {
    let name = flag.get_id().as_str().replace('_', "-");
    let mut texts = SECTIONS.iter().flat_map(|section| &section.texts);
    let Some(text) = texts.find(|text| text.flag.as_deref() == Some(name.as_str())) else { return flag };
    let (short, risk) = (text.short(), plain(&text.risk));
    let long = if risk.is_empty() { short.clone() } else { format!("{short}\n\nCosts and risks: {risk}.") };
    flag.help(short).long_help(long)
}

impl Text {
    /// Of the cells of a row.
    fn of(names: &str, cells: &[&str]) -> Self {
        let cell = |place: usize| cells.get(place).map(|cell| (*cell).to_owned()).unwrap_or_default();
        let is_option = |name: &String| OPTIONS.iter().any(|row| row.name == name);
        let flag = names.split(' ').find_map(|name| name.strip_prefix("--")).map(str::to_owned);
        let own = flag.as_ref().map(|flag| flag.replace('-', "_")).filter(is_option);
        let others = names.split(' ').filter(|name| !name.starts_with("--")).map(str::to_owned);
        let options = own.into_iter().chain(others).collect();
        Self { flag, options, default: cell(0), effect: cell(1), risk: cell(2) }
    }

    /// The effect and the default, for a terminal.
    pub(super) fn short(&self) -> String {
        let effect = plain(&self.effect);
        let (first, rest) = effect.split_at(effect.chars().next().map_or(0, char::len_utf8));
        format!("{}{rest} [default: {}]", first.to_uppercase(), plain(&self.default).replace('`', ""))
    }
}

/// Markdown without its links: what they lead to is in the documentation.
fn plain(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, link)) = rest.split_once('[')
        && let Some((label, target)) = link.split_once("](")
        && let Some((_target, after)) = target.split_once(')')
    {
        out.push_str(before);
        out.push_str(label);
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn links_are_left_out() {
        assert_eq!(plain("see [a.md](a.md#b), and [c](d)."), "see a.md, and c.");
        assert_eq!(plain("no `link`"), "no `link`");
    }

    /// An option is described once: here, or in its row of the table.
    #[test]
    fn every_option_has_one_text_and_every_text_its_options() {
        let texts: Vec<&Text> = SECTIONS.iter().flat_map(|section| &section.texts).collect();
        for row in OPTIONS {
            let count = texts.iter().filter(|text| text.options.iter().any(|name| name == row.name)).count();
            assert_eq!(count, usize::from(row.help.is_empty()), "{}", row.name);
        }
        for text in texts {
            assert!(!text.default.is_empty() && !text.effect.is_empty(), "{text:?}");
            assert!(!text.effect.ends_with('.') && !text.risk.ends_with('.'), "{text:?}");
            for option in &text.options {
                assert!(OPTIONS.iter().any(|row| row.name == option), "no option {option}");
            }
        }
    }
}
