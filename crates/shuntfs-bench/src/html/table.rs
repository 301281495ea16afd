//! A table of the page: its plots, its figures, what failed, what was run.

use maud::{Markup, PreEscaped, html};

use super::plot::Plot;
use super::state::{State, absent};
use super::words::{clean, cut, goal, number, prose, ratio};
use crate::markdown::sure;
use crate::report::{Better, Cell, Column, Comparison, Kind, Report, Row, Tail, Verdict};

/// Writes the section of a table.
pub(super) fn table(report: &Report, anchor: &str, plots: &[Plot]) -> Markup {
    html! {
        section id=(anchor) {
            h2 { (clean(&report.table)) }
            p { (prose(&report.about)) }
            @if let Some(why) = &report.skipped { p.warn { strong { "Not measured: " } (prose(why)) } }
            @if !report.notes.is_empty() { ul { @for note in &report.notes { li { (prose(note)) } } } }
            @for column in absent(report) {
                p.none { strong { (clean(&column.name)) " was not measured" } @if let Some(why) = &column.missing { ": " (prose(why)) } }
            }
            @if !report.rows.is_empty() {
                (pictures(report, plots))
                (quantiles(report))
                (figures(report))
                (failures(report, anchor))
                (rounds(report))
            }
            (columns(report))
            (commands(report))
        }
    }
}

fn pictures(report: &Report, plots: &[Plot]) -> Markup {
    let plots = plots.iter().filter(|plot| plot.table == report.table);
    let plots: Vec<&Plot> = plots.collect();
    let mut captions: Vec<&str> = plots.iter().map(|plot| plot.caption.as_str()).collect();
    captions.dedup();
    html! {
        figure {
            div.plots {
                @for plot in plots {
                    div { (PreEscaped(plot.inline())) }
                }
            }
            @for caption in captions { figcaption { (clean(caption)) } }
        }
    }
}

fn figures(report: &Report) -> Markup {
    let peers = report.judged().any(|row| !row.peers.is_empty());
    let aims = report.rows.iter().any(|row| row.goal.is_some());
    let columns = shown(report);
    html! { @if report.judged().next().is_some() {
        p.hint {
            "In bold the ratio to " (clean(&report.baseline)) ": 1 is as good, more is better. Below it the median, and \
             least to largest."
        }
        div.scroll tabindex="0" role="region" aria-label={ "Figures of " (clean(&report.table)) } {
            table {
                thead { tr {
                    th scope="col" { "row" }
                    @if aims { th.aim scope="col" { "goal" } }
                    @for column in &columns { (column_head(report, column)) }
                    @if peers { th scope="col" { "beside peers" } }
                } }
                tbody {
                    @for row in report.judged() {
                        tr {
                            th scope="row" { (clean(&row.name)) small { (row.unit.label()) @if row.better == Better::Lower { ", less is better" } } }
                            @if aims { (verdict(report, row)) }
                            @for column in &columns { (cell(report, row, column)) }
                            @if peers { td { @for peer in &row.peers { p { (judged(peer)) " " (clean(&peer.with)) } } } }
                        }
                    }
                }
            }
        }
    } }
}

/// The quantiles of single calls: a table for each call, the quantiles of a case in one row.
fn quantiles(report: &Report) -> Markup {
    let columns = shown(report);
    html! {
        @for (call, tails) in report.tails() {
            h3 { code { (clean(call)) } @if let Some(row) = tails.first().and_then(|tail| tail.rows.first()) {
                ": medians over the rounds, " (row.unit.label()) ", less is better"
            } }
            div.scroll tabindex="0" role="region" aria-label={ "Quantiles of " (clean(call)) } {
                table {
                    thead { tr {
                        th scope="col" { "beside" }
                        th scope="col" { "quantile" }
                        @for column in &columns { (column_head(report, column)) }
                    } }
                    tbody { @for tail in &tails { (quantiles_row(tail, &columns)) } }
                }
            }
        }
    }
}

fn quantiles_row(tail: &Tail<'_>, columns: &[&Column]) -> Markup {
    html! {
        tr {
            th scope="row" { (clean(tail.name)) }
            td { @for quantile in tail.quantiles() { span.figure { (clean(quantile)) } } }
            @for column in columns {
                td {
                    @for row in &tail.rows {
                        @match State::of(row, column) {
                            State::Figure { median, error, .. } => {
                                span.figure { (number(median)) @if error.is_some() { span.bad { " failed in a round" } } }
                            }
                            State::Failed(_) => span.figure.bad { "failed" },
                            State::Skipped(_) | State::Unknown => span.figure { "not measured" },
                        }
                    }
                }
            }
        }
    }
}

/// Returns the columns that have anything to show.
fn shown(report: &Report) -> Vec<&Column> {
    let absent: Vec<&Column> = absent(report).collect();
    report.columns.iter().filter(|column| !absent.contains(column)).collect()
}

fn column_head(report: &Report, column: &Column) -> Markup {
    let kind = match column.kind {
        Kind::Floor if column.name == report.baseline => "baseline",
        Kind::Floor => "floor",
        Kind::Ours => "shunt",
        Kind::Peer => "another program",
    };
    html! { th scope="col" { (clean(&column.name)) small { (kind) } } }
}

