//! Functions that compile only without the attribute.

use std::panic::Location;

use crate::support::Error;

//@ key = "k"
#[track_caller]
pub fn tracked() -> Result<u32, Error> {
    Ok(Location::caller().line())
}

pub struct Shop;

impl Shop {
    //@ key = "k", on_error = |_| self
    pub fn chained(&mut self) -> &mut Self {
        self
    }
}

#[async_trait::async_trait]
pub trait Sells {
    //@ key = "k"
    async fn any_error(&self, id: u64) -> Result<u64, Box<dyn std::error::Error>> {
        Ok(id)
    }
}

//@ key = "k"
pub const fn constant() -> Result<u64, Error> {
    Ok(7)
}

//@ key = "k"
pub extern "C" fn foreign() -> u64 {
    7
}
