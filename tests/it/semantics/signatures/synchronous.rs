//! Synchronous functions of the same kinds.

use std::{fmt::Display, sync::Arc};

use rlock_core::{LockError, current, distributed_lock};

use super::held::{Fail, Outcome, assert_held_here, client, is_free_elsewhere};

struct Service {
    tenant: String,
    calls: u32,
}

impl Service {
    #[distributed_lock(key = "s-new:<tenant>")]
    fn new(tenant: &str) -> Outcome<Self> {
        assert_held_here("s-new:acme");
        Ok(Self {
            tenant: tenant.to_owned(),
            calls: 0,
        })
    }

    #[distributed_lock(key = "s-shared:<self.tenant>")]
    fn shared(&self) -> Outcome<&str> {
        assert_held_here("s-shared:acme");
        Ok(&self.tenant)
    }

    #[distributed_lock(key = "s-exclusive:<self.tenant>")]
    fn exclusive(&mut self) -> Outcome<&mut u32> {
        assert_held_here("s-exclusive:acme");
        self.calls += 1;
        Ok(&mut self.calls)
    }

    #[distributed_lock(key = "s-owned:<self.tenant>", client = client())]
    fn owned(mut self) -> Outcome<Self> {
        assert_held_here("s-owned:acme");
        self.calls += 1;
        Ok(self)
    }

    #[distributed_lock(key = "s-counted:<self.tenant>")]
    fn counted(self: Arc<Self>) -> Outcome<u32> {
        assert_held_here("s-counted:acme");
        Ok(self.calls)
    }
}

trait Greets {
    #[distributed_lock(key = "s-greets:<name>")]
    fn greet<'a>(&self, name: &'a str) -> Outcome<(&'a str, &Self)> {
        assert_held_here("s-greets:ada");
        Ok((name, self))
    }
}

impl Greets for Service {}

#[distributed_lock(key = "s-generic:<value>")]
fn generic<T, const N: usize>(value: T) -> Outcome<[T; N]>
where
    T: Display + Copy,
{
    assert_held_here("s-generic:7");
    Ok([value; N])
}

#[distributed_lock(key = "s-impl:<count>")]
fn impl_trait(count: impl Display + Into<u8>) -> Result<impl Iterator<Item = u8>, Fail> {
    assert_held_here("s-impl:3");
    let more: u8 = "1".parse()?;
    Ok(0..count.into() + more)
}

#[distributed_lock(key = "s-boxed:<number>")]
fn boxed(number: u8) -> Result<Box<dyn Display>, Box<dyn std::error::Error>> {
    assert_held_here(&format!("s-boxed:{number}"));
    if number > 3 {
        return Ok(Box::new(number));
    }
    "5".parse::<u8>()?;
    Ok(Box::new("text"))
}

#[distributed_lock(key = "s-patterns:<left>:<head>")]
fn patterns((left, mut right): (u8, u8), [head, ..]: &[u8; 9], _: u8) -> Outcome<u8> {
    assert_held_here("s-patterns:1:3");
    right += left;
    'done: {
        if right > 2 {
            break 'done;
        }
        right = 0;
    }
    Ok(right + head)
}

#[distributed_lock(key = "s-down:<number>")]
fn recursive(number: u8) -> Outcome<u8> {
    assert_held_here(&format!("s-down:{number}"));
    if number == 0 {
        Ok(0)
    } else {
        Ok(recursive(number - 1)? + 1)
    }
}

#[distributed_lock(key = "s-same")]
fn enters_its_own_lock(depth: u32) -> Outcome<u32> {
    assert_held_here("s-same");
    if depth > 1 {
        return enters_its_own_lock(depth - 1);
    }
    Ok(current().expect("inside of a lock").count())
}

#[distributed_lock(key = "s-above")]
#[distributed_lock(key = "s-below")]
fn two_locks() -> Outcome {
    assert!(!is_free_elsewhere("s-above") && !is_free_elsewhere("s-below"));
    Ok(())
}

#[distributed_lock(key = ["s-from:<from>", "s-to:<to>"], wait = "5s", lease = "10s")]
fn two_keys(from: u8, to: u8) -> Outcome<u8> {
    assert!(!is_free_elsewhere("s-from:1") && !is_free_elsewhere("s-to:2"));
    Ok(from + to)
}

#[distributed_lock(key = "s-diverges")]
fn panics() -> Outcome {
    assert_held_here("s-diverges");
    panic!("in the body")
}

