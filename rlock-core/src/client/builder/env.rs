//! Reads the store's URL and the client's options from environment variables, which the command `rlock` reads, too.

use std::{env, ffi::OsString, time::Duration};

use rlock_proto::options::Wait;

use super::LockClientBuilder;
use crate::{error::LockError, limits, store_url::StoreUrl};

const URL: &str = "RLOCK_URL";
const PREFIX: &str = "RLOCK_PREFIX";
const LEASE: &str = "RLOCK_LEASE";
const WAIT: &str = "RLOCK_WAIT";
const RESPONSE_TIMEOUT: &str = "RLOCK_RESPONSE_TIMEOUT";

impl LockClientBuilder {
    /// Sets options from environment variables, which the command `rlock` also reads. [`StoreUrl::from_env`] reads
    /// the URL of the store.
    ///
    /// | variable | sets | value |
    /// | --- | --- | --- |
    /// | `RLOCK_PREFIX` | [`prefix`](Self::prefix) | the prefix; empty for none |
    /// | `RLOCK_LEASE` | [`default_lease`](Self::default_lease) | a duration, as in `lease = "30s"` of the attribute |
    /// | `RLOCK_WAIT` | [`default_wait`](Self::default_wait) | a duration, or `forever` |
    /// | `RLOCK_RESPONSE_TIMEOUT` | [`response_timeout`](Self::response_timeout) | a duration |
    ///
    /// A variable that is not set changes nothing, so the client's own defaults apply. They are those of the command,
    /// except that the command waits forever.
    ///
    /// The later call wins: a variable replaces the value of an earlier setter, and a setter that follows replaces the
    /// value of the variable. An option of a lock or of the attribute replaces both.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for a variable that is empty, not Unicode or out of bounds. The error names the
    /// variable and its value. Only `RLOCK_PREFIX` may be empty.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use rlock_core::{LockClient, StoreUrl};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::builder()
    ///     .default_lease(Duration::from_secs(10)) // unless RLOCK_LEASE is set
    ///     .with_env()?
    ///     .connect(StoreUrl::from_env()?)
    ///     .await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_env(self) -> Result<Self, LockError> {
        self.read(|name| env::var_os(name))
    }

    fn read(mut self, get: impl Fn(&str) -> Option<OsString>) -> Result<Self, LockError> {
        let text = |name| text(name, get(name));
        if let Some(prefix) = text(PREFIX)? {
            limits::prefix(PREFIX, &prefix)?;
            self.store.prefix = prefix;
        }
        if let Some(lease) = text(LEASE)? {
            let lease = duration(LEASE, &lease)?;
            limits::lease(LEASE, lease)?;
            self.options.lock.lease = lease;
        }
        if let Some(wait) = text(WAIT)? {
            let wait = match wait.as_str() {
                "forever" => Wait::Forever,
                wait => Wait::For(duration(WAIT, wait)?),
            };
            limits::wait(WAIT, wait)?;
            self.options.lock.wait = wait;
        }
        if let Some(timeout) = text(RESPONSE_TIMEOUT)? {
            let timeout = duration(RESPONSE_TIMEOUT, &timeout)?;
            limits::timeout(RESPONSE_TIMEOUT, timeout)?;
            self.options.response_timeout = timeout;
        }
        Ok(self)
    }
}

impl StoreUrl {
    /// Reads the URL of the store from the environment variable `RLOCK_URL`, as the command `rlock` does. Several URLs
    /// that are separated by white space are a [quorum](Self::quorum).
    ///
    /// [`LockClientBuilder::with_env`] reads the options of the client. The command refuses `memory:`, which this
    /// method accepts.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] if `RLOCK_URL` is not set, empty, not Unicode or invalid. The error shows no
    /// password.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rlock_core::{LockClient, StoreUrl};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// // RLOCK_URL=redis://127.0.0.1:6379/ RLOCK_WAIT=2s
    /// let client = LockClient::builder().with_env()?.connect(StoreUrl::from_env()?).await?;
    /// client.install();
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env() -> Result<Self, LockError> {
        store(|name| env::var_os(name))
    }
}

fn store(get: impl Fn(&str) -> Option<OsString>) -> Result<StoreUrl, LockError> {
    let Some(urls) = text(URL, get(URL))? else {
        let way_out = "set it to the URL of the store, as in `redis://host:6379/`";
        return Err(LockError::invalid_option(URL, "(not set)", way_out));
    };
    let urls: Vec<&str> = urls.split_ascii_whitespace().collect();
    let store = match urls[..] {
        [] => StoreUrl::from(""),
        [url] => StoreUrl::from(url),
        _ => StoreUrl::quorum(urls),
    };
    // Checked here, so that the error names the variable.
    match store.endpoint() {
        Ok(_) => Ok(store),
        Err(LockError::InvalidOption { value, reason, .. }) => {
            Err(LockError::invalid_option(URL, value, reason))
        }
        Err(error) => Err(error),
    }
}

fn text(name: &'static str, value: Option<OsString>) -> Result<Option<String>, LockError> {
    let text = value.map(OsString::into_string).transpose();
    // The value may have a password.
    let refused =
        |_| LockError::invalid_option(name, "…", "it is not Unicode; set it to text in UTF-8");
    text.map_err(refused)
}

