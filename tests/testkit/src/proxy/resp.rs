//! Just enough of the Redis protocol to see where a message ends.

use super::dialogue::Scan;

/// Finds the end of the first message that a server sent, RESP2 or RESP3.
pub(super) fn scan_reply(bytes: &[u8]) -> Scan {
    match reply_end(bytes, 0) {
        Ok(end) => Scan::Whole(end),
        Err(stop) => stop,
    }
}

/// Finds the end of the first request that a client sent: an array, or a line ("inline command").
pub(super) fn scan_request(bytes: &[u8]) -> Scan {
    match bytes.first() {
        None => Scan::Partial,
        Some(b'*') => scan_reply(bytes),
        Some(first) if first.is_ascii_alphabetic() => {
            match bytes.iter().position(|&byte| byte == b'\n') {
                Some(end) => Scan::Whole(end + 1),
                None => Scan::Partial,
            }
        }
        Some(_) => Scan::Foreign,
    }
}

/// The words of a whole request.
pub(super) fn words(request: &[u8]) -> Vec<Vec<u8>> {
    if request.first() == Some(&b'*') {
        strings(request)
    } else {
        request
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    }
}

/// Returns the first string of an aggregate, which names the kind of a push.
pub(super) fn head(message: &[u8]) -> Option<Vec<u8>> {
    matches!(message.first(), Some(b'*' | b'>'))
        .then(|| strings(message).into_iter().next())
        .flatten()
}

/// The bulk strings that lead an aggregate.
fn strings(message: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let Ok((_, mut at)) = line(message, 0) else {
        return found;
    };
    while message.get(at) == Some(&b'$') {
        let Ok((Some(length), start)) = line(message, at) else {
            break;
        };
        let Some(text) = message.get(start..start + length) else {
            break;
        };
        found.push(text.to_vec());
        at = start + length + 2;
    }
    found
}

fn reply_end(bytes: &[u8], at: usize) -> Result<usize, Scan> {
    let kind = *bytes.get(at).ok_or(Scan::Partial)?;
    if !b"+-:_,#($!=*~>%|".contains(&kind) {
        return Err(Scan::Foreign);
    }
    let (length, after) = line(bytes, at)?;
    match kind {
        b'$' | b'!' | b'=' => {
            let end = length.map_or(after, |length| after + length + 2);
            if end <= bytes.len() {
                Ok(end)
            } else {
                Err(Scan::Partial)
            }
        }
        b'*' | b'~' | b'>' => elements(bytes, after, length.unwrap_or(0)),
        b'%' => elements(bytes, after, 2 * length.unwrap_or(0)),
        // Attributes precede the message that they describe.
        b'|' => reply_end(bytes, elements(bytes, after, 2 * length.unwrap_or(0))?),
        _ => Ok(after),
    }
}

fn elements(bytes: &[u8], mut at: usize, count: usize) -> Result<usize, Scan> {
    for _ in 0..count {
        at = reply_end(bytes, at)?;
    }
    Ok(at)
}

/// Reads the line at `at`. Returns its number, if it is one and not negative, and the start of the
/// next line.
fn line(bytes: &[u8], at: usize) -> Result<(Option<usize>, usize), Scan> {
    let rest = &bytes[at..];
    let end = rest
        .windows(2)
        .position(|pair| pair == b"\r\n")
        .ok_or(Scan::Partial)?;
    let number = std::str::from_utf8(&rest[1..end])
        .ok()
        .and_then(|text| text.parse().ok());
    Ok((number, at + end + 2))
}
