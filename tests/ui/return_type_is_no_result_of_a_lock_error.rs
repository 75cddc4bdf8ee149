use rlock_core::distributed_lock;

#[distributed_lock(key = "night")]
async fn number() -> u32 {
    42
}

#[distributed_lock(key = "night")]
async fn option() -> std::option::Option<u32> {
    Some(42)
}

#[distributed_lock(key = "night")]
async fn foreign_error() -> Result<(), std::num::ParseIntError> {
    "42".parse::<u32>()?;
    Ok(())
}

type Answer<T> = Result<T, std::fmt::Error>;

#[distributed_lock(key = "night")]
async fn alias() -> Answer<u8> {
    Ok(1)
}

fn main() {}
