//! Kinds of bodies.

use std::collections::HashMap;

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

    enum Kind {
        A,
        B,
    }
    use Kind::{A, B};

    let kind = if id > 1 { A } else { B };
    let inner = Inner { id };
    Ok(match kind {
        A => inner.double().await,
        B => inner.id,
    })
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
pub async fn inner_attributes(id: u64) -> Result<u64, Error> {
    #![allow(clippy::let_and_return)]
    #![doc = "inside"]
    let same = Ok(id);
    same
}

//@ key = "k"
pub async fn closures(list: Vec<u64>) -> Result<u64, Error> {
    let early = || -> Result<u64, Error> {
        let first = list.first().ok_or("empty")?;
        return Ok(*first);
    };
    let first = early()?;
    let block = async {
        pause().await;
        first + 1
    };
    Ok(list.len() as u64 + block.await)
}

//@ key = "k"
pub async fn diverging(id: u64) -> Result<u64, Error> {
    if id > 0 {
        return Ok(id);
    }
    panic!("none");
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
pub async fn inferred_from_the_signature(text: &str) -> Outcome<HashMap<String, u64>> {
    text.split(',').map(|pair| {
        let mut parts = pair.split('=');
        let name = parts.next().ok_or("no name")?;
        let id = parts.next().ok_or("no number")?.parse()?;
        Ok((name.to_owned(), id))
    }).collect()
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
pub async fn recursion(depth: u64) -> Result<u64, Error> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(1 + Box::pin(recursion(depth - 1)).await?)
}

//@ key = "k", on_error = |_| ()
pub async fn ends_with_a_semicolon(id: u64) {
    pause().await;
    if id > 7 {
        return;
    }
    say("done");
}

//@ key = "k", on_error = |_| ()
pub fn nothing_but_a_comment() {
    // nothing
}

pub mod inside {
    use crate::support::Error;

    //@ key = "k"
    pub(in crate::bodies) async fn visible_above() -> Result<(), Error> {
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
    run!(runs, "nested_items", nested_items(7));
    runs.value("nested_locked", nested_locked(7));
    run!(runs, "inner_attributes", inner_attributes(7));
    run!(runs, "closures", closures(vec![1, 2]));
    run!(runs, "diverging", diverging(7));
    run!(runs, "for_ever", for_ever(7));
    run!(runs, "drops", drops(Noisy("argument")));
    run!(runs, "inferred_from_the_signature", inferred_from_the_signature("a=7"));
    run!(runs, "coerced_to_a_slice", coerced_to_a_slice(&[1, 2, 3]));
    runs.value("coerced_to_a_trait", coerced_to_a_trait(7).unwrap());
    run!(runs, "recursion", recursion(7));
    run!(runs, "ends_with_a_semicolon", ends_with_a_semicolon(7));
    runs.value("nothing_but_a_comment", nothing_but_a_comment());
    run!(runs, "visible_above", inside::visible_above());
    runs.value("attributes", attributes());
}
