//! Rules, compiled: what they say of one use of one file.

use std::sync::Arc;
use std::thread;

use crate::asked::Asked;
use crate::at::At;
use crate::condition::Condition;
use crate::decision::{Decision, Possible, VerifyWord};
use crate::facts::{CallerFacts, FileFacts, Unknown, Use};
use crate::known::Known;
use crate::lint;
use crate::mistake::{Mistake, Mistakes, unknown_word};
use crate::model::{AccessWord, Effects, MatchMode, Matchers, Rule};
use crate::pattern::{Patterns, PatternsBuilder, ancestors_of, folders_of, is_floating};
use crate::{read, show};

/// The parser and the compiler of conditions call themselves deeply.
pub(crate) const STACK: usize = 64 << 20;

/// A file of rules, checked and ready to be asked.
#[derive(Debug)]
pub struct Rules {
    mode: MatchMode,
    rules: Vec<Rule>,
    compiled: Vec<Compiled>,
    /// Patterns of paths, of last components, and of programs.
    paths: Patterns,
    basenames: Patterns,
    programs: Patterns,
    /// Folders that hold what rules of paths may match, directly and anywhere below.
    folders: Patterns,
    ancestors: Patterns,
    has_hides: bool,
    has_redactions: bool,
    has_restrictions: bool,
    warnings: Vec<Mistake>,
}

/// What a rule comes down to.
#[derive(Debug)]
struct Compiled {
    /// Whether it is for the view that is asked about, and says who may use files.
    in_view: bool,
    /// Whether it is for the view, and says how files are moved.
    moves: bool,
    condition: Option<Condition>,
    /// Whether the path alone tells that it matches, however the file is opened.
    is_definite: bool,
    /// Whether it may match in any folder, or below any.
    any_folder: bool,
    any_ancestor: bool,
    /// Whether a move to another folder may change what it matches.
    is_anchored: bool,
}

/// A rule that could not be evaluated. Whoever asked must refuse what was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// Which one: an index into [`Rules::rules`].
    pub rule: usize,
    /// Why.
    pub why: Unknown,
}

/// What rules do to the listing of a folder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Listing {
    /// Nothing.
    Whole,
    /// Names are left out, the same for everybody.
    Fixed,
    /// What is left out depends on more than names.
    Varies,
}

