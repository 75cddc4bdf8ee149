//! Requests of clients, as the proxy saw them.

/// A request as the proxy saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command and its arguments.
    pub words: Vec<Vec<u8>>,
}

impl Request {
    /// The command's name in capitals.
    #[must_use]
    pub fn name(&self) -> String {
        self.words
            .first()
            .map(|word| String::from_utf8_lossy(word).to_uppercase())
            .unwrap_or_default()
    }

    /// Returns whether the request begins with these words, in any case: `"EVALSHA"`, `"CLIENT
    /// TRACKING"`.
    #[must_use]
    pub fn is(&self, command: &str) -> bool {
        let mut words = self.words.iter();
        command.split_whitespace().all(|expected| {
            words
                .next()
                .is_some_and(|word| word.eq_ignore_ascii_case(expected.as_bytes()))
        })
    }

    /// Returns whether one of the words equals `word`, such as a key.
    #[must_use]
    pub fn mentions(&self, word: &str) -> bool {
        self.words.iter().any(|own| own == word.as_bytes())
    }
}
