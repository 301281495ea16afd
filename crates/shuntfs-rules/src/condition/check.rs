//! The types of a condition's expressions: a condition that cannot mean what it says is a mistake.
//!
//! CEL finds wrong types when it comes to them, and calls two values of different types unequal. So `uid == "nora"`
//! would never hold, and nobody would be told. Here every expression has a type before anything is evaluated. What goes
//! beyond that (maps, `dyn`, expressions that are made at run time for `matches`) is not part of conditions.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators};
use cel::common::types::CelInt;

use super::compiled::{DEPTH_MAX, Fault};
use super::literal;
use super::types::{Domain, Type, VARIABLES, Words, of_variable};
use crate::known::Known;
use crate::mistake::unknown_word;

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
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "filter",
    "map",
];

/// A walk over an expression that gives each part its type, and puts numbers instead of the names, modes and sizes
/// that are compared to numbers.
pub(super) struct Checker<'c> {
    source: &'c str,
    places: &'c SourceInfo,
    known: &'c dyn Known,
    /// What macros like `exists` bind.
    bound: Vec<(String, Type)>,
    pub(super) variables: Vec<&'static str>,
    pub(super) faults: Vec<Fault>,
    /// Where the parts are that are being looked at: parts that a macro made have no place of their own.
    offset: usize,
    depth: usize,
}

impl<'c> Checker<'c> {
    pub(super) fn new(source: &'c str, places: &'c SourceInfo, known: &'c dyn Known) -> Self {
        let (bound, variables, faults) = (Vec::new(), Vec::new(), Vec::new());
        Self { source, places, known, bound, variables, faults, offset: 0, depth: 0 }
    }

    /// A whole condition, which is true or false.
    pub(super) fn condition(&mut self, whole: &mut IdedExpr) {
        let found = self.at(whole);
        if !matches!(found, Type::Bool | Type::Unknown) {
            let what = self.written(whole);
            self.fault(0, format!("a condition is true or false, and {what} is {found}"));
        }
    }

    /// A part, and what it is.
    fn at(&mut self, part: &mut IdedExpr) -> Type {
        if self.depth > DEPTH_MAX {
            self.fault(0, format!("the condition is nested deeper than {DEPTH_MAX}"));
            return Type::Unknown;
        }
        let outside = self.offset;
        self.offset = self.place(part).unwrap_or(outside);
        self.depth += 1;
        let found = self.kind(part);
        self.depth -= 1;
        self.offset = outside;
        found
    }

    fn kind(&mut self, part: &mut IdedExpr) -> Type {
        match &mut part.expr {
            Expr::Unspecified => Type::Unknown,
            Expr::Literal(literal) => self.literal(literal),
            Expr::Ident(name) => self.name(name),
            Expr::List(list) => {
                let elements: Vec<Type> = list.elements.iter_mut().map(|element| self.at(element)).collect();
                let joined = elements.into_iter().try_fold(Type::Unknown, Type::join);
                Type::list_of(joined.unwrap_or_else(|| self.here("a list holds values of one type".into())))
            }
            Expr::Select(select) => {
                let found = self.at(&mut select.operand);
                match found {
                    Type::Unknown => Type::Unknown,
                    found => {
                        let (what, field) = (self.written(&select.operand), &select.field);
                        self.here(format!("{what} is {found} and has no field `{field}`"))
                    }
                }
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(each) => self.each(each),
            Expr::Map(_) | Expr::Struct(_) => self.here("conditions have no maps".into()),
        }
    }

    fn literal(&mut self, literal: &LiteralValue) -> Type {
        match literal {
            LiteralValue::Boolean(_) => Type::Bool,
            LiteralValue::Int(_) => Type::Int(Domain::Plain),
            LiteralValue::UInt(_) => Type::Unsigned,
            LiteralValue::Double(_) => Type::Double,
            LiteralValue::String(_) => Type::Text(Words::Any),
            LiteralValue::Null => self.here("nothing is ever `null`".into()),
            LiteralValue::Bytes(_) => self.here("texts have no `b` in front".into()),
        }
    }

    fn name(&mut self, name: &str) -> Type {
        if let Some((_, found)) = self.bound.iter().rev().find(|(bound, _)| bound == name) {
            return found.clone();
        }
        let Some(known) = VARIABLES.iter().find(|known| **known == name) else {
            return self.here(in_condition(&unknown_word("variable", name, VARIABLES), name));
        };
        if !self.variables.contains(known) {
            self.variables.push(known);
        }
        of_variable(known)
    }

    fn call(&mut self, call: &mut CallExpr) -> Type {
        let name = call.func_name.clone();
        if call.target.is_some() || !is_operator(&name) {
            return self.function(&name, call);
        }
        match (name.as_str(), call.args.as_mut_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [one, other]) => {
                self.truth(one);
                self.truth(other);
                Type::Bool
            }
            (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [one]) => {
                self.truth(one);
                Type::Bool
            }
            (operators::CONDITIONAL, [condition, one, other]) => {
                self.truth(condition);
                let (one, other) = (self.at(one), self.at(other));
                let text = format!("this is {one} or {other}, where both must be of one type");
                one.join(other).unwrap_or_else(|| self.here(text))
            }
            (operators::IN, [one, list]) => self.is_in(one, list),
            (operators::INDEX, [list, index]) => self.index(list, index),
            (operators::NEGATE, [one]) => match self.at(one) {
                Type::Int(_) => Type::Int(Domain::Plain),
                found @ (Type::Double | Type::Unknown) => found,
                found => self.here(format!("{found} has no negative")),
            },
            (operators::EQUALS | operators::NOT_EQUALS, [one, other]) => {
                self.compare(one, other, Type::is_comparable)
            }
            (
                operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
                [one, other],
            ) => self.compare(one, other, Type::is_ordered),
            (sign, [one, other]) => self.arithmetic(sign, one, other),
            _ => self.here("this is not part of conditions".into()),
        }
    }