fn duration(name: &'static str, text: &str) -> Result<Duration, LockError> {
    humantime::parse_duration(text).map_err(|error| {
        let or_forever = if name == WAIT { ", or `forever`" } else { "" };
        let reason = format!("{error}; write a number and a unit, as `30s` or `2h`{or_forever}");
        LockError::invalid_option(name, format!("{text:?}"), reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::endpoint::Endpoint;

    /// Returns the only variable of an environment.
    fn only(name: &str, value: impl Into<OsString>) -> impl Fn(&str) -> Option<OsString> {
        let (name, value) = (name.to_owned(), value.into());
        move |asked| (asked == name).then(|| value.clone())
    }

    fn read(name: &str, value: impl Into<OsString>) -> Result<LockClientBuilder, LockError> {
        LockClientBuilder::default().read(only(name, value))
    }

    fn refusal(name: &str, value: impl Into<OsString>) -> String {
        let error = match name {
            URL => store(only(name, value)).err(),
            _ => read(name, value).err(),
        };
        error.expect("refused").to_string()
    }

    #[test]
    fn variables_have_the_forms_of_the_attribute_and_the_command() {
        for (text, seconds) in [("30s", 30), ("1m 30s", 90), ("24h", 86_400)] {
            let lease = read(LEASE, text).expect(text).options.lock.lease;
            assert_eq!(lease, Duration::from_secs(seconds), "{text}");
        }
        for (text, wait) in [
            ("forever", Wait::Forever),
            ("0s", Wait::For(Duration::ZERO)),
            ("1.5s", Wait::For(Duration::from_millis(1_500))),
        ] {
            assert_eq!(read(WAIT, text).expect(text).options.lock.wait, wait);
        }
        let timeout = read(RESPONSE_TIMEOUT, "5s").expect("valid");
        assert_eq!(timeout.options.response_timeout, Duration::from_secs(5));
        assert_eq!(read(PREFIX, "jobs:").expect("valid").store.prefix, "jobs:");
        assert_eq!(read(PREFIX, "").expect("valid").store.prefix, "");
    }

    #[test]
    fn the_later_of_a_variable_and_a_setter_wins() {
        let (one, two) = (Duration::from_secs(1), Duration::from_secs(2));
        let builder = LockClientBuilder::default()
            .prefix("kept:")
            .default_lease(one);
        let builder = builder.read(only(LEASE, "2s")).expect("valid");
        assert_eq!(builder.options.lock.lease, two);
        assert_eq!(builder.store.prefix, "kept:", "RLOCK_PREFIX is not set");
        assert_eq!(builder.default_lease(one).options.lock.lease, one);
    }

    #[test]
    fn an_invalid_variable_is_refused_with_its_name_its_value_and_the_way_out() {
        for (name, value, value_shown, way_out) in [
            (LEASE, "30", "\"30\"", "`30s`"),
            (LEASE, "", "\"\"", "`30s`"),
            (LEASE, "9ms", "9ms", "between 10ms and 24h"),
            (LEASE, "forever", "\"forever\"", "`30s`"),
            (WAIT, "never\n", "\"never\\n\"", "or `forever`"),
            (WAIT, "", "\"\"", "or `forever`"),
            (WAIT, "367days", "31708800s", "366 days"),
            (RESPONSE_TIMEOUT, "0s", "0s", "between 1ms and 1h"),
            (PREFIX, "{a}", "\"{a}\"", "leave them out"),
            (PREFIX, " jobs:", "\" jobs:\"", "leave it out"),
            (URL, "", "`…`", "redis"),
            (URL, " \n", "`…`", "redis"),
            (URL, "http://h/", "`http:…`", "redis"),
            (
                URL,
                "redis://a/ redis-cluster://b",
                "`redis-cluster://b`",
                "single servers",
            ),
            (
                URL,
                "redis://a/ redis://a/",
                "`a:6379`, twice",
                "named once",
            ),
        ] {
            let refusal = refusal(name, value);
            let beginning = format!("invalid value {value_shown} for `{name}`: ");
            assert!(refusal.starts_with(&beginning), "{refusal}");
            assert!(refusal.contains(way_out), "{refusal}");
        }
        let missing = store(|_| None).expect_err("refused").to_string();
        assert!(
            missing.contains("`RLOCK_URL`: set it to the URL"),
            "{missing}"
        );
    }

    #[test]
    fn white_space_around_a_url_is_no_part_of_it_and_makes_no_quorum() {
        for url in [" redis://h/", "redis://h/ ", "\tredis://h/\r\n"] {
            let store = store(only(URL, url)).expect(url);
            assert!(
                matches!(store.endpoint(), Ok(Endpoint::Server(_))),
                "{url:?}"
            );
        }
        let two = store(only(URL, " redis://a/\nredis://b/ ")).expect("two servers");
        assert!(matches!(two.endpoint(), Ok(Endpoint::Quorum(servers)) if servers.len() == 2));
    }

    #[test]
    fn an_error_shows_no_password_of_a_url() {
        for url in [
            "redis://u:s3cret@h:99999/",
            "redis://u:s3cret@a redis://u:s3cret@a",
            "redis://u:s3 cret@h/",
            "s3cret",
        ] {
            let refusal = refusal(URL, url);
            assert!(refusal.contains("`RLOCK_URL`"), "{refusal}");
            assert!(!refusal.contains("cret"), "{refusal}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_not_unicode_is_refused() {
        use std::os::unix::ffi::OsStringExt;

        let broken = || OsString::from_vec(b"s3cret\xff".to_vec());
        for name in [PREFIX, LEASE, WAIT, RESPONSE_TIMEOUT] {
            let refusal = refusal(name, broken());
            assert!(refusal.contains("it is not Unicode"), "{refusal}");
        }
        let refusal = refusal(URL, broken());
        assert!(
            refusal.contains("`RLOCK_URL`: it is not Unicode"),
            "{refusal}"
        );
        assert!(!refusal.contains("s3cret"), "{refusal}");
    }
}