impl Rules {
    /// Reads rules for the mount that shows `view`; `file` is the name in messages.
    ///
    /// # Errors
    /// Every mistake that there is, each with its place.
    pub fn parse(
        source: &str,
        file: &str,
        view: Option<&str>,
        known: &(dyn Known + Sync),
    ) -> Result<Self, Mistakes> {
        let work = || Self::parse_here(source, view, known);
        let outcome = thread::scope(|scope| {
            let thread = thread::Builder::new().name("rules".into()).stack_size(STACK);
            match thread.spawn_scoped(scope, work) {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|_| Err(whole("the rules cannot be read: a panic")))
                }
                Err(error) => Err(whole(&format!("no thread to read the rules: {error}"))),
            }
        });
        outcome.map_err(|all| Mistakes { file: file.to_owned(), all })
    }

    fn parse_here(source: &str, view: Option<&str>, known: &dyn Known) -> Result<Self, Vec<Mistake>> {
        let document = read::read(source, known)?;
        check_view(&document.rules, view)?;
        Self::compile(document.mode, document.rules, view, known).map_err(|error| whole(&error))
    }

    fn compile(
        mode: MatchMode,
        rules: Vec<Rule>,
        view: Option<&str>,
        known: &dyn Known,
    ) -> Result<Self, String> {
        let mut sets: [PatternsBuilder; 5] = Default::default();
        let [paths, basenames, programs, folders, ancestors] = &mut sets;
        let mut compiled = Vec::with_capacity(rules.len());
        for (index, rule) in rules.iter().enumerate() {
            let matchers = &rule.matchers;
            let mut this = Compiled::of(rule, view, known)?;
            if this.condition.as_ref().is_some_and(Condition::names_path) {
                // What it says of a place is not taken apart: it may be any, in or below any folder.
                this.is_anchored = true;
                this.any_ancestor |= matchers.path.is_empty();
            }
            matchers.basename.iter().try_for_each(|text| basenames.add(text, index))?;
            matchers.exe.iter().try_for_each(|text| programs.add(text, index))?;
            for text in &matchers.path {
                paths.add(text, index)?;
                this.is_anchored |= !is_floating(text);
                match folders_of(text) {
                    Some(list) => list.iter().try_for_each(|text| folders.add(text, index))?,
                    None => this.any_folder = true,
                }
                match ancestors_of(text) {
                    Some(list) => list.iter().try_for_each(|text| ancestors.add(text, index))?,
                    None => this.any_ancestor = true,
                }
            }
            compiled.push(this);
        }
        let [paths, basenames, programs, folders, ancestors] = sets;
        let active = |test: fn(&Effects) -> bool| {
            rules.iter().zip(&compiled).any(|(rule, compiled)| compiled.in_view && test(&rule.effects))
        };
        let has_hides = active(|effects| effects.access == Some(AccessWord::Hide));
        let has_redactions = active(|effects| matches!(effects.redact, Some(Some(_))));
        let has_restrictions = active(Effects::restricts);
        Ok(Self {
            mode,
            paths: paths.build()?,
            basenames: basenames.build()?,
            programs: programs.build()?,
            folders: folders.build()?,
            ancestors: ancestors.build()?,
            has_hides,
            has_redactions,
            has_restrictions,
            warnings: lint::warnings(mode, &rules),
            compiled,
            rules,
        })
    }

    /// The rules as they were read.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What is no mistake and probably not meant, in the order of places: rules that never decide.
    #[must_use]
    pub fn warnings(&self) -> &[Mistake] {
        &self.warnings
    }

    /// Which rules count where several match.
    #[must_use]
    pub fn mode(&self) -> MatchMode {
        self.mode
    }

    /// The rules as a file that means the same, with every default written out.
    #[must_use]
    pub fn show(&self) -> String {
        let conditions = self.compiled.iter().map(|compiled| compiled.condition.as_ref());
        show::show(self.mode, self.rules.iter().zip(conditions))
    }

    /// Whether some name may be hidden from somebody.
    #[must_use]
    pub fn hides(&self) -> bool {
        self.has_hides
    }

    /// Whether bytes of some file may be hidden from somebody.
    #[must_use]
    pub fn redacts(&self) -> bool {
        self.has_redactions
    }

    /// The first rule that speaks of seals, which a mount without one cannot follow.
    #[must_use]
    pub fn speaks_of_seals(&self) -> Option<&Rule> {
        self.active().find(|rule| matches!(rule.effects.verify, Some(Some(_))))
    }

    /// The rules for the view that is shown, but those that only move files.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Rule> {
        let all = self.rules.iter().zip(&self.compiled);
        all.filter(|(_, compiled)| compiled.in_view).map(|(rule, _)| rule)
    }

    /// The rules for the view that say how files are moved.
    pub(crate) fn moving(&self) -> impl Iterator<Item = &Rule> {
        let all = self.rules.iter().zip(&self.compiled);
        all.filter(|(_, compiled)| compiled.moves).map(|(rule, _)| rule)
    }

    /// A rule, and its condition if it has one.
    pub(crate) fn with_condition(&self, index: usize) -> (&Rule, Option<&Condition>) {
        (&self.rules[index], self.compiled[index].condition.as_ref())
    }

    /// The patterns of programs.
    pub(crate) fn programs(&self) -> &Patterns {
        &self.programs
    }

    /// Whether a file with this path is not checked, whoever opens it: a rule says so by the path alone, and no other that may
    /// hold says anything else.
    #[must_use]
    pub fn unchecked(&self, path: &[u8]) -> bool {
        self.unchecked_of(&self.matched(path))
    }

    pub(crate) fn unchecked_of(&self, matched: &[usize]) -> bool {
        const OFF: Option<Option<VerifyWord>> = Some(Some(VerifyWord::Off));
        let mut is_said = false;
        for &index in matched {
            let (said, is_definite) = (self.rules[index].effects.verify, self.compiled[index].is_definite);
            match self.mode {
                MatchMode::First if said != OFF => return false,
                MatchMode::First if is_definite => return true,
                MatchMode::All if said.is_some_and(|said| Some(said) != OFF) => return false,
                _ => is_said |= said == OFF && is_definite,
            }
        }
        is_said
    }

    /// Whether anything may be taken from anybody.
    #[must_use]
    pub fn restricts(&self) -> bool {
        self.has_restrictions
    }

    /// Whether something may be taken for the sake of a file's name or place.
    #[must_use]
    pub fn restricts_by_name(&self) -> bool {
        self.has_restrictions && self.active().any(|rule| is_by_name(&rule.matchers))
    }

    /// Decides. A file with several names is asked about once for each, and the decisions are put together with
    /// [`Decision::strictest`].
    ///
    /// # Errors
    /// Where a rule cannot be evaluated: what was asked for must then be refused.
    pub fn decide(
        &self,
        file: &dyn FileFacts,
        caller: &dyn CallerFacts,
        how: Use,
    ) -> Result<Decision, Failed> {
        self.decide_of(&self.matched(file.path()), file, caller, how)
    }

    pub(crate) fn decide_of(
        &self,
        matched: &[usize],
        file: &dyn FileFacts,
        caller: &dyn CallerFacts,
        how: Use,
    ) -> Result<Decision, Failed> {
        let asked = Asked::new(file, caller, how, &self.programs);
        let mut decision = Decision::default();
        for &index in matched {
            let (rule, compiled) = (&self.rules[index], &self.compiled[index]);
            let matches = asked
                .matches(index, &rule.matchers, compiled.condition.as_ref())
                .map_err(|why| Failed { rule: index, why })?;
            if !matches {
                continue;
            }
            rule.effects.apply(&mut decision);
            decision.rules.push(index);
            if self.mode == MatchMode::First {
                break;
            }
        }
        Ok(decision)
    }

    /// Whether a rule's patterns match this path; where none does, no decision says anything.
    #[must_use]
    pub fn touches(&self, path: &[u8]) -> bool {
        !self.matched(path).is_empty()
    }

    /// Looks up the rules that a path comes under, for a request that asks them more than once.
    #[must_use]
    pub fn at(self: &Arc<Self>, path: &[u8]) -> At {
        At::new(self, path)
    }

    /// What could be said of a file with this path to some caller.
    #[must_use]
    pub fn possible(&self, path: &[u8]) -> Possible {
        self.possible_of(&self.matched(path))
    }

    pub(crate) fn possible_of(&self, matched: &[usize]) -> Possible {
        let mut possible = Possible::default();
        let mut is_varying = false;
        for &index in matched {
            let (rule, compiled) = (&self.rules[index], &self.compiled[index]);
            let effects = &rule.effects;
            possible.deny |= matches!(effects.access, Some(AccessWord::Deny(_)));
            possible.read_only |= effects.read_only == Some(true);
            possible.append_only |= effects.append_only == Some(true);
            possible.redact |= matches!(effects.redact, Some(Some(_)));
            possible.hide |= effects.access == Some(AccessWord::Hide);
            is_varying |= self.varies(rule, compiled);
            if self.mode == MatchMode::First && compiled.is_definite {
                break;
            }
        }
        possible.varies = (possible.hide || possible.redact) && is_varying;
        possible
    }

    /// What the rules do to the listing of the folder with this path.
    #[must_use]
    pub fn listing(&self, folder: &[u8]) -> Listing {
        if !self.has_hides {
            return Listing::Whole;
        }
        let reaching = self.reaching(&self.folders, folder);
        let (mut hides, mut varies) = (false, false);
        for (index, (rule, compiled)) in self.rules.iter().zip(&self.compiled).enumerate() {
            let anywhere = rule.matchers.path.is_empty() || compiled.any_folder;
            if compiled.in_view && (anywhere || reaching[index]) {
                hides |= rule.effects.access == Some(AccessWord::Hide);
                varies |= self.varies(rule, compiled);
            }
        }
        match (hides, varies) {
            (false, _) => Listing::Whole,
            (true, false) => Listing::Fixed,
            (true, true) => Listing::Varies,
        }
    }

    /// Whether a rule makes it a matter of more than the name what is seen.
    fn varies(&self, rule: &Rule, compiled: &Compiled) -> bool {
        let looks = rule.matchers.open.is_empty() && !compiled.is_definite;
        let speaks = rule.effects.access.is_some() || rule.effects.redact.is_some();
        looks && (self.mode == MatchMode::First || speaks)
    }

    /// Whether a rule that is about one place may hold for something below the folder with this path.
    #[must_use]
    pub fn holds_below(&self, folder: &[u8]) -> bool {
        if !self.has_restrictions {
            return false;
        }
        let reaching = self.reaching(&self.ancestors, folder);
        self.compiled.iter().enumerate().any(|(index, compiled)| {
            let reaches = reaching[index] || compiled.any_ancestor;
            compiled.in_view && compiled.is_anchored && reaches
        })
    }

    /// Whether something could be taken from this caller for the sake of a name of the file that is not known. With
    /// `match = "first"`, not where an earlier rule allows everything to it.
    ///
    /// # Errors
    /// Where a rule cannot be evaluated.
    pub fn concerns_names(&self, file: &dyn FileFacts, caller: &dyn CallerFacts) -> Result<bool, Failed> {
        let asked = Asked::new(file, caller, Use::LOOK, &self.programs);
        for (index, (rule, compiled)) in self.rules.iter().zip(&self.compiled).enumerate() {
            let restricts = rule.effects.restricts();
            let takes = restricts && is_by_name(&rule.matchers);
            let ends = !restricts && self.mode == MatchMode::First && rule.matchers.is_of_caller_alone();
            if compiled.in_view
                && (takes || ends)
                && asked.caller_matches(index, &rule.matchers).map_err(|why| Failed { rule: index, why })?
            {
                return Ok(takes);
            }
        }
        Ok(false)
    }

    /// Which rules have a pattern of these that matches.
    fn reaching(&self, patterns: &Patterns, path: &[u8]) -> Vec<bool> {
        let mut reaching = vec![false; self.rules.len()];
        patterns.matching(path, |rule| reaching[rule] = true);
        reaching
    }

    /// Whether a rule may take something from this caller, of whatever file. With `match = "first"`, not where an earlier one
    /// allows everything to it.
    ///
    /// # Errors
    /// Where a rule cannot be evaluated.
    pub fn concerns(&self, file: &dyn FileFacts, caller: &dyn CallerFacts) -> Result<bool, Failed> {
        let asked = Asked::new(file, caller, Use::LOOK, &self.programs);
        for (index, (rule, compiled)) in self.rules.iter().zip(&self.compiled).enumerate() {
            let failed = |why| Failed { rule: index, why };
            let restricts = rule.effects.restricts();
            let may_end = self.mode == MatchMode::First && rule.matchers.is_of_caller_alone();
            if !compiled.in_view || !restricts && !may_end {
                continue;
            }
            if restricts {
                let condition = compiled.condition.as_ref();
                if asked.may_concern(index, &rule.matchers, condition).map_err(failed)? {
                    return Ok(true);
                }
            } else if asked.caller_matches(index, &rule.matchers).map_err(failed)? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    pub(crate) fn restricts_of(&self, matched: &[usize]) -> bool {
        matched.iter().any(|index| self.rules[*index].effects.restricts())
    }

    /// Whether these rules, in their order, say the same of every file and caller when the name is another one.
    pub(crate) fn is_same_elsewhere(&self, matched: &[usize]) -> bool {
        let conditions = matched.iter().filter_map(|index| self.compiled[*index].condition.as_ref());
        !conditions.into_iter().any(Condition::names_name)
    }

    /// Whether a move of the folder with this path, or one to it, could change what the rules say of something in it, for
    /// whomever, where something is taken from this caller. From whom nothing is taken, he could copy it, too.
    ///
    /// # Errors
    /// Where a rule cannot be evaluated.
    pub fn concerns_below(&self, folder: &dyn FileFacts, caller: &dyn CallerFacts) -> Result<bool, Failed> {
        if !self.holds_below(folder.path()) {
            return Ok(false);
        }
        let asked = Asked::new(folder, caller, Use::LOOK, &self.programs);
        let reaching = self.reaching(&self.ancestors, folder.path());
        for (index, (rule, compiled)) in self.rules.iter().zip(&self.compiled).enumerate() {
            let reaches = rule.matchers.path.is_empty() || reaching[index] || compiled.any_ancestor;
            if compiled.in_view && rule.effects.restricts() && reaches {
                let condition = compiled.condition.as_ref();
                let concerned = asked.may_concern(index, &rule.matchers, condition);
                if concerned.map_err(|why| Failed { rule: index, why })? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The rules of the view whose patterns match a path, in their order.
    pub(crate) fn matched(&self, path: &[u8]) -> Vec<usize> {
        self.matched_of(path, |compiled| compiled.in_view)
    }

    /// The same of those that say how files are moved.
    pub(crate) fn matched_moves(&self, path: &[u8]) -> Vec<usize> {
        self.matched_of(path, |compiled| compiled.moves)
    }

    fn matched_of(&self, path: &[u8], is_meant: fn(&Compiled) -> bool) -> Vec<usize> {
        const PATH: u8 = 1;
        const BASENAME: u8 = 2;
        let mut hits = vec![0_u8; self.rules.len()];
        self.paths.matching(path, |rule| hits[rule] |= PATH);
        self.basenames.matching(last_component(path), |rule| hits[rule] |= BASENAME);
        let all = self.compiled.iter().zip(&self.rules).enumerate();
        let matched = all.filter_map(|(index, (compiled, rule))| {
            let path = rule.matchers.path.is_empty() || hits[index] & PATH != 0;
            let basename = rule.matchers.basename.is_empty() || hits[index] & BASENAME != 0;
            (is_meant(compiled) && path && basename).then_some(index)
        });
        matched.collect()
    }
}

/// A mount for a view that no rule names has a mistake in its name, and would show what the view leaves out.
fn check_view(rules: &[Rule], view: Option<&str>) -> Result<(), Vec<Mistake>> {
    let Some(view) = view else { return Ok(()) };
    let mut known: Vec<&str> =
        rules.iter().flat_map(|rule| &rule.matchers.view).map(String::as_str).collect();
    known.sort_unstable();
    known.dedup();
    match known.as_slice() {
        known if known.contains(&view) => Ok(()),
        [] => Err(whole(&format!("no rule is for a view, and the mount is for the view `{view}`"))),
        known => Err(whole(&unknown_word("view", view, known))),
    }
}

/// Whether it is a matter of the file's name or place whether a rule matches.
fn is_by_name(matchers: &Matchers) -> bool {
    !matchers.path.is_empty() || !matchers.basename.is_empty() || matchers.when.is_some()
}

fn whole(text: &str) -> Vec<Mistake> {
    vec![Mistake { line: 1, column: 1, text: text.to_owned() }]
}

pub(crate) fn last_component(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

impl Compiled {
    fn of(rule: &Rule, view: Option<&str>, known: &dyn Known) -> Result<Self, String> {
        let matchers = &rule.matchers;
        let compile = |text: &str| Condition::compile(text, known);
        let condition = matchers.when.as_deref().map(compile).transpose();
        let condition = condition.map_err(|faults| {
            faults.first().map(|fault| fault.text.clone()).unwrap_or_else(|| "a condition is wrong".into())
        })?;
        let by_view = |view: &str| matchers.view.iter().any(|wanted| wanted == view);
        let in_view = matchers.view.is_empty() || view.is_some_and(by_view);
        Ok(Self {
            in_view: in_view && !rule.effects.moves_alone(),
            moves: in_view && rule.effects.moves.is_some(),
            is_definite: matchers.is_of_path_alone(),
            condition,
            any_folder: false,
            any_ancestor: false,
            is_anchored: false,
        })
    }
}

impl Matchers {
    /// Whether nothing is asked but who the caller is.
    fn is_of_caller_alone(&self) -> bool {
        let Self {
            path,
            basename,
            view: _,
            types,
            size,
            owner,
            group,
            mode,
            uid: _,
            gid: _,
            groups: _,
            exe: _,
            open,
            when,
        } = self;
        let no_name = path.is_empty() && basename.is_empty();
        let no_file = types.is_empty() && owner.is_empty() && group.is_empty();
        no_name && no_file && size.is_none() && mode.is_none() && when.is_none() && open.is_empty()
    }

    /// Whether nothing is asked but the path and the view.
    fn is_of_path_alone(&self) -> bool {
        let Self {
            path: _,
            basename: _,
            view: _,
            types,
            size,
            owner,
            group,
            mode,
            uid,
            gid,
            groups,
            exe,
            open,
            when,
        } = self;
        let accounts = [owner, group, uid, gid, groups].iter().all(|list| list.is_empty());
        let unasked = size.is_none() && mode.is_none() && when.is_none();
        accounts && unasked && types.is_empty() && exe.is_empty() && open.is_empty()
    }
}
