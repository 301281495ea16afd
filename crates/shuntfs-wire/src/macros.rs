//! Two macros that keep declarations and their checks in one place.

/// Asserts at compile time how large a wire struct is and where its fields lie, as the kernel's header says.
macro_rules! layout {
    ($type:ty, $size:literal $(, $field:ident @ $offset:literal)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(std::mem::offset_of!($type, $field) == $offset);)*
        };
    };
}

/// Declares a set of flags that can stand in a wire struct: unknown bits are kept as they came.
macro_rules! flag_set {
    (
        $(#[$outer:meta])*
        pub struct $set:ident: $bits:ty {
            $( $(#[$($inner:tt)*])* const $flag:ident = $value:expr; )*
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[repr(transparent)]
        pub struct $set($bits);

        bitflags::bitflags! {
            impl $set: $bits {
                $( $(#[$($inner)*])* const $flag = $value; )*
            }
        }

        impl std::fmt::Debug for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($set), "("))?;
                bitflags::parser::to_writer(self, &mut *f)?;
                f.write_str(")")
            }
        }
    };
}

/// Declares a struct of the kernel's ABI: C layout, every bit pattern valid, no padding (the derives refuse it).
macro_rules! wire_struct {
    (
        $(#[$outer:meta])*
        pub struct $name:ident {
            $( $(#[$inner:meta])* pub $field:ident: $type:ty, )*
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[repr(C)]
        pub struct $name {
            $( $(#[$inner])* pub $field: $type, )*
        }
    };
}

pub(crate) use {flag_set, layout, wire_struct};
