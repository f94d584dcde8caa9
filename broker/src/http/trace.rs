//! W3C trace context: `traceparent` and `tracestate` of a raw publish become attributes of the message.
//!
//! A header that is not valid is left out, as the recommendation asks: then the consumer starts a trace of its own.

use axum::http::HeaderMap;

/// A longer `tracestate` is left out: it is what everybody has to pass on.
const MAX_STATE_BYTES: usize = 512;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// Adds what the headers say to the attributes, unless these say it themselves.
pub(super) fn add(headers: &HeaderMap, attributes: &mut Vec<(String, String)>) {
    if attributes.iter().any(|(name, _)| name == PARENT || name == STATE) {
        return;
    }
    let mut parents = headers.get_all(PARENT).iter();
    // Given twice it is as good as none.
    let (Some(parent), None) = (parents.next(), parents.next()) else { return };
    let Some(parent) = parent.to_str().ok().filter(|text| is_parent(text)) else { return };
    attributes.push((PARENT.to_owned(), parent.to_owned()));
    let states: Result<Vec<_>, _> = headers.get_all(STATE).iter().map(|value| value.to_str()).collect();
    let state = states.unwrap_or_default().join(",");
    if !state.is_empty() && state.len() <= MAX_STATE_BYTES {
        attributes.push((STATE.to_owned(), state));
    }
}

/// `version-trace-parent-flags`, each of a fixed length in lower-case hexadecimal. Later versions may add more behind.
fn is_parent(text: &str) -> bool {
    let mut fields = text.split('-');
    let mut next = |length: usize| {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        fields.next().filter(|field| field.len() == length && field.bytes().all(is_hex))
    };
    let (Some(version), Some(trace), Some(parent), Some(_)) = (next(2), next(32), next(16), next(2)) else {
        return false;
    };
    let is_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
    let ends_well = fields.next().is_none() || version != "00";
    version != "ff" && !is_zero(trace) && !is_zero(parent) && ends_well
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_what_the_recommendation_says() {
        const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_parent(GOOD));
        assert!(is_parent(&GOOD.replacen("00", "cc", 1)), "a later version");
        assert!(is_parent(&format!("cc{}-more", &GOOD[2..])), "a later version with more");
        for bad in [
            String::new(),
            GOOD.to_uppercase(),
            GOOD.replacen("00", "ff", 1),
            GOOD[..GOOD.len() - 1].to_owned(),
            format!("{GOOD}-"),
            format!("{GOOD} "),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
        ] {
            assert!(!is_parent(&bad), "{bad:?}");
        }
    }
}
