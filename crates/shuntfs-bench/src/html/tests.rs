//! The page and its plots, made from a sample run that has something of everything.

use std::collections::{BTreeMap, HashSet};

use roxmltree::{Document, Node};

use super::words::{clean, number, ratio};
use super::{page, plots};
use crate::markdown::sure;
use crate::report::{Better, Cell, Column, Goal, Kind, Measure, Report, Row, Run, Unit, Version};
use crate::sample;

const EVIL: &str = "<script>alert(\"1\")</script>&";

fn column(name: &str, kind: Kind) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        command: format!("run '{name}' {{SRC}} {{MNT}}"),
        version: Some(format!("{name} 1.0")),
        missing: None,
    }
}

fn row(name: &str, unit: Unit, cells: &[(&str, &[f64])]) -> Row {
    let cell = |samples: &[f64]| Cell { samples: samples.to_vec(), ..Cell::default() };
    Row {
        name: name.to_owned(),
        group: name.to_owned(),
        jobs: None,
        unit,
        quantile: None,
        better: unit.better(),
        cells: cells.iter().map(|(name, samples)| ((*name).to_owned(), cell(samples))).collect(),
        in_turns: false,
        beside: None,
        goal: None,
        ours: None,
        reached: None,
        peers: Vec::new(),
    }
}

fn goal(column: &str, measure: Measure, value: f64) -> Option<Goal> {
    Some(Goal { columns: vec![column.to_owned()], measure, value })
}

fn table(name: &str, columns: Vec<Column>, rows: Vec<Row>) -> Report {
    Report {
        table: name.to_owned(),
        about: format!("what `{name}` compares"),
        baseline: columns.first().map_or(String::new(), |column| column.name.clone()),
        against: None,
        columns,
        rows,
        skipped: None,
        notes: vec![format!("a note on {name}")],
        doubts: Vec::new(),
        commands: BTreeMap::new(),
    }
}

/// Bars: a better peer, a name that is HTML, a cell with an error, one that was skipped, a column that is missing.
fn bars() -> Report {
    let mut read = row(
        "read <4k>",
        Unit::OpsPerSec,
        &[
            ("bare", &[111_935.0, 78_769.4, 204_800.0, 111_935.0, 111_935.0]),
            ("shunt", &[98_765.0, 43_210.0, 99_001.0, 98_765.0, 98_765.0]),
            (EVIL, &[345_678.0, 300_001.0, 365_432.0, 345_678.0, 345_678.0]),
        ],
    );
    read.goal = goal("shunt", Measure::Ratio, 0.95);
    let mut build = row("build", Unit::Seconds, &[("bare", &[12.3, 12.6]), ("shunt", &[13.1, 15.7])]);
    let failed = Cell { error: Some(format!("exit status: 1: {EVIL}\u{1b}[31m")), ..Cell::default() };
    build.cells.insert(EVIL.to_owned(), failed);
    let mut both = row("both", Unit::Micros, &[("bare", &[1.5]), ("shunt", &[4.5])]);
    both.cells.get_mut("shunt").unwrap().error = Some("the second round was killed".to_owned());
    both.cells
        .insert(EVIL.to_owned(), Cell { skipped: Some("it has no clock".to_owned()), ..Cell::default() });
    both.goal = goal("shunt", Measure::Figure, 2.5);
    let mut gone = column("gone", Kind::Peer);
    gone.missing = Some("it does not mount: no such device".to_owned());
    let columns =
        vec![column("bare", Kind::Floor), column("shunt", Kind::Ours), column(EVIL, Kind::Peer), gone];
    let mut report = table("peers", columns, vec![read, build, both]);
    report.commands.insert("read <4k>".to_owned(), "fio --filename={MNT}/a&b".to_owned());
    report
}

