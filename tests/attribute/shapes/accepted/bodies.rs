//! Kinds of bodies.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{pause, say, Error, Noisy, Outcome, Runs};

//@ key = "k"
pub async fn labels(list: &[Vec<u64>]) -> Result<u64, Error> {
    let found = 'outer: loop {
        for inner in list {
            for id in inner {
                if *id > 2 {
                    break 'outer *id;
                }
                if *id == 1 {
                    continue 'outer;
                }
                pause().await;
            }
        }
        return Err(Error::Other("none"));
    };
    let block = 'block: {
        if found > 3 {
            break 'block 1;
        }
        2
    };
    Ok(found + block)
}

//@ key = "k"
pub fn labels_here(list: &[Vec<u64>]) -> Result<u64, Error> {
    'outer: for inner in list {
        for id in inner {
            if *id > 2 {
                return Ok(*id);
            }
            if *id == 1 {
                continue 'outer;
            }
        }
    }
    Err("none".into())
}

//@ key = "k"
pub async fn let_else(text: Option<&str>) -> Result<u64, Error> {
    let Some(text) = text else {
        return Err(Error::Other("nothing"));
    };
    let Ok(id) = text.parse::<u64>() else {
        say("no number");
        Err("no number")?
    };
    Ok(id)
}

//@ key = "k"
pub async fn nested_items(id: u64) -> Result<u64, Error> {
    #[derive(Debug)]
    struct Inner {
        id: u64,
    }

    impl Inner {
        async fn double(&self) -> u64 {
            pause().await;
            2 * self.id
        }
    }

    static CALLS: AtomicU64 = AtomicU64::new(0);
    const ONE: u64 = 1;
    enum Kind {
        A,
        B,
    }
    use Kind::{A, B};

    CALLS.fetch_add(ONE, Ordering::Relaxed);
    let kind = if id > 1 { A } else { B };
    let inner = Inner { id };
    Ok(match kind {
        A => inner.double().await,
        B => inner.id,
    } + CALLS.load(Ordering::Relaxed))
}

//@ key = "k"
pub fn nested_locked(id: u64) -> Result<u64, Error> {
    //@ key = "k"
    fn inner(id: u64) -> Result<u64, Error> {
        Ok(id + 1)
    }
    inner(id)
}

//@ key = "k"
pub async fn nested_locked_async(id: u64) -> Result<u64, Error> {
    //@ key = "k"
    async fn inner(id: u64) -> Result<u64, Error> {
        pause().await;
        Ok(id + 1)
    }
    inner(id).await
}

//@ key = "k"
pub async fn inner_attributes(id: u64) -> Result<u64, Error> {
    #![allow(clippy::let_and_return)]
    #![doc = "inside"]
    let same = Ok(id);
    same
}

//@ key = "k"
pub async fn closures(list: Vec<u64>) -> Result<u64, Error> {
    let add = |more: u64| move |id: u64| id + more;
    let early = || -> Result<u64, Error> {
        let first = list.first().ok_or("empty")?;
        return Ok(*first);
    };
    let first = early()?;
    let block = async {
        pause().await;
        first + 1
    };
    let later = async move { block.await + 1 };
    Ok(list.iter().copied().map(add(1)).sum::<u64>() + later.await)
}

//@ key = "k"
pub async fn joined(id: u64) -> Result<u64, Error> {
    let one = async {
        pause().await;
        id + 1
    };
    let two = async { id + 2 };
    let (one, two) = tokio::join!(one, two);
    let chosen = tokio::select! {
        biased;
        () = std::future::ready(()) => 1,
        () = tokio::time::sleep(Duration::from_secs(60)) => 2,
    };
    Ok(one + two + chosen)
}

//@ key = "k"
pub async fn spawned(id: u64) -> Result<u64, Error> {
    let task = tokio::spawn(async move {
        pause().await;
        id
    });
    task.await.map_err(|_| Error::Other("panicked"))
}

//@ key = "k", or_else = |_| None
pub async fn options(list: &[u64]) -> Option<u64> {
    let first = list.first()?;
    pause().await;
    list.get(*first as usize).copied()
}

//@ key = "k", or_else = |_| None
pub fn options_here(list: &[u64]) -> Option<u64> {
    let first = list.first()?;
    list.get(*first as usize).copied()
}

