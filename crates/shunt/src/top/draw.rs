//! The picture.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::panel::{self, Panel, Row};
use super::rates::{Latency, Rates, total};
use super::words::{bytes, rate};
use crate::status::time;

/// The list of mounts takes no more of the screen than a third, and this at least.
const LIST_MIN: u16 = 4;
/// So many operations, and so many files and processes, are shown of a mount: on a screen of so many lines for each, one, so that there is
/// room for all of them.
const OPS_MAX: usize = 12;
const LINES_OF_OP: u16 = 5;
const CALLERS_MAX: usize = 10;
const LINES_OF_CALLER: u16 = 8;
/// So many queues are shown of a mount, those with the most to do.
const QUEUES_MAX: usize = 12;

/// In place of bytes that the server does not see, which are not zero.
const UNSEEN: &str = "unseen";

/// What must be seen.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) mounts: Vec<Rates>,
    /// The mount that is shown in full.
    pub(super) selected: usize,
    /// How long an interval is, in seconds.
    pub(super) interval_s: f64,
    /// Something that the user should know.
    pub(super) note: Option<String>,
}

/// Draws the screen.
pub(super) fn screen(view: &View, area: Rect, buffer: &mut Buffer) {
    let width = area.width;
    panel::put(&head(view, " (q: quit, arrows: pick a mount)", width), (0, 0), area, buffer);
    let list = list(view, width);
    let room = (area.height / 3).max(LIST_MIN).min(area.height.saturating_sub(1));
    // One line for the names of columns, and one free.
    let rows = usize::from(room.saturating_sub(2)).max(1);
    let first = view.selected.saturating_sub(rows - 1).min(list.lines.len().saturating_sub(1 + rows));
    let shown = list.lines.iter().take(1).chain(list.lines.iter().skip(1 + first).take(rows));
    let mut y = 1;
    for line in shown {
        panel::put(line, (0, y), area, buffer);
        y += 1;
    }
    if let Some(mount) = view.mounts.get(view.selected) {
        let rest = below(area, y + 1);
        for (line, row) in about(mount, width).iter().zip(0..) {
            panel::put(line, (0, row), rest, buffer);
        }
        let ops = usize::from(area.height / LINES_OF_OP).clamp(1, OPS_MAX);
        let callers = usize::from(area.height / LINES_OF_CALLER).clamp(1, CALLERS_MAX);
        panel::draw(&panels(mount, width, (ops, callers)), below(rest, 3), buffer);
    }
}

/// The same as lines, as long as it is, with every mount in full.
pub(super) fn text(view: &View, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = vec![trimmed(&head(view, "", width))];
    lines.extend(list(view, width).lines.iter().map(trimmed));
    for mount in &view.mounts {
        lines.push(String::new());
        lines.extend(about(mount, width).iter().map(trimmed));
        let panels = panels(mount, width, (OPS_MAX, CALLERS_MAX));
        let (_, height) = panel::flow(&panels, width);
        if height > 0 {
            lines.push(String::new());
        }
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        panel::draw(&panels, area, &mut buffer);
        lines.extend((0..height).map(|y| row_of(&buffer, y)));
    }
    lines
}

fn trimmed(line: &Line<'_>) -> String {
    line.to_string().trim_end().to_owned()
}

fn row_of(buffer: &Buffer, y: u16) -> String {
    let mut text = String::new();
    let mut covered = 0;
    for x in 0..buffer.area.width {
        // The second half of a wide letter is an empty cell.
        if covered > 0 {
            covered -= 1;
            continue;
        }
        let symbol = buffer[(x, y)].symbol();
        covered = panel::width(symbol).saturating_sub(1);
        text.push_str(symbol);
    }
    text.trim_end().to_owned()
}

fn below(area: Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    Rect { y: area.y + lines, height: area.height - lines, ..area }
}

