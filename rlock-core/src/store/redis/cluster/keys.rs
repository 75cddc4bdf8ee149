//! Looks at single keys of a lock, where a slot is about to move or several have to agree.

use redis::{Pipeline, ServerErrorKind, Value, from_redis_value};

use super::super::{
    By, RedisStore,
    errors::{classify, unexpected},
    script::Plain,
};
use crate::{key::Key, store::StoreError};

impl RedisStore {
    /// Whether all that belongs to these locks has left for the node that is about to have their slot, or
    /// was never here. What has left does not come back: here nothing is made that is not here.
    pub(super) async fn have_left(&self, keys: &[&Key], by: By) -> Result<bool, StoreError> {
        let mut looks = Pipeline::new();
        for key in keys {
            let lock = self.calls.names.lock(key);
            for name in [format!("{lock}:fence"), format!("{lock}:queue"), lock] {
                looks.cmd("EXISTS").arg(name);
            }
        }
        let (answers, _) = self.call(&Plain(looks), by).await?;
        let Value::Array(answers) = answers else {
            return Err(unexpected("no list of answers"));
        };
        let is_away = |answer: Value| match answer.extract_error() {
            Err(error) => error.kind() == ServerErrorKind::Ask.into(),
            Ok(_) => false,
        };
        Ok(!answers.is_empty() && answers.into_iter().all(is_away))
    }

    /// The last token of a lock; 0 if there was none for long.
    pub(super) async fn fence(&self, key: &Key, by: By) -> Result<u64, StoreError> {
        let mut look = Pipeline::new();
        look.cmd("GET")
            .arg(format!("{}:fence", self.calls.names.lock(key)));
        let (answer, _) = self.call(&Plain(look), by).await?;
        let answer = answer.extract_error().map_err(classify)?;
        let (token,): (Option<u64>,) = from_redis_value(answer).map_err(unexpected)?;
        Ok(token.unwrap_or(0))
    }
}
