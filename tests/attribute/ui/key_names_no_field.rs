use rlock_core::{LockError, distributed_lock};

struct Tenant {
    name: String,
}

impl Tenant {
    const NAME: &str = "tenant";

    fn name(&self) -> &str {
        &self.name
    }

    // The compiler suggests no name in place of the whole template.
    #[distributed_lock(key = "<self.nam>")]
    async fn field(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(key = "<self.nam()>")]
    async fn method(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(key = "<Self::NAM>")]
    async fn constant(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