//@ key = "k"
pub async fn conditions(id: u64, name: &str) -> Result<u64, Error> {
    let size = if let Some(first) = name.chars().next() {
        first.len_utf8()
    } else if name.is_empty() && id > 7 {
        7
    } else {
        0
    };
    let kind = match (id, size) {
        (0, _) => "none",
        (id, 1..=3) if id % 2 == 0 => "even",
        (_, size @ 1..=3) if size == 1 => "one",
        _ => "many",
    };
    Ok(kind.len() as u64)
}

//@ key = "k"
pub async fn diverging(id: u64) -> Result<u64, Error> {
    if id > 0 {
        return Ok(id);
    }
    panic!("none");
}

//@ key = "k"
pub fn diverging_here(id: u64) -> Result<u64, Error> {
    if id > 0 {
        return Ok(id);
    }
    unreachable!()
}

//@ key = "k"
pub async fn for_ever(id: u64) -> Result<std::convert::Infallible, Error> {
    let mut left = id;
    loop {
        pause().await;
        left = left.checked_sub(1).ok_or(Error::Other("done"))?;
    }
}

//@ key = "k"
pub async fn unsafe_block(id: u64) -> Result<u64, Error> {
    let pointer = &id as *const u64;
    // SAFETY: it points to a variable.
    let id = unsafe { *pointer };
    Ok(id)
}

/// # Safety
/// The pointer has to be valid.
//@ key = "k"
pub unsafe fn unsafe_function(pointer: *const u64) -> Result<u64, Error> {
    // SAFETY: the caller sees to it.
    Ok(unsafe { *pointer })
}

/// # Safety
/// The number has to be one.
//@ key = "k"
pub async unsafe fn unsafe_async(id: u64) -> Result<u64, Error> {
    pause().await;
    Ok(id)
}

//@ key = "k"
pub async fn drops(noisy: Noisy) -> Result<u64, Error> {
    let _first = Noisy("first");
    let second = Noisy("second");
    {
        let _inner = Noisy("inner");
        pause().await;
    }
    drop(second);
    let _ = Noisy("at once");
    Ok(noisy.0.len() as u64)
}

//@ key = "k"
pub fn drops_here(noisy: Noisy) -> Result<u64, Error> {
    let _first = Noisy("first");
    let second = Noisy("second");
    drop(second);
    let _ = Noisy("at once");
    Ok(noisy.0.len() as u64)
}

//@ key = "k"
pub async fn returns_what_it_was_given(noisy: Noisy) -> Result<Noisy, Error> {
    pause().await;
    Ok(noisy)
}

//@ key = "k"
pub async fn inferred(id: u64) -> Result<Vec<u64>, Error> {
    let mut list = Vec::new();
    if id > 100 {
        return Err("many".into());
    }
    list.push(id);
    let parsed = "7".parse()?;
    list.push(parsed);
    Ok(list.into_iter().collect())
}

//@ key = "k"
pub async fn inferred_from_the_signature(text: &str) -> Outcome<HashMap<String, u64>> {
    text.split(',').map(|pair| {
        let mut parts = pair.split('=');
        let name = parts.next().ok_or("no name")?;
        let id = parts.next().ok_or("no number")?.parse()?;
        Ok((name.to_owned(), id))
    }).collect()
}

//@ key = "k"
pub fn inferred_here(text: &str) -> Outcome<HashMap<String, u64>> {
    text.split(',').map(|pair| {
        let mut parts = pair.split('=');
        let name = parts.next().ok_or("no name")?;
        let id = parts.next().ok_or("no number")?.parse()?;
        Ok((name.to_owned(), id))
    }).collect()
}

//@ key = "k"
pub async fn integers_are_inferred() -> Result<u8, Error> {
    let mut total = 0;
    for id in 0..5 {
        total += id;
    }
    Ok(total)
}

//@ key = "k"
pub async fn coerced_to_a_slice(list: &[u64; 3]) -> Result<&[u64], Error> {
    if list[0] == 0 {
        return Ok(&[]);
    }
    Ok(list)
}

//@ key = "k"
pub fn coerced_to_a_trait(id: u64) -> Result<Box<dyn std::fmt::Debug>, Box<dyn std::error::Error>> {
    if id > 7 {
        return Err(Box::new(Error::Other("many")));
    }
    if id == 7 {
        return Ok(Box::new("seven"));
    }
    Ok(Box::new(id))
}

