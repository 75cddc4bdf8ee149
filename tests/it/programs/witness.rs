//! Checks that the witness of holds reports each rule that is broken, because tests of exclusion prove nothing otherwise.

use rlock_core::{Lock, LockClient, LockGuard};
use rlock_testkit::Witness;

/// Returns holds that two stores have granted, which do not know each other.
async fn two(like: impl Fn(Lock) -> Lock) -> [LockGuard; 2] {
    let clients = [(); 2].map(|()| LockClient::in_memory());
    let [one, other] = clients.map(|client| like(client.lock("k")));
    let one = one.acquire().await.expect("free");
    [one, other.acquire().await.expect("free")]
}

#[tokio::test]
async fn holds_whose_modes_exclude_each_other_are_reported() {
    let exclusive = two(|lock| lock).await;
    let permits = two(|lock| lock.permits(3).take(2)).await;
    let shared = two(Lock::shared).await;
    for [one, other] in [&exclusive, &permits] {
        let witness = Witness::new();
        let inside = witness.hold(one);
        let met = format!("{} entered while {} was inside", other.owner(), one.owner());
        drop(witness.hold(other));
        assert_eq!(witness.broken(), [met]);
        drop(inside);
    }
    for [one, other, broken] in [
        [&shared[0], &exclusive[1], &exclusive[1]],
        [&exclusive[0], &shared[1], &shared[1]],
        [&shared[0], &permits[1], &permits[1]],
    ] {
        let witness = Witness::new();
        let inside = witness.hold(one);
        drop(witness.hold(other));
        let broken = format!("{} entered while", broken.owner());
        assert!(witness.broken()[0].starts_with(&broken), "{broken}");
        drop(inside);
    }
}

#[tokio::test]
async fn holds_whose_modes_tolerate_each_other_are_not_reported() {
    for holds in [two(Lock::shared).await, two(|lock| lock.permits(3)).await] {
        let witness = Witness::new();
        let _inside = holds.each_ref().map(|hold| witness.hold(hold));
        assert_eq!(witness.most_inside(), 2);
        witness.assert_held();
    }
}

#[tokio::test]
async fn a_token_that_does_not_grow_is_reported() {
    let [earlier, later] = two(|lock| lock).await;
    assert!(earlier.token() < later.token());
    let witness = Witness::new();
    drop(witness.hold(&later));
    drop(witness.hold(&earlier));
    drop(witness.hold(&later));
    let (earlier, later) = (earlier.token(), later.token());
    let broken = witness.broken();
    assert!(
        broken[0].ends_with(&format!("entered with {earlier} after {later}")),
        "{broken:?}"
    );
    assert!(
        broken[1].ends_with(&format!("entered with {later} after {later}")),
        "{broken:?}"
    );
}

#[test]
#[should_panic(expected = "no call entered")]
fn a_witness_that_saw_no_call_fails_its_test() {
    Witness::new().assert_held();
}
