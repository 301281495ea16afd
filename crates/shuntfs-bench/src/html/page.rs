//! The page: what is said in which order.

use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::head::{doubts, head};
use super::ink::dark_rules;
use super::plot::plots;
use super::state::noise;
use super::table::table;
use super::words::{clean, figure, goal, percent, prose, ratio, slug};
use crate::behind::{Behind, Reached, behind, reached};
use crate::report::{Goal, Measure, Report, Row, Run};

const STYLE: &str = include_str!("style.css");

/// Writes the report as one HTML file that loads nothing.
///
/// # Errors
/// When a plot cannot be laid out.
pub fn page(run: &Run) -> Result<String> {
    let plots = plots(run)?;
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
                style { (PreEscaped(STYLE)) (PreEscaped(dark_rules())) }
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
    Ok(page.into_string())
}

/// Returns the name of a table's section, which no other has.
fn anchor(at: usize, report: &Report) -> String {
    format!("table-{at}-{}", slug(&report.table))
}

/// What was measured where, in two sentences.
fn summary(run: &Run) -> Markup {
    let machine = &run.machine;
    let rows = || run.tables.iter().flat_map(|report| &report.rows);
    let met = rows().filter(|row| row.met == Some(true)).count();
    let missed = rows().filter(|row| row.met == Some(false)).count();
    let open = rows().filter(|row| row.goal.is_some() && row.met.is_none()).count();
    html! {
        p.lead {
            (clean(&machine.processor)) ", " (machine.cpus) " CPUs, Linux " (clean(&machine.kernel)) ", "
            (clean(&run.started)) ", " (run.rounds) @if run.rounds == 1 { " round" } @else { " rounds" }
            @if run.more > 0 { " and " (run.more) " more where the baseline wavered" } ". "
            (rows().count()) " rows in " (run.tables.len())
            @if run.tables.len() == 1 { " table" } @else { " tables" } "; goals: "
            strong { (met) " met, " (missed) " missed" }
            @if open > 0 { ", " (open) " not judged" }
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
    let limits = rows.iter().any(|behind| behind.row.limit.is_some());
    html! {
        section #slower {
            h2 { "What is slower, first" }
            @if rows.is_empty() {
                p { "No row that was measured misses its goal or is behind a peer of this run." }
            } @else {
                p {
                    (rows.len()) " of " (run.tables.iter().map(|report| report.rows.len()).sum::<usize>())
                    " rows miss their goal or are behind a peer of this run; the furthest behind comes first. Ratios are to \
                     the table's baseline: 1 is as good, more is better."
                }
                div.scroll tabindex="0" role="region" aria-label="Rows in which shunt is behind" {
                    table.behind {
                        thead { tr {
                            th scope="col" { "row" }
                            th scope="col" { "goal" }
                            th scope="col" { "reached" }
                            th scope="col" { "best peer" }
                            th scope="col" { "best of ours" }
                            @if limits { th scope="col" { "what limits it" } }
                        } }
                        tbody { @for row in &rows { (behind_row(row, limits)) } }
                    }
                }
            }
        }
    }
}

fn behind_row(behind: &Behind<'_>, limits: bool) -> Markup {
    let Behind { report, row, goal: missed, peer } = behind;
    let reached = row.goal.as_ref().and_then(|aim| Some((aim, reached(row, aim)?)));
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
            td.miss[missed.is_some()] {
                @if let Some((aim, value)) = reached { (goal_reached(row, aim, value, missed.is_some())) }
            }
            td {
                @if let Some((name, theirs)) = &row.best_peer { (ratio(*theirs)) small { (clean(name)) } }
                @else { "none measured" }
            }
            td.miss[peer.is_some()] {
                @if let Some((name, ours)) = &row.best_of_ours {
                    @if peer.is_some() { "\u{2717} " }
                    (ratio(*ours))
                    small {
                        @if let Some(lead) = peer { (percent(lead.part())) " of the peer, by " }
                        (clean(name))
                    }
                }
            }
            @if limits { td.why { @if let Some(limit) = &row.limit { (prose(limit)) } } }
        }
    }
}

fn goal_reached(row: &Row, aim: &Goal, value: Reached<'_>, missed: bool) -> Markup {
    html! {
        @if missed { "\u{2717} " }
        @if aim.measure == Measure::Ratio { (ratio(value.value)) } @else { (figure(value.value, row.unit)) }
        small { @if missed { (percent(value.part)) " of the goal, by " } @else { "met, by " } (clean(value.column)) }
    }
}
