//! Prints the outcome of the mutation gate.

use std::{process::ExitCode, time::Duration};

use rlock_tests::mutants::{Mutant, TestName};

pub(super) enum Outcome {
    Caught { by: TestName, why: String },
    Survived,
    DoesNotApply(String),
    DoesNotCompile(String),
}

pub(super) struct Row {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

impl Row {
    fn is_caught(&self) -> bool {
        matches!(self.outcome, Outcome::Caught { .. })
    }

    fn verdict(&self) -> String {
        match &self.outcome {
            Outcome::Caught { by, .. } => format!("`{by}`"),
            Outcome::Survived => "**nothing**".to_owned(),
            Outcome::DoesNotApply(_) => "**does not apply**".to_owned(),
            Outcome::DoesNotCompile(_) => "**does not compile**".to_owned(),
        }
    }
}

pub(super) fn describe(mutant: &Mutant) {
    println!("{}: {}", mutant.name, mutant.bug);
    for test in &mutant.caught_by {
        println!("    {test}");
    }
}

/// Prints the outcome of one mutant.
pub(super) fn progress(row: &Row) {
    println!("{:>6.1} s  {}", row.took.as_secs_f64(), row.name);
    match &row.outcome {
        Outcome::Caught { by, why } => println!("          {by}: {why}"),
        Outcome::Survived => println!("          SURVIVED"),
        Outcome::DoesNotApply(why) => println!("          DOES NOT APPLY: {why}"),
        Outcome::DoesNotCompile(why) => println!("          DOES NOT COMPILE:\n{why}"),
    }
}

/// Prints all outcomes. Returns a failure unless every mutant was caught.
pub(super) fn table(rows: &[Row]) -> ExitCode {
    println!("\n| mutant | caught by | seconds |\n| --- | --- | ---: |");
    for row in rows {
        let (name, verdict, took) = (&row.name, row.verdict(), row.took.as_secs_f64());
        println!("| {name} | {verdict} | {took:.1} |");
    }
    let caught = rows.iter().filter(|row| row.is_caught()).count();
    let took: Duration = rows.iter().map(|row| row.took).sum();
    let (all, took) = (rows.len(), took.as_secs());
    println!("\n{caught} of {all} mutants caught in {took} s");
    if caught == rows.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
