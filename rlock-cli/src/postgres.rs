//! `rlock postgres schema`: the SQL that creates what locks need in a Postgres database.

use clap::{Args, Subcommand, ValueEnum};
use rlock_core::StoreUrl;

use crate::{
    connect::StoreOptions,
    exit::{Failure, Status},
    manual, output,
};

/// What `rlock postgres` prepares.
#[derive(Debug, Subcommand)]
pub(crate) enum PostgresCommand {
    /// Prints the SQL that creates the tables and functions of the locks, for a migration
    Schema(SchemaOptions),
}

/// The options of `rlock postgres schema`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::SCHEMA))]
pub(crate) struct SchemaOptions {
    /// The schema of the tables and functions
    ///
    /// Default: that of the URL, or `rlock` if no URL is given.
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,
    /// Which locks survive a crash of the server
    ///
    /// Default: that of the URL, or `disk` if no URL is given.
    #[arg(long, value_enum, value_name = "WHERE")]
    durability: Option<Durability>,
    /// The role of the services, which gets the permissions that it needs
    #[arg(long)]
    role: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Durability {
    /// All that were granted
    Disk,
    /// None, and no lock waits for the disk
    Memory,
}

pub(crate) fn postgres(command: &PostgresCommand, store: &StoreOptions) -> Result<Status, Failure> {
    let PostgresCommand::Schema(options) = command;
    let sql = options
        .store(store)
        .postgres_schema(options.role.as_deref())?;
    output::text(sql.as_bytes())?;
    Ok(Status::SUCCESS)
}

impl SchemaOptions {
    /// Returns the URL of a client with these options. No server has to be there.
    fn store(&self, store: &StoreOptions) -> StoreUrl {
        let mut url = store
            .postgres_url()
            .unwrap_or("postgres://localhost/")
            .to_owned();
        let durability = self.durability.map(|durability| match durability {
            Durability::Disk => "disk",
            Durability::Memory => "memory",
        });
        // The last of several counts.
        for (name, value) in [
            ("schema", self.schema.as_deref()),
            ("durability", durability),
        ] {
            if let Some(value) = value {
                let separator = if url.contains('?') { '&' } else { '?' };
                url = format!("{url}{separator}{name}={value}");
            }
        }
        StoreUrl::from(url)
    }
}
