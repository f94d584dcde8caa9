//! A JSON reader for parameters: no tree, no recursion, nothing allocated for what is not asked.
//!
//! [`validate`] accepts exactly RFC 8259 (up to [`DEPTH_LIMIT`]) and is what `check` goes through;
//! the scanners after it assume that and only promise not to panic or loop on anything else. It does
//! not know what parameters mean: `params` does.

use std::borrow::Cow;

/// How deeply objects and lists may nest: what one word of bits can remember.
pub(crate) const DEPTH_LIMIT: u32 = 32;

/// The end of the white space that starts at `at`.
pub(crate) fn skip_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

/// The next quote or backslash from `at` on, or the end of the text.
///
/// Eight bytes at a time: names and texts are most of what parameters are made of, and each byte
/// looked at alone would cost a decision some fifteen instructions.
fn quote_or_backslash(text: &[u8], mut at: usize) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The high bit of each zero byte; bits above the lowest such byte may be wrong.
    let zeros = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    while let Some(chunk) = text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        let found = zeros(word ^ (LOW * b'"' as u64)) | zeros(word ^ (LOW * b'\\' as u64));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while let Some(byte) = text.get(at) {
        if matches!(byte, b'"' | b'\\') {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// The end of the string whose opening quote is at `at`.
fn skip_string(text: &[u8], mut at: usize) -> usize {
    at += 1;
    loop {
        at = quote_or_backslash(text, at);
        match text.get(at) {
            None => return text.len(),
            Some(b'"') => return at + 1,
            Some(_) => at += 2,
        }
    }
}

/// The end of the value that starts at `at`.
pub(crate) fn skip_value(text: &[u8], mut at: usize) -> usize {
    let mut depth = 0_u32;
    loop {
        match text.get(at) {
            None => return text.len(),
            Some(b'"') => at = skip_string(text, at),
            Some(b'{' | b'[') => {
                depth += 1;
                at += 1;
            }
            Some(b'}' | b']') => {
                if depth == 0 {
                    return at;
                }
                depth -= 1;
                at += 1;
            }
            Some(b',' | b' ' | b'\n' | b'\t' | b'\r') if depth == 0 => return at,
            Some(_) => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return at.min(text.len());
        }
    }
}

/// The items of a list or the entries of an object, as spans of raw text.
#[derive(Clone)]
pub(crate) struct Items<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Items<'a> {
    /// `text` starts with `{` or `[`.
    pub(crate) fn of(text: &'a str) -> Self {
        Self { text, at: 1 }
    }

    fn span(&mut self) -> Option<&'a str> {
        let start = skip_space(self.text.as_bytes(), self.at);
        let end = skip_value(self.text.as_bytes(), start);
        self.at = end;
        self.text.get(start..end).filter(|span| !span.is_empty())
    }

    /// Steps over one byte of punctuation and the space before it.
    fn punctuation(&mut self, byte: u8) {
        let at = skip_space(self.text.as_bytes(), self.at);
        self.at = if self.text.as_bytes().get(at) == Some(&byte) { at + 1 } else { at };
    }

    pub(crate) fn next_item(&mut self) -> Option<&'a str> {
        let item = self.span()?;
        self.punctuation(b',');
        Some(item)
    }

    /// The raw key, quotes included, and the raw value.
    pub(crate) fn next_entry(&mut self) -> Option<(&'a str, &'a str)> {
        let key_start = skip_space(self.text.as_bytes(), self.at);
        if self.text.as_bytes().get(key_start) != Some(&b'"') {
            return None;
        }
        self.at = skip_string(self.text.as_bytes(), key_start);
        let key = self.text.get(key_start..self.at)?;
        self.punctuation(b':');
        let value = self.span()?;
        self.punctuation(b',');
        Some((key, value))
    }
}

