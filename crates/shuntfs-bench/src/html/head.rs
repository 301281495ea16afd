//! What was measured where, how, and what makes it doubtful.

use maud::{Markup, html};

use super::words::{clean, prose};
use crate::report::Run;

/// What makes the figures doubtful, of the run and of each table.
pub(super) fn doubts(run: &Run) -> Markup {
    let tables = run.tables.iter().filter(|report| !report.doubts.is_empty());
    let tables: Vec<_> = tables.collect();
    html! {
        section #doubts .warn {
            h2 { "What makes the figures doubtful" }
            @if run.doubts.is_empty() && tables.is_empty() {
                p { "Nothing was noticed: no load before the start, no wide spread of the baseline, enough rounds." }
            } @else {
                ul {
                    @for doubt in &run.doubts { li { (prose(doubt)) } }
                    @for report in tables {
                        @for doubt in &report.doubts { li { strong { (clean(&report.table)) ": " } (prose(doubt)) } }
                    }
                }
            }
        }
    }
}

/// All about the run.
pub(super) fn head(run: &Run) -> Markup {
    let machine = &run.machine;
    html! {
        details #run {
            summary { "All about the run: machine, versions, command" }
            dl {
                dt { "Machine" }
                dd { (clean(&machine.processor)) ", " (machine.cpus) " CPUs, " (machine.memory_mib) " MiB" }
                dt { "Kernel" } dd { "Linux " (clean(&machine.kernel)) }
                dt { "Load before the start" } dd { (format!("{:.2}", machine.load_before)) }
                dt { "Frequency governor" }
                dd { (machine.governor.as_deref().map_or("none that can be seen".to_owned(), clean)) }
                dt { "Began" } dd { (clean(&run.started)) }
                dt { "Took" } dd { (duration(run.elapsed_s)) }
                dt { "Size" } dd { (clean(&run.size)) }
                dt { "Rounds" } dd { (run.rounds) @if let Some(seed) = run.seed { ", in the order of seed " (seed) } }
                @if let Some(most) = run.descriptors { dt { "Descriptors of each program" } dd { "at most " (most) } }
                dt { "Lower file system" } dd { (clean(&run.lower)) }
                dt { "Command" } dd { code { (clean(&command(&run.command))) } }
                dt { "Programs" }
                dd {
                    @if run.versions.is_empty() { (clean(&machine.fio)) }
                    @else {
                        ul { @for one in &run.versions { li { (clean(&one.program)) ": " (clean(&one.version)) } } }
                    }
                }
            }
        }
    }
}

/// Writes a command line as a shell reads it.
fn command(words: &[String]) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=+:,./@%".contains(letter);
    let quoted = |word: &String| {
        let simple = !word.is_empty() && word.chars().all(plain);
        if simple { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let words = ["shunt", "--target", "x=run it's {SRC}", "", "--size=1G"].map(str::to_owned);
        assert_eq!(command(&words), r"shunt --target 'x=run it'\''s {SRC}' '' --size=1G");
    }

    #[test]
    fn durations_are_read_at_a_glance() {
        for (seconds, text) in [(59, "59 s"), (61, "1 min 1 s"), (7325, "2 h 2 min")] {
            assert_eq!(duration(seconds), text);
        }
    }
}
