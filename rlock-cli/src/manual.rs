//! Manual pages and completion scripts, generated from the command line.

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::{
    cli::Cli,
    exit::{Failure, Status},
    output,
};

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rlock", &mut script);
    output::text(&script)?;
    Ok(Status::SUCCESS)
}

/// Prints the manual page of `rlock`, or of one subcommand.
pub(crate) fn page(subcommand: Option<&str>) -> Result<Status, Failure> {
    let mut command = Cli::command();
    // Adds the options of `rlock` to its subcommands.
    command.build();
    if let Some(name) = subcommand {
        let found = command.find_subcommand(name).cloned();
        let unknown = || Failure::new(Status::USAGE, format!("there is no subcommand `{name}`"));
        command = found.ok_or_else(unknown)?;
    }
    let mut page = Vec::new();
    let rendered = Man::new(command).render(&mut page);
    rendered.map_err(|error| Failure::own("write the manual page", &error))?;
    output::text(&page)?;
    Ok(Status::SUCCESS)
}