/// The characters of a quoted string; borrowed unless it holds escapes. None if it is not a string.
pub(crate) fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    let [b'"', bytes @ .., b'"'] = raw.as_bytes() else {
        return None;
    };
    let inner = raw.get(1..raw.len() - 1)?;
    if quote_or_backslash(bytes, 0) == bytes.len() {
        return Some(Cow::Borrowed(inner));
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(next) = rest.next() {
        if next != '\\' {
            text.push(next);
            continue;
        }
        match rest.next()? {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'u' => {
                let unit = four_hex(&mut rest)?;
                text.push(character(unit, &mut rest));
            }
            other => text.push(other),
        }
    }
    Some(Cow::Owned(text))
}

fn four_hex(rest: &mut core::str::Chars<'_>) -> Option<u32> {
    let mut unit = 0;
    for _ in 0..4 {
        unit = unit * 16 + rest.next()?.to_digit(16)?;
    }
    Some(unit)
}

/// The character of one `\u` unit, taking a second unit for a surrogate pair; a lone half becomes
/// the replacement character.
fn character(unit: u32, rest: &mut core::str::Chars<'_>) -> char {
    if (0xd800..0xdc00).contains(&unit) {
        let mut ahead = rest.clone();
        if ahead.next() == Some('\\')
            && ahead.next() == Some('u')
            && let Some(low @ 0xdc00..0xe000) = four_hex(&mut ahead)
        {
            *rest = ahead;
            return char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
                .unwrap_or(char::REPLACEMENT_CHARACTER);
        }
    }
    char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// A decimal number as written: `digits` times ten to the `exponent`.
///
/// Digits beyond the nineteenth are dropped: they cannot matter to a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decimal {
    negative: bool,
    digits: u64,
    exponent: i32,
}

impl Decimal {
    /// Digits with an optional fraction, and what follows. No sign, no exponent.
    pub(crate) fn read_plain(text: &[u8]) -> Option<(Decimal, &[u8])> {
        let mut number = Decimal { negative: false, digits: 0, exponent: 0 };
        let mut at = 0;
        while let Some(digit @ b'0'..=b'9') = text.get(at) {
            number.push(*digit, false);
            at += 1;
        }
        if at == 0 {
            return None;
        }
        if text.get(at) == Some(&b'.') {
            at += 1;
            let fraction = at;
            while let Some(digit @ b'0'..=b'9') = text.get(at) {
                number.push(*digit, true);
                at += 1;
            }
            if at == fraction {
                return None;
            }
        }
        Some((number, text.get(at..)?))
    }

    fn push(&mut self, digit: u8, after_point: bool) {
        let grown =
            self.digits.checked_mul(10).and_then(|digits| digits.checked_add(u64::from(digit - b'0')));
        match (grown, after_point) {
            (Some(digits), after_point) => {
                self.digits = digits;
                self.exponent -= i32::from(after_point);
            }
            (None, false) => self.exponent = self.exponent.saturating_add(1),
            (None, true) => {}
        }
    }

