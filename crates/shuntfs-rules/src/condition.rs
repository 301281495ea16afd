//! Conditions in the Common Expression Language.
//!
//! The parser and the interpreter call themselves as deep as an expression is nested, so length and depth are bounded,
//! and expressions are compiled on a thread with room (see [`crate::Rules::parse`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, Env, Program, Value};

/// The longest expression.
const LEN_MAX: usize = 4096;
/// How deep an expression may be nested.
const DEPTH_MAX: usize = 40;

/// What an expression may name.
pub(crate) const VARIABLES: &[&str] =
    &["path", "basename", "type", "size", "owner", "group", "mode", "uid", "gid", "groups", "exe", "open"];

/// The functions there are, besides operators.
const FUNCTIONS: &[&str] = &[
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "int",
    "uint",
    "double",
    "bytes",
    "bool",
    "type",
    "dyn",
];

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A mistake, at a byte of the expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) offset: usize,
    pub(crate) text: String,
}

/// An expression, compiled.
#[derive(Debug)]
pub(crate) struct Condition {
    program: Program,
    variables: Vec<&'static str>,
}

impl Condition {
    /// Compiles an expression. To be called with several MiB of stack.
    pub(crate) fn compile(source: &str) -> Result<Self, Vec<Fault>> {
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
        let mut look = Look { bound: Vec::new(), variables: Vec::new(), faults: Vec::new(), source };
        look.at(program.expression(), 0);
        if look.faults.is_empty() {
            let variables = look.variables;
            Ok(Self { program, variables })
        } else {
            Err(look.faults)
        }
    }

    /// Whether it holds; `value` tells what a variable is.
    pub(crate) fn holds(&self, value: &dyn Fn(&str) -> Result<Value, String>) -> Result<bool, String> {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        for name in &self.variables {
            context.add_variable_from_value(*name, value(name)?);
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.program.execute(&context)));
        match outcome {
            Ok(Ok(Value::Bool(holds))) => Ok(holds),
            Ok(Ok(_)) => Err("the condition is neither true nor false".into()),
            Ok(Err(error)) => Err(one_line(&error.to_string())),
            Err(_) => Err("the interpreter gave up".into()),
        }
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

/// A walk over an expression: depth, names, functions.
struct Look<'s> {
    /// Names that macros like `exists` bind.
    bound: Vec<String>,
    variables: Vec<&'static str>,
    faults: Vec<Fault>,
    source: &'s str,
}

impl Look<'_> {
    fn at(&mut self, expression: &IdedExpr, depth: usize) {
        if depth > DEPTH_MAX {
            if self.faults.is_empty() {
                let text = format!("the condition is nested deeper than {DEPTH_MAX}");
                self.faults.push(Fault { offset: 0, text });
            }
            return;
        }
        let next = depth + 1;
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.at(&select.operand, next),
            Expr::List(list) => list.elements.iter().for_each(|element| self.at(element, next)),
            Expr::Call(call) => {
                self.function(&call.func_name);
                call.target.iter().for_each(|target| self.at(target, next));
                call.args.iter().for_each(|argument| self.at(argument, next));
            }
            Expr::Map(map) => map.entries.iter().for_each(|entry| self.entry(&entry.expr, next)),
            Expr::Struct(made) => made.entries.iter().for_each(|entry| self.entry(&entry.expr, next)),
            Expr::Comprehension(each) => {
                self.at(&each.iter_range, next);
                self.at(&each.accu_init, next);
                let before = self.bound.len();
                self.bound.push(each.iter_var.clone());
                self.bound.extend(each.iter_var2.clone());
                self.bound.push(each.accu_var.clone());
                for part in [&each.loop_cond, &each.loop_step, &each.result] {
                    self.at(part, next);
                }
                self.bound.truncate(before);
            }
        }
    }

    fn entry(&mut self, entry: &EntryExpr, depth: usize) {
        match entry {
            EntryExpr::StructField(field) => self.at(&field.value, depth),
            EntryExpr::MapEntry(entry) => {
                self.at(&entry.key, depth);
                self.at(&entry.value, depth);
            }
        }
    }

    fn name(&mut self, name: &str) {
        if name.starts_with('@') || self.bound.iter().any(|bound| bound == name) {
            return;
        }
        match VARIABLES.iter().find(|known| **known == name) {
            Some(known) if self.variables.contains(known) => {}
            Some(known) => self.variables.push(known),
            None => self.unknown("variable", name, VARIABLES),
        }
    }

    fn function(&mut self, name: &str) {
        // Operators have names that nobody can write.
        let written = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let operator = name.starts_with('_') || name.starts_with('@') || !written;
        if !operator && !FUNCTIONS.contains(&name) {
            self.unknown("function", name, FUNCTIONS);
        }
    }

    fn unknown(&mut self, what: &str, name: &str, known: &[&'static str]) {
        let near = known.iter().map(|word| (strsim::jaro_winkler(name, word), *word));
        let near = near.filter(|(score, _)| *score >= 0.75).max_by(|a, b| a.0.total_cmp(&b.0));
        let text = match near {
            Some((_, near)) => format!("unknown {what} `{name}` in the condition; did you mean `{near}`?"),
            None => format!("unknown {what} `{name}` in the condition; there are: {}", known.join(", ")),
        };
        let offset = word_in(self.source, name).unwrap_or(0);
        let fault = Fault { offset, text };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }
}

/// Where a word stands by itself.
fn word_in(source: &str, word: &str) -> Option<usize> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    source.match_indices(word).map(|(place, _)| place).find(|place| {
        let before = place.checked_sub(1).is_some_and(|before| is_part(source.as_bytes()[before]));
        let after = source.as_bytes().get(place + word.len()).is_some_and(|byte| is_part(*byte));
        !before && !after
    })
}

#[cfg(test)]
mod test {
    use super::*;

    fn holds(source: &str) -> Result<bool, String> {
        let condition = Condition::compile(source).map_err(|faults| faults[0].text.clone())?;
        condition.holds(&|name| {
            Ok(match name {
                "uid" => Value::Int(1000),
                "groups" => Value::List(Arc::new(vec![Value::Int(4), Value::Int(27)])),
                "basename" => Value::String(Arc::new("a.jpg".into())),
                "size" => Value::Int(10),
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
            ("basename.endsWith('.jpg') && size > 5", true),
            ("basename.matches('^[a-z]\\\\.jpg$')", true),
            ("has({'a': 1}.a) ? size(groups) == 2 : false", true),
        ] {
            assert_eq!(holds(source), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_is_asked_for_is_only_what_is_named() {
        let condition = Condition::compile("uid == 0 || groups.exists(g, g == uid)").unwrap();
        let mut variables = condition.variables.clone();
        variables.sort_unstable();
        assert_eq!(variables, ["groups", "uid"]);
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
        ] {
            let faults = Condition::compile(source).expect_err(source);
            assert_eq!(faults[0].offset, offset, "{source}: {faults:?}");
            assert!(faults[0].text.contains(text), "{source}: {faults:?}");
        }
    }

    #[test]
    fn what_fails_as_it_runs_is_said() {
        for source in ["uid / 0 == 1", "uid", "basename + 1 == 2", "groups[9] == 1", "'x' < 1"] {
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
        assert!(Condition::compile(&deep(20)).is_ok());
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
            assert!(Condition::compile(&source).is_err(), "{} bytes", source.len());
        }
    }
}
