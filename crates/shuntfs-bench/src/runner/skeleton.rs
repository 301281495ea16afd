//! A run before its first figure.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::case::{Case, Output, Sealed, Work};
use crate::fio;
use crate::machine::{Machine, version};
use crate::options::{Options, Scale};
use crate::report::{Cell, Column, FORMAT, Report, Row, Run, Version};
use crate::tables::Table;
use crate::target::Target;

/// Makes a run with all its tables, rows and columns, and no figure.
pub(super) fn run(options: &Options, scale: &Scale, tables: &[Table], now: SystemTime) -> Run {
    let machine = Machine::look();
    let tables: Vec<Report> = tables.iter().map(|table| report(table, scale)).collect();
    let mut versions = vec![Version { program: "fio".to_owned(), version: machine.fio.clone() }];
    for column in tables.iter().flat_map(|table| &table.columns) {
        let Some(version) = &column.version else { continue };
        let program = column.command.split(' ').next().unwrap_or_default();
        let program = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !versions.iter().any(|known| known.program == program) {
            versions.push(Version { program, version: version.clone() });
        }
    }
    Run {
        format: FORMAT,
        started: utc(now),
        elapsed_s: 0,
        size: options.size.to_string(),
        machine,
        versions,
        command: std::env::args().collect(),
        lower: String::new(),
        rounds: scale.rounds,
        seed: Some(scale.seed),
        descriptors: None,
        more: scale.more,
        tables,
        doubts: Vec::new(),
        interrupted: false,
    }
}

fn report(table: &Table, scale: &Scale) -> Report {
    let rows = table.cases.iter().flat_map(|case| case.outputs.iter().map(|output| row(table, case, output)));
    let mut notes = table.notes.clone();
    if table.cases.iter().any(|case| matches!(case.work, Work::Fio(_))) {
        notes.push(format!(
            "Large files of {} MiB; a case ends after {} s or one pass.",
            scale.amount.file_len >> 20,
            scale.amount.runtime.as_secs()
        ));
    }
    if table.cases.iter().any(|case| matches!(case.work, Work::Sealed(_))) {
        notes.push(format!("A sealed file of {} MiB.", Sealed::amount(&scale.amount).file_len >> 20));
    }
    if table.cases.iter().any(|case| matches!(case.work, Work::Meta(_))) {
        notes.push(format!("{} small files a job.", scale.amount.files));
    }
    if table.cases.iter().any(|case| matches!(case.work, Work::List(_))) {
        notes.push(format!("A folder of {} names is listed.", scale.amount.entries));
    }
    if table.cases.iter().any(|case| matches!(case.work, Work::Git(_))) {
        notes.push(format!("A git repository of {} files, in one pack.", scale.amount.git_files));
    }
    if table.cases.iter().any(|case| matches!(case.work, Work::Calls(_) | Work::Turns(_))) {
        let amount = &scale.amount;
        notes.push(format!(
            "A cell's calls end after {} ms, {} calls, or {} new names.",
            amount.calling.as_millis(),
            amount.calls,
            amount.names
        ));
    }
    Report {
        table: table.name.to_owned(),
        about: table.about.to_owned(),
        baseline: table.baseline.to_owned(),
        against: table.against.map(str::to_owned),
        columns: table.targets.iter().map(column).collect(),
        rows: rows.collect(),
        skipped: table.skipped.map(str::to_owned),
        notes,
        doubts: Vec::new(),
        commands: commands(table, scale),
    }
}

fn column(target: &Target) -> Column {
    Column {
        name: target.name.clone(),
        kind: target.kind,
        command: target.about(),
        version: target.mounting.words().and_then(|words| words.first()).map(|program| version(program)),
        missing: target.missing.clone(),
    }
}

fn row(table: &Table, case: &Case, output: &Output) -> Row {
    let cell = |target: &Target| Cell { skipped: target.missing.clone(), ..Cell::default() };
    Row {
        name: format!("{}{}", case.name, output.suffix),
        group: if output.quantile.is_some() {
            case.group.clone()
        } else {
            format!("{}{}", case.group, output.suffix)
        },
        jobs: case.jobs,
        unit: output.unit,
        quantile: output.quantile.map(|quantile| quantile.as_str().to_owned()),
        better: output.unit.better(),
        cells: table.targets.iter().map(|target| (target.name.clone(), cell(target))).collect(),
        in_turns: matches!(case.work, Work::Turns(_)),
        beside: output.beside.map(str::to_owned),
        goal: output.goal.clone(),
        ours: None,
        reached: None,
        peers: Vec::new(),
    }
}

fn commands(table: &Table, scale: &Scale) -> BTreeMap<String, String> {
    let folder = Path::new("{MNT}");
    let of = |case: &Case| {
        let (work, amount) = match &case.work {
            Work::Fio(work) => (work, scale.amount),
            Work::Sealed(sealed) => (&sealed.fio, Sealed::amount(&scale.amount)),
            _ => return None,
        };
        let command = fio::command(work, folder, &folder.join(fio::large_file(0)), &amount);
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        Some((case.name.clone(), format!("fio {}", words.collect::<Vec<_>>().join(" "))))
    };
    table.cases.iter().filter_map(of).collect()
}

/// Prints a time as `2026-11-21T15:04:05Z`.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from the first of March of the year 0, so that the day of a leap year is the last of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_printed() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_273_445), "2026-11-21T15:04:05Z");
        assert_eq!(at(4_102_444_799), "2099-12-31T23:59:59Z");
    }
}
