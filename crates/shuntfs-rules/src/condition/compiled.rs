//! An expression, checked and ready to be evaluated.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{Expr, operators};
use cel::{Context, Env, IdedExpr, Program, Value};

use crate::known::Known;

use super::check::Checker;
use super::types;

/// The longest expression.
const LEN_MAX: usize = 4096;
/// How deep an expression may be nested.
pub(super) const DEPTH_MAX: usize = 40;

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A mistake, at a byte of the expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) offset: usize,
    pub(crate) text: String,
}

/// What a condition may say of a caller alone.
const OF_CALLERS: [&str; 4] = ["uid", "gid", "groups", "exe"];

/// An expression, checked.
#[derive(Debug)]
pub(crate) struct Condition {
    expression: IdedExpr,
    variables: Vec<&'static str>,
}

impl Condition {
    /// Compiles an expression, and checks its types. To be called with several MiB of stack.
    pub(crate) fn compile(source: &str, known: &dyn Known) -> Result<Self, Vec<Fault>> {
        let fault = |offset, text: String| Err(vec![Fault { offset, text }]);
        if source.len() > LEN_MAX {
            return fault(0, format!("a condition has at most {LEN_MAX} bytes"));
        }
        let nesting = nesting(source);
        if nesting > DEPTH_MAX {
            return fault(0, format!("the condition is nested deeper than {DEPTH_MAX}"));
        }
        let program = match catch_unwind(AssertUnwindSafe(|| Program::compile(source))) {
            Ok(Ok(program)) => program,
            Ok(Err(errors)) => {
                let faults = errors.errors.iter().map(|error| Fault {
                    offset: offset_of(source, error.pos),
                    text: format!("the condition is not CEL: {}", one_line(&error.msg)),
                });
                return Err(faults.collect());
            }
            Err(_) => return fault(0, "the condition is not CEL: the parser gave up".into()),
        };
        let mut expression = program.expression().clone();
        let mut checker = Checker::new(source, program.source_info(), known);
        checker.condition(&mut expression);
        let Checker { variables, faults, .. } = checker;
        if !faults.is_empty() {
            return Err(faults);
        }
        let condition = Self { expression, variables };
        match condition.constant() {
            Some(Ok(false)) => fault(0, "the condition is the same for everything, and never holds".into()),
            Some(Err(error)) => {
                fault(0, format!("the condition is the same for everything, and fails: {error}"))
            }
            Some(Ok(true)) | None => Ok(condition),
        }
    }

    /// What it says of everything, where it names nothing.
    fn constant(&self) -> Option<Result<bool, String>> {
        let unasked = |name: &str| Err(format!("`{name}` is not named"));
        self.variables.is_empty().then(|| self.holds(&unasked))
    }

    /// Whether it is about a file's place.
    pub(crate) fn names_path(&self) -> bool {
        self.variables.contains(&"path")
    }

    /// Whether it is about a file's name, or its place.
    pub(crate) fn names_name(&self) -> bool {
        self.names_path() || self.variables.contains(&"basename")
    }

    /// What it names, with the type of each.
    pub(crate) fn types(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.variables.iter().map(|name| (*name, types::of_variable(name).to_string()))
    }

    /// Whether it holds; `value` tells what a variable is.
    pub(crate) fn holds(&self, value: &dyn Fn(&str) -> Result<Value, String>) -> Result<bool, String> {
        holds(&self.expression, &self.variables, value)
    }

