//! What a server that is dead had begun on several branches, and noted, is completed.

use std::fs;

use shuntfs::NodeId;

use super::{Three, name};
use crate::op::remove;
use crate::op::rename::{self, Named};
use crate::who::Who;

/// Branches as they are noted: `a`, `b` and `c`.
const A: u64 = 1;
const B: u64 = 2;
const C: u64 = 4;

/// Which files there are, and what is in them.
fn all(three: &Three, names: [&str; 2]) -> Vec<(String, String)> {
    let paths = ["a", "b", "c"].into_iter().flat_map(|branch| names.map(|name| format!("{branch}/{name}")));
    paths.filter_map(|path| fs::read_to_string(three.at(&path)).ok().map(|text| (path, text))).collect()
}

/// A file of `b` and `c` that is moved over one of `a` and `b` was moved on both when the server died, and what it replaces was left on `a`, where it
/// was shown in its place: the caller was told that all of it was done.
#[test]
fn what_a_move_replaces_goes_however_far_it_came() {
    let (from, to) = (name("old"), name("new"));
    let steps: [fn(&Three); 4] = [
        |_| (),
        |three| fs::rename(three.at("b/old"), three.at("b/new")).unwrap(),
        |three| fs::rename(three.at("c/old"), three.at("c/new")).unwrap(),
        |three| fs::remove_file(three.at("a/new")).unwrap(),
    ];
    for done in 1..=steps.len() {
        let three = Three::new(&["b/old", "c/old", "a/new", "b/new"], |_| ());
        three.id("old");
        three.id("new");
        steps[..done].iter().for_each(|step| step(&three));
        let named = |name| Named { parent: NodeId::ROOT, name };
        rename::rename(&three.shared, Who::root().noted([B | C, A]), named(&from), named(&to), 0).unwrap();
        let there = [("b/new", "b/old"), ("c/new", "c/old")].map(|(path, text)| (path.into(), text.into()));
        assert_eq!(all(&three, ["old", "new"]), there, "after {} steps", done - 1);
    }
}

/// Copies that the policy leaves are not removed when the request comes again.
#[test]
fn a_removal_takes_no_more_than_it_had_begun_to() {
    let file = name("file");
    for done in [false, true] {
        let three = Three::new(&["a/file", "b/file", "c/file"], |_| ());
        if done {
            fs::remove_file(three.at("a/file")).unwrap();
        }
        remove::unlink(&three.shared, Who::root().noted([A, 0]), NodeId::ROOT, &file).unwrap();
        let left = all(&three, ["file", "none"]).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(left, ["b/file", "c/file"], "{done}");
    }
}
