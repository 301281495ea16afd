//! What it costs that another server can take over (`--takeover crash`), while none dies.

use super::{Setting, Table};
use crate::case::{Block, Call, Case, Engine, Fio, GitStep, Pattern, TreeStep, Work};
use crate::report::Unit;

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
            "Calls are made on both mounts in turns, a few milliseconds on each. What the state of a node takes in memory is in \
             docs/takeover.md."
                .to_owned(),
        ],
        skipped: None,
    }
}

fn cases(smoke: bool) -> Vec<Case> {
    let call = |call| Case::in_turns(call).reach(KEPT, AIM);
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
        call(Call::File),
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
