//! Options that are unknown, incomplete, of the wrong kind, out of bounds, or contradict each other.
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
    async fn lease_out_of_bounds_zero() [key = "night", lease = "0s"]
    async fn lease_out_of_bounds_too_short() [key = "night", lease = "9ms"]
    async fn lease_out_of_bounds_too_long() [key = "night", lease = "25h"]
    async fn lease_out_of_bounds_words() [key = "night", lease = "half an hour"]
    async fn lease_out_of_bounds_no_unit() [key = "night", lease = "30"]

    async fn times_out_of_bounds_wait() [key = "night", wait = "367days"]
    async fn times_out_of_bounds_no_hold() [key = "night", max_hold = "0s"]
    async fn times_out_of_bounds_no_least() [key = "night", min_hold = "0s"]
    async fn times_out_of_bounds_too_long() [key = "night", min_hold = "2days"]
    async fn times_out_of_bounds_contradiction() [key = "night", max_hold = "5s", min_hold = "10s"]

    async fn wait_is_no_duration_words() [key = "night", wait = "for good"]
    async fn wait_is_no_duration_no_unit() [key = "night", wait = "5"]
    async fn wait_is_no_duration_number() [key = "night", wait = 5]
    async fn wait_is_no_duration_negative() [key = "night", wait = "-1s"]
    async fn wait_is_no_duration_no_unit_of_time() [key = "night", wait = "5 parsecs"]
    async fn wait_is_no_duration_without_quotes() [key = "night", wait = forever]
    async fn wait_is_no_duration_of_a_parameter(forever: std::time::Duration) [key = "night", wait = forever]

    async fn watchdog_off_with_retain_literal() [key = "index", watchdog = false, retain = "10s"]
    fn watchdog_off_with_retain_expression(time: Duration) [key = "index", retain = time, watchdog = false]
    // No retention.
    async fn watchdog_off_with_retain_none() [key = "index", watchdog = false, retain = "0s"]

    async fn if_taken_with_retain_literal() [key = "night", wait = "0s", retain = "10s", if_taken = Ok(())]
    fn if_taken_with_retain_expression(time: Duration) [key = "night", if_taken = Ok(()), retain = time, on_error = |_| Ok(())]
    // No retention.
    async fn if_taken_with_retain_none() [key = "night", wait = "0s", retain = "0s", if_taken = Ok(())]

    async fn option_twice_lease() [key = "night", lease = "30s", lease = "60s"]
    async fn option_twice_key() [key = "night", key = "day"]

    async fn option_unknown_mistyped() [key = "night", leese = "30s"]
    async fn option_unknown_called_so_elsewhere() [key = "night", ttl = "30s"]
    async fn option_unknown_far_from_any() [key = "night", colour("red")]

    async fn option_of_the_wrong_kind_all() [key = 42, lease = 30, wait = true, watchdog = "false", max_hold = -1, min_hold = 'x', on_lost = cancel, client = "redis://localhost", on_error = "skip", crate = "rlock_core"]
    async fn option_of_the_wrong_kind_list() [key = ["night", 42]]
    async fn option_of_the_wrong_kind_permits_text() [key = "night", permits = "3"]
    async fn option_of_the_wrong_kind_permits_bool() [key = "night", permits = true]
    async fn option_of_the_wrong_kind_permits_float() [key = "night", permits = 3.0]
    async fn option_of_the_wrong_kind_permits_negative() [key = "night", permits = -1]
    async fn option_of_the_wrong_kind_permits_suffix() [key = "night", permits = 3u64]

    async fn option_without_value_bare() [key = "night", watchdog]
    async fn option_without_value_called() [key("night")]
    async fn option_without_value_unfinished() [key = "night", lease =]
    async fn option_without_value_no_comma() [key = "night" lease = "30s"]
    async fn option_without_value_no_name() [key = "night", = "30s"]
    async fn option_without_value_an_arrow() [key = "night", lease => "5s"]
    async fn option_without_value_a_colon() [key: "night", watchdog: false]
    async fn option_without_value_two_signs() [key = "night", client == locks()]
    async fn option_without_value_half_a_closure() [key = "night", on_error = |error|]
    async fn option_without_value_half_a_closure_before_another_option() [key = "night", on_error = |error|, wait = "0s"]
    async fn option_without_value_half_a_product() [key = "night", lease = 3 *]
    async fn option_without_value_half_a_sum() [key = "night", if_taken = Ok(1 + )]

    async fn on_lost_unknown_night() [key = "night", on_lost = "panic"]
}

struct Orders;

impl Orders {
    #[distributed_lock(key = "night", client = self.)]
    async fn half_a_field(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(key = "night", client = self., lease = "3s")]
    fn half_a_field_before_another_option(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
