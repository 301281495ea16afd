//! Writes the pages that are made from the definitions of the command line: `docs/commands.md`, and the tables and lists of
//! `docs/options.md`. `cargo xtask docs` runs it; a test of `shunt` fails while they differ.

use std::fmt::Write as _;

use clap::{Arg, Command};
use shunt::options::{Effect, OPTIONS, SECTIONS, Section};

fn main() -> std::io::Result<()> {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::write(docs.join("commands.md"), commands())?;
    let page = docs.join("options.md");
    let text = std::fs::read_to_string(&page)?;
    std::fs::write(page, options(&text).map_err(std::io::Error::other)?)
}

/// The page of all commands.
pub(crate) fn commands() -> String {
    let mut page = String::from(
        "# Commands\n\nEvery command with its arguments and flags, made from the definitions by `cargo xtask docs`. The man pages \
         and\n`shunt COMMAND --help` say the same. The flags of `shunt mount` are in [options.md](options.md).\n",
    );
    let mut definition = shunt::cli::definition();
    definition.build();
    for command in definition.get_subcommands() {
        add(command, "shunt", &mut page);
    }
    page
}

fn add(command: &Command, outer: &str, page: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{outer} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    let aliases =
        if aliases.is_empty() { String::new() } else { format!(" Also `{}`.", aliases.join("`, `")) };
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
    let _infallible = write!(
        page,
        "\n## {name}\n\n{}{aliases}\n\n```text\n{}\n```\n",
        wrapped(&ended(&about)),
        usage.join("\n")
    );
    let own = |argument: &&Arg| {
        let general = ["help", "version"].contains(&argument.get_id().as_str());
        let is_elsewhere =
            name == "shunt mount" && name_of(argument) != "options" && !argument.is_positional();
        !argument.is_hide_set() && !general && !is_elsewhere
    };
    let arguments: Vec<&Arg> = command.get_arguments().filter(own).collect();
    if !arguments.is_empty() {
        page.push_str("\n| argument | meaning |\n|---|---|\n");
    }
    for argument in arguments {
        let _infallible = writeln!(page, "| {} | {} |", spelled(argument), meaning(argument));
    }
    command.get_subcommands().for_each(|inner| add(inner, &name, page));
}

/// How an argument is written.
fn spelled(argument: &Arg) -> String {
    let value = value_of(argument).map(|value| format!(" {value}")).unwrap_or_default();
    match (argument.get_long(), argument.get_short()) {
        (Some(long), Some(short)) => format!("`--{long}{value}`, `-{short}`"),
        (Some(long), None) => format!("`--{long}{value}`"),
        _ => format!("`{}`", value.trim_start()),
    }
}

fn value_of(argument: &Arg) -> Option<String> {
    let takes = argument.is_positional() || argument.get_action().takes_values();
    let names = argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string);
    takes.then(|| cell(&names.collect::<Vec<_>>().join(" ")))
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string);
    let mut text = ended(&cell(&help.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")));
    let values = argument.get_possible_values();
    let values: Vec<&str> =
        values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
    if !values.is_empty() && argument.get_action().takes_values() {
        let _infallible = write!(text, " One of `{}`.", values.join("`, `"));
    }
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    let defaults = defaults.filter(|value| !value.is_empty()).collect::<Vec<_>>().join(" ");
    if !defaults.is_empty() && argument.get_action().takes_values() && !argument.is_hide_default_value_set() {
        let _infallible = write!(text, " Default: `{defaults}`.");
    }
    text
}

/// A text in a table: what would end the cell, or pass for a tag, is escaped.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<")
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with(['.', ']']) { text.to_owned() } else { format!("{text}.") }
}

/// Lines as long as those of the other pages.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        if !last.is_empty() && last.len() + word.len() >= 120 {
            lines.push(word.to_owned());
        } else {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(word);
        }
    }
    lines.join("\n")
}

