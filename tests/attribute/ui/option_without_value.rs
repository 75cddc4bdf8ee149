use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", watchdog)]
async fn bare() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key("night"))]
async fn called() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", lease =)]
async fn unfinished() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night" lease = "30s")]
async fn no_comma() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", = "30s")]
async fn no_name() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", lease => "5s")]
async fn an_arrow() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key: "night", watchdog: false)]
async fn a_colon() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", client == locks())]
async fn two_signs() -> Result<(), LockError> {
    Ok(())
}

struct Orders;

impl Orders {
    #[distributed_lock(key = "night", client = self.)]
    async fn half_a_field(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(key = "night", client = self., lease = "3s")]
    fn half_a_field_before_another_option(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[distributed_lock(key = "night", on_error = |error|)]
async fn half_a_closure() {}

#[distributed_lock(key = "night", on_error = |error|, wait = "0s")]
async fn half_a_closure_before_another_option() {}

#[distributed_lock(key = "night", lease = 3 *)]
async fn half_a_product() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", if_taken = Ok(1 + ))]
async fn half_a_sum() -> Result<u8, LockError> {
    Ok(1)
}

fn main() {}
