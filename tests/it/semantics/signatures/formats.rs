//! Placeholders with a format.

use rlock_core::{LockError, current, distributed_lock};

use super::held::{assert_held_here, client, run};

#[derive(Debug, Clone, Copy)]
enum Region {
    North,
    South { number: u8 },
}

struct Shop(i8);

impl Shop {
    #[distributed_lock(
        key = "<amount:08>:<amount:#x>:<ratio:.2>:<name:_^7>:<name:>>4>:<name:-<<4>:<self.0:+>"
    )]
    async fn sell(&self, amount: u32, ratio: f64, name: &str) -> Result<String, LockError> {
        let _ = (amount, ratio, name);
        Ok(inside())
    }
}

#[distributed_lock(key = "region:<region:?>:<number:?>")]
async fn debugged(region: Region, number: Option<&str>) -> Result<(String, u8), LockError> {
    let in_region = match region {
        Region::North => 0,
        Region::South { number } => number,
    };
    let in_all = number.map_or(0, str::len);
    Ok((
        inside(),
        in_region + u8::try_from(in_all).unwrap_or(u8::MAX),
    ))
}

/// Prices that share a whole number share a lock.
#[distributed_lock(key = "about:<price:.0>")]
fn rounded(price: f64) -> Result<f64, LockError> {
    assert_held_here("about:2");
    Ok(price)
}

fn inside() -> String {
    current().expect("inside of a lock").key().to_owned()
}

#[tokio::test]
async fn a_value_is_rendered_by_its_format_and_then_escaped() {
    let key = run(Shop(5).sell(7, 1.0 / 3.0, "a:b")).await.expect("free");
    assert_eq!(key, "00000007:0x7:0.33:__a%3Ab__: a%3Ab:a%3Ab-:+5");
    let key = run(debugged(Region::North, None)).await.expect("free");
    assert_eq!(key, ("region:North:None".to_owned(), 0));
    let south = Region::South { number: 3 };
    let key = run(debugged(south, Some("None"))).await.expect("free");
    let expected = "region:South %7B number%3A 3 %7D:Some(\"None\")";
    assert_eq!(key, (expected.to_owned(), 7));
}

#[test]
fn a_format_that_leaves_something_out_makes_values_share_a_key() {
    client();
    for price in [1.6, 2.4] {
        rounded(price).expect("free");
    }
}
