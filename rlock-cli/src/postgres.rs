//! `rlock postgres schema`: the SQL that creates what locks need in a Postgres database.

use clap::{Args, Subcommand, ValueEnum};
use rlock_core::StoreUrl;

use crate::{
    connect::StoreOptions,
    exit::{Failure, Status},
    manual, output,
};

/// The subcommands of `rlock postgres`.
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
    /// Whether locks survive a crash of the server
    ///
    /// Default: that of the URL, or `disk` if no URL is given.
    #[arg(long, value_enum, value_name = "WHERE")]
    durability: Option<Durability>,
    /// The role of the services, to which the SQL grants the permissions that it needs
    #[arg(long)]
    role: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Durability {
    /// They do, because each grant waits for the disk
    Disk,
    /// They do not, and no lock waits for the disk
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
    /// Returns the URL that a client with these options would use, although this command connects to no server.
    fn store(&self, store: &StoreOptions) -> StoreUrl {
        let mut url = store
            .postgres_url()
            .unwrap_or("postgres://localhost/")
            .to_owned();
        let durability = self.durability.map(|durability| match durability {
            Durability::Disk => "disk",
            Durability::Memory => "memory",
        });
        // They follow those of the URL, because the last of several counts.
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
