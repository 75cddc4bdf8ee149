//! Which client of a group leads which of its elections: the same on all clients, in equal shares, and with few changes
//! when a client joins or leaves.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::fingerprint::fingerprint;

/// Mixes the bits of a number, as splitmix64 does.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn hash(key: &str) -> u64 {
    fingerprint(key.bytes())
}

/// Returns a number for a set of keys, by which clients with other keys are another group.
pub(super) fn id(keys: &BTreeSet<String>) -> u64 {
    keys.iter().fold(0, |id, key| mix(id ^ hash(key)))
}

/// Returns for each key, in order, whether this client is to lead it.
///
/// Each client has the same number of keys or one more. A key goes to the client that ranks highest for it and still has
/// room, by rendezvous hashing (Thaler and Ravishankar, 1998).
pub(super) fn share(keys: &BTreeSet<String>, clients: &BTreeSet<Uuid>, own: Uuid) -> Vec<bool> {
    let (least, mut more) = (keys.len() / clients.len(), keys.len() % clients.len());
    let mut clients: Vec<(&Uuid, usize)> = clients.iter().map(|client| (client, 0)).collect();
    let mut share = Vec::with_capacity(keys.len());
    for key in keys {
        let rank = |client: &Uuid| {
            let (high, low) = client.as_u64_pair();
            mix(hash(key) ^ mix(high ^ mix(low)))
        };
        let has_room = |led: usize| led < least || led == least && more > 0;
        let open = clients.iter_mut().filter(|(_, led)| has_room(*led));
        let Some((client, led)) = open.max_by_key(|(client, _)| rank(client)) else {
            unreachable!("the clients have room for all keys");
        };
        more -= usize::from(*led == least);
        *led += 1;
        share.push(**client == own);
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> BTreeSet<String> {
        (0..count).map(|n| format!("shard-{n}")).collect()
    }

    fn clients(count: u64) -> BTreeSet<Uuid> {
        (0..count).map(client).collect()
    }

    fn client(n: u64) -> Uuid {
        Uuid::from_u64_pair(mix(n), mix(!n))
    }

    /// Returns the client that leads each key.
    fn leaders(keys: &BTreeSet<String>, clients: &BTreeSet<Uuid>) -> Vec<Uuid> {
        let mut leaders = vec![None; keys.len()];
        for client in clients {
            let share = share(keys, clients, *client);
            for (leader, _) in leaders.iter_mut().zip(share).filter(|(_, leads)| *leads) {
                assert_eq!(leader.replace(*client), None, "two clients lead a key");
            }
        }
        leaders
            .into_iter()
            .map(|leader| leader.expect("each key has a leader"))
            .collect()
    }

    #[test]
    fn each_key_has_one_leader_and_all_clients_lead_as_many_or_one_more() {
        for (count, size) in [
            (0, 1),
            (1, 1),
            (1, 3),
            (2, 3),
            (64, 3),
            (64, 5),
            (64, 64),
            (100, 7),
        ] {
            let (keys, clients) = (keys(count), clients(size));
            let leaders = leaders(&keys, &clients);
            let led = |client: &Uuid| leaders.iter().filter(|leader| *leader == client).count();
            let led: Vec<usize> = clients.iter().map(led).collect();
            let (least, most) = (led.iter().min(), led.iter().max());
            assert!(most.expect("one") - least.expect("one") <= 1, "{led:?}");
        }
    }

    #[test]
    fn a_client_that_joins_moves_little_more_than_its_share() {
        let keys = keys(64);
        for size in 1..8 {
            let (before, after) = (
                leaders(&keys, &clients(size)),
                leaders(&keys, &clients(size + 1)),
            );
            let moved = before
                .iter()
                .zip(&after)
                .filter(|(one, other)| one != other)
                .count();
            let share = keys
                .len()
                .div_ceil(usize::try_from(size).expect("small") + 1);
            assert!(
                moved <= share * 2,
                "{moved} instead of {share} of {size} clients"
            );
        }
    }

    /// Members of different builds have to agree.
    #[test]
    fn the_shares_stay_as_they_are() {
        let keys = keys(8);
        assert_eq!(id(&keys), 0x8348_85de_809f_22de);
        let share = share(&keys, &clients(3), client(1));
        assert_eq!(
            share,
            [false, true, false, false, false, false, false, true]
        );
    }
}
