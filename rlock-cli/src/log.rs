//! Formats log lines on standard error, and chooses which lines of the library appear.

use std::{
    fmt::{self, Write as _},
    io::{self, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use clap::{ArgAction, Args};
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

use crate::text::{escaped, json};

/// The options that decide what is logged, and how.
#[derive(Debug, Args)]
pub(crate) struct LogOptions {
    /// Logs only errors, so nothing when a lock is taken
    #[arg(
        short,
        long,
        global = true,
        display_order = 100,
        conflicts_with = "verbose"
    )]
    pub(crate) quiet: bool,
    /// Logs each step, and more details if given twice
    #[arg(short, long, global = true, display_order = 101, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Writes log lines and data as JSON, one object per line
    #[arg(long, global = true, display_order = 102)]
    pub(crate) json: bool,
}

/// Writes each event as one line.
struct Lines {
    most: Level,
    json: bool,
    /// Whether the client logs its checks of the server.
    checks_server: bool,
}

/// The module of the client that checks the server.
const CHECKS: &str = "rlock_core::store::redis::capabilities";

/// The latest line, while the terminal shows something else.
static DIVERTED: Mutex<Option<String>> = Mutex::new(None);

/// Keeps log lines off the terminal until it is dropped.
#[cfg(feature = "top")]
pub(crate) struct Diversion(());

#[cfg(feature = "top")]
impl Diversion {
    pub(crate) fn begin() -> Self {
        *diverted() = Some(String::new());
        Self(())
    }

    /// Returns the latest line once.
    pub(crate) fn latest() -> Option<String> {
        let line = diverted().as_mut().map(std::mem::take);
        line.filter(|line| !line.is_empty())
    }
}

#[cfg(feature = "top")]
impl Drop for Diversion {
    fn drop(&mut self) {
        *diverted() = None;
    }
}

fn diverted() -> MutexGuard<'static, Option<String>> {
    DIVERTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs this process's events from now on. Without `checks_server`, leaves out the client's checks of the server,
/// which a subcommand that takes no locks leaves to `rlock doctor`.
pub(crate) fn install(options: &LogOptions, checks_server: bool) {
    let most = match (options.quiet, options.verbose) {
        (true, _) => Level::ERROR,
        (false, 0) => Level::WARN,
        (false, 1) => Level::INFO,
        (false, _) => Level::DEBUG,
    };
    let lines = Lines {
        most,
        json: options.json,
        checks_server: checks_server || options.verbose > 0,
    };
    tracing::subscriber::set_global_default(lines).expect("it is set once");
}

/// The fields of an event, in order, and its message.
#[derive(Default)]
struct Fields {
    message: String,
    values: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.values.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.add(field, format!("{value:?}").into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

impl Lines {
    fn line(&self, level: Level, mut fields: Fields) -> String {
        if !self.json {
            return text(&fields);
        }
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let level = level.as_str().to_lowercase();
        for (name, value) in [
            ("time", time),
            ("level", level),
            ("message", fields.message),
        ] {
            fields.values.insert(name.to_owned(), value.into());
        }
        json(&Value::Object(fields.values))
    }
}

/// Shows `rlock: message name=value …`. Control characters are escaped, so an event stays one line.
fn text(fields: &Fields) -> String {
    let mut line = format!("rlock: {}", escaped(&fields.message));
    for (name, value) in &fields.values {
        let value = match value {
            Value::String(text) if !text.contains(['"', ' ', '=']) => escaped(text).into_owned(),
            value => json(value),
        };
        let _ = write!(line, " {name}={value}");
    }
    line
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= self.most
            && (self.checks_server || metadata.target() != CHECKS)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(self.most))
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = self.line(*event.metadata().level(), fields);
        if let Some(latest) = &mut *diverted() {
            *latest = line;
            return;
        }
        // One write, so that lines of several processes do not mix. A failure cannot be reported: this is where reports go.
        let _ = io::stderr()
            .lock()
            .write_all(format!("{line}\n").as_bytes());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        let mut fields = Fields {
            message: "lock lost".to_owned(),
            ..Fields::default()
        };
        fields.values.insert("key".to_owned(), "a b\n".into());
        fields.values.insert("token".to_owned(), 7.into());
        fields
    }

    #[test]
    fn an_event_is_one_line_of_text() {
        assert_eq!(text(&fields()), r#"rlock: lock lost key="a b\n" token=7"#);
    }

    #[test]
    fn an_event_is_one_object() {
        let lines = Lines {
            most: Level::WARN,
            json: true,
            checks_server: true,
        };
        let line = lines.line(Level::WARN, fields());
        assert!(!line.contains('\n'));
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["message"], "lock lost");
        assert_eq!(object["level"], "warn");
        assert_eq!(object["token"], 7);
        assert!(object["time"].as_str().unwrap().ends_with('Z'));
    }
}