/// Lines: two groups over jobs, one of them in two units.
fn lines() -> Report {
    let columns = ["bare", "device", "uring"];
    let kinds = [Kind::Floor, Kind::Ours, Kind::Ours];
    let heads = columns.iter().zip(kinds).map(|(name, kind)| column(name, kind)).collect();
    let mut rows = Vec::new();
    for (group, unit) in
        [("paged", Unit::MibPerSec), ("paged", Unit::CpuSecPerGib), ("create", Unit::OpsPerSec)]
    {
        for (jobs, part) in [(1, 1.0), (2, 1.7), (8, 2.1)] {
            let name = format!("{group} {} j{jobs}", unit.label());
            let figures: &[(&str, &[f64])] = &[
                ("bare", &[5000.0 * part, 5100.0 * part]),
                ("device", &[700.0, 750.0]),
                ("uring", &[1234.0 * part, 1300.5 * part]),
            ];
            let goal = if jobs == 2 { goal("uring", Measure::Ratio, 0.8) } else { None };
            rows.push(Row { group: group.to_owned(), jobs: Some(jobs), goal, ..row(&name, unit, figures) });
        }
    }
    Report { against: Some("device".to_owned()), ..table("uring", heads, rows) }
}

fn run() -> Run {
    let mut skipped = table("verity", Vec::new(), Vec::new());
    skipped.skipped = Some("nothing is verified yet".to_owned());
    let mut run = Run {
        tables: vec![bars(), lines(), skipped],
        command: vec!["shunt".to_owned(), "bench".to_owned(), format!("--target={EVIL}")],
        versions: vec![Version { program: "fio".to_owned(), version: "fio-3.33 <debian>".to_owned() }],
        doubts: vec!["a doubt of the run".to_owned()],
        ..sample::run()
    };
    run.settle();
    run
}

/// Escapes as the page does.
fn escaped(text: &str) -> String {
    maud::html! { (clean(text)) }.into_string()
}

fn assert_says(page: &str, text: &str) {
    assert!(page.contains(&escaped(text)), "the page does not say `{text}`");
}

#[test]
fn nothing_that_is_measured_can_become_markup() {
    let page = page(&run());
    assert!(!page.contains("<script"), "a name became markup");
    assert!(!page.contains('\u{1b}'), "a control character is left");
    assert_says(&page, EVIL);
    assert_says(&page, "fio --filename={MNT}/a&b");
    assert_says(&page, &format!("--target={EVIL}"));
}

/// Returns the cells of a row of the page: what follows its head.
fn cells_of<'a>(page: &'a str, row: &Row) -> Vec<&'a str> {
    let head = format!("<th scope=\"row\">{}<small>{}", escaped(&row.name), row.unit.label());
    let line = page.split("<tr>").find(|line| line.starts_with(&head));
    let line = line.unwrap_or_else(|| panic!("no row `{}`", row.name));
    line.split("<td").skip(1).collect()
}

#[test]
fn every_figure_is_in_its_cell() {
    let run = run();
    let page = page(&run);
    for report in &run.tables[..2] {
        let goals = usize::from(report.rows.iter().any(|row| row.goal.is_some()));
        let shown: Vec<&Column> = report.columns.iter().filter(|column| column.missing.is_none()).collect();
        for row in &report.rows {
            let line = cells_of(&page, row);
            for (column, said) in shown.iter().zip(&line[goals..]) {
                let cell = &row.cells[&column.name];
                let ratio_shown = cell.ratio.filter(|_| column.name != report.baseline);
                let gain_shown = cell.gain.filter(|_| report.against.as_ref() != Some(&column.name));
                let range =
                    cell.range.map(|(least, largest)| format!("{} to {}", number(least), number(largest)));
                let texts = cell.median.map(|median| format!("figure\">{}<", number(median))).into_iter();
                let texts =
                    texts.chain(ratio_shown.map(|part| format!("<b>{}</b>", ratio(part)))).chain(range);
                for text in texts.chain(gain_shown.map(|gain| format!("{} \u{d7} device", ratio(gain)))) {
                    assert!(
                        said.contains(&text),
                        "`{text}` of {} on {} is not in {said}",
                        row.name,
                        column.name
                    );
                }
                let rounds: Vec<String> = cell.samples.iter().copied().map(number).collect();
                assert!(page.contains(&rounds.join(" \u{b7} ")), "{rounds:?}");
            }
            for peer in &row.peers {
                assert!(line.last().unwrap().contains(&escaped(&sure(peer))), "{peer:?} is not in {line:?}");
            }
        }
    }
}