    /// A whole JSON number. None if it is anything else.
    pub(crate) fn read(text: &str) -> Option<Decimal> {
        let bytes = text.as_bytes();
        let (negative, bytes) = match bytes.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, bytes),
        };
        // JSON has no leading zeros.
        if let [b'0', b'0'..=b'9', ..] = bytes {
            return None;
        }
        let (mut number, rest) = Decimal::read_plain(bytes)?;
        number.negative = negative;
        let Some((b'e' | b'E', rest)) = rest.split_first() else {
            return rest.is_empty().then_some(number);
        };
        let (down, digits) = match rest.split_first() {
            Some((b'-', rest)) => (true, rest),
            Some((b'+', rest)) => (false, rest),
            _ => (false, rest),
        };
        if digits.is_empty() {
            return None;
        }
        let mut exponent = 0_i32;
        for digit in digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            exponent = exponent.saturating_mul(10).saturating_add(i32::from(digit - b'0'));
        }
        let exponent = if down { -exponent } else { exponent };
        number.exponent = number.exponent.saturating_add(exponent);
        Some(number)
    }

    /// Below zero; minus zero is not.
    pub(crate) fn is_negative(self) -> bool {
        self.negative && self.digits != 0
    }

    /// The whole part of the magnitude times `factor`; none if it does not fit.
    pub(crate) fn times(self, factor: u64) -> Option<u64> {
        if self.digits == 0 {
            return Some(0);
        }
        // Dividing before multiplying would lose the fraction, and the product may not fit: split.
        if self.exponent < 0 {
            let Some(scale) = 10_u64.checked_pow(self.exponent.unsigned_abs()) else {
                return Some(0);
            };
            let whole = (self.digits / scale).checked_mul(factor)?;
            let part = u128::from(self.digits % scale) * u128::from(factor) / u128::from(scale);
            return whole.checked_add(part as u64);
        }
        let scale = 10_u64.checked_pow(self.exponent.unsigned_abs())?;
        self.digits.checked_mul(scale)?.checked_mul(factor)
    }

    /// The nearest float; exact for up to 15 digits and exponents within 22, infinite if too large.
    pub(crate) fn to_f64(self) -> f64 {
        let mut value = self.digits as f64;
        let mut left = self.exponent.unsigned_abs().min(400);
        while left > 0 {
            let step = left.min(22);
            let scale = 10_u64.pow(step.min(19)) as f64 * 10_u64.pow(step.saturating_sub(19)) as f64;
            value = if self.exponent < 0 { value / scale } else { value * scale };
            left -= step;
        }
        if self.negative { -value } else { value }
    }

    /// A whole number that fits; none for fractions and negatives.
    pub(crate) fn to_whole(self) -> Option<u64> {
        let whole = self.times(1)?;
        let back = Decimal { negative: false, digits: whole, exponent: 0 };
        (!self.is_negative() && back.to_f64() == self.to_f64()).then_some(whole)
    }
}

/// Whether `text` is one JSON value and nothing else; the byte where it goes wrong if it is not.
pub(crate) fn validate(text: &str) -> Result<(), usize> {
    let bytes = text.as_bytes();
    let mut depth = 0_u32;
    // Bit n tells whether level n is an object.
    let mut objects = 0_u64;
    let mut at = skip_space(bytes, 0);
    loop {
        // A value starts at `at`.
        let opened = match bytes.get(at) {
            Some(open @ (b'{' | b'[')) => {
                if depth == DEPTH_LIMIT {
                    return Err(at);
                }
                depth += 1;
                objects = objects << 1 | u64::from(*open == b'{');
                at = skip_space(bytes, at + 1);
                true
            }
            Some(b'"') => {
                at = valid_string(bytes, at)?;
                false
            }
            Some(_) => {
                let end = skip_value(bytes, at);
                let scalar = text.get(at..end).unwrap_or_default();
                if !matches!(scalar, "true" | "false" | "null") && Decimal::read(scalar).is_none() {
                    return Err(at);
                }
                at = end;
                false
            }
            None => return Err(at),
        };
        // After it: the key of a first entry, a comma, or any number of closings.
        let mut first = opened;
        loop {
            at = skip_space(bytes, at);
            if depth == 0 {
                return if at == bytes.len() { Ok(()) } else { Err(at) };
            }
            let object = objects & 1 == 1;
            match bytes.get(at) {
                Some(b'}') if object => {}
                Some(b']') if !object => {}
                Some(b',') if !first => {
                    at = skip_space(bytes, at + 1);
                    if object {
                        at = valid_key(bytes, at)?;
                    }
                    break;
                }
                Some(_) if first => {
                    if object {
                        at = valid_key(bytes, at)?;
                    }
                    break;
                }
                _ => return Err(at),
            }
            at += 1;
            depth -= 1;
            objects >>= 1;
            first = false;
        }
    }
}

/// The start of the value whose key starts at `at`.
fn valid_key(bytes: &[u8], at: usize) -> Result<usize, usize> {
    if bytes.get(at) != Some(&b'"') {
        return Err(at);
    }
    let at = skip_space(bytes, valid_string(bytes, at)?);
    if bytes.get(at) != Some(&b':') {
        return Err(at);
    }
    Ok(skip_space(bytes, at + 1))
}