fn cell(report: &Report, row: &Row, column: &Column) -> Markup {
    /// Letters of an error in a cell; the list below the table has all of it.
    const ERROR_LETTERS: usize = 60;
    let measured = row.cells.get(&column.name);
    match State::of(row, column) {
        State::Figure { median, ratio: part, error } => {
            let show_ratio = part.filter(|_| column.name != report.baseline);
            html! {
                td {
                    @if let Some(part) = show_ratio { b { (ratio(part)) } }
                    span.figure { (number(median)) }
                    @if let Some(range) = measured.and_then(spread) { small { (range) } }
                    @if let Some(gain) = measured.and_then(|cell| cell.gain).filter(|_| against(report, column)) {
                        small { (ratio(gain)) " \u{d7} " (clean(report.against.as_deref().unwrap_or_default())) }
                    }
                    @if let Some(error) = error { small.bad { "failed in a round: " (cut(error, ERROR_LETTERS)) } }
                }
            }
        }
        State::Failed(error) => html! { td.bad { "failed" small { (cut(error, ERROR_LETTERS)) } } },
        State::Skipped(why) => html! { td.none { "not measured" small { (clean(why)) } } },
        State::Unknown => html! { td.none { "not measured" small { "no round reached it" } } },
    }
}

/// Returns whether a column is compared with the headline's rival: all but the rival itself.
fn against(report: &Report, column: &Column) -> bool {
    report.against.as_ref().is_some_and(|rival| *rival != column.name)
}

fn spread(cell: &Cell) -> Option<String> {
    let (least, largest) = cell.range?;
    Some(format!("{} to {}", number(least), number(largest)))
}

fn verdict(report: &Report, row: &Row) -> Markup {
    let Some(aim) = &row.goal else { return html! { td.aim { "none set" } } };
    html! {
        td.aim {
            @if let Some(reached) = &row.reached { (judged(reached)) } @else { "not measured" }
            small.aim { (clean(&goal(aim, row, &report.baseline))) }
        }
    }
}

/// Says what a comparison says, with its ratio and its interval.
pub(super) fn judged(comparison: &Comparison) -> Markup {
    let (class, word) = match comparison.verdict {
        Verdict::Ahead => ("hit", "\u{2713}"),
        Verdict::Behind => ("miss", "\u{2717}"),
        Verdict::CannotTell => ("open", "?"),
    };
    let name = match (comparison.verdict, comparison.with.as_str()) {
        (Verdict::Ahead, "goal") => "met",
        (Verdict::Behind, "goal") => "missed",
        (Verdict::Ahead, _) => "ahead",
        (Verdict::Behind, _) => "behind",
        (Verdict::CannotTell, _) => "cannot tell",
    };
    html! { span class=(class) { b { (word) " " (name) } ": " (sure(comparison)) } }
}

/// Every error in full.
fn failures(report: &Report, anchor: &str) -> Markup {
    let cells =
        report.firsts().flat_map(|row| row.cells.iter().map(move |(column, cell)| (row, column, cell)));
    let failed = cells.filter_map(|(row, column, cell)| Some((row, column, cell.error.as_deref()?)));
    let failed: Vec<_> = failed.collect();
    html! {
        @if !failed.is_empty() {
            h3 id={ (anchor) "-failed" } { "What failed" }
            ul.errors {
                @for (row, column, error) in failed {
                    li { strong { (clean(row.case())) " on " (clean(column)) ": " } (clean(error)) }
                }
            }
        }
    }
}

/// The figures of each round.
fn rounds(report: &Report) -> Markup {
    let cells = |row: &Row| {
        let of = |column: &Column| Some((column.name.clone(), row.cells.get(&column.name)?.samples.clone()));
        let cells = report.columns.iter().filter_map(of).filter(|(_, samples)| !samples.is_empty());
        cells.collect::<Vec<_>>()
    };
    html! {
        @if report.rows.iter().any(|row| !cells(row).is_empty()) {
            details {
                summary { "The figure of each round" }
                div.scroll tabindex="0" role="region" aria-label="The figure of each round" {
                    table.rounds {
                        thead { tr { th scope="col" { "row" } th scope="col" { "column" } th scope="col" { "rounds, in order" } } }
                        tbody {
                            @for row in &report.rows {
                                @for (column, samples) in cells(row) {
                                    tr {
                                        th scope="row" { (clean(&row.name)) }
                                        td { (clean(&column)) }
                                        td { (list(&samples)) " " (row.unit.label()) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn list(samples: &[f64]) -> String {
    let samples: Vec<String> = samples.iter().copied().map(number).collect();
    samples.join(" \u{b7} ")
}

/// What each column is.
fn columns(report: &Report) -> Markup {
    html! {
        @if !report.columns.is_empty() {
            h3 { "Columns" }
            ul {
                @for column in &report.columns {
                    li {
                        strong { (clean(&column.name)) } ": " code { (clean(&column.command)) }
                        @if let Some(version) = &column.version { " (" (clean(version)) ")" }
                        @if let Some(why) = &column.missing { span.bad { " Not measured: " (clean(why)) } }
                    }
                }
            }
        }
    }
}

fn commands(report: &Report) -> Markup {
    html! {
        @if !report.commands.is_empty() {
            details {
                summary { "What was run for each row" }
                dl { @for (row, command) in &report.commands { dt { (clean(row)) } dd { code { (clean(command)) } } } }
            }
        }
    }
}
