//! Prints the public surface of rlock-core as text, from what rustdoc has written about its crates. `scripts/surface`
//! runs rustdoc, and then this.

mod documented;
mod listing;
mod paths;

use std::{env, fs, path::Path, process::ExitCode};

use crate::{documented::Documented, listing::Listing};

/// The options of the attribute, which no documentation of rustdoc contains as items.
const OPTIONS: &str = "rlock-macros/src/options.rs";

/// rlock-proto has a surface of its own, which follows every change of the machine, so its whole would hide the rest.
const HEADING: &str = "\
The public surface of rlock-core with all features, written by `scripts/surface`. It has the items of rlock-proto and
rlock-macros that rlock-core exports. A trait's methods are listed at the trait only.
";

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (Some(documentation), Some(repository)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: surface DIRECTORY_OF_RUSTDOC REPOSITORY");
        return ExitCode::FAILURE;
    };
    match surface(Path::new(&documentation), Path::new(&repository)) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("could not list the surface: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn surface(documentation: &Path, repository: &Path) -> Result<String, String> {
    let core = Documented::read(&documentation.join("rlock_core.json"))?;
    let proto = Documented::read(&documentation.join("rlock_proto.json"))?;
    let options = repository.join(OPTIONS);
    let options = fs::read_to_string(&options)
        .map_err(|error| format!("could not read {}: {error}", options.display()))?;
    let listing = Listing::of(&core, &proto, &options_of(&options)?)?;
    Ok(format!("{HEADING}\n{listing}"))
}

/// Returns the names in the table of options, whose rows look like `Lease: "lease", TIME, "…";`.
fn options_of(source: &str) -> Result<Vec<String>, String> {
    let table = source.split_once("\noptions! {\n");
    let (rows, _) = table
        .and_then(|(_, table)| table.split_once("\n}"))
        .ok_or_else(|| format!("{OPTIONS} has no table `options!`"))?;
    let name = |row: &str| Some(row.split('"').nth(1)?.to_owned());
    rows.lines()
        .map(|row| name(row).ok_or_else(|| format!("{OPTIONS} has a row without a name: {row}")))
        .collect()
}