#[test]
fn what_is_wrong_or_missing_is_said_in_words() {
    let run = run();
    let page = page(&run);
    for text in [
        &format!("exit status: 1: {EVIL}"),
        "the second round was killed",
        "failed in a round",
        "it has no clock",
        "it does not mount: no such device",
        "nothing is verified yet",
        "a doubt of the run",
    ] {
        assert!(page.contains(&escaped(text)) || page.contains(text), "the page does not say `{text}`");
    }
    let noise = &run.tables[0].doubts;
    assert!(noise.iter().any(|doubt| doubt.contains("25 %")), "the sample has no noise: {noise:?}");
    assert!(page.contains("between rounds in read &lt;4k&gt;"), "noise is not on the page");
    let noisy = page.matches("noisy: rounds of bare differ by 113 %").count();
    assert_eq!(noisy, 1, "the row that is behind does not say how noisy it is");
}

#[test]
fn the_head_names_machine_programs_and_command() {
    let run = run();
    let page = page(&run);
    let machine = &run.machine;
    let top = &page[..page.find("What makes the figures doubtful").unwrap()];
    for text in
        [&machine.kernel, &machine.processor, &run.started, &run.lower, "fio-3.33 <debian>", "shunt bench "]
    {
        assert_says(top, text);
    }
    let first = page.find("What makes the figures doubtful").unwrap();
    let slower = page.find("What is slower, first").unwrap();
    assert!(first < slower && slower < page.find("<h2>peers</h2>").unwrap());
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let page = page(&run());
    for word in ["src=", "<link", "<script", "@import", "url(", "<iframe", "<img"] {
        assert!(!page.contains(word), "the page has {word}");
    }
    let addresses: Vec<&str> = page.split("://").skip(1).collect();
    assert!(
        addresses.iter().all(|address| address.starts_with("www.w3.org/2000/svg\"")),
        "an address is elsewhere"
    );
}

#[test]
fn heads_have_a_scope_and_links_a_target() {
    let page = page(&run());
    let heads: Vec<&str> = page.split("<th").skip(1).filter(|rest| !rest.starts_with("ead")).collect();
    assert!(heads.len() > 20, "{}", heads.len());
    for head in heads {
        let tag = head.split('>').next().unwrap();
        assert!(tag.contains(" scope=\""), "<th{tag}> has no scope");
    }
    let attributes = |name: &str| {
        let before = format!(" {name}=\"");
        let parts = page.split(&before).skip(1);
        parts.map(|part| part.split('"').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let ids = attributes("id");
    let unique: HashSet<&String> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len(), "an id is used twice: {ids:?}");
    for link in attributes("href") {
        assert!(link.strip_prefix('#').is_some_and(|id| ids.iter().any(|other| other == id)), "{link}");
    }
}

#[test]
fn quantiles_are_in_one_row_by_call() {
    let mut run = run();
    let columns = [("bare", [0.5, 9.0]), ("shunt", [4.5, 1860.0]), (EVIL, [-1.0, -1.0])];
    run.tables[0].rows = sample::quantiles("getattr", "idle j1", &columns);
    run.settle();
    let page = page(&run);
    let line = page.split("<tr>").find(|line| line.starts_with("<th scope=\"row\">idle j1<")).unwrap();
    let cells: Vec<&str> = line.split("<td").skip(1).collect();
    assert_eq!(cells.len(), 4, "{line}");
    let figures = [["p50", "longest"], ["0.50", "9.00"], ["4.50", "1,860"], ["failed", "failed"]];
    for (cell, [first, second]) in cells.iter().zip(figures) {
        let (before, after) = cell.split_once(&format!(">{first}</span>")).unwrap();
        assert!(!before.contains("</span>") && after.contains(&format!(">{second}</span>")), "{cell}");
    }
    assert_eq!(page.matches("no such call").count(), 1);
    assert!(!plots(&run).iter().any(|plot| plot.table == "peers"), "a plot of nothing");
}

#[test]
fn the_same_run_gives_the_same_bytes() {
    let run = run();
    assert_eq!(page(&run), page(&run));
    assert_eq!(plots(&run), plots(&run));
}

fn elements<'a>(document: &'a Document<'a>) -> impl Iterator<Item = Node<'a, 'a>> {
    document.descendants().filter(Node::is_element)
}

