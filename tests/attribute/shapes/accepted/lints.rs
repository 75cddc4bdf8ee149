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
pub async fn after_a_loop() -> Result<u64, Error> {
    loop {
        pause().await;
    }
    Ok(1)
}

//@ key = "k"
pub async fn must_use(id: u64) -> Result<u64, Error> {
    unreachable_here(id);
    unreachable(id);
    id.max(1);
    Ok(1)
}

//@ key = "k"
pub fn must_use_here(id: u64) -> Result<u64, Error> {
    unreachable_here(id);
    id.max(1);
    Ok(1)
}

//@ key = "k"
pub async fn braces_and_parentheses(id: u64) -> Result<u64, Error> {
    let one = (id);
    let two = { id };
    if (one == two) {
        pause().await;
    }
    Ok({ 1 })
}

//@ key = "k"
pub async fn lone_expression(id: u64) -> Result<u64, Error> { Ok(id) }

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

//@ key = "k", or_else = |_| ()
pub async fn unit() -> () {
    ()
}

//@ key = "k", or_else = |_| ()
pub fn unit_here() -> () {
    ()
}

//@ key = "k", or_else = |_| ()
pub async fn empty() {}

//@ key = "k"
pub async fn yields_async() -> Result<u64, Error> {
    let futures = async { pause() };
    futures.await.await;
    Ok(1)
}

//@ key = "k", or_else = |_| std::future::ready(0), unlocked_output = true
pub async fn returns_a_future() -> std::future::Ready<u64> {
    std::future::ready(7)
}

//@ key = "k", unlocked_output = true
pub async fn returns_a_future_inside() -> Result<std::future::Ready<u64>, Error> {
    Ok(std::future::ready(7))
}

//@ key = "k"
pub async fn extra_type_parameter<T>(id: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k"
pub fn extra_type_parameter_here<T>(id: u64) -> Result<u64, Error> {
    Ok(id)
}

//@ key = "k"
pub async fn used_type_parameter<T: Default + Into<u64>>() -> Result<u64, Error> {
    Ok(T::default().into())
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
pub fn large_error_boxed(id: u64) -> std::pin::Pin<Box<dyn std::future::Future<Output = Result<u64, Large>> + Send>> {
    Box::pin(async move { Ok(id) })
}

//@ key = "k"
pub async fn underscore(_id: u64) -> Result<u64, Error> {
    Ok(_id)
}

//@ key = "k"
pub fn underscore_here(_id: u64) -> Result<u64, Error> {
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

    //@ key = "k"
    pub fn unused_here(_id: u64) -> Result<u64, Error> {
        Ok(1)
    }
}

pub mod forbidding_all {
    #![forbid(clippy::pedantic, clippy::shadow_same, unused_variables, unused_mut, unreachable_code, unused_braces)]
    use crate::support::Error;

    //@ key = "k:<id>", or_else = |_| Ok(id)
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

//@ key = "k"
pub fn recursion_without_end(id: u64) -> Result<u64, Error> {
    recursion_without_end(id)
}

//@ key = "k"
pub async fn recursion_without_end_async(id: u64) -> Result<u64, Error> {
    Box::pin(recursion_without_end_async(id)).await
}

//@ key = "k"
pub fn pointer(pointer: *const u64) -> Result<u64, Error> {
    Ok(unsafe { *pointer })
}

//@ key = "k"
pub async fn pointer_async(pointer: *const u64) -> Result<u64, Error> {
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
pub async fn used_in_recursion_alone_async(id: u64, depth: u64) -> Result<u64, Error> {
    if id == 0 {
        return Ok(0);
    }
    Box::pin(used_in_recursion_alone_async(id - 1, depth)).await
}

//@ key = "k"
pub async fn many_arguments(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64) -> Result<u64, Error> {
    pause().await;
    Ok(a + b + c + d + e + f + g + h)
}

//@ key = "k"
pub fn many_booleans(a: bool, b: bool, c: bool, d: bool) -> Result<bool, Error> {
    Ok(a && b || c && d)
}

//@ key = "k"
pub async fn by_value(name: String, list: Vec<u64>, map: HashMap<u64, u64>) -> Result<usize, Error> {
    pause().await;
    Ok(name.len() + list.len() + map.len())
}

//@ key = "k"
pub fn by_value_here(name: String, list: Vec<u64>, map: HashMap<u64, u64>) -> Result<usize, Error> {
    Ok(name.len() + list.len() + map.len())
}

//@ key = "k"
pub fn by_reference_here(list: &Vec<u64>, name: &String, id: &u64, boxed: &Box<u64>) -> Result<usize, Error> {
    Ok(list.len() + name.len() + usize::from(*id > **boxed))
}

//@ key = "k"
pub async fn by_reference(list: &Vec<u64>, name: &String, id: &u64, boxed: &Box<u64>) -> Result<usize, Error> {
    Ok(list.len() + name.len() + usize::from(*id > **boxed))
}

//@ key = "k"
pub fn mutable_reference_here(list: &mut Vec<u64>, id: &mut u64) -> Result<usize, Error> {
    Ok(list.len() + usize::from(*id > 1))
}

//@ key = "k"
pub async fn mutable_reference(list: &mut Vec<u64>, id: &mut u64) -> Result<usize, Error> {
    Ok(list.len() + usize::from(*id > 1))
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

//@ key = "k"
pub async fn needless_lifetime_async<'a>(name: &'a str) -> Result<&'a str, Error> {
    Ok(name)
}

pub struct View<'a>(&'a str);

//@ key = "k"
pub fn elidable_name<'a>(view: View<'a>) -> Result<View<'a>, Error> {
    Ok(view)
}

