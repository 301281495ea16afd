//! Writes the pages that are made from the definitions of the command line: `docs/commands.md`, and the names of flags and
//! mount options in the tables of `docs/options.md`. `cargo xtask docs` runs it; a test of `shunt` fails while they differ.

use std::fmt::Write as _;

use clap::{Arg, Command};
use shunt::options::{Effect, OPTIONS};

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
         and\n`shunt COMMAND --help` say the same. [options.md](options.md) has the costs and risks of the options of `shunt mount`.\n",
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
        !argument.is_hide_set() && !general
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

/// The page of options with the names of flags and options in its tables as they are defined.
///
/// # Errors
/// A name in a table that there is not; a flag that is in none.
pub(crate) fn options(page: &str) -> Result<String, String> {
    let definition = shunt::cli::definition();
    let mount = definition.find_subcommand("mount").ok_or("there is no mount")?;
    let (mut named, mut lines) = (Vec::new(), Vec::new());
    let mut in_table = false;
    for line in page.lines() {
        in_table =
            if line.starts_with('|') { in_table || line.starts_with("| flag | `-o` form |") } else { false };
        let cells: Vec<&str> = line.splitn(4, " | ").collect();
        let [flags, words, rest @ ..] = cells.as_slice() else {
            lines.push(line.to_owned());
            continue;
        };
        if !in_table || !line.contains('`') || line.starts_with("| flag") {
            lines.push(line.to_owned());
            continue;
        }
        // A cell without a flag is one blank, which the split took for its end.
        let flags = each_name(flags, |name| flag(mount, name, &mut named))?;
        let words = each_name(words, |name| word(mount, name).ok_or_else(|| format!("no option {name}")))?;
        let rest: String = rest.iter().map(|cell| format!(" | {cell}")).collect();
        lines.push(format!("{flags} | {words}{rest}"));
    }
    let is_missing = |argument: &&Arg| {
        let long = argument.get_long().unwrap_or_default();
        !argument.is_hide_set() && !["", "options"].contains(&long) && !named.iter().any(|name| name == long)
    };
    match mount.get_arguments().find(is_missing) {
        Some(argument) => Err(format!("--{} is in no table", argument.get_long().unwrap_or_default())),
        None => Ok(lines.join("\n") + "\n"),
    }
}

/// Writes each name in a cell anew.
fn each_name(cell: &str, mut write: impl FnMut(&str) -> Result<String, String>) -> Result<String, String> {
    let mut parts: Vec<String> = cell.split('`').map(str::to_owned).collect();
    for part in parts.iter_mut().skip(1).step_by(2) {
        *part = write(part)?;
    }
    Ok(parts.join("`"))
}

fn flag(mount: &Command, text: &str, named: &mut Vec<String>) -> Result<String, String> {
    let Some(name) = text.strip_prefix("--").and_then(|rest| rest.split([' ', '=']).next()) else {
        return Ok(text.to_owned());
    };
    let argument = mount.get_arguments().find(|argument| argument.get_long() == Some(name));
    let argument = argument.ok_or_else(|| format!("no flag --{name}"))?;
    named.push(name.to_owned());
    Ok(format!("--{name}{}", value_of(argument).map(|value| format!(" {value}")).unwrap_or_default()))
}

fn word(mount: &Command, text: &str) -> Option<String> {
    let name = text.split('=').next()?;
    let row = OPTIONS.iter().find(|row| row.name == name)?;
    let same = mount.get_arguments().find(|flag| flag.get_long() == Some(name.replace('_', "-").as_str()));
    Some(match row.effect {
        Effect::Value(value, _) | Effect::Path(value, _) => {
            let value = same.and_then(value_of).unwrap_or_else(|| cell(value));
            format!("{name}={value}")
        }
        _ => name.to_owned(),
    })
}
