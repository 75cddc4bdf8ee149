#![deny(warnings)]
//! Unsafe functions stay unsafe, inside and outside.

use rlock_core::{LockClient, LockError, current, distributed_lock};

type Outcome<T = ()> = Result<T, LockError>;

unsafe fn danger() -> u8 {
    assert!(current().is_some(), "the body runs without its lock");
    1
}

#[distributed_lock(key = "async")]
async unsafe fn asynchronous(number: u8) -> Outcome<u8> {
    Ok(number + unsafe { danger() })
}

#[distributed_lock(key = "sync")]
unsafe fn synchronous(number: u8) -> Outcome<u8> {
    Ok(number + unsafe { danger() })
}

#[distributed_lock(key = "async:bare")]
async unsafe fn asynchronous_without_a_block(number: u8) -> Outcome<u8> {
    #![allow(unsafe_op_in_unsafe_fn)]
    Ok(number + danger())
}

#[distributed_lock(key = "sync:bare")]
unsafe fn synchronous_without_a_block(number: u8) -> Outcome<u8> {
    #![allow(unsafe_op_in_unsafe_fn)]
    Ok(number + danger())
}

#[tokio::main]
async fn main() {
    LockClient::in_memory()
        .scope(async {
            assert_eq!(unsafe { asynchronous(1) }.await.unwrap(), 2);
            assert_eq!(unsafe { asynchronous_without_a_block(1) }.await.unwrap(), 2);
            tokio::task::block_in_place(|| unsafe {
                assert_eq!(synchronous(1).unwrap(), 2);
                assert_eq!(synchronous_without_a_block(1).unwrap(), 2);
            });
        })
        .await;
}
