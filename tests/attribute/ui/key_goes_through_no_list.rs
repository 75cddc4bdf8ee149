use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id[]>")]
async fn no_list(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<from[]>:<to[]>")]
async fn two_lists(from: Vec<u64>, to: Vec<u64>) -> Result<usize, LockError> {
    Ok(from.len() + to.len())
}

#[distributed_lock(key = "order:<table[].rows[]>")]
async fn list_of_lists(table: Vec<Vec<u64>>) -> Result<usize, LockError> {
    Ok(table.len())
}

#[distributed_lock(key = "order:<ids[]>")]
async fn no_display(ids: Vec<Option<u64>>) -> Result<usize, LockError> {
    Ok(ids.len())
}

fn main() {}
