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
        section #run {
            h2 { "The run" }
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
                dt { "Rounds" } dd { (run.rounds) }
                dt { "Lower file system" } dd { (clean(&run.lower)) }
                dt { "Command" } dd { code { (clean(&run.command.join(" "))) } }
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

fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}
