use rlock_core::{LockError, distributed_lock};

struct Order;

#[distributed_lock(key = "order:<id>")]
async fn wrong_value(id: u64) -> Result<String, LockError> {
    let name: String = id;
    Ok(name)
}

async fn wrong_value_plain(id: u64) -> Result<String, LockError> {
    let name: String = id;
    Ok(name)
}

#[distributed_lock(key = "order:<id>")]
async fn stray_semicolon(id: u64) -> Result<u64, LockError> {
    Ok(id);
}

async fn stray_semicolon_plain(id: u64) -> Result<u64, LockError> {
    Ok(id);
}

#[distributed_lock(key = "order")]
async fn wrong_method(order: Order) -> Result<(), LockError> {
    order.ship();
    Ok(())
}

async fn wrong_method_plain(order: Order) -> Result<(), LockError> {
    order.ship();
    Ok(())
}

#[distributed_lock(key = "order:<id>")]
fn wrong_value_here(id: u64) -> Result<String, LockError> {
    let name: String = id;
    Ok(name)
}

fn wrong_value_here_plain(id: u64) -> Result<String, LockError> {
    let name: String = id;
    Ok(name)
}

#[distributed_lock(key = "order:<id>")]
fn stray_semicolon_here(id: u64) -> Result<u64, LockError> {
    Ok(id);
}

fn stray_semicolon_here_plain(id: u64) -> Result<u64, LockError> {
    Ok(id);
}

#[distributed_lock(key = "order:<id>")]
fn wrong_result_here(id: u64) -> Result<u64, LockError> {
    if id > 1 {
        return id;
    }
    Ok(id)
}

fn wrong_result_here_plain(id: u64) -> Result<u64, LockError> {
    if id > 1 {
        return id;
    }
    Ok(id)
}

#[distributed_lock(key = "order:<id>")]
async fn wrong_result(id: u64) -> Result<u64, LockError> {
    if id > 1 {
        return id;
    }
    Ok(id)
}

async fn wrong_result_plain(id: u64) -> Result<u64, LockError> {
    if id > 1 {
        return id;
    }
    Ok(id)
}

#[distributed_lock(key = "order:<id>")]
async fn empty(id: u64) -> Result<u64, LockError> {}

async fn empty_plain(id: u64) -> Result<u64, LockError> {}

#[distributed_lock(key = "order:<id>")]
fn waits_here(id: u64) -> Result<u64, LockError> {
    std::future::ready(()).await;
    Ok(id)
}

fn waits_here_plain(id: u64) -> Result<u64, LockError> {
    std::future::ready(()).await;
    Ok(id)
}

#[distributed_lock(key = "order")]
async fn moved_twice(order: Order) -> Result<(), LockError> {
    drop(order);
    drop(order);
    Ok(())
}

async fn moved_twice_plain(order: Order) -> Result<(), LockError> {
    drop(order);
    drop(order);
    Ok(())
}

#[distributed_lock(key = "order")]
async fn assigned(count: u64) -> Result<u64, LockError> {
    count += 1;
    Ok(count)
}

async fn assigned_plain(count: u64) -> Result<u64, LockError> {
    count += 1;
    Ok(count)
}

#[distributed_lock(key = "order")]
async fn borrowed_mutably(lines: Vec<u64>) -> Result<Vec<u64>, LockError> {
    lines.push(1);
    Ok(lines)
}

async fn borrowed_mutably_plain(lines: Vec<u64>) -> Result<Vec<u64>, LockError> {
    lines.push(1);
    Ok(lines)
}

#[distributed_lock(key = "order")]
async fn returned_by_reference(lines: Vec<u64>) -> Result<&'static [u64], LockError> {
    Ok(&lines)
}

async fn returned_by_reference_plain(lines: Vec<u64>) -> Result<&'static [u64], LockError> {
    Ok(&lines)
}

#[distributed_lock(key = "order")]
async fn outlived(lines: &[u64]) -> Result<&'static [u64], LockError> {
    Ok(lines)
}

async fn outlived_plain(lines: &[u64]) -> Result<&'static [u64], LockError> {
    Ok(lines)
}

#[distributed_lock(key = "order")]
fn moved_twice_here(order: Order) -> Result<(), LockError> {
    drop(order);
    drop(order);
    Ok(())
}

fn moved_twice_here_plain(order: Order) -> Result<(), LockError> {
    drop(order);
    drop(order);
    Ok(())
}

#[distributed_lock(key = "order")]
fn assigned_here(count: u64) -> Result<u64, LockError> {
    count += 1;
    Ok(count)
}

fn assigned_here_plain(count: u64) -> Result<u64, LockError> {
    count += 1;
    Ok(count)
}

#[distributed_lock(key = "order")]
fn borrowed_mutably_here(lines: Vec<u64>) -> Result<Vec<u64>, LockError> {
    lines.push(1);
    Ok(lines)
}

fn borrowed_mutably_here_plain(lines: Vec<u64>) -> Result<Vec<u64>, LockError> {
    lines.push(1);
    Ok(lines)
}

#[distributed_lock(key = "order")]
fn returned_by_reference_here(lines: Vec<u64>) -> Result<&'static [u64], LockError> {
    Ok(&lines)
}

fn returned_by_reference_here_plain(lines: Vec<u64>) -> Result<&'static [u64], LockError> {
    Ok(&lines)
}

#[distributed_lock(key = "order")]
fn outlived_here(lines: &[u64]) -> Result<&'static [u64], LockError> {
    Ok(lines)
}

fn outlived_here_plain(lines: &[u64]) -> Result<&'static [u64], LockError> {
    Ok(lines)
}

fn main() {}
