//! Many callers at once.

use rlock_core::{LockClient, LockError, current, distributed_lock};
use rlock_testkit::{Place, Witness, within};

use super::{LONG, owner};

pub(crate) async fn many_tasks_of_two_clients_are_inside_one_at_a_time(place: Place) {
    let clients = [place.client().await, place.client().await];
    let inside = Witness::new();
    let mut tasks = Vec::new();
    for n in 0..40 {
        let lock = clients[n % 2].lock("hot").wait(LONG * 3);
        let inside = inside.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let body = async {
                    let _inside = inside.hold(&current().expect("inside"));
                    tokio::task::yield_now().await;
                };
                lock.run(body).await.expect("granted");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(inside.entries(), 200);
    inside.assert_held();
}

pub(crate) async fn a_call_of_several_keys_is_served_in_any_order_of_their_names(place: Place) {
    #[distributed_lock(key = ["a", "b", "c"], wait = "60s", client = client)]
    async fn forwards(client: &LockClient, inside: &Witness) -> Result<(), LockError> {
        let _inside = inside.enter("forwards");
        tokio::task::yield_now().await;
        Ok(())
    }
    #[distributed_lock(key = ["c", "b", "a"], wait = "60s", client = client)]
    async fn backwards(client: &LockClient, inside: &Witness) -> Result<(), LockError> {
        let _inside = inside.enter("backwards");
        tokio::task::yield_now().await;
        Ok(())
    }
    let inside = Witness::new();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let client = place.client().await;
        for who in 0..5 {
            let (client, inside) = (client.clone(), inside.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let outcome = match who {
                        0 => forwards(&client, &inside).await,
                        1 => backwards(&client, &inside).await,
                        one => {
                            let key = ["a", "b", "c"][one - 2];
                            let lock = client.lock(key).wait(LONG * 3);
                            lock.run(tokio::task::yield_now()).await
                        }
                    };
                    outcome.expect("its turn");
                }
            }));
        }
    }
    for task in tasks {
        within(LONG * 3, "all are served", task)
            .await
            .expect("no panic");
    }
    inside.assert_held();
    assert_eq!(inside.entries(), 40);
    let client = place.client().await;
    for key in ["a", "b", "c"] {
        assert_eq!(owner(&client, key).await, None);
    }
}