fn head(view: &View, keys: &str, width: u16) -> Line<'static> {
    if let Some(note) = &view.note {
        return Line::from(Span::styled(note.clone(), Style::new().fg(Color::Yellow)));
    }
    let count = view.mounts.len();
    let all = total(view.mounts.iter().map(|mount| mount.ops_per_s));
    let mounts = match count {
        0 => "no mounts".to_owned(),
        1 => "1 mount".to_owned(),
        _ => format!("{count} mounts"),
    };
    let long = format!("shunt top: {mounts}, {} operations/s, interval {} s", rate(all), view.interval_s);
    let longest = format!("{long}{keys}");
    let fits = |text: &String| panel::width(text) <= usize::from(width);
    let text = [longest, long].into_iter().find(fits).unwrap_or_else(|| format!("{mounts}, {}/s", rate(all)));
    Line::from(Span::styled(text, Style::new().add_modifier(Modifier::BOLD)))
}

/// All mounts, a line each.
fn list(view: &View, width: u16) -> Panel {
    if view.mounts.is_empty() {
        return Panel::default();
    }
    let heads = ["MOUNT", "STATE ", "OPS/S", "READ/S", "WRITE/S", "P50", "P99", "ERRORS/S", "BUSY", "CPU"];
    let rows: Vec<Row> =
        view.mounts.iter().enumerate().map(|(place, mount)| list_row(view, place, mount)).collect();
    Panel::table(&heads, &rows, width, usize::from(width / 4).clamp(6, 12))
}

fn list_row(view: &View, place: usize, mount: &Rates) -> Row {
    let (state, style) = state(mount);
    let style = if place == view.selected && view.mounts.len() > 1 {
        style.add_modifier(Modifier::REVERSED)
    } else {
        style
    };
    if mount.state != "mounted" {
        let mut cells = vec![mount.mount.clone(), state];
        cells.extend((0..8).map(|_| "-".to_owned()));
        return Row::new(cells).style(style);
    }
    let [p50, p99] = percentiles(mount.latency);
    // There may be more, in passthrough.
    let more = if mount.has_passthrough { "+" } else { "" };
    Row::new([
        mount.mount.clone(),
        state,
        rate(mount.ops_per_s),
        format!("{}{more}", bytes(mount.read_bytes_per_s)),
        format!("{}{more}", bytes(mount.written_bytes_per_s)),
        p50,
        p99,
        rate(mount.errors_per_s),
        mount.busy.to_string(),
        format!("{:.0}%", mount.process.cpu_percent),
    ])
    .style(style)
}

fn percentiles(latency: Option<Latency>) -> [String; 2] {
    latency.map_or(["-", "-"].map(str::to_owned), |latency| [latency.p50_ns, latency.p99_ns].map(time))
}

/// How a mount is, with its branches.
fn state(mount: &Rates) -> (String, Style) {
    let bad = mount.branches.iter().filter(|branch| branch.health != "ok").count();
    match (mount.state.as_str(), bad) {
        ("mounted", 0) => ("ok".to_owned(), Style::new()),
        ("mounted", _) => ("degraded".to_owned(), Style::new().fg(Color::Yellow)),
        (other, _) => (other.to_owned(), Style::new().fg(Color::Red)),
    }
}

/// What a mount is.
fn about(mount: &Rates, width: u16) -> [Line<'static>; 2] {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let name = panel::cut(&mount.mount, usize::from(width));
    if mount.state != "mounted" {
        return [Line::styled(name, bold), Line::styled(mount.state.clone(), Style::new().fg(Color::Red))];
    }
    let process = &mount.process;
    let parts = [
        format!("shows {}", mount.source),
        mount.transport.clone(),
        format!("process {}", process.pid),
        bytes_of(process.resident_bytes),
        format!("{} of {} descriptors", process.open_fds, process.max_fds),
    ];
    // A server of an older version does not say what it uses.
    let known = if process.max_fds > 0 { parts.len() } else { parts.len() - 2 };
    // What has no room is left out, not cut in the middle.
    let mut text = String::new();
    for part in parts.into_iter().take(known) {
        let longer = if text.is_empty() { part } else { format!("{text}, {part}") };
        if panel::width(&longer) > usize::from(width) && !text.is_empty() {
            break;
        }
        text = longer;
    }
    [Line::styled(name, bold), Line::from(panel::cut(&text, usize::from(width)))]
}

