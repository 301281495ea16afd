//! What it costs that another server can take over (`--takeover crash`), while none dies.

use super::{Setting, Table};
use crate::case::{Block, Call, Calls, Case, Engine, Fio, GitStep, Load, Pattern, Quantile, TreeStep, Work};
use crate::report::{Goal, Measure, Unit};

/// The column that is compared with the baseline.
const KEPT: &str = "crash";

/// What is aimed at: so much of the speed without it.
const AIM: f64 = 0.98;

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    // The transport that `crash` chooses. Without it, `auto` may choose another one, which is another table's question.
    let mount = |takeover| {
        ours.mount(takeover, &format!("--transport cloned --flow passthrough --takeover {takeover}"))
    };
    Table {
        name: "takeover",
        about: "a mount that survives its server beside one that does not, while no server dies",
        baseline: "off",
        against: None,
        targets: vec![mount("off"), mount(KEPT)],
        cases: cases(setting.smoke),
        notes: vec![
            "`getattr`, `lookup`, `create` and `open` are as in `tails`. What the state of a node takes in memory is in \
             docs/takeover.md."
                .to_owned(),
        ],
        skipped: None,
    }
}

fn cases(smoke: bool) -> Vec<Case> {
    let call = |call| {
        let mut case = Case::of_calls(Calls { call, callers: 1, load: Load::Idle });
        for output in case.outputs.iter_mut().filter(|output| output.quantile == Some(Quantile::P50)) {
            output.goal = Some(Goal { columns: vec![KEPT.to_owned()], measure: Measure::Ratio, value: AIM });
        }
        case
    };
    let tree = |name, step| Case::new(name, Work::Tree(step), Unit::Seconds).reach(KEPT, AIM);
    let read = Fio::new(Engine::Psync, Pattern::RandRead, Block(4));
    let read = Case::fio("randread 4k", read, Unit::OpsPerSec).reach(KEPT, AIM);
    if smoke {
        return vec![call(Call::Create), tree("unpack", TreeStep::Untar), read];
    }
    vec![
        call(Call::GetAttr),
        call(Call::Lookup),
        call(Call::Create),
        call(Call::Open),
        tree("unpack", TreeStep::Untar),
        tree("walk cold", TreeStep::FindCold),
        tree("remove", TreeStep::Remove),
        Case::new("git checkout", Work::Git(GitStep::Checkout), Unit::Seconds).reach(KEPT, AIM),
        read,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::tests::setting;
    use crate::target::Target;

    #[test]
    fn both_columns_differ_in_the_takeover_alone() {
        let table = table(&setting(2));
        let about: Vec<String> = table.targets.iter().map(Target::about).collect();
        assert_eq!(about[0].replace("--takeover off", "--takeover crash"), about[1]);
        assert!(about[0].contains("--takeover off"), "{about:?}");
        let goals = table.cases.iter().flat_map(|case| &case.outputs).filter(|output| output.goal.is_some());
        assert_eq!(goals.count(), table.cases.len(), "one goal a case");
    }
}