//@ key = "k"
pub async fn elidable_name_async<'a>(view: View<'a>) -> Result<View<'a>, Error> {
    Ok(view)
}

//@ key = "k"
pub fn hasher_here(map: HashMap<u64, u64>) -> Result<usize, Error> {
    Ok(map.len())
}

//@ key = "k"
pub fn opaque(id: u64) -> impl std::future::Future<Output = Result<u64, Error>> {
    async move { Ok(id) }
}

//@ key = "k"
pub async fn holding_a_lock(cell: &Mutex<u64>) -> Result<u64, Error> {
    let guard = cell.lock().unwrap();
    pause().await;
    Ok(*guard)
}

//@ key = "k"
pub async fn large_future() -> Result<u64, Error> {
    let table = [1_u8; 20_000];
    pause().await;
    Ok(table.iter().copied().map(u64::from).sum())
}

//@ key = "k"
pub async fn shadowed(id: u64, name: &str) -> Result<usize, Error> {
    let id = id + 1;
    let name = name.len();
    let id = usize::from(id > 1);
    Ok(id + name)
}

//@ key = "k"
pub fn shadowed_here(id: u64, name: &str) -> Result<usize, Error> {
    let id = id;
    let name = name.len();
    Ok(usize::from(id > 1) + name)
}

//@ key = "k"
pub async fn panicking(id: u64) -> Result<u64, Error> {
    if id > 100 {
        panic!("many");
    }
    let list: Vec<u64> = Vec::new();
    Ok(list.first().copied().unwrap_or(id).checked_add(1).expect("few"))
}

//@ key = "k"
pub fn panicking_here(id: u64) -> Result<u64, Error> {
    assert!(id < 100);
    Ok(Some(id).unwrap())
}

//@ key = "k", or_else = |_| 0
pub fn candidate_for_const_here(id: u64) -> u64 {
    id + 1
}

//@ key = "k", or_else = |_| None
pub fn unnecessary_wrap_here(id: u64) -> Option<u64> {
    Some(id)
}

//@ key = "k"
pub async fn items_after_statements() -> Result<u64, Error> {
    pause().await;
    fn seven() -> u64 {
        7
    }
    const ONE: u64 = 1;
    Ok(seven() + ONE)
}

