use rlock_core::{LockError, distributed_lock};

use futures_util::stream::{self, Stream};

#[distributed_lock(key = "lines", on_error = |_| panic!("no lock"))]
fn lines() -> impl Stream<Item = u8> {
    stream::iter([1, 2])
}

#[distributed_lock(key = "lines")]
fn lines_or_error() -> Result<stream::Empty<u8>, LockError> {
    Ok(stream::empty())
}

fn main() {}
