//! Types that do not fit.

use crate::support::Error;

//@ key = "k"
pub async fn wrong_number(id: u64) -> Result<u32, Error> {
    Ok(id)
}

//@ key = "k"
pub fn wrong_number_here(id: u64) -> Result<u32, Error> {
    Ok(id)
}
