//! What a leader tells other clients: the value that it announces.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rlock_proto::options::Site;

use crate::{engine::hold_record::Passenger, info::Holder, metrics};

/// The passenger of a hold by which this process leads.
pub(super) struct Office {
    announced: Mutex<Announced>,
    /// Counts the leadership in the metrics until the hold ends or is lost.
    counted: Mutex<Option<metrics::Leads>>,
}

/// The announced value, and how many values the leader has announced in this term.
#[derive(Clone, Default)]
struct Announced {
    value: Option<String>,
    values: u32,
}

impl Office {
    /// Begins to count a leadership at this site.
    pub(super) fn begin(site: Site) -> Self {
        Self {
            announced: Mutex::default(),
            counted: Mutex::new(Some(metrics::Leads::begin(site))),
        }
    }

    /// Replaces the value. An empty one withdraws it.
    pub(super) fn announce(&self, value: String) {
        let mut announced = lock(&self.announced);
        announced.value = Some(value).filter(|value| !value.is_empty());
        announced.values += 1;
    }
}

impl Passenger for Office {
    fn describe(&self, holder: &mut Holder) {
        Announced {
            value: holder.value,
            values: holder.values,
        } = lock(&self.announced).clone();
    }

    fn ends(&self) {
        // Dropped at the end, not under the mutex, because that calls the recorder.
        let _counted = lock(&self.counted).take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