    /// Whether it may hold for a caller, whatever the file: not where one of the parts that all must hold is of callers
    /// alone, and does not. `value` is asked for variables of callers only.
    pub(crate) fn may_hold_for(&self, value: &dyn Fn(&str) -> Result<Value, String>) -> Result<bool, String> {
        let mut parts = vec![&self.expression];
        while let Some(part) = parts.pop() {
            match &part.expr {
                Expr::Call(call) if call.func_name == operators::LOGICAL_AND => parts.extend(&call.args),
                _ => {
                    let named = part.references();
                    let named = named.variables();
                    let variables: Vec<&str> =
                        self.variables.iter().copied().filter(|name| named.contains(name)).collect();
                    let is_of_callers = variables.iter().all(|name| OF_CALLERS.contains(name));
                    if is_of_callers && !holds(part, &variables, value)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

fn holds(
    expression: &IdedExpr,
    variables: &[&str],
    value: &dyn Fn(&str) -> Result<Value, String>,
) -> Result<bool, String> {
    let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
    for name in variables {
        context.add_variable_from_value(*name, value(name)?);
    }
    match catch_unwind(AssertUnwindSafe(|| Value::resolve(expression, &context))) {
        Ok(Ok(Value::Bool(holds))) => Ok(holds),
        Ok(Ok(_)) => Err("the condition is neither true nor false".into()),
        Ok(Err(error)) => Err(one_line(&error.to_string())),
        Err(_) => Err("the interpreter gave up".into()),
    }
}

/// About how deep the parser has to call itself: brackets that are open at once, and signs in a row. What this does not
/// see is bounded by the length alone, and that the stack of [`crate::Rules::parse`] bears.
fn nesting(source: &str) -> usize {
    let (mut open, mut signs, mut most) = (0_usize, 0_usize, 0_usize);
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            b'!' | b'-' | b'?' => signs += 1,
            b'&' | b'|' | b',' => signs = 0,
            _ => {}
        }
        most = most.max(open + signs);
    }
    most
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The byte of a place that the parser gives in lines and columns from 1 on.
fn offset_of(source: &str, (line, column): (isize, isize)) -> usize {
    let from_one = |number: isize| usize::try_from(number - 1).unwrap_or(0);
    let start: usize = source.split_inclusive('\n').take(from_one(line)).map(str::len).sum();
    (start + from_one(column)).min(source.len())
}

#[cfg(test)]
mod test {
    use super::*;

    struct Machine;

    impl Known for Machine {
        fn user(&self, name: &str) -> Option<u32> {
            (name == "nora").then_some(1000)
        }
        fn group(&self, name: &str) -> Option<u32> {
            (name == "fam").then_some(27)
        }
        fn policies(&self) -> &[&str] {
            &[]
        }
    }

    fn compile(source: &str) -> Result<Condition, Vec<Fault>> {
        Condition::compile(source, &Machine)
    }

    fn holds(source: &str) -> Result<bool, String> {
        let condition = compile(source).map_err(|faults| faults[0].text.clone())?;
        condition.holds(&|name| {
            Ok(match name {
                "uid" | "owner" => Value::Int(1000),
                "groups" => Value::List(Arc::new(vec![Value::Int(4), Value::Int(27)])),
                "basename" => Value::String(Arc::new("a.jpg".into())),
                "size" => Value::Int(10 << 20),
                "mode" => Value::Int(0o644),
                "type" => Value::String(Arc::new("image/jpeg".into())),
                "open" => Value::List(Arc::new(vec![Value::String(Arc::new("read".into()))])),
                name => return Err(format!("no {name}")),
            })
        })
    }

    #[test]
    fn conditions_hold_or_not() {
        for (source, expected) in [
            ("uid == 1000", true),
            ("27 in groups && uid < 5", false),
            ("groups.exists(g, g == 4)", true),
            ("groups.exists(g, groups.exists(h, h == g + 23))", true),
            ("groups.filter(g, g > 4) == [27] && groups.map(g, g + 1) == [5, 28]", true),
            ("groups.all(g, g > 3) && groups.exists_one(g, g == 4)", true),
            ("basename.endsWith('.jpg') && size > 5", true),
            ("basename.matches('^[a-z]\\\\.jpg$')", true),
            ("size(groups) == 2 ? groups[1] == 27 : false", true),
            ("uid != owner && uid != 0", false),
            ("mode % 8 / 4 == 1", true),
            ("double(size) / 2.0 > 1.5", true),
        ] {
            assert_eq!(holds(source), Ok(expected), "{source}");
        }
    }

    /// What is text in a key is the same in a condition: names, octal modes, sizes with a unit.
    #[test]
    fn names_modes_and_sizes_mean_what_they_mean_in_keys() {
        for (source, expected) in [
            ("uid == 'nora'", true),
            ("'nora' != uid", false),
            ("owner in ['nora', 0]", true),
            ("'fam' in groups", true),
            ("groups.exists(g, g == 'fam')", true),
            ("[4, 'fam'] == groups", true),
            ("mode == '0644'", true),
            ("mode in ['600', '0644']", true),
            ("mode == 0x1A4", true),
            ("size == '10M' && size < '1G'", true),
            ("'read' in open && !('write' in open) && open == ['read']", true),
            ("type == 'image/jpeg' || type == ''", true),
        ] {
            assert_eq!(holds(source), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_is_asked_for_is_only_what_is_named() {
        let condition = compile("uid == 0 || groups.exists(g, g == uid)").unwrap();
        let mut variables = condition.variables.clone();
        variables.sort_unstable();
        assert_eq!(variables, ["groups", "uid"]);
        assert!(!condition.names_path() && compile("!path.startsWith('a')").unwrap().names_path());
    }

    #[test]
    fn mistakes_have_places() {
        for (source, offset, text) in [
            ("uid == usr", 7, "unknown variable `usr`"),
            ("uid == 0 && ownr == 3", 12, "did you mean `owner`?"),
            ("groups.exists(g, g == h)", 22, "unknown variable `h`"),
            ("basename.startWith('a')", 9, "did you mean `startsWith`?"),
            ("uid == ", 7, "the condition is not CEL"),
            ("uid == 0 &&\n  &&", 14, "the condition is not CEL"),
            ("basename == 'ü' && uid == usr", 27, "unknown variable `usr`"),
        ] {
            let faults = compile(source).expect_err(source);
            assert_eq!(faults[0].offset, offset, "{source}: {faults:?}");
            assert!(faults[0].text.contains(text), "{source}: {faults:?}");
        }
    }

    /// Each of these passed once, and then never held, held always, or refused everybody.
    #[test]
    fn what_cannot_mean_what_it_says_is_a_mistake() {
        for (source, offset, text) in [
            ("uid == 'bob'", 7, "there is no user `bob` on this machine"),
            ("'staff' in groups", 0, "there is no group `staff` on this machine"),
            ("groups.exists(g, g == 'staff')", 22, "there is no group `staff`"),
            ("'reed' in open", 0, "unknown way to open `reed`; did you mean `read`?"),
            ("open == 'read'", 5, "one of a list is found by `\"read\" in open`"),
            ("groups == 27", 7, "one of a list is found by `27 in groups`"),
            ("mode == 0644", 8, "`0644` is decimal here; write \"0644\" for the mode, or \"1204\""),
            ("mode == 420", 8, "write \"0420\" for the mode, or \"0644\" for this number"),
            ("mode == 989", 8, "write \"1735\""),
            ("mode == 0x1FFFF", 8, "no mode is `0x1FFFF`"),
            ("mode == 'rw'", 8, "`rw` is no mode"),
            ("size > '10MB'", 7, "`10MB` is no size"),
            ("size < -1", 8, "no file has -1 bytes"),
            ("uid == -1", 8, "no id is -1"),
            ("gid == 4294967295", 7, "no id is 4294967295"),
            ("path.matches('[')", 13, "the expression of `matches` is not one: unclosed"),
            ("path.matches(basename)", 13, "stands in quotes"),
            ("size", 0, "a condition is true or false, and `size` is a number of bytes"),
            ("'a' + basename", 0, "a condition is true or false"),
            ("uid && true", 0, "`uid` is the number of a user"),
            ("!groups", 1, "`groups` is a list of numbers of groups"),
            ("basename == 5", 9, "cannot be compared"),
            ("basename < 5", 9, "cannot be compared"),
            ("'a' in path", 4, "a part of a text is found by `path.contains(\"a\")`"),
            ("path in groups", 5, "never in it"),
            ("basename + 1 == 2", 9, "do not go together by `+`"),
            ("-path == 2", 0, "has no negative"),
            ("path.ext == 'jpg'", 4, "`path` is text and has no field `ext`"),
            ("path.startsWith(5)", 15, "`startsWith` does not go with (text, a number)"),
            ("startsWith(path, 'a')", 10, "it is used as in `path.startsWith"),
            ("uid.exists(u, u == 5)", 10, "this goes over a list, and `uid` is the number of a user"),
            ("groups.exists(g, g)", 17, "go with true or false"),
            ("groups[path] == 5", 6, "a place in a list is a number"),
            ("[1, 'a'] == [2]", 0, "a list holds values of one type"),
            ("(uid == 0 ? 'a' : 5) == 5", 10, "both must be of one type"),
            ("dyn(uid) == 5", 0, "unknown function `dyn`"),
            ("uid == null", 7, "nothing is ever `null`"),
            ("path == b'a'", 8, "texts have no `b` in front"),
            ("{'a': 1}.a == 1", 0, "conditions have no maps"),
            ("has({'a': 1}.a)", 4, "conditions have no maps"),
            ("type == 'text/plain'", 8, "no file is `text/plain`, so this never matches"),
            ("type in ['image/jpg']", 9, "it is `image/jpeg`"),
            ("1 == 2", 0, "never holds"),
            ("1 / 0 == 1", 0, "fails"),
        ] {
            let faults = compile(source).expect_err(source);
            assert!(faults[0].text.contains(text), "{source}: {faults:?}");
            assert_eq!(faults[0].offset, offset, "{source}: {faults:?}");
        }
    }

    #[test]
    fn what_fails_as_it_runs_is_said() {
        for source in
            ["uid / 0 == 1", "groups[9] == 1", "int(basename) == 1", "uid * 9223372036854775807 > 0"]
        {
            assert!(compile(source).is_ok(), "{source}");
            assert!(holds(source).is_err(), "{source}");
        }
    }

    /// On a stack as large as the one that [`crate::Rules::parse`] gives.
    #[test]
    fn depth_and_length_are_bounded() {
        let thread = std::thread::Builder::new().stack_size(crate::rules::STACK);
        thread.spawn(try_deep_ones).unwrap().join().unwrap();
    }

    fn try_deep_ones() {
        let deep = |times: usize| format!("{}uid{} == 0", "(".repeat(times), ")".repeat(times));
        assert!(compile(&deep(20)).is_ok());
        for source in [
            deep(5000),
            deep(100),
            "!".repeat(3000) + "true",
            "-".repeat(3000) + "1 == 1",
            "uid == 0 ? ".repeat(200) + "true" + &" : false".repeat(200),
            "1?1&&1:".repeat(585) + "1",
            "uid.a".to_owned() + &".a".repeat(2000),
            "[".repeat(2000),
            "1+".repeat(2047) + "1",
            "uid".to_owned() + &"[0]".repeat(1300),
            "a".repeat(5000),
        ] {
            assert!(compile(&source).is_err(), "{} bytes", source.len());
        }
    }
}
