//! Functions that trigger lints.
#![warn(clippy::shadow_reuse, clippy::shadow_same, clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

use std::collections::HashMap;
use std::sync::Mutex;

use crate::support::{pause, Error, LockError, Runs};

//@ key = "k"
async fn never_called(id: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k"
fn never_called_here(id: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k"
pub async fn unused_things(id: u64, mut total: u64, (left, right): (u64, u64)) -> Result<u64, Error> {
    let idle = 1;
    let mut still = 2;
    Ok(total + left + still)
}

//@ key = "k"
pub fn unused_things_here(id: u64, mut total: u64, (left, right): (u64, u64)) -> Result<u64, Error> {
    let idle = 1;
    let mut still = 2;
    Ok(total + left + still)
}

//@ key = "k"
pub async fn assigned(mut id: u64) -> Result<u64, Error> {
    id = 5;
    let mut more = 1;
    more = 2;
    Ok(1)
}

//@ key = "k"
pub fn assigned_here(mut id: u64) -> Result<u64, Error> {
    id = 5;
    Ok(1)
}

//@ key = "k"
pub async fn unreachable(id: u64) -> Result<u64, Error> {
    return Ok(id);
    println!("never");
}

//@ key = "k"
pub fn unreachable_here(id: u64) -> Result<u64, Error> {
    return Ok(id);
    println!("never");
}

//@ key = "k"
pub async fn must_use(id: u64) -> Result<u64, Error> {
    unreachable_here(id);
    unreachable(id);
    id.max(1);
    Ok(1)
}

//@ key = "k"
pub async fn braced_expression(id: u64) -> Result<u64, Error> {
    { Ok(id) }
}

//@ key = "k"
pub fn braced_expression_here(id: u64) -> Result<u64, Error> {
    { Ok(id) }
}

//@ key = "k"
pub async fn parenthesised(id: u64) -> Result<u64, Error> {
    (Ok(id))
}

//@ key = "k", on_error = |_| ()
pub async fn unit() -> () {
    ()
}

//@ key = "k"
pub async fn yields_async() -> Result<u64, Error> {
    let futures = async { pause() };
    futures.await.await;
    Ok(1)
}

//@ key = "k", on_error = |_| std::future::ready(0), allow_future_output = true
pub async fn returns_a_future() -> std::future::Ready<u64> {
    std::future::ready(7)
}

//@ key = "k"
pub async fn extra_type_parameter<T>(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[derive(Debug)]
pub enum Large {
    Lock(LockError),
    Table([u8; 512]),
}

impl From<LockError> for Large {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

//@ key = "k"
pub async fn large_error(id: u64) -> Result<u64, Large> {
    Ok(id)
}

//@ key = "k"
pub fn large_error_here(id: u64) -> Result<u64, Large> {
    Ok(id)
}

//@ key = "k"
pub async fn underscore(_id: u64) -> Result<u64, Error> {
    Ok(_id)
}

//@ key = "k:<_id>"
pub async fn underscore_in_the_key(_id: u64) -> Result<u64, Error> {
    Ok(1)
}

#[forbid(clippy::used_underscore_binding)]
pub mod forbidding {
    use crate::support::Error;

    //@ key = "k"
    pub async fn unused(_id: u64) -> Result<u64, Error> {
        Ok(1)
    }
}

pub mod forbidding_all {
    #![forbid(clippy::pedantic, clippy::shadow_same, unused_variables, unused_mut, unreachable_code, unused_braces)]
    use crate::support::Error;

    //@ key = "k:<id>", on_error = |_| Ok(id)
    pub async fn strict(id: u64, mut total: u64) -> Result<u64, Error> {
        total += id;
        Ok(total)
    }

    //@ key = "k:<id>"
    pub fn strict_here(id: u64, mut total: u64) -> Result<u64, Error> {
        total += id;
        Ok(total)
    }
}

pub mod explicit_returns {
    #![warn(clippy::implicit_return)]
    #![allow(clippy::needless_return)]
    use crate::support::Error;

    //@ key = "k:<id>"
    pub async fn explicit(id: u64) -> Result<u64, Error> {
        return Ok(id);
    }

    //@ key = "k:<id:?>", if_taken = Ok(0)
    pub async fn explicit_if_free(id: u64) -> Result<u64, Error> {
        return Ok(id);
    }

    //@ key = "k:<id>"
    pub fn explicit_here(id: u64) -> Result<u64, Error> {
        return Ok(id);
    }

    //@ key = "k:<ids[]>", on_error = |_| return 0
    pub fn explicit_on_error(ids: &[u64]) -> usize {
        return ids.len();
    }
}

//@ key = "k"
pub fn recursion_without_end(id: u64) -> Result<u64, Error> {
    recursion_without_end(id)
}

//@ key = "k"
pub fn pointer(pointer: *const u64) -> Result<u64, Error> {
    Ok(unsafe { *pointer })
}

//@ key = "k"
pub fn used_in_recursion_alone(id: u64, depth: u64) -> Result<u64, Error> {
    if id == 0 {
        return Ok(0);
    }
    used_in_recursion_alone(id - 1, depth)
}

//@ key = "k"
pub fn by_value_here(name: String, list: Vec<u64>, map: HashMap<u64, u64>) -> Result<usize, Error> {
    Ok(name.len() + list.len() + map.len())
}

//@ key = "k"
pub fn boxed_local(id: Box<u64>) -> Result<u64, Error> {
    Ok(*id)
}

//@ key = "k"
pub fn large_by_value(table: [u64; 512]) -> Result<u64, Error> {
    Ok(table.iter().sum())
}

//@ key = "k"
pub fn needless_lifetime<'a>(name: &'a str) -> Result<&'a str, Error> {
    Ok(name)
}

pub struct Lines {
    pub id: u64,
    pub lines: u64,
}

//@ key = "k"
pub async fn half_of_a_pattern(Lines { id, lines }: Lines) -> Result<u64, Error> {
    Ok(lines)
}

pub struct View<'a>(&'a str);

//@ key = "k"
pub fn elidable_name<'a>(view: View<'a>) -> Result<View<'a>, Error> {
    Ok(view)
}

