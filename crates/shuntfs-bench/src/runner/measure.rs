//! A whole run.

use std::time::{Instant, SystemTime};

use anyhow::Result;

use crate::cpu;
use crate::descriptors;
use crate::options::{Options, Size};
use crate::progress::Progress;
use crate::report::Run;
use crate::stop::Stop;

use super::bench::Bench;
use super::plan::{Plan, plan};
use super::skeleton;

/// Measures what the options ask for. A target that fails has its error in the report, and the run goes on.
///
/// # Errors
/// When the options name what does not exist, the machine lacks something that every case needs, or `stop` is set before
/// there is a figure; with figures, the report says that it was interrupted.
pub fn measure(options: &Options, stop: &Stop) -> Result<Run> {
    let plan = plan(options)?;
    let progress = Progress::start(u64::try_from(plan.figures())?);
    let minutes = plan.about().as_secs().div_ceil(60);
    progress.say(&format!(
        "{} figures in {} round(s), about {minutes} min",
        plan.figures(),
        plan.scale.rounds
    ));
    let Plan { tables, scale, mut notes, need } = plan;
    let started = Instant::now();
    let stolen_before = cpu::stolen();
    let mut run = skeleton::run(options, &scale, &tables, SystemTime::now());
    run.descriptors = Some(descriptors::raise());
    for note in &notes {
        progress.say(note);
    }
    run.doubts.append(&mut notes);
    if options.size == Size::Smoke {
        run.doubts.push("Size `smoke`: it shows that everything works; its figures mean nothing.".to_owned());
    }
    let mut bench = Bench::set_up(need, scale.amount, options.folder.as_deref(), stop, progress)?;
    run.lower.clone_from(&bench.lower.about);
    let mut outcome = Ok(());
    for (table, report) in tables.iter().zip(&mut run.tables) {
        if outcome.is_ok() {
            outcome = bench.rounds(table, &scale, report);
        }
    }
    run.interrupted = outcome.is_err() && stop.is_set();
    if !(run.interrupted && run.tables.iter().any(crate::report::Report::has_figures)) {
        outcome?;
    }
    run.doubts.extend(stolen(stolen_before, cpu::stolen()));
    run.elapsed_s = started.elapsed().as_secs();
    run.settle();
    Ok(run)
}

/// Says how much of the processors the host gave to others meanwhile.
fn stolen(before: Option<(u64, u64)>, after: Option<(u64, u64)>) -> Option<String> {
    let ((stolen_before, all_before), (stolen_after, all_after)) = before.zip(after)?;
    let (stolen, all) = (stolen_after.saturating_sub(stolen_before), all_after.saturating_sub(all_before));
    // In hundredths; one in fifty is what a single figure can be off by anyway.
    let percent = stolen * 100 / all.max(1);
    (percent >= 2).then(|| format!("Other load: the host gave {percent} % of the processors to others."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_said_from_a_fiftieth_on() {
        assert_eq!(stolen(Some((0, 0)), Some((1, 100))), None);
        assert!(stolen(Some((10, 100)), Some((15, 200))).unwrap().contains("5 %"));
        assert_eq!(stolen(None, Some((15, 200))), None);
    }
}