/// The page of options with the tables and lists of its sections as they are defined.
///
/// # Errors
/// A section that is missing; a flag that has no text.
pub(crate) fn options(page: &str) -> Result<String, String> {
    let definition = shunt::cli::definition();
    let mount = definition.find_subcommand("mount").ok_or("there is no mount")?;
    let mut flags =
        mount.get_arguments().filter(|flag| !flag.is_hide_set() && !flag.is_positional()).map(name_of);
    let is_told = |flag: &&str| {
        let mut texts = SECTIONS.iter().flat_map(|section| &section.texts);
        *flag == "options" || texts.any(|text| text.flag.as_deref() == Some(*flag))
    };
    if let Some(flag) = flags.find(|flag| !is_told(flag)) {
        return Err(format!("--{flag} has no text"));
    }
    let tables = SECTIONS.iter().map(|section| (section.title, table(mount, section)));
    let tables: Vec<(&str, String)> = tables.chain([(STAND_INS, stand_ins())]).collect();
    let mut missing: Vec<&str> = tables.iter().map(|(title, _)| *title).collect();
    let (mut lines, mut next, mut skips) = (Vec::new(), None, false);
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            next = tables.iter().find(|(known, _)| *known == title).map(|(_, table)| table.clone());
            missing.retain(|known| *known != title);
        }
        // A paragraph is replaced as a whole.
        skips = skips && !line.is_empty();
        if skips {
            continue;
        }
        let list = LISTS.iter().find(|(start, _)| line.starts_with(start));
        let new = match list {
            Some((start, is_in)) => Some(list_of(start, *is_in)),
            None if line.starts_with("| ") => next.take(),
            None => None,
        };
        skips = new.is_some();
        lines.push(new.unwrap_or_else(|| line.to_owned()));
    }
    if missing.is_empty() { Ok(lines.join("\n") + "\n") } else { Err(format!("no section {missing:?}")) }
}

fn name_of(flag: &Arg) -> &str {
    flag.get_long().unwrap_or_default()
}

/// The section of options that stand for others, and the paragraphs that list those that do nothing here.
const STAND_INS: &str = "Words of other FUSE file systems";
const LISTS: [(&str, IsIn); 2] = [
    ("Accepted and ignored, because they are for other programs or already in effect:", |effect| {
        matches!(effect, Effect::Ignored)
    }),
    ("Refused, with the reason in the message:", |effect| matches!(effect, Effect::NotOffered)),
];

/// Whether an option with that effect is in a list.
type IsIn = fn(Effect) -> bool;

fn list_of(start: &str, is_in: IsIn) -> String {
    let names = OPTIONS.iter().filter(|row| is_in(row.effect)).map(|row| format!("`{}`", row.name));
    wrapped(&format!("{start} {}.", names.collect::<Vec<_>>().join(", ")))
}

/// The table of a section; without its last column, if that has nothing in it.
fn table(mount: &Command, section: &Section) -> String {
    let columns = if section.texts.iter().any(|text| !text.risk.is_empty()) { 5 } else { 4 };
    let heads = ["flag", "`-o` form", "default", "effect", "costs and risks"].map(str::to_owned);
    let mut lines = vec![row(&heads[..columns]), format!("{}|", "|---".repeat(columns))];
    for text in &section.texts {
        let flag = mount.get_arguments().find(|flag| Some(name_of(flag)) == text.flag.as_deref());
        let names: Vec<String> =
            text.options.iter().map(|name| format!("`{}`", option(flag, name))).collect();
        let [default, effect, risk] = [&text.default, &text.effect, &text.risk].map(|text| cell(text));
        let cells = [flag.map(spelled).unwrap_or_default(), names.join(", "), default, effect, risk];
        lines.push(row(&cells[..columns]));
    }
    lines.join("\n")
}

fn row(cells: &[String]) -> String {
    let cells = cells.iter().map(|cell| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") });
    format!("|{}", cells.collect::<String>())
}

/// How an option is written; its value as that of the flag, if both are called alike.
fn option(flag: Option<&Arg>, name: &str) -> String {
    let row = OPTIONS.iter().find(|row| row.name == name).expect("a test of the texts finds it");
    let (Effect::Value(value, _) | Effect::Path(value, _)) = row.effect else { return name.to_owned() };
    let same = flag.filter(|flag| flag.get_id().as_str() == name).and_then(value_of);
    format!("{name}={}", same.unwrap_or_else(|| cell(value)))
}

/// The table of options that stand for others: those that mean the same in one row.
fn stand_ins() -> String {
    let mut rows: Vec<(String, &str)> = Vec::new();
    let is_one = |effect| !matches!(effect, Effect::Ignored | Effect::NotOffered);
    for row in OPTIONS.iter().filter(|row| !row.help.is_empty() && is_one(row.effect)) {
        let name = format!("`{}`", option(None, row.name));
        match rows.iter_mut().find(|(_, help)| *help == row.help) {
            Some((names, _)) => *names = format!("{names}, {name}"),
            None => rows.push((name, row.help)),
        }
    }
    let rows = rows.iter().map(|(names, help)| format!("| {names} | {} |", cell(help)));
    ["| word | here |".to_owned(), "|---|---|".to_owned()]
        .into_iter()
        .chain(rows)
        .collect::<Vec<_>>()
        .join("\n")
}