/// The end of the string that starts at `at`.
fn valid_string(bytes: &[u8], mut at: usize) -> Result<usize, usize> {
    at += 1;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => match bytes.get(at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                Some(b'u') => {
                    let hex = bytes.get(at + 2..at + 6).ok_or(at)?;
                    if !hex.iter().all(u8::is_ascii_hexdigit) {
                        return Err(at);
                    }
                    at += 6;
                }
                _ => return Err(at),
            },
            Some(0..=0x1f) | None => return Err(at),
            Some(_) => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The grammar's corners, accepted and refused.
    #[test]
    fn validates_the_grammar() {
        for good in [
            "{}",
            " [ ] ",
            "0",
            "-0",
            "1.5e-3",
            "1E+2",
            "\"\"",
            "true",
            "null",
            "[1,[2],{}]",
            r#"{"a":{"b":[]},"c":"\u00e9\n"}"#,
        ] {
            assert_eq!(validate(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "{",
            "[",
            "{]",
            "[}",
            "[1,]",
            "{,}",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "NaN",
            "Infinity",
            "tru",
            "1 2",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\n\"",
            "{\"a\":1 \"b\":2}",
            "[1 2]",
            "{}}",
            "{\"a\":1,}",
            "-",
        ] {
            assert!(validate(bad).is_err(), "{bad}");
        }
        assert!(validate(&"[".repeat(1_000_000)).is_err());
        assert_eq!(validate(&format!("{}{}", "[".repeat(32), "]".repeat(32))), Ok(()));
        assert!(validate(&format!("{}{}", "[".repeat(33), "]".repeat(33))).is_err());
    }

    /// Escapes, surrogate pairs and their lone halves.
    #[test]
    fn unquotes_escapes() {
        assert_eq!(unquote(r#""plain""#), Some(Cow::Borrowed("plain")));
        assert_eq!(unquote(r#""a\n\"\u00e9\ud83d\ude00""#).as_deref(), Some("a\n\"\u{e9}\u{1f600}"));
        assert_eq!(unquote(r#""\ud83dx""#).as_deref(), Some("\u{fffd}x"));
        assert_eq!(unquote("5"), None);
    }

    /// Numbers keep their value as an integer, a float and a product.
    #[test]
    fn decimals_keep_their_value() {
        let read = |text| Decimal::read(text).expect(text);
        assert_eq!(read("0.1").to_f64(), 0.1);
        assert_eq!(read("-2.5e3").to_f64(), -2_500.0);
        assert_eq!(read("1e400").to_f64(), f64::INFINITY);
        assert_eq!(read("1e-400").to_f64(), 0.0);
        assert_eq!(read("18446744073709551615").to_whole(), Some(u64::MAX));
        assert_eq!(read("5.0").to_whole(), Some(5));
        assert_eq!(read("5e2").to_whole(), Some(500));
        assert_eq!(read("5.5").to_whole(), None);
        assert_eq!(read("-1").to_whole(), None);
        assert_eq!(read("1e400").to_whole(), None);
        assert_eq!(read("1.5").times(1_000), Some(1_500));
        assert_eq!(read("1e99999999999").times(1), None);
        assert_eq!(read("1e-99999999999").times(1_000), Some(0));
        assert_eq!(read("0e99999999999").times(1_000), Some(0));
    }

    proptest! {
        /// The verdict is serde_json's for any text that looks like JSON, and no scanner panics or
        /// loops whatever it is given.
        #[test]
        fn agrees_with_serde_json(text in "[\\[\\]{}\",:0-9eE.+\\- \\\\untrfalse]{0,24}") {
            let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            prop_assert_eq!(validate(&text).is_ok(), theirs, "{}", text);
            let mut items = Items::of(&text);
            while items.next_item().is_some() {}
            let mut entries = Items::of(&text);
            while entries.next_entry().is_some() {}
            let _ = unquote(&text);
        }

        /// Any bytes at all: no panic, no loop.
        #[test]
        fn never_panics(text in any::<String>()) {
            let _ = validate(&text);
            let mut entries = Items::of(&text);
            while entries.next_entry().is_some() {}
        }
    }
}
