//! What expressions of a condition are.

use std::fmt;

/// The type of an expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Type {
    /// True or false.
    Bool,
    /// A number with a sign, and what it counts.
    Int(Domain),
    /// A number without a sign.
    Unsigned,
    /// A number with a point.
    Double,
    /// Text, and which words it can be.
    Text(Words),
    /// A list of values of one type.
    List(Box<Type>),
    /// Not known: an empty list's elements, and what is wrong in itself, of which nothing more is said.
    Unknown,
}

/// What a number counts: with these a name, a mode or a size may be compared as it is written in keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Domain {
    Plain,
    User,
    Group,
    Mode,
    Size,
}

/// Which words a text can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Words {
    Any,
    /// Ways to open.
    Open,
    /// Types of content.
    Kind,
}

impl Type {
    pub(super) fn list_of(element: Self) -> Self {
        Self::List(Box::new(element))
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Unsigned | Self::Double | Self::Unknown)
    }

    /// Whether two values can ever be equal.
    pub(super) fn is_comparable(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) | (Self::Bool, Self::Bool) => true,
            (Self::Text(_), Self::Text(_)) => true,
            (Self::List(one), Self::List(other)) => one.is_comparable(other),
            _ => self.is_number() && other.is_number(),
        }
    }

    /// Whether one of two values can be less than the other.
    pub(super) fn is_ordered(&self, other: &Self) -> bool {
        let is_ordered = |it: &Self| it.is_number() || matches!(it, Self::Text(_));
        self.is_comparable(other) && is_ordered(self) && is_ordered(other)
    }

    /// The type of what is one of both; `None` where there is none.
    pub(super) fn join(self, other: Self) -> Option<Self> {
        Some(match (self, other) {
            (Self::Unknown, known) | (known, Self::Unknown) => known,
            (Self::Int(one), Self::Int(other)) => Self::Int(if one == other { one } else { Domain::Plain }),
            (Self::Text(one), Self::Text(other)) => Self::Text(if one == other { one } else { Words::Any }),
            (Self::List(one), Self::List(other)) => Self::list_of((*one).join(*other)?),
            (one, other) if one == other => one,
            _ => return None,
        })
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "true or false",
            Self::Int(Domain::Plain) | Self::Unknown => "a number",
            Self::Int(Domain::User) => "the number of a user",
            Self::Int(Domain::Group) => "the number of a group",
            Self::Int(Domain::Mode) => "the number of a mode",
            Self::Int(Domain::Size) => "a number of bytes",
            Self::Unsigned => "an unsigned number",
            Self::Double => "a number with a point",
            Self::Text(_) => "text",
            Self::List(element) => match **element {
                Self::Text(Words::Open) => "a list of words",
                Self::Text(_) => "a list of texts",
                Self::Int(Domain::Group) => "a list of numbers of groups",
                Self::Int(Domain::User) => "a list of numbers of users",
                Self::Int(_) | Self::Unsigned | Self::Double => "a list of numbers",
                _ => "a list",
            },
        })
    }
}

/// What a condition may name.
pub(super) const VARIABLES: &[&str] =
    &["path", "basename", "type", "size", "owner", "group", "mode", "uid", "gid", "groups", "exe", "open"];

/// What a variable is.
pub(super) fn of_variable(name: &str) -> Type {
    match name {
        "path" | "basename" | "exe" => Type::Text(Words::Any),
        "type" => Type::Text(Words::Kind),
        "size" => Type::Int(Domain::Size),
        "owner" | "uid" => Type::Int(Domain::User),
        "group" | "gid" => Type::Int(Domain::Group),
        "mode" => Type::Int(Domain::Mode),
        "groups" => Type::list_of(Type::Int(Domain::Group)),
        "open" => Type::list_of(Type::Text(Words::Open)),
        _ => Type::Unknown,
    }
}