    /// A part that must be true or false.
    fn truth(&mut self, part: &mut IdedExpr) {
        let found = self.at(part);
        if !matches!(found, Type::Bool | Type::Unknown) {
            let (what, place) = (self.written(part), self.place(part));
            let text = format!("`&&`, `||`, `!` and `?` go with true or false, and {what} is {found}");
            self.fault(place.unwrap_or(self.offset), text);
        }
    }

    fn compare(
        &mut self,
        one: &mut IdedExpr,
        other: &mut IdedExpr,
        fits: impl Fn(&Type, &Type) -> bool,
    ) -> Type {
        let (left, right) = self.pair(one, other, false);
        if fits(&left, &right) {
            return Type::Bool;
        }
        let (what, with) = (self.written(one), self.written(other));
        let hint = match (&left, &right) {
            (Type::List(element), single) if element.is_comparable(single) => {
                format!("; one of a list is found by `{} in {}`", bare(&with), bare(&what))
            }
            (single, Type::List(element)) if element.is_comparable(single) => {
                format!("; one of a list is found by `{} in {}`", bare(&what), bare(&with))
            }
            _ => String::new(),
        };
        self.here(format!("{what} is {left} and {with} is {right}, which cannot be compared{hint}"));
        Type::Bool
    }

    fn is_in(&mut self, one: &mut IdedExpr, list: &mut IdedExpr) -> Type {
        let (left, right) = self.pair(one, list, true);
        match &right {
            Type::List(element) if element.is_comparable(&left) => {}
            Type::Unknown => {}
            Type::List(element) => {
                let (what, with) = (self.written(one), self.written(list));
                let text =
                    format!("{what} is {left}, and {with} holds what is {element}, so it is never in it");
                self.here(text);
            }
            _ => {
                let (what, with) = (self.written(one), self.written(list));
                let hint = match (&left, &right) {
                    (Type::Text(_), Type::Text(_)) => {
                        format!("; a part of a text is found by `{}.contains({})`", bare(&with), bare(&what))
                    }
                    _ => String::new(),
                };
                self.here(format!("`in` looks into a list, and {with} is {right}{hint}"));
            }
        }
        Type::Bool
    }

    /// Two parts that are compared. Literals are taken for what the other one is; what is no literal is examined first.
    fn pair(&mut self, one: &mut IdedExpr, other: &mut IdedExpr, is_list: bool) -> (Type, Type) {
        if is_literal(one) {
            let right = self.at(other);
            let wanted = match (&right, is_list) {
                (Type::List(element), true) => (**element).clone(),
                _ => right.clone(),
            };
            self.adopt(one, &wanted);
            return (self.at(one), right);
        }
        let left = self.at(one);
        let wanted = if is_list { Type::list_of(left.clone()) } else { left.clone() };
        self.adopt(other, &wanted);
        (left, self.at(other))
    }