/// What is shown of a mount in full: only what has something to say.
fn panels(mount: &Rates, width: u16, (most_ops, callers): (usize, usize)) -> Vec<Panel> {
    let (ops, flows) = (ops(mount, width, most_ops), flows(mount, width));
    let (files, processes) = (files(mount, width, callers), processes(mount, width, callers));
    let note = Panel::notes(&notes(mount), width);
    let all = [ops, flows, files, processes, note, queues(mount, width), branches(mount, width)];
    all.into_iter().flatten().collect()
}

fn files(mount: &Rates, width: u16, most: usize) -> Option<Panel> {
    let files = mount.load.iter().flat_map(|load| &load.files).take(most);
    let rows: Vec<Row> = files.map(|file| asked_row(vec![file.path.clone()], &file.rates)).collect();
    let heads = ["FILE", "OPS/S", "READ/S", "WRITE/S", "OPENS/S", "ERRORS/S"];
    (!rows.is_empty()).then(|| Panel::table(&heads, &rows, width, 16))
}

fn processes(mount: &Rates, width: u16, most: usize) -> Option<Panel> {
    let processes = mount.load.iter().flat_map(|load| &load.processes).take(most);
    let row = |process: &super::load::Process| {
        asked_row(vec![process.comm.clone(), process.pid.to_string()], &process.rates)
    };
    let rows: Vec<Row> = processes.map(row).collect();
    let heads = ["PROCESS", "PID", "OPS/S", "READ/S", "WRITE/S", "OPENS/S", "ERRORS/S"];
    (!rows.is_empty()).then(|| Panel::table(&heads, &rows, width, 12))
}

fn asked_row(mut names: Vec<String>, of: &super::load::Rates) -> Row {
    let seen = |per_s: Option<f64>| match per_s {
        None => UNSEEN.to_owned(),
        Some(per_s) if of.passthrough => format!("{}+", bytes(per_s)),
        Some(per_s) => bytes(per_s),
    };
    let (read, written) = (seen(of.read_bytes_per_s), seen(of.written_bytes_per_s));
    names.extend([rate(of.ops_per_s), read, written, rate(of.opens_per_s), rate(of.errors_per_s)]);
    Row::new(names)
}

/// What one should know of files and processes.
fn notes(mount: &Rates) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(why) = &mount.load_error {
        notes.push(format!("Files and processes are not known: {why}."));
    }
    if let Some(load) = &mount.load {
        if load.one_of > 1 {
            notes.push(format!("Files and processes: one request in {} is sampled.", load.one_of));
        }
        if mount.has_passthrough || load.has_passthrough() {
            notes.push("In passthrough the kernel moves the bytes: only opens are seen.".into());
        }
    }
    notes
}

fn ops(mount: &Rates, width: u16, most: usize) -> Option<Panel> {
    let row = |op: &super::rates::Op| {
        let [p50, p99] = percentiles(op.latency);
        let style = if op.errors_per_s > 0.0 { Style::new().fg(Color::Yellow) } else { Style::new() };
        Row::new([op.op.clone(), rate(op.per_s), rate(op.errors_per_s), p50, p99]).style(style)
    };
    let rows: Vec<Row> = mount.ops.iter().take(most).map(row).collect();
    (!rows.is_empty())
        .then(|| Panel::table(&["OPERATION", "OPS/S", "ERRORS/S", "P50", "P99"], &rows, width, 9))
}

fn flows(mount: &Rates, width: u16) -> Option<Panel> {
    let row = |flow: &super::rates::Flow| {
        let is_unseen = flow.flow == shuntfs::Flow::Passthrough.name();
        let seen = |per_s| if is_unseen { UNSEEN.to_owned() } else { bytes(per_s) };
        let (read, written) = (seen(flow.read_bytes_per_s), seen(flow.written_bytes_per_s));
        Row::new([flow.flow.clone(), rate(flow.opens_per_s), read, written])
    };
    let rows: Vec<Row> = mount.flows.iter().map(row).collect();
    (!rows.is_empty()).then(|| Panel::table(&["FLOW", "OPENS/S", "READ/S", "WRITE/S"], &rows, width, 8))
}

