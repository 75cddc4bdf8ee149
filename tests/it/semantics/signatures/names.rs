//! Names in scope that must not collide with the expansion, and a renamed core.

use ::std::{fmt::Display, result::Result as Answer};

use rlock_core::{LockClient, LockError, distributed_lock};

use super::held::{assert_held, client, run};

mod alloc {}
mod core {}
mod std {}
mod rlock_core_facade {
    pub(super) mod inner {
        pub(crate) use rlock_core as locks;
    }
}

#[expect(dead_code, reason = "it is here to be in the way")]
mod in_the_way {
    pub(super) struct Box;
    pub(super) struct Option;
    pub(super) struct Result;
    pub(super) struct Some;
    pub(super) struct None;
    pub(super) fn run() {}
    pub(super) fn key() {}
    macro_rules! format_args {
        () => {};
    }
    pub(super) use format_args;
}

mod shadowed {
    use super::in_the_way::{Box, None, Option, Result, Some, format_args, key};
    use super::{Answer, Display, LockError, assert_held, distributed_lock};

    #[expect(dead_code, reason = "it is here to be in the way")]
    type Unused = (Box, Option, Result, Some, None);

    #[distributed_lock(key = "shadowed:<value>:<value:?>")]
    pub(super) async fn locked<T: Display + ::std::fmt::Debug + Sync>(
        value: &T,
    ) -> Answer<String, LockError> {
        format_args!();
        key();
        assert_held("shadowed:1:1").await;
        Ok(value.to_string())
    }

    #[distributed_lock(key = "shadowed-here:<value:02>")]
    pub(super) fn locked_here(value: u8) -> Answer<u8, LockError> {
        crate::semantics::signatures::held::assert_held_here("shadowed-here:01");
        Ok(value)
    }
}

#[expect(
    non_upper_case_globals,
    non_camel_case_types,
    reason = "a pattern of the same name would mean these"
)]
mod constants {
    use super::{Answer, LockError, distributed_lock};

    const plan: u8 = 1;
    static body: u8 = 2;
    const edge: u8 = 3;
    const error: u8 = 4;
    pub(super) struct outcome;
    pub(super) enum Site {
        run,
        or_else,
    }
    use Site::{or_else, run};

    #[distributed_lock(key = "constants:<id>")]
    pub(super) async fn locked(id: u8) -> Answer<u8, LockError> {
        let _ = (outcome, run);
        Ok(id + plan + body + edge)
    }

    #[distributed_lock(key = "constants:<id>", or_else = |_| 0)]
    pub(super) async fn skips(id: u8) -> u8 {
        let _ = or_else;
        id + plan + body + edge
    }

    #[distributed_lock(key = "constants:<id>", if_taken = Ok(0))]
    pub(super) async fn taken(id: u8) -> Answer<u8, LockError> {
        Ok(id + error)
    }

    #[distributed_lock(key = "constants:<id>", if_taken = Ok(0))]
    pub(super) fn taken_here(id: u8) -> Answer<u8, LockError> {
        Ok(id + error)
    }

    #[distributed_lock(key = "constants:<id>")]
    pub(super) fn locked_here(id: u8) -> Answer<u8, LockError> {
        Ok(id + plan + body + edge)
    }

    #[distributed_lock(key = "constants:<id>", or_else = |_| 0)]
    pub(super) fn skips_here(id: u8) -> u8 {
        id + plan + body + edge
    }
}

#[tokio::test]
async fn constants_and_unit_structs_of_plain_names_are_not_in_the_way() {
    assert_eq!(run(constants::locked(1)).await.expect("free"), 7);
    assert_eq!(run(constants::skips(1)).await, 7);
    assert_eq!(run(constants::taken(4)).await.expect("free"), 8);
}

#[test]
fn nor_are_they_in_the_way_of_a_synchronous_function() {
    client();
    assert_eq!(constants::locked_here(2).expect("free"), 8);
    assert_eq!(constants::skips_here(3), 9);
    assert_eq!(constants::taken_here(5).expect("free"), 9);
}

#[distributed_lock(key = "facade:<id:03>", crate = self::rlock_core_facade::inner::locks)]
async fn by_a_facade(id: u8) -> Answer<u8, LockError> {
    assert_held("facade:007").await;
    Ok(id)
}

#[distributed_lock(key = ["renamed:<id>"], crate = ::renamed, client = client)]
async fn by_a_renamed_crate(id: u8, client: &LockClient) -> Answer<u8, LockError> {
    assert_held("renamed:7").await;
    Ok(id)
}

/// Traits of all types, with methods that the expansion calls, or called.
mod blanket {
    use super::{Answer, LockClient, LockError, assert_held, client, distributed_lock};
    use crate::semantics::signatures::held::assert_held_here;

    #[expect(
        dead_code,
        clippy::wrong_self_convention,
        clippy::new_ret_no_self,
        reason = "it is here to be in the way"
    )]
    pub(super) trait Taken: Sized {
        fn judged(self) {}
        fn or_error(self) {}
        fn unwrap_or_else(self) {}
        fn new(self) {}
        fn and(self) {}
        fn and_list(self) {}
        fn client(self) {}
        fn lease(self) {}
        fn wait_forever(self) {}
        fn map(self) {}
        fn pin(self) {}
    }

    #[expect(dead_code, reason = "it is here to be in the way")]
    pub(super) trait Borrowed {
        fn judged(&self) {}
        fn or_error(&self) {}
        fn unwrap_or_else(&self) {}
        fn and(&self) {}
        fn and_list(&self) {}
        fn map(&self) {}
        fn deref(&self) {}
    }

    impl<T> Taken for T {}
    impl<T: ?Sized> Borrowed for T {}

    #[distributed_lock(
        key = ["blanket", "blanket:<ids[]>"],
        client = LockClient::clone(client()),
        lease = "3s",
        wait = "forever"
    )]
    pub(super) async fn locked(ids: &[u8]) -> Answer<usize, LockError> {
        assert_held("blanket:8").await;
        Ok(ids.len())
    }

    #[distributed_lock(key = "blanket:<ids[]>", client = client())]
    pub(super) fn locked_here(ids: &[u8]) -> Answer<usize, LockError> {
        assert_held_here("blanket:7");
        Ok(ids.len())
    }

    #[distributed_lock(key = "blanket", client = client(), if_taken = 0, or_else = |_| 0)]
    pub(super) fn skips_here() -> u8 {
        assert_held_here("blanket");
        1
    }
}

#[tokio::test]
async fn methods_that_the_user_gives_all_types_are_not_in_the_way() {
    assert_eq!(blanket::locked(&[7, 8]).await.expect("free"), 2);
    let here = tokio::task::spawn_blocking(|| (blanket::locked_here(&[7]), blanket::skips_here()));
    let (locked, skips) = here.await.expect("no panic");
    assert_eq!((locked.expect("free"), skips), (1, 1));
}

#[tokio::test]
async fn names_of_the_user_are_not_in_the_way() {
    let text = run(shadowed::locked(&1)).await;
    assert_eq!(text.expect("free"), "1");
    let here = tokio::task::spawn_blocking(|| shadowed::locked_here(1)).await;
    assert_eq!(here.expect("no panic").expect("free"), 1);
}

#[tokio::test]
async fn the_core_may_have_another_name() {
    assert_eq!(run(by_a_facade(7)).await.expect("free"), 7);
    assert_eq!(run(by_a_renamed_crate(7, client())).await.expect("free"), 7);
}
