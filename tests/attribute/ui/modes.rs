//! Shared locks and permits that are written wrongly, or contradict each other.
#![allow(unused)]

use std::time::Duration;

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
    async fn permits_out_of_bounds_none() [key = "call", permits = 0]
    async fn permits_out_of_bounds_none_in_hexadecimal() [key = "call", permits = 0x0_u32]
    async fn permits_out_of_bounds_too_many() [key = "call", permits = 4_294_967_296]
    fn permits_out_of_bounds_far_too_many() [key = "call", permits = 340_282_366_920_938_463_463_374_607_431_768_211_456]

    async fn permits_with_retain_literal() [key = "call", permits = 3, retain = "10s"]
    fn permits_with_retain_expression(time: Duration) [key = "call", retain = time, permits = 3]
    // No retention.
    async fn permits_with_retain_none() [key = "call", permits = 3, retain = "0s"]

    async fn permits_with_shared_all_keys() [key = "config", shared, permits = 3]
    fn permits_with_shared_an_expression(most: u32) [key = "config", permits = most, shared]
    async fn permits_with_shared_one_key() [key = shared "config", permits = 3]
    async fn permits_with_shared_each_key(ids: &[u64]) [permits = 3, key = [shared "config", shared "tenant:<ids[]>"]]
    // Only the second key has permits.
    async fn permits_with_shared_one_of_two() [key = [shared "config", "call"], permits = 3]

    async fn shared_twice_one() [key = shared "config", shared]
    async fn shared_twice_several() [shared, key = ["order", shared "config", shared "tenant"]]
    async fn shared_twice_shared_and_exclusive() [key = ["order", shared "tenant", "tenant"]]

    async fn shared_before_a_key_no_key() [key = shared]
    async fn shared_before_a_key_no_key_in_a_list(id: u64) [key = [shared, "order:<id>"]]
    async fn shared_before_a_key_behind_a_key() [key = ["tenant" shared, "order"]]
    async fn shared_before_a_key_no_comma() [key = [shared "tenant" "order"]]
    async fn shared_before_a_key_a_list() [key = shared ["tenant", "order"]]
    async fn shared_before_a_key_no_literal() [key = [shared TENANT, "order"]]
    async fn shared_before_a_key_another_kind() [key = shared 42]
    async fn shared_before_a_key_another_word() [key = [exclusive "tenant", "order"]]
    fn shared_before_a_key_a_broken_template() [key = [shared "tenant:<tenant", shared "order:<absent>"]]

    async fn shared_with_a_value_a_bool() [key = "config", shared = true]
    async fn shared_with_a_value_not_shared() [key = "config", shared = false, wait = "0s"]
    async fn shared_with_a_value_a_colon() [key = "config", shared: true]
    async fn shared_with_a_value_called() [key = "config", shared(true)]
    async fn shared_with_a_value_a_key(tenant: u64) [key = "config", shared "tenant:<tenant>"]
    fn shared_with_a_value_no_comma() [key = "config", shared wait = "0s"]
    async fn shared_with_a_value_twice() [key = "config", shared, shared]

    async fn take_without_enough_permits_without_permits() [key = "call", take = 3]
    async fn take_without_enough_permits_none() [key = "call", permits = 8, take = 0]
    async fn take_without_enough_permits_more_than_there_are() [key = "call", permits = 8, take = 9]
    fn take_without_enough_permits_far_too_many() [key = "call", take = 4_294_967_296, permits = 8]
    // How many permits there are is only known when the function is called.
    async fn take_without_enough_permits_of_an_expression(most: u32) [key = "call", permits = most, take = 9]
    fn take_without_enough_permits_without_permits_and_shared(most: u32) [key = "call", take = most, shared]
}

fn main() {}
