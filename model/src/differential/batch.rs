//! Requests in a batch equal the same requests one after another.

use super::{Observed, Operation, Pair, Reply, Served, Subject, agree::replies, agree::views};

impl<S: Subject> Pair<'_, S> {
    /// Compares a batch of the store with single requests of the model's server, in the same order.
    /// Both then execute the requests that the store skipped, one by one.
    pub(super) fn batch(&mut self, requests: &[Operation]) -> Result<(), String> {
        let served = self.store.batch(requests);
        let done = self
            .served(requests, &served)
            .map_err(|what| format!("{what}\nstore: {served:?}"));
        done?;
        let alone = requests.iter().zip(&served.replies);
        for (request, _) in alone.filter(|(_, reply)| reply.is_none()) {
            self.step(request)
                .map_err(|what| format!("then {request:?}: {what}"))?;
        }
        Ok(())
    }

    fn served(&mut self, requests: &[Operation], served: &Served) -> Result<(), String> {
        if served.replies.len() != requests.len() {
            return Err("not an answer each".to_owned());
        }
        let mut expected = Observed {
            reply: Reply::None,
            notifications: Vec::new(),
            keys: self.model.view(),
        };
        for (request, found) in requests.iter().zip(&served.replies) {
            let Some(found) = found else { continue };
            let step = self.model.apply(request);
            replies((&step.reply, found), self.late())
                .map_err(|what| format!("{request:?}: {what}\nmodel: {step:?}"))?;
            self.by_model
                .note_reply(request, &step.reply, &step.notifications)?;
            self.by_store.note_reply(request, found, &[])?;
            self.tally.operations += 1;
            self.tally.batch += 1;
            self.tally.granted += usize::from(step.reply.is_grant());
            expected.notifications.extend(step.notifications);
            expected.keys = step.keys;
        }
        views(&expected, &served.seen, self.late())
            .map_err(|what| format!("{what}\nmodel: {expected:?}"))?;
        self.by_model.agrees_with_view(&expected)?;
        self.by_store.agrees_with_view(&served.seen)?;
        self.by_model.same_order(&self.by_store)
    }
}