//@ key = "k"
pub async fn holding_a_lock(cell: &Mutex<u64>) -> Result<u64, Error> {
    let guard = cell.lock().unwrap();
    pause().await;
    Ok(*guard)
}

//@ key = "k"
pub async fn shadowed(id: u64, name: &str) -> Result<usize, Error> {
    let id = id + 1;
    let name = name.len();
    let id = usize::from(id > 1);
    Ok(id + name)
}

//@ key = "k"
pub async fn panicking(id: u64) -> Result<u64, Error> {
    if id > 100 {
        panic!("many");
    }
    let list: Vec<u64> = Vec::new();
    Ok(list.first().copied().unwrap_or(id).checked_add(1).expect("few"))
}

//@ key = "k", on_error = |_| 0
pub fn candidate_for_const_here(id: u64) -> u64 {
    id + 1
}

//@ key = "k", on_error = |_| None
pub fn unnecessary_wrap_here(id: u64) -> Option<u64> {
    Some(id)
}

//@ key = "k"
#[expect(unused_variables, reason = "to see")]
#[expect(clippy::too_many_arguments, reason = "unfulfilled")]
pub async fn expected(id: u64) -> Result<u64, Error> {
    Ok(1)
}

//@ key = "k"
pub async fn on_parameters(#[allow(unused_variables)] id: u64, #[expect(unused_variables)] total: u64, #[expect(unused_mut)] more: u64) -> Result<u64, Error> {
    Ok(more)
}

#[deprecated]
//@ key = "k"
pub async fn old(id: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k"
pub async fn calls_the_old() -> Result<u64, Error> {
    old(7).await
}

pub struct Shop {
    base: u64,
}

impl Shop {
    //@ key = "k"
    pub async fn unused_self(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    //@ key = "k"
    pub fn used_in_recursion_alone(&self, id: u64) -> Result<u64, Error> {
        if id == 0 { Ok(0) } else { self.used_in_recursion_alone(id - 1) }
    }

    //@ key = "k", on_error = |_| "locked"
    pub fn literal(&self) -> &str {
        "free"
    }

    //@ key = "k"
    pub fn new(base: u64) -> Result<u64, Error> {
        Ok(base)
    }

    //@ key = "k"
    pub fn mutable_self(&mut self) -> Result<u64, Error> {
        Ok(self.base)
    }

    //@ key = "k", on_error = |_| Shop { base: 0 }
    pub fn with_base(self, base: u64) -> Self {
        Shop { base: base }
    }
}

pub fn runs(runs: &mut Runs) {
    let shop = || Shop { base: 5 };
    run!(runs, "unused_things", unused_things(1, 2, (3, 4)));
    runs.value("unused_things_here", unused_things_here(1, 2, (3, 4)));
    run!(runs, "assigned", assigned(1));
    run!(runs, "yields_async", yields_async());
    run!(runs, "large_error", large_error(7));
    runs.value("large_error_here", large_error_here(7));
    run!(runs, "underscore", underscore(7));
    run!(runs, "strict", forbidding_all::strict(1, 2));
    runs.value("used_in_recursion_alone", used_in_recursion_alone(7, 1));
    run!(runs, "holding_a_lock", holding_a_lock(&Mutex::new(7)));
    run!(runs, "shadowed", shadowed(7, "seven"));
    run!(runs, "panicking", panicking(7));
    runs.value("large_by_value", large_by_value([1; 512]));
    runs.value("with_base", shop().with_base(6).base);
}
