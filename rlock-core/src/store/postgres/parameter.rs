//! A parameter of a request, with its type, so that the client need not ask the server for it.

use tokio_postgres::types::{ToSql, Type};

/// A parameter of a function.
pub(super) struct Parameter {
    value: Box<dyn ToSql + Sync + Send>,
    pub(super) of: Type,
}

impl Parameter {
    pub(super) fn new<T: Typed>(value: T) -> Self {
        let of = T::TYPE;
        let value = Box::new(value);
        Self { value, of }
    }

    pub(super) fn value(&self) -> &(dyn ToSql + Sync) {
        &*self.value
    }
}

/// A value whose type in Postgres is known.
pub(super) trait Typed: ToSql + Sync + Send + 'static {
    const TYPE: Type;
}

macro_rules! typed {
    ($($value:ty: $name:ident,)*) => {
        $(impl Typed for $value {
            const TYPE: Type = Type::$name;
        })*
    };
}

typed! {
    bool: BOOL,
    i32: INT4,
    i64: INT8,
    Vec<i64>: INT8_ARRAY,
    String: TEXT,
    Vec<String>: TEXT_ARRAY,
}
