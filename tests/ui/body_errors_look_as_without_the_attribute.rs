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

fn main() {}
