//! Keys that are not templates, and placeholders that are malformed.
#![allow(unused)]

use rlock_core::{LockError, distributed_lock};

macro_rules! cases {
    () => {};
    (async fn $name:ident($($argument:tt)*) [$($option:tt)*] $($rest:tt)*) => {
        #[distributed_lock($($option)*)]
        async fn $name($($argument)*) -> Result<(), LockError> { Ok(()) }
        cases!($($rest)*);
    };
    (fn $name:ident($($argument:tt)*) [$($option:tt)*] $($rest:tt)*) => {
        #[distributed_lock($($option)*)]
        fn $name($($argument)*) -> Result<(), LockError> { Ok(()) }
        cases!($($rest)*);
    };
}

cases! {
    async fn key_braces_empty() [key = "order:{}"]
    async fn key_braces_unclosed(id: u64) [key = "{order:<id>"]
    async fn key_braces_unopened(id: u64) [key = "order:<id>}"]
    async fn key_braces_two_pairs(id: u64) [key = "{order}:{<id>}"]
    async fn key_braces_nested(id: u64) [key = "{order:{<id>}}"]

    async fn key_braces_around_a_parameter_pay(id: u64) [key = "order:{id}"]
    fn key_braces_around_a_parameter_ship(order: &Order) [key = ["shop:1", "order:{order.id}"]]

    async fn key_empty_text(id: u64) [key = ""]
    async fn key_empty_list(id: u64) [key = []]
    async fn key_empty_text_in_a_list(id: u64) [key = ["order:<id>", ""]]

    async fn key_is_no_literal_by_macro(id: u64) [key = concat!("order:", "<id>")]
    async fn key_is_no_literal_by_constant() [key = NIGHT]
    fn key_is_no_literal_in_a_list(id: u64) [key = ["night", format!("order:{id}")]]
    fn key_is_no_literal_of_an_iterator(ids: Vec<u64>) [key = ids.iter().map(|id| format!("order:{id}"))]

    async fn key_names_no_constant_parameter_in_capitals(id: u64) [key = "order:<ID>"]

    async fn key_placeholder_is_no_parameter_two(order: &Order, amount: u32) [key = "order:<oder.id>:<number>"]
    async fn key_placeholder_is_no_parameter_no_receiver(tenant: u64) [key = "tenant:<self.tenant>"]
    async fn key_placeholder_is_no_parameter_no_parameters() [key = ["night:<id>"]]

    async fn placeholder_empty_nothing(id: u64) [key = "order:<>"]
    async fn placeholder_empty_a_space(id: u64) [key = "order:< >"]

    async fn placeholder_format_unknown(id: u64) [key = "order:<id:d>"]
    async fn placeholder_format_nothing(id: u64) [key = "order:<id:>"]
    async fn placeholder_format_argument(id: u64, width: usize) [key = "order:<id:width$>"]
    async fn placeholder_format_address(id: &u64) [key = "order:<id:p>"]
    async fn placeholder_format_too_wide(id: u64) [key = "order:<id:02000>"]
    async fn placeholder_format_alignment(id: u64) [key = "order:<id:>8>"]

    async fn placeholder_is_no_path_arithmetic(id: u64) [key = "order:<id + 1>"]
    async fn placeholder_is_no_path_argument(id: u64) [key = "order:<id.pow(2)>"]
    async fn placeholder_is_no_path_keyword(r#type: u64) [key = "order:<type>"]
    async fn placeholder_is_no_path_index(pair: (u64, u64)) [key = "order:<pair.0x1>"]

    async fn placeholder_unclosed_to_the_end(id: u64) [key = "order:<id"]
    async fn placeholder_unclosed_to_the_next(id: u64) [key = "<order:<id>"]
    async fn placeholder_unclosed_never_opened(id: u64) [key = "order>id"]

    async fn placeholders_run_together_apart_by_what_a_value_may_hold(id: u64, line: u64) [key = "order:<id>-<line>"]
    async fn placeholders_run_together_of_a_width(id: u64, line: u64) [key = "<id:04><line:04>"]
}

struct Order {
    id: u64,
}

const NIGHT: &str = "night";

struct Shelf;

impl Shelf {
    #[distributed_lock(key = "shelf:<Self::name()>")]
    async fn function(&self) -> Result<(), LockError> {
        Ok(())
    }
}

impl Order {
    #[distributed_lock(key = "order:<id>")]
    async fn pay(&self) -> Result<u64, LockError> {
        Ok(self.id)
    }
}

fn main() {}
