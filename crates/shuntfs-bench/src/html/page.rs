//! The page: what is said in which order.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::head::{doubts, head};
use super::plot::{plots, rules};
use super::state::noise;
use super::table::{judged, table};
use super::words::{clean, goal, percent, prose, slug};
use crate::behind::{Behind, behind};
use crate::report::{Report, Run, Verdict};

const STYLE: &str = include_str!("style.css");

/// Writes the report as one HTML file that loads nothing.
#[must_use]
pub fn page(run: &Run) -> String {
    let plots = plots(run);
    let names: Vec<&str> = run.tables.iter().map(|report| report.table.as_str()).collect();
    let title = format!("shunt-bench: {}", names.join(", "));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (clean(&title)) }
                style { (PreEscaped(STYLE)) (PreEscaped(rules())) }
            }
            body {
                header { h1 { "What shunt costs beside the bare folder" } (summary(run)) (head(run)) }
                main {
                    (doubts(run))
                    (slower_first(run))
                    (contents(run))
                    @for (at, report) in run.tables.iter().enumerate() {
                        (table(report, &anchor(at, report), &plots))
                    }
                }
            }
        }
    };
    page.into_string()
}

/// Returns the name of a table's section, which no other has.
fn anchor(at: usize, report: &Report) -> String {
    format!("table-{at}-{}", slug(&report.table))
}

/// What was measured where, in two sentences.
fn summary(run: &Run) -> Markup {
    let machine = &run.machine;
    let rows = || run.tables.iter().flat_map(|report| &report.rows);
    let goals = |verdict: Verdict| {
        rows().filter_map(|row| row.reached.as_ref()).filter(|one| one.verdict == verdict).count()
    };
    let (met, missed) = (goals(Verdict::Ahead), goals(Verdict::Behind));
    let open = rows().filter(|row| row.goal.is_some()).count() - met - missed;
    html! {
        p.lead {
            (clean(&machine.processor)) ", " (machine.cpus) " CPUs, Linux " (clean(&machine.kernel)) ", "
            (clean(&run.started)) ", " (run.rounds) @if run.rounds == 1 { " round" } @else { " rounds" }
            @if run.more > 0 { " and " (run.more) " more where the baseline wavered" } ". "
            (rows().count()) " rows in " (run.tables.len())
            @if run.tables.len() == 1 { " table" } @else { " tables" } "; goals: "
            strong { (met) " met, " (missed) " missed" }
            @if open > 0 { ", " (open) " cannot be told" }
            ". Lower file system: " (clean(&run.lower)) "."
        }
        @if run.interrupted { p.warn { strong { "The run was ended before its last round." } } }
        @if run.size == "smoke" { p.warn { strong { "A smoke run: it shows that everything works; its figures mean nothing." } } }
    }
}

fn contents(run: &Run) -> Markup {
    html! {
        @if run.tables.len() > 1 {
            nav aria-label="Tables" {
                h2 { "Tables" }
                ul {
                    @for (at, report) in run.tables.iter().enumerate() {
                        li { a href={ "#" (anchor(at, report)) } { (clean(&report.table)) } ": " (prose(&report.about)) }
                    }
                }
            }
        }
    }
}

fn slower_first(run: &Run) -> Markup {
    let rows = behind(run);
    html! {
        section #slower {
            h2 { "What is slower, first" }
            @if rows.is_empty() {
                p { "No row misses its goal or is behind a peer of this run beyond doubt." }
            } @else {
                p {
                    (rows.len()) " of " (run.tables.iter().map(|report| report.rows.len()).sum::<usize>())
                    " rows miss their goal or are behind a peer of this run beyond doubt; the furthest behind comes first. 1 is \
                     as good as the other, more is better; in parentheses the 95 % interval."
                }
                div.scroll tabindex="0" role="region" aria-label="Rows in which shunt is behind" {
                    table.behind {
                        thead { tr {
                            th scope="col" { "row" }
                            th scope="col" { "goal" }
                            th scope="col" { "reached" }
                            th scope="col" { "beside peers" }
                        } }
                        tbody { @for row in &rows { (behind_row(row)) } }
                    }
                }
            }
        }
    }
}

fn behind_row(behind: &Behind<'_>) -> Markup {
    let Behind { report, row } = behind;
    html! {
        tr {
            th scope="row" {
                (clean(&row.name))
                small { (clean(&report.table)) }
                @if let Some(spread) = noise(report, row) {
                    small { "noisy: rounds of " (clean(&report.baseline)) " differ by " (percent(spread)) }
                }
            }
            td { @if let Some(aim) = &row.goal { (clean(&goal(aim, row, &report.baseline))) } @else { "none set" } }
            td { @if let Some(reached) = &row.reached { (judged(reached)) } }
            td {
                @for peer in &row.peers { p { (judged(peer)) " " (clean(&peer.with)) } }
                @if row.peers.is_empty() { "none measured" }
                @else if let Some(ours) = &row.ours { small { "of " (clean(ours)) } }
            }
        }
    }
}
