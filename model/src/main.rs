//! Explores the worlds of the model: `small` (the default), `large`, or all whose names
//! contain the argument.

use std::process::ExitCode;

use rlock_model::{
    check,
    worlds::{large, small},
};

fn main() -> ExitCode {
    let which = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "small".to_owned());
    let worlds = match which.as_str() {
        "small" => small(),
        "large" => large(),
        part => {
            let all = small().into_iter().chain(large());
            all.filter(|world| world.name.contains(part)).collect()
        }
    };
    let (mut good, mut unique, mut total) = (!worlds.is_empty(), 0, 0);
    for world in worlds {
        let report = check::exhaust(world);
        println!("{report}");
        good &= report.is_good();
        unique += report.unique;
        total += report.total;
    }
    println!("{unique} states, {total} steps in all");
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
