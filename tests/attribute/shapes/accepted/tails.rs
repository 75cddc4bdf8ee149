//! Last expressions of bodies, and the drop order of their temporaries.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use crate::support::{say, Error, Noisy, Runs};

pub struct Shelf {
    count: Mutex<u32>,
    names: RwLock<HashMap<u32, String>>,
}

impl Shelf {
    fn new() -> Self {
        let mut names = HashMap::new();
        names.insert(7, "seven".to_owned());
        Self {
            count: Mutex::new(7),
            names: RwLock::new(names),
        }
    }

    //@ key = "k"
    pub async fn into_count(self) -> Result<u32, Error> {
        Ok(*self.count.lock().unwrap())
    }

    //@ key = "k"
    pub async fn matched(self: Arc<Self>, id: u32) -> Result<String, Error> {
        match self.names.read().unwrap().get(&id) {
            Some(name) => Ok(name.clone()),
            None => Err(Error::Other("no name")),
        }
    }

    //@ key = "k"
    pub async fn if_let(self: Arc<Self>, id: u32) -> Result<String, Error> {
        if let Some(name) = self.names.read().unwrap().get(&id) {
            Ok(name.clone())
        } else {
            Err(Error::Other("no name"))
        }
    }
}

//@ key = "k", on_error = |_| 0
pub fn length_here(cell: RefCell<Vec<u32>>) -> usize {
    cell.borrow().len()
}

//@ key = "k", on_error = |_| ()
pub async fn push(cell: Arc<Mutex<Vec<u32>>>) {
    cell.lock().unwrap().push(1)
}

//@ key = "k"
pub fn boxed_guard(cell: Arc<Mutex<u32>>) -> std::pin::Pin<Box<dyn std::future::Future<Output = Result<u32, Error>> + Send>> {
    Box::pin(async move { Ok(*cell.lock().unwrap()) })
}

fn noisy_len(noisy: &Noisy) -> usize {
    noisy.0.len()
}

//@ key = "k"
pub async fn tail_temporary(argument: Noisy) -> Result<usize, Error> {
    let _local = Noisy("local");
    say("body");
    Ok(noisy_len(&Noisy("temporary")) + noisy_len(&argument))
}

//@ key = "k"
pub fn tail_temporary_here(argument: Noisy) -> Result<usize, Error> {
    let _local = Noisy("local");
    say("body");
    Ok(noisy_len(&Noisy("temporary")) + noisy_len(&argument))
}

//@ key = "k"
pub async fn returned_early(one: Noisy, id: u32) -> Result<usize, Error> {
    let _local = Noisy("local");
    if id == 7 {
        return Ok(noisy_len(&Noisy("temporary")));
    }
    Ok(noisy_len(&one))
}

//@ key = "k"
pub async fn failed_early(_one: Noisy, id: u32) -> Result<u8, Error> {
    let _local = Noisy("local");
    let id: u8 = format!("{}{}", id, id).parse()?;
    Ok(id)
}

//@ key = "k"
pub async fn match_temporary(argument: Noisy) -> Result<usize, Error> {
    match noisy_len(&Noisy("temporary")) {
        0 => Err(Error::Other("empty")),
        length => {
            say("arm");
            Ok(length + noisy_len(&argument))
        }
    }
}

//@ key = "k"
pub async fn if_let_temporary() -> Result<usize, Error> {
    if let Some(length) = Some(noisy_len(&Noisy("temporary"))) {
        say("then");
        Ok(length)
    } else {
        Ok(0)
    }
}

//@ key = "k"
pub async fn question_at_the_end(text: &str) -> Result<u32, Error> {
    Ok(text.parse::<u32>()?)
}

//@ key = "k"
pub async fn needless_question(text: &str) -> Result<u32, Error> {
    Ok(question_at_the_end(text).await?)
}

//@ key = "k"
pub async fn let_and_return(text: &str) -> Result<u32, Error> {
    let parsed = text.parse::<u32>().map_err(Error::from);
    parsed
}

//@ key = "k"
pub async fn needless_return(text: &str) -> Result<u32, Error> {
    return Ok(text.parse()?);
}

//@ key = "k"
pub fn needless_return_here(text: &str) -> Result<u32, Error> {
    return Ok(text.parse()?);
}

//@ key = "k"
pub async fn borrowed_from_an_argument<'a>(list: &'a Mutex<Vec<u32>>, name: &'a str) -> Result<&'a str, Error> {
    if list.lock().unwrap().is_empty() { Ok(name) } else { Ok(&name[1..]) }
}

pub fn runs(runs: &mut Runs) {
    let cell = || Arc::new(Mutex::new(7));
    run!(runs, "into_count", Shelf::new().into_count());
    run!(runs, "matched", Arc::new(Shelf::new()).matched(8));
    run!(runs, "if_let", Arc::new(Shelf::new()).if_let(7));
    runs.value("length_here", length_here(RefCell::new(vec![1])));
    run!(runs, "push", push(Arc::new(Mutex::new(vec![1]))));
    run!(runs, "boxed_guard", boxed_guard(cell()));
    run!(runs, "tail_temporary", tail_temporary(Noisy("argument")));
    runs.value("tail_temporary_here", tail_temporary_here(Noisy("argument")));
    run!(runs, "returned_early", returned_early(Noisy("one"), 7));
    run!(runs, "failed_early", failed_early(Noisy("one"), 777));
    run!(runs, "match_temporary", match_temporary(Noisy("argument")));
    run!(runs, "if_let_temporary", if_let_temporary());
    run!(runs, "question_at_the_end", question_at_the_end("7"));
    run!(runs, "needless_question", needless_question("x"));
    run!(runs, "let_and_return", let_and_return("7"));
    run!(runs, "needless_return", needless_return("7"));
    runs.value("needless_return_here", needless_return_here("7"));
    run!(runs, "borrowed_from_an_argument", borrowed_from_an_argument(&Mutex::new(vec![1]), "seven"));
}