//@ key = "k"
pub async fn coerced_to_a_trait_async(id: u64) -> Result<Box<dyn std::fmt::Debug + Send>, Box<dyn std::error::Error + Send + Sync>> {
    pause().await;
    if id > 7 {
        return Err(Box::new(Error::Other("many")));
    }
    if id == 7 {
        return Ok(Box::new("seven"));
    }
    Ok(Box::new(id))
}

//@ key = "k"
pub async fn recursion(depth: u64) -> Result<u64, Error> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(1 + Box::pin(recursion(depth - 1)).await?)
}

//@ key = "k"
pub fn recursion_here(depth: u64) -> Result<u64, Error> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(1 + recursion_here(depth - 1)?)
}

//@ key = "k"
pub async fn mutual(depth: u64) -> Result<u64, Error> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(1 + other(depth - 1).await?)
}

//@ key = "k"
pub fn other(depth: u64) -> std::pin::Pin<Box<dyn std::future::Future<Output = Result<u64, Error>> + Send>> {
    Box::pin(async move { mutual(depth).await })
}

//@ key = "k", or_else = |_| ()
pub async fn ends_with_a_semicolon(id: u64) {
    pause().await;
    if id > 7 {
        return;
    }
    say("done");
}

//@ key = "k", or_else = |_| ()
pub fn nothing_but_a_comment() {
    // nothing
}

//@ key = "k"
pub(crate) async fn crate_visible() -> Result<(), Error> {
    Ok(())
}

pub mod inside {
    use crate::support::Error;

    //@ key = "k"
    pub(super) async fn visible_above() -> Result<(), Error> {
        Ok(())
    }

    //@ key = "k"
    pub(in crate::bodies) fn visible_in() -> Result<(), Error> {
        Ok(())
    }
}

/// With documentation, of several lines.
///
/// # Errors
/// None.
#[doc(alias = "others")]
#[inline]
#[must_use = "it is made to be used"]
//@ key = "k"
#[cold]
pub fn attributes() -> Result<u64, Error> {
    Ok(7)
}

pub fn runs(runs: &mut Runs) {
    run!(runs, "labels", labels(&[vec![0, 2], vec![3]]));
    runs.value("labels_here", labels_here(&[vec![1, 2], vec![3]]));
    run!(runs, "let_else", let_else(Some("x")));
    run!(runs, "nested_items", nested_items(7));
    runs.value("nested_locked", nested_locked(7));
    run!(runs, "nested_locked_async", nested_locked_async(7));
    run!(runs, "inner_attributes", inner_attributes(7));
    run!(runs, "closures", closures(vec![1, 2]));
    run!(runs, "joined", joined(7));
    run!(runs, "spawned", spawned(7));
    run!(runs, "options", options(&[1, 2]));
    runs.value("options_here", options_here(&[]));
    run!(runs, "conditions", conditions(7, "seven"));
    run!(runs, "diverging", diverging(7));
    runs.value("diverging_here", diverging_here(7));
    run!(runs, "for_ever", for_ever(7));
    run!(runs, "unsafe_block", unsafe_block(7));
    runs.value("unsafe_function", unsafe { unsafe_function(&7) });
    run!(runs, "unsafe_async", unsafe { unsafe_async(7) });
    run!(runs, "drops", drops(Noisy("argument")));
    runs.value("drops_here", drops_here(Noisy("argument")));
    run!(runs, "returns_what_it_was_given", returns_what_it_was_given(Noisy("argument")));
    run!(runs, "inferred", inferred(7));
    run!(runs, "inferred_from_the_signature", inferred_from_the_signature("a=7"));
    runs.value("inferred_here", inferred_here("a=7"));
    run!(runs, "integers_are_inferred", integers_are_inferred());
    run!(runs, "coerced_to_a_slice", coerced_to_a_slice(&[1, 2, 3]));
    runs.value("coerced_to_a_trait", coerced_to_a_trait(7).unwrap());
    run!(runs, "coerced_to_a_trait_async", coerced_to_a_trait_async(7));
    run!(runs, "recursion", recursion(7));
    runs.value("recursion_here", recursion_here(7));
    run!(runs, "mutual", mutual(7));
    run!(runs, "ends_with_a_semicolon", ends_with_a_semicolon(7));
    runs.value("nothing_but_a_comment", nothing_but_a_comment());
    run!(runs, "crate_visible", crate_visible());
    run!(runs, "visible_above", inside::visible_above());
    runs.value("visible_in", inside::visible_in());
    runs.value("attributes", attributes());
}