//@ key = "k"
pub async fn complex(list: Vec<Option<u64>>) -> Result<u64, Error> {
    let mut total = 0;
    for index in 0..list.len() {
        if let Some(id) = list[index] {
            if id > 1 {
                match id {
                    2 => total += 1,
                    _ => (),
                }
            } else if id == 0 {
                if total > 1 {
                    total = total - 1;
                }
            }
        }
    }
    while let Some(next) = list.iter().flatten().next() {
        total += next;
        break;
    }
    Ok(total as u64)
}

//@ key = "k"
pub fn redundant_here(name: String) -> Result<String, Error> {
    let copy = name.clone();
    let text: String = format!("{}", copy.to_string());
    let parsed: Result<u64, Error> = Ok(1);
    match parsed {
        Ok(_) => {}
        Err(error) => return Err(error),
    };
    Ok(text.clone())
}

#[allow(clippy::needless_range_loop)]
//@ key = "k"
pub async fn allowed(list: &[u64], unused_argument: u64) -> Result<u64, Error> {
    #![allow(unused_variables)]
    let mut sum = 0;
    for index in 0..list.len() {
        sum += list[index];
    }
    Ok(sum)
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

#[must_use]
//@ key = "k"
pub fn used_twice(id: u64) -> Result<u64, Error> {
    Ok(id)
}

/// Speaks of SomeThing and of foo_bar.
//@ key = "k"
pub async fn documented(id: u64) -> Result<u64, Error> {
    Ok(id)
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
    pub fn unused_self_here(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    //@ key = "k"
    pub fn used_in_recursion_alone(&self, id: u64) -> Result<u64, Error> {
        if id == 0 { Ok(0) } else { self.used_in_recursion_alone(id - 1) }
    }

    //@ key = "k"
    pub async fn used_in_recursion_alone_async(&self, id: u64) -> Result<u64, Error> {
        if id == 0 { Ok(0) } else { Box::pin(self.used_in_recursion_alone_async(id - 1)).await }
    }

    //@ key = "k", or_else = |_| "locked"
    pub fn literal(&self) -> &str {
        "free"
    }

    //@ key = "k", or_else = |_| "locked"
    pub async fn literal_async(&self) -> &str {
        "free"
    }

    //@ key = "k"
    pub fn new(base: u64) -> Result<u64, Error> {
        Ok(base)
    }

    //@ key = "k"
    pub fn to_owned_shop(self) -> Result<u64, Error> {
        Ok(self.base)
    }

    //@ key = "k"
    pub fn into_borrowed(&self) -> Result<u64, Error> {
        Ok(self.base)
    }

    //@ key = "k"
    pub fn mutable_self(&mut self) -> Result<u64, Error> {
        Ok(self.base)
    }

    //@ key = "k"
    pub async fn mutable_self_async(&mut self) -> Result<u64, Error> {
        Ok(self.base)
    }

    //@ key = "k", or_else = |_| Shop { base: 0 }
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
    run!(runs, "large_error_boxed", large_error_boxed(7));
    run!(runs, "underscore", underscore(7));
    run!(runs, "strict", forbidding_all::strict(1, 2));
    runs.value("used_in_recursion_alone", used_in_recursion_alone(7, 1));
    run!(runs, "used_in_recursion_alone_async", used_in_recursion_alone_async(7, 1));
    run!(runs, "many_arguments", many_arguments(1, 2, 3, 4, 5, 6, 7, 8));
    run!(runs, "holding_a_lock", holding_a_lock(&Mutex::new(7)));
    run!(runs, "large_future", large_future());
    run!(runs, "complex", complex(vec![None, Some(0), Some(2), Some(3)]));
    run!(runs, "shadowed", shadowed(7, "seven"));
    run!(runs, "panicking", panicking(7));
    runs.value("panicking_here", panicking_here(7));
    runs.value("large_by_value", large_by_value([1; 512]));
    run!(runs, "mutable_self_async", shop().mutable_self_async());
    runs.value("with_base", shop().with_base(6).base);
}
