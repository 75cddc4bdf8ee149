//! How a message's values are written as fields of text and read back, each escaped. A field that no client writes is `None`.

use std::{iter, str, time::Duration};

use rlock_proto::{
    escape_control::shown,
    key::{Key, escape, unescape},
    owner::OwnerId,
};
use uuid::Uuid;

/// The fields that are not read yet.
pub(crate) type Reader<'a> = iter::Peekable<str::Split<'a, char>>;

pub(crate) trait Fields: Sized {
    fn write(&self, to: &mut Vec<String>);
    /// Returns `None` for fields that no client writes.
    fn read(from: &mut Reader<'_>) -> Option<Self>;
}

/// Reads and unescapes one field.
pub(super) fn raw(from: &mut Reader<'_>) -> Option<String> {
    from.next().and_then(unescape)
}

/// Describes types of one field: how its text is made and parsed.
macro_rules! field {
    ($($($type:ty)+: $text:expr, $parse:expr;)*) => {$($(
        impl Fields for $type {
            fn write(&self, to: &mut Vec<String>) {
                let text: fn(&Self) -> String = $text;
                to.push(escape(text(self)).to_string());
            }

            fn read(from: &mut Reader<'_>) -> Option<Self> {
                let parse: fn(&str) -> Option<Self> = $parse;
                parse(&raw(from)?)
            }
        }
    )+)*};
}

field! {
    u32 u64 usize Uuid: Self::to_string, |text| text.parse().ok();
    OwnerId: Self::to_string, Self::parse;
    Key: |key| key.as_str().to_owned(), |text| Self::parse(text).ok();
    String: Self::clone, |text| Some(shown(text));
    Duration: |time| time.as_millis().to_string(), |text| text.parse().ok().map(Self::from_millis);
    bool: |is| u8::from(*is).to_string(), |text| Some(text == "1").filter(|is| *is || text == "0");
}

/// `None` is an empty field.
impl<T: Fields> Fields for Option<T> {
    fn write(&self, to: &mut Vec<String>) {
        match self {
            Some(value) => value.write(to),
            None => to.push(String::new()),
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let none = from.next_if_eq(&"").map(|_| None);
        none.or_else(|| T::read(from).map(Some))
    }
}

impl<T: Fields> Fields for Box<T> {
    fn write(&self, to: &mut Vec<String>) {
        T::write(self, to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        T::read(from).map(Self::new)
    }
}

/// Takes all fields that are left.
impl<T: Fields> Fields for Vec<T> {
    fn write(&self, to: &mut Vec<String>) {
        for value in self {
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        iter::from_fn(|| from.peek().is_some().then(|| T::read(from))).collect()
    }
}

/// Describes the fields of a struct, or of each variant of an enum after its tag, for both directions. Some are read
/// with a function of their own, and those after a semicolon are not sent.
macro_rules! fields {
    (@ $from:ident) => { Fields::read($from) };
    (@ $from:ident $read:expr) => {{
        let read: fn(&mut Reader<'_>) -> Option<_> = $read;
        read($from)
    }};
    ($type:ty: $($($tag:literal)? $($path:ident)::+ $(($($inner:ident),*))?
        $({ $($field:ident $(= $read:expr)?),* $(; $($unsent:ident),*)? })?),*) => {
        impl Fields for $type {
            fn write(&self, to: &mut Vec<String>) {
                match self {$(
                    $($path)::+ $(($($inner),*))? $({ $($field,)* $($($unsent: _),*)? })? => {
                        $(to.push($tag.to_owned());)?
                        $($($inner.write(to);)*)?
                        $($($field.write(to);)*)?
                    }
                )*}
            }

            fn read(from: &mut Reader<'_>) -> Option<Self> {
                $(
                    let tag: &[&str] = &[$($tag)?];
                    if tag.iter().all(|tag| from.next_if_eq(tag).is_some()) {
                        $($(let $inner = Fields::read(from)?;)*)?
                        $($(let $field = fields!(@ from $($read)?)?;)*)?
                        return Some(
                            $($path)::+ $(($($inner),*))? $({ $($field,)* $($($unsent: Default::default()),*)? })?
                        );
                    }
                )*
                None
            }
        }
    };
}

pub(super) use fields;