#[test]
fn plots_are_xml_with_a_name_and_a_description() {
    let plots = plots(&run());
    let files: Vec<&str> = plots.iter().map(|plot| plot.file.as_str()).collect();
    assert_eq!(files, ["peers.svg", "uring.svg"]);
    for plot in plots {
        let document = Document::parse(&plot.svg).unwrap();
        let root = document.root_element();
        assert_eq!(root.tag_name().name(), "svg");
        let named = root.attribute("aria-labelledby").unwrap();
        for id in named.split(' ') {
            let node = elements(&document).find(|node| node.attribute("id") == Some(id)).unwrap();
            assert!(!node.text().unwrap().is_empty(), "{id}");
        }
        assert!(!plot.svg.contains("NaN") && !plot.svg.contains("inf\""), "{}", plot.file);
    }
}

#[test]
fn a_page_has_one_style_sheet_and_whole_plots() {
    let run = run();
    let page = page(&run);
    assert_eq!(page.matches("<style>").count(), 1);
    assert!(page.contains(super::plot::rules().trim()), "the page does not turn plots dark");
    for plot in plots(&run) {
        let inline = plot.inline();
        assert!(page.contains(&inline) && plot.svg.contains("<style>"), "{}", plot.file);
        let marks = |svg: &str| Document::parse(svg).unwrap().descendants().filter(Node::is_element).count();
        assert_eq!(marks(&inline) + 1, marks(&plot.svg), "{}", plot.file);
    }
}

/// A mark without a class that the style sheet knows would be black, on a light page and on a dark one.
#[test]
fn every_mark_has_a_class_with_a_colour() {
    let rules = super::plot::rules();
    for plot in plots(&run()) {
        let document = Document::parse(&plot.svg).unwrap();
        let marks =
            elements(&document).filter(|node| ["rect", "line", "text"].contains(&node.tag_name().name()));
        for mark in marks {
            let class = mark.attribute("class").unwrap().split(' ').next().unwrap();
            assert_eq!(
                rules.matches(&format!(".plot .{class} {{ ")).count().min(2),
                2,
                "{class} in {}",
                plot.file
            );
        }
    }
}

/// Nothing is cut by the paper's edge; a text's width is judged by a wide font's letters.
#[test]
fn everything_is_on_the_paper() {
    for plot in plots(&run()) {
        let document = Document::parse(&plot.svg).unwrap();
        let size = |name| document.root_element().attribute(name).unwrap().parse::<f64>().unwrap();
        let (width, height) = (size("width"), size("height"));
        for node in elements(&document).filter(|node| node.tag_name().name() == "text") {
            let text = node.text().unwrap().trim();
            let at = |name| node.attribute(name).unwrap().parse::<f64>().unwrap();
            let wide = f64::from(u32::try_from(text.chars().count()).unwrap()) * 7.6;
            let (from, to) = match node.attribute("text-anchor") {
                Some("end") => (at("x") - wide, at("x")),
                Some("middle") => (at("x") - wide / 2.0, at("x") + wide / 2.0),
                _ => (at("x"), at("x") + wide),
            };
            assert!(from >= 0.0 && to <= width, "`{text}` goes from {from} to {to} in {}", plot.file);
            assert!(at("y") > 0.0 && at("y") < height, "`{text}` in {}", plot.file);
        }
        for node in elements(&document).filter(|node| node.tag_name().name() == "rect") {
            let at = |name| node.attribute(name).unwrap().parse::<f64>().unwrap();
            assert!(at("x") >= 0.0 && at("x") + at("width") <= width, "{node:?} in {}", plot.file);
            assert!(at("width") >= 0.0 && at("height") >= 0.0, "{node:?} in {}", plot.file);
        }
    }
}