    /// Takes a literal for a value of this type, where it is one.
    fn adopt(&mut self, part: &mut IdedExpr, wanted: &Type) {
        let offset = self.place(part).unwrap_or(self.offset);
        let outcome = match (&mut part.expr, wanted) {
            (Expr::List(list), Type::List(element)) => {
                list.elements.iter_mut().for_each(|part| self.adopt(part, element));
                Ok(())
            }
            (Expr::Literal(LiteralValue::String(text)), Type::Int(domain)) if *domain != Domain::Plain => {
                match literal::number(text.inner(), *domain, self.known) {
                    Ok(number) => {
                        part.expr = Expr::Literal(LiteralValue::Int(CelInt::from(number)));
                        Ok(())
                    }
                    Err(text) => {
                        // What is wrong with it has been said.
                        part.expr = Expr::Unspecified;
                        Err(text)
                    }
                }
            }
            (Expr::Literal(LiteralValue::String(text)), Type::Text(words)) => {
                literal::check_word(text.inner(), *words)
            }
            (Expr::Literal(LiteralValue::Int(number)), Type::Int(domain)) => {
                literal::check_number(*number.inner(), word_at(self.source, offset), *domain)
            }
            _ => Ok(()),
        };
        if let Err(text) = outcome {
            self.fault(offset, text);
        }
    }

    fn index(&mut self, list: &mut IdedExpr, index: &mut IdedExpr) -> Type {
        let (found, by) = (self.at(list), self.at(index));
        match (found, by) {
            (Type::List(element), Type::Int(_) | Type::Unsigned | Type::Unknown) => *element,
            (Type::Unknown, _) => Type::Unknown,
            (Type::List(_), by) => self.here(format!("a place in a list is a number, and this is {by}")),
            (found, _) => self.here(format!("only lists have places, and this is {found}")),
        }
    }

    fn arithmetic(&mut self, operator: &str, one: &mut IdedExpr, other: &mut IdedExpr) -> Type {
        let (left, right) = (self.at(one), self.at(other));
        let text = format!("{left} and {right} do not go together by `{}`", sign(operator));
        let (adds, is_rest) = (operator == operators::ADD, operator == operators::MODULO);
        match (left, right) {
            (Type::Unknown, known) | (known, Type::Unknown) => known,
            (Type::Int(_), Type::Int(_)) => Type::Int(Domain::Plain),
            (Type::Unsigned, Type::Unsigned) => Type::Unsigned,
            (Type::Double, Type::Double) if !is_rest => Type::Double,
            (Type::Text(_), Type::Text(_)) if adds => Type::Text(Words::Any),
            (one @ Type::List(_), other @ Type::List(_)) if adds => {
                one.join(other).unwrap_or_else(|| self.here(text))
            }
            _ => self.here(text),
        }
    }

    /// A function, with what it is called on as its first argument.
    fn function(&mut self, name: &str, call: &mut CallExpr) -> Type {
        if !FUNCTIONS.contains(&name) {
            let text = in_condition(&unknown_word("function", name, FUNCTIONS), name);
            let offset = word_in(self.source, name).unwrap_or(self.offset);
            self.fault(offset, text);
            return Type::Unknown;
        }
        let is_method = call.target.is_some();
        let types: Vec<Type> = call.target.iter_mut().map(|target| self.at(target)).collect();
        let types: Vec<Type> =
            types.into_iter().chain(call.args.iter_mut().map(|part| self.at(part))).collect();
        if types.contains(&Type::Unknown) {
            return Type::Unknown;
        }
        match (name, types.as_slice()) {
            ("size", [Type::Text(_) | Type::List(_)]) => Type::Int(Domain::Plain),
            ("startsWith" | "endsWith" | "contains", [Type::Text(_), Type::Text(_)]) if is_method => {
                Type::Bool
            }
            ("matches", [Type::Text(_), Type::Text(_)]) => {
                self.expression(call.args.last());
                Type::Bool
            }
            ("string", [Type::Bool | Type::Int(_) | Type::Unsigned | Type::Double | Type::Text(_)])
                if !is_method =>
            {
                Type::Text(Words::Any)
            }
            ("int", [Type::Int(_) | Type::Unsigned | Type::Double | Type::Text(_)]) if !is_method => {
                Type::Int(Domain::Plain)
            }
            ("uint", [Type::Int(_) | Type::Unsigned | Type::Double | Type::Text(_)]) if !is_method => {
                Type::Unsigned
            }
            ("double", [Type::Int(_) | Type::Unsigned | Type::Double | Type::Text(_)]) if !is_method => {
                Type::Double
            }
            _ => {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                let types = types.join(", ");
                self.here(format!("`{name}` does not go with ({types}); it is used as in {}", usage(name)))
            }
        }
    }