fn queues(mount: &Rates, width: u16) -> Option<Panel> {
    let mut queues: Vec<&super::rates::Queue> = mount.queues.iter().collect();
    queues.sort_by(|one, other| {
        (other.busy, other.per_s).partial_cmp(&(one.busy, one.per_s)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut queues: Vec<_> =
        queues.into_iter().filter(|queue| queue.busy > 0 || queue.per_s > 0.0).take(QUEUES_MAX).collect();
    queues.sort_by_key(|queue| queue.queue);
    let row = |queue: &&super::rates::Queue| {
        Row::new([queue.queue.to_string(), rate(queue.per_s), format!("{} of {}", queue.busy, queue.depth)])
    };
    let rows: Vec<Row> = queues.iter().map(row).collect();
    (!rows.is_empty()).then(|| Panel::table(&["QUEUE", "OPS/S", "BUSY"], &rows, width, 5))
}

fn branches(mount: &Rates, width: u16) -> Option<Panel> {
    let row = |branch: &super::rates::Branch| {
        let style = match branch.health.as_str() {
            "ok" => Style::new(),
            "slow" => Style::new().fg(Color::Yellow),
            _ => Style::new().fg(Color::Red),
        };
        let space = match (branch.available, branch.total) {
            (Some(available), Some(total)) => format!("{} of {}", bytes_of(available), bytes_of(total)),
            _ => "-".to_owned(),
        };
        let why = branch.why.clone().unwrap_or_default();
        let cells = [
            branch.branch.clone(),
            branch.health.clone(),
            space,
            bytes(branch.read_bytes_per_s),
            bytes(branch.written_bytes_per_s),
            branch.lookup_ns.map_or("-".to_owned(), time),
            why,
        ];
        Row::new(cells).style(style)
    };
    let heads = ["BRANCH", "HEALTH ", "AVAILABLE", "READ/S", "WRITE/S", "LOOKUP", " "];
    let rows: Vec<Row> = mount.branches.iter().map(row).collect();
    (!rows.is_empty()).then(|| Panel::table(&heads, &rows, width, 12))
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn bytes_of(count: u64) -> String {
    bytes(count as f64)
}

#[cfg(test)]
mod test {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::rates::Op;
    use crate::top::rates::test::busy_mount;

    fn silent() -> Rates {
        Rates { mount: "/mnt/gone".into(), state: "silent".into(), ..Rates::default() }
    }

    fn view() -> View {
        View { mounts: vec![busy_mount(), silent()], interval_s: 2.0, ..View::default() }
    }

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("is in memory");
        terminal.draw(|frame| screen(view, frame.area(), frame.buffer_mut())).expect("draws");
        terminal.backend().to_string()
    }

    #[test]
    fn everything_is_there_at_80_and_200_columns() {
        for width in [80, 200] {
            let text = drawn(&view(), width, 40);
            for word in [
                "2 mounts, 1.0k operations/s",
                "/mnt ",
                "1.0 MiB",
                "10 µs",
                "silent",
                "degraded",
                "shows /src",
                "OPERATION",
                "READ",
                "relay",
                "QUEUE",
                "1 of 8",
                "BRANCH",
                "/disk2",
                "LOOKUP",
                "process 5",
                "FILE",
                r"evil\x1b[2J\n\xff",
                "PROCESS",
                r"cat\x1bc",
            ] {
                assert!(text.contains(word), "no {word} at {width}:\n{text}");
            }
        }
    }

    /// All kinds of panels have some room on the smallest usual terminal, however much goes on.
    #[test]
    fn a_busy_mount_fits_24_lines() {
        let mut mount = busy_mount();
        mount.branches.clear();
        mount.ops = (0..30).map(|number| Op { op: format!("OP{number}"), ..mount.ops[0].clone() }).collect();
        if let Some(load) = &mut mount.load {
            load.files = (0..30).map(|_| load.files[0].clone()).collect();
            load.processes = (0..30).map(|_| load.processes[0].clone()).collect();
        }
        let text = drawn(&View { mounts: vec![mount], interval_s: 1.0, ..View::default() }, 80, 24);
        for word in ["OP3 ", "FLOW", "FILE", "big ", "PROCESS", r"cat\x1bc"] {
            assert!(text.contains(word), "no {word}:\n{text}");
        }
    }

    #[test]
    fn it_fits_any_terminal() {
        for (width, height) in [(1, 1), (5, 3), (20, 6), (20, 24), (40, 10), (80, 24), (500, 100)] {
            let text = drawn(&view(), width, height);
            if width >= 20 && height >= 6 {
                assert!(text.contains("/mnt") && text.contains("1.0k"), "{width}x{height}:\n{text}");
            }
        }
        let _no_panic = drawn(&View::default(), 20, 5);
        let nothing = Rect::new(0, 0, 0, 0);
        screen(&view(), nothing, &mut Buffer::empty(nothing));
    }

    #[test]
    fn the_picked_mount_is_in_sight_however_many_there_are() {
        let mounts = (0..1000).map(|number| Rates {
            mount: format!("/mnt/{number}."),
            state: "mounted".into(),
            ..Rates::default()
        });
        let mut view = View { mounts: mounts.collect(), interval_s: 1.0, ..View::default() };
        for selected in [0, 5, 500, 999] {
            view.selected = selected;
            let text = drawn(&view, 80, 24);
            assert!(text.matches(&format!("/mnt/{selected}.")).count() >= 2, "{selected}:\n{text}");
        }
    }

    #[test]
    fn text_is_the_same_picture_without_spaces_at_the_end() {
        let lines = text(&view(), 80);
        assert!(lines.iter().all(|line| !line.ends_with(' ') && panel::width(line) <= 80), "{lines:#?}");
        for word in ["OPERATION", "/disk1", "/mnt/gone", "silent"] {
            assert!(lines.iter().any(|line| line.contains(word)), "no {word} in {lines:#?}");
        }
        let wide =
            View { mounts: vec![Rates { mount: "/写真".into(), ..busy_mount() }], ..View::default() };
        assert!(text(&wide, 80).iter().any(|line| line == "/写真"), "{:#?}", text(&wide, 80));
        assert_eq!(text(&View::default(), 80), ["shunt top: no mounts, 0 operations/s, interval 0 s"]);
    }

    /// The server did not see the bytes of one file, and nothing at all of what the kernel did before.
    #[test]
    fn bytes_in_passthrough_are_not_shown_as_none() {
        let lines = text(&View { mounts: vec![busy_mount()], ..View::default() }, 80);
        let line = |word: &str| lines.iter().find(|line| line.contains(word)).expect("is there").clone();
        assert!(line("passed ").contains("unseen") && !line("passed ").contains(" B"), "{lines:#?}");
        assert!(line("/mnt ").contains("1.0 MiB+"), "{lines:#?}");
        assert!(line("big ").contains("4.0 KiB") && !line("big ").contains('+'), "{lines:#?}");
        assert!(line(r"cat\x1bc").contains("4.0 KiB+"), "{lines:#?}");
        assert!(line("In passthrough").contains("only opens are seen"), "{lines:#?}");
        assert!(line("one request in 4").contains("sampled"), "{lines:#?}");
        let why = Some("only root may trace it".to_owned());
        let refused = Rates { load: None, load_error: why, ..busy_mount() };
        let lines = text(&View { mounts: vec![refused], ..View::default() }, 20);
        assert!(lines.iter().any(|line| line.starts_with("Files and")), "{lines:#?}");
        assert!(lines.iter().all(|line| panel::width(line) <= 20), "{lines:#?}");
    }

    #[test]
    fn no_control_character_is_drawn() {
        let evil = Rates { mount: "/a\u{1b}[2Jb".into(), ..busy_mount() };
        let view = View { mounts: vec![evil], ..View::default() };
        let text = drawn(&view, 80, 24);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
