//! Bodies with mistakes. Their errors are those of the functions without the attribute.

use crate::support::Error;

pub struct Order;

//@ key = "order:<id>"
pub async fn wrong_value(id: u64) -> Result<String, Error> {
    let name: String = id;
    Ok(name)
}

//@ key = "order:<id>"
pub async fn stray_semicolon(id: u64) -> Result<u64, Error> {
    Ok(id);
}

//@ key = "order"
pub async fn wrong_method(order: Order) -> Result<(), Error> {
    order.ship();
    Ok(())
}

//@ key = "order:<id>"
pub fn wrong_value_here(id: u64) -> Result<String, Error> {
    let name: String = id;
    Ok(name)
}

//@ key = "order:<id>"
pub fn stray_semicolon_here(id: u64) -> Result<u64, Error> {
    Ok(id);
}

//@ key = "order:<id>"
pub fn wrong_result_here(id: u64) -> Result<u64, Error> {
    if id > 1 {
        return id;
    }
    Ok(id)
}

//@ key = "order:<id>"
pub async fn wrong_result(id: u64) -> Result<u64, Error> {
    if id > 1 {
        return id;
    }
    Ok(id)
}

//@ key = "order:<id>"
pub async fn empty(id: u64) -> Result<u64, Error> {}

//@ key = "order:<id>"
pub fn waits_here(id: u64) -> Result<u64, Error> {
    std::future::ready(()).await;
    Ok(id)
}

//@ key = "order"
pub async fn moved_twice(order: Order) -> Result<(), Error> {
    drop(order);
    drop(order);
    Ok(())
}

//@ key = "order"
pub async fn assigned(count: u64) -> Result<u64, Error> {
    count += 1;
    Ok(count)
}

//@ key = "order"
pub async fn borrowed_mutably(lines: Vec<u64>) -> Result<Vec<u64>, Error> {
    lines.push(1);
    Ok(lines)
}

//@ key = "order"
pub async fn returned_by_reference(lines: Vec<u64>) -> Result<&'static [u64], Error> {
    Ok(&lines)
}

//@ key = "order"
pub async fn outlived(lines: &[u64]) -> Result<&'static [u64], Error> {
    Ok(lines)
}

//@ key = "order"
pub fn moved_twice_here(order: Order) -> Result<(), Error> {
    drop(order);
    drop(order);
    Ok(())
}

//@ key = "order"
pub fn assigned_here(count: u64) -> Result<u64, Error> {
    count += 1;
    Ok(count)
}

//@ key = "order"
pub fn borrowed_mutably_here(lines: Vec<u64>) -> Result<Vec<u64>, Error> {
    lines.push(1);
    Ok(lines)
}

//@ key = "order"
pub fn returned_by_reference_here(lines: Vec<u64>) -> Result<&'static [u64], Error> {
    Ok(&lines)
}

//@ key = "order"
pub fn outlived_here(lines: &[u64]) -> Result<&'static [u64], Error> {
    Ok(lines)
}