    /// The expression of `matches`: known now, so that a mistake in it is found now.
    fn expression(&mut self, argument: Option<&IdedExpr>) {
        let Some(argument) = argument else { return };
        let offset = self.place(argument).unwrap_or(self.offset);
        let Expr::Literal(LiteralValue::String(text)) = &argument.expr else {
            return self.fault(offset, "the expression of `matches` stands in quotes: '^a[0-9]+$'".into());
        };
        if let Err(error) = regex::Regex::new(text.inner()) {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            let why = last.strip_prefix("error: ").unwrap_or(last);
            self.fault(offset, format!("the expression of `matches` is not one: {why}"));
        }
    }

    /// What `exists`, `all`, `filter` and `map` are expanded to.
    fn each(&mut self, each: &mut ComprehensionExpr) -> Type {
        let element = match self.at(&mut each.iter_range) {
            Type::List(element) => *element,
            Type::Unknown => Type::Unknown,
            found => {
                let what = self.written(&each.iter_range);
                self.here(format!("this goes over a list, and {what} is {found}"))
            }
        };
        let start = self.at(&mut each.accu_init);
        let before = self.bound.len();
        self.bound.push((each.iter_var.clone(), element));
        self.bound.push((each.accu_var.clone(), start.clone()));
        self.at(&mut each.loop_cond);
        let step = self.at(&mut each.loop_step);
        let joined = start.join(step).unwrap_or(Type::Unknown);
        if let Some((_, accumulated)) = self.bound.last_mut() {
            *accumulated = joined;
        }
        let found = self.at(&mut each.result);
        self.bound.truncate(before);
        found
    }

    /// Notes what is wrong with the part that is being looked at.
    fn here(&mut self, text: String) -> Type {
        self.fault(self.offset, text);
        Type::Unknown
    }

    fn fault(&mut self, offset: usize, text: String) {
        let fault = Fault { offset, text };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Where a part stands. Of an operator that is the operator itself.
    fn place(&self, part: &IdedExpr) -> Option<usize> {
        let (start, _) = self.places.offset_for(part.id)?;
        usize::try_from(start).ok().filter(|start| *start < self.source.len())
    }

    /// A part as it is called in messages.
    fn written(&self, part: &IdedExpr) -> String {
        match &part.expr {
            Expr::Ident(name) if !name.starts_with('@') => format!("`{name}`"),
            Expr::Literal(LiteralValue::String(text)) => format!("`\"{}\"`", text.inner()),
            Expr::Literal(LiteralValue::Int(number)) => format!("`{}`", number.inner()),
            _ => "this".into(),
        }
    }
}

fn is_literal(part: &IdedExpr) -> bool {
    match &part.expr {
        Expr::Literal(_) => true,
        Expr::List(list) => list.elements.iter().all(is_literal),
        _ => false,
    }
}

fn bare(written: &str) -> &str {
    written.trim_matches('`')
}

/// Operators have names that nobody can write.
fn is_operator(name: &str) -> bool {
    name.starts_with(['_', '@']) || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn sign(operator: &str) -> &str {
    operator.trim_matches('_')
}

fn in_condition(said: &str, name: &str) -> String {
    said.replacen(&format!("`{name}`"), &format!("`{name}` in the condition"), 1)
}

fn usage(function: &str) -> &'static str {
    match function {
        "size" => "`size(groups)`",
        "contains" => "`path.contains(\"x\")`",
        "startsWith" => "`path.startsWith(\"x/\")`",
        "endsWith" => "`path.endsWith(\".x\")`",
        "matches" => "`path.matches('^a[0-9]+$')`",
        "string" => "`string(uid)`",
        "int" => "`int(\"5\")`",
        "uint" => "`uint(5)`",
        "double" => "`double(size)`",
        _ => "`groups.exists(g, g > 5)`",
    }
}

/// The word that begins at a place, with a sign before it.
fn word_at(source: &str, offset: usize) -> &str {
    let rest = source.get(offset..).unwrap_or_default();
    let is_part =
        |(place, letter): (usize, char)| letter.is_ascii_alphanumeric() || place == 0 && letter == '-';
    let end = rest.char_indices().find(|it| !is_part(*it)).map_or(rest.len(), |(place, _)| place);
    &rest[..end]
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