/// A regression: rows whose names begin alike had the same head, cut to make room for the baseline beside it.
#[test]
fn a_long_name_is_whole_with_its_baseline_below_it() {
    let mut run = run();
    let names = [
        "getattr idle j1, processor time of all threads of the server",
        "getattr idle j1, processor time of all threads of the callers",
    ];
    let figures = [("bare", &[10.0, 11.0][..]), ("shunt", &[20.0, 21.0])];
    let rows = names.map(|name| row(name, Unit::Micros, &figures)).to_vec();
    let columns = vec![column("bare", Kind::Floor), column("shunt", Kind::Ours)];
    run.tables = vec![table("tails", columns, rows)];
    run.settle();
    let plot = plots(&run).remove(0);
    let document = Document::parse(&plot.svg).unwrap();
    let texts = elements(&document).filter(|node| node.tag_name().name() == "text");
    let heads: Vec<(&str, f64)> = texts
        .filter_map(|node| Some((node.text()?.trim(), node.attribute("y")?.parse().ok()?)))
        .filter(|(text, _)| text.starts_with("getattr") || text.starts_with("bare:"))
        .collect();
    assert_eq!(heads.iter().step_by(2).map(|(text, _)| *text).collect::<Vec<_>>(), names);
    for head in heads.chunks(2) {
        assert_eq!((head[1].0, head[1].1 - head[0].1), ("bare: 10.5 us", 19.0), "it is one line below");
    }
}

#[test]
fn a_bar_says_its_ratio_or_why_there_is_none() {
    let plots = plots(&run());
    let document = Document::parse(&plots[0].svg).unwrap();
    let texts: Vec<&str> = elements(&document).filter_map(|node| node.text()).map(str::trim).collect();
    for text in ["bare: 111,935 ops/s", "0.88", "3.09", "failed", "not measured", "0.33 (failed)"] {
        assert!(texts.contains(&text), "no `{text}` in {texts:?}");
    }
    assert!(!texts.contains(&"gone"), "a column without any figure has bars");
    assert!(plots[0].caption.contains("Not measured: gone"), "{}", plots[0].caption);
}

#[test]
fn a_block_names_what_its_ratios_are_to() {
    let mut run = run();
    for row in &mut run.tables[0].rows {
        row.beside = Some("shunt".to_owned());
    }
    run.settle();
    let plots = plots(&run);
    assert!(plots[0].svg.contains("shunt: 98,765 ops/s"), "{}", plots[0].svg);
    assert!(plots[0].caption.contains("ratio to shunt"), "{}", plots[0].caption);
}

#[test]
fn figures_that_are_none_are_survived() {
    let mut run = run();
    for report in &mut run.tables {
        for row in &mut report.rows {
            row.better = Better::Higher;
            for cell in row.cells.values_mut() {
                cell.samples = vec![0.0, f64::NAN, f64::INFINITY, 0.0, f64::NAN];
                (cell.median, cell.range) = (None, None);
            }
        }
    }
    run.settle();
    assert!(page(&run).contains("no number"));
    run.tables.iter_mut().flat_map(|report| &mut report.rows).for_each(|row| row.cells.clear());
    assert!(page(&run).contains("not measured"));
    run.tables.clear();
    assert!(page(&run).contains("No row misses its goal"));
}