#[distributed_lock(key = "s-skipped", wait = "0s", or_else = |error| error.to_string())]
fn skipped_if_taken(number: u8) -> String {
    assert_held_here("s-skipped");
    number.to_string()
}

#[distributed_lock(key = "s-nothing", or_else = drop)]
fn nothing() {
    assert_held_here("s-nothing");
}

#[test]
fn methods_by_every_receiver() {
    client();
    let mut service = Service::new("acme").expect("free");
    assert_eq!(service.shared().expect("free"), "acme");
    *service.exclusive().expect("free") += 1;
    assert_eq!(service.greet("ada").expect("free").0, "ada");
    let service = service.owned().expect("free");
    assert_eq!(Arc::new(service).counted().expect("free"), 3);
}

#[test]
fn generics_patterns_and_results() {
    client();
    assert_eq!(generic::<_, 2>(7).expect("free"), [7, 7]);
    assert_eq!(impl_trait(3).expect("free").count(), 4);
    assert_eq!(boxed(1).expect("free").to_string(), "text");
    assert_eq!(boxed(4).expect("free").to_string(), "4");
    assert_eq!(patterns((1, 2), &[3; 9], 5).expect("free"), 6);
    nothing();
}

#[test]
fn nested_calls_enter_and_several_locks_are_held_together() {
    client();
    assert_eq!(recursive(4).expect("free"), 4);
    assert_eq!(enters_its_own_lock(3).expect("free"), 3);
    two_locks().expect("free");
    assert_eq!(two_keys(1, 2).expect("free"), 3);
    for key in ["s-same", "s-above", "s-below", "s-from:1", "s-to:2"] {
        assert!(is_free_elsewhere(key), "{key}");
    }
}

#[test]
fn a_body_that_panics_releases_its_lock() {
    client();
    std::panic::catch_unwind(panics).expect_err("it panics");
    assert!(is_free_elsewhere("s-diverges"));
}

#[test]
fn a_lock_that_is_taken_may_be_skipped() {
    let lock = client().lock("s-skipped");
    let elsewhere = || std::thread::spawn(|| skipped_if_taken(1)).join();
    let why = lock.run_blocking(elsewhere).expect("free");
    let why = why.expect("no panic");
    assert!(why.contains("`s-skipped`"), "{why}");
    assert_eq!(skipped_if_taken(1), "1");
}

#[tokio::test]
async fn inside_of_a_task_a_clear_error_is_the_answer() {
    client();
    let refused = recursive(0).expect_err("it would block the executor");
    assert!(
        matches!(refused, Fail::Lock(LockError::WouldBlock { .. })),
        "{refused:?}"
    );
    let Fail::Lock(error) = refused else {
        unreachable!("it was matched")
    };
    let text = error.to_string();
    assert!(
        text.contains("s-down:0") && text.contains("spawn_blocking"),
        "{text}"
    );
}

#[distributed_lock(key = "s-coerced:<id>", or_else = |error| Box::new(error))]
fn or_else_is_coerced(id: u8) -> Box<dyn std::error::Error> {
    id.to_string().into()
}

#[distributed_lock(key = "s-coerced", or_else = |_| &[])]
fn or_else_is_coerced_to_a_slice(numbers: &[u8]) -> &[u8] {
    numbers
}

#[test]
fn what_or_else_answers_is_coerced_to_the_return_type() {
    client();
    assert_eq!(or_else_is_coerced(7).to_string(), "7");
    assert_eq!(or_else_is_coerced_to_a_slice(&[1, 2]), [1, 2]);
}

const LARGE: usize = 64 * 1024;

fn address_of<T>(value: &T) -> usize {
    std::ptr::from_ref(value).addr()
}

#[distributed_lock(key = "s-large")]
#[expect(clippy::large_types_passed_by_value, reason = "to see what that takes")]
fn takes_much(large: [u8; LARGE]) -> Outcome<usize> {
    let here = 0u8;
    let lowest = address_of(&here).min(address_of(&large));
    Ok(lowest)
}

#[test]
#[expect(clippy::large_stack_arrays, reason = "to see what that takes")]
fn a_large_argument_takes_less_than_six_times_its_size_of_stack() {
    client();
    let outside = [1; LARGE];
    let inside = takes_much(outside).expect("free");
    let taken = address_of(&outside) - inside;
    assert!(taken < 6 * LARGE, "{} times its size", taken / LARGE);
}
