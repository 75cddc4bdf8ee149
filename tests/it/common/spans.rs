//! The spans and events of this process, for tests with their own process.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// The last known state of a span.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    pub(crate) target: &'static str,
    /// All fields in its metadata.
    pub(crate) names: Vec<&'static str>,
    pub(crate) fields: BTreeMap<String, String>,
    /// The messages of the events inside.
    pub(crate) events: Vec<String>,
    /// The name of the parent span.
    pub(crate) parent: Option<&'static str>,
    pub(crate) is_closed: bool,
}

impl Seen {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

#[derive(Default)]
struct Everything {
    spans: Vec<(u64, Seen)>,
    /// Every field of every event.
    events: String,
}

static EVERYTHING: Mutex<Everything> = Mutex::new(Everything {
    spans: Vec::new(),
    events: String::new(),
});

fn everything() -> MutexGuard<'static, Everything> {
    EVERYTHING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps all spans and events up to this level from now on.
pub(crate) fn keep_spans(most: LevelFilter) {
    tracing_subscriber::registry()
        .with(most)
        .with(Keeper)
        .init();
}

/// Returns the spans of this lock so far, in order of creation.
pub(crate) fn spans_of(template: &str) -> Vec<Seen> {
    let everything = everything();
    let spans = everything.spans.iter().map(|(_, seen)| seen);
    spans
        .filter(|seen| seen.field("lock.label") == Some(template))
        .cloned()
        .collect()
}

/// Returns the text of all spans and events so far.
pub(crate) fn all_text() -> String {
    let everything = everything();
    format!("{:?} {}", everything.spans, everything.events)
}

struct Keeper;

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Everything {
    /// Finds the span that has this id now: ids are reused after a span has closed.
    fn open(&mut self, id: &Id) -> Option<&mut Seen> {
        let spans = self.spans.iter_mut().rev();
        let mut open = spans.filter(|(own, seen)| *own == id.into_u64() && !seen.is_closed);
        open.next().map(|(_, seen)| seen)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Keeper {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let metadata: &Metadata<'static> = attributes.metadata();
        let span = context.span(id).expect("it was just made");
        let seen = Seen {
            name: metadata.name(),
            level: *metadata.level(),
            target: metadata.target(),
            names: metadata.fields().iter().map(|field| field.name()).collect(),
            fields: fields.0,
            events: Vec::new(),
            parent: span.parent().map(|parent| parent.metadata().name()),
            is_closed: false,
        };
        everything().spans.push((id.into_u64(), seen));
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        record.record(&mut fields);
        if let Some(seen) = everything().open(id) {
            seen.fields.extend(fields.0);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let span = context.event_span(event).map(|span| span.id());
        let mut everything = everything();
        let _ = write!(everything.events, "{:?} ", fields.0);
        let message = fields.0.remove("message").unwrap_or_default();
        if let Some(seen) = span.and_then(|id| everything.open(&id)) {
            seen.events.push(message);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if let Some(seen) = everything().open(&id) {
            seen.is_closed = true;
        }
    }
}
