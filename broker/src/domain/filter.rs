//! Filters: which messages of a topic a subscription gets, by their attributes.
//!
//! ```text
//! any     all ("or" all)*
//! all     one ("and" one)*
//! one     "not" one | "(" any ")" | "exists" name | name operator value
//! name    a word or a quoted text
//! value   a word, a number or a quoted text
//!
//! =  !=          the value is, or is not, this text; an attribute that is absent is not
//! ^=             the value begins with this text
//! <  <=  >  >=   both are numbers, and compare so; what is no number does not
//! ```
//!
//! A word is letters, digits and `_ - . : / @ +`; a text in quotes, single or double, has `\` before a quote or a `\`.
//! Names are compared as they are written when published.

use std::fmt;

use super::limits::{MAX_FILTER_BYTES, MAX_FILTER_DEPTH};

/// A filter, as it was written and as it is applied.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    rule: Rule,
}

/// What is wrong with the text of a filter.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct InvalidFilter {
    what: String,
    at: usize,
}

#[derive(Clone, Debug)]
enum Rule {
    Any(Vec<Self>),
    All(Vec<Self>),
    Not(Box<Self>),
    Exists(String),
    Equals(String, String),
    Begins(String, String),
    Compares(String, Operator, f64),
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Filter {
    /// Reads the text of a filter.
    ///
    /// # Errors
    /// [`InvalidFilter`], saying what is wrong and where.
    pub fn parse(text: &str) -> Result<Self, InvalidFilter> {
        if text.len() > MAX_FILTER_BYTES {
            return Err(InvalidFilter {
                what: format!("a filter has at most {MAX_FILTER_BYTES} bytes"),
                at: MAX_FILTER_BYTES,
            });
        }
        let mut parser = Parser { text, at: 0 };
        let rule = parser.any(0)?;
        match parser.token()? {
            (_, Token::End) => Ok(Self { text: text.to_owned(), rule }),
            (at, _) => Err(InvalidFilter { what: "expected \"and\", \"or\" or the end".to_owned(), at }),
        }
    }

    /// Whether a message with these attributes passes.
    pub fn matches(&self, attributes: &[(String, String)]) -> bool {
        self.rule.matches(attributes)
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Two filters are the same if they are written the same.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Filter {}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Rule {
    fn matches(&self, attributes: &[(String, String)]) -> bool {
        let value = |name: &str| attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        match self {
            Self::Any(rules) => rules.iter().any(|rule| rule.matches(attributes)),
            Self::All(rules) => rules.iter().all(|rule| rule.matches(attributes)),
            Self::Not(rule) => !rule.matches(attributes),
            Self::Exists(name) => value(name).is_some(),
            Self::Equals(name, expected) => value(name) == Some(expected),
            Self::Begins(name, start) => value(name).is_some_and(|value| value.starts_with(start)),
            Self::Compares(name, operator, number) => {
                let value = value(name).and_then(|value| value.trim().parse::<f64>().ok());
                value.is_some_and(|value| match operator {
                    Operator::Less => value < *number,
                    Operator::AtMost => value <= *number,
                    Operator::Greater => value > *number,
                    Operator::AtLeast => value >= *number,
                })
            }
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Word(String),
    Quoted(String),
    Symbol(&'static str),
    End,
}

/// The longer ones first, so that none is taken for its beginning.
const SYMBOLS: [&str; 9] = ["!=", "^=", "<=", ">=", "=", "<", ">", "(", ")"];

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn any(&mut self, depth: usize) -> Result<Rule, InvalidFilter> {
        let mut rules = vec![self.all(depth)?];
        while self.takes("or")? {
            rules.push(self.all(depth)?);
        }
        Ok(one_or(rules, Rule::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Rule, InvalidFilter> {
        let mut rules = vec![self.one(depth)?];
        while self.takes("and")? {
            rules.push(self.one(depth)?);
        }
        Ok(one_or(rules, Rule::All))
    }

    fn one(&mut self, depth: usize) -> Result<Rule, InvalidFilter> {
        let (at, token) = self.token()?;
        if depth > MAX_FILTER_DEPTH {
            return Err(InvalidFilter { what: format!("more than {MAX_FILTER_DEPTH} levels deep"), at });
        }
        match token {
            Token::Word(word) if word == "not" => Ok(Rule::Not(Box::new(self.one(depth + 1)?))),
            Token::Word(word) if word == "exists" => Ok(Rule::Exists(self.text("a name")?)),
            Token::Symbol("(") => {
                let rule = self.any(depth + 1)?;
                match self.token()? {
                    (_, Token::Symbol(")")) => Ok(rule),
                    (at, _) => Err(InvalidFilter { what: "expected \")\"".to_owned(), at }),
                }
            }
            Token::Word(name) | Token::Quoted(name) => self.test(name),
            _ => Err(InvalidFilter { what: "expected a name, \"not\", \"exists\" or \"(\"".to_owned(), at }),
        }
    }

    fn test(&mut self, name: String) -> Result<Rule, InvalidFilter> {
        let (at, operator) = self.token()?;
        let operator = match operator {
            Token::Symbol(symbol) if symbol != "(" && symbol != ")" => symbol,
            _ => return Err(InvalidFilter { what: "expected an operator".to_owned(), at }),
        };
        let value_at = self.at;
        let value = self.text("a value")?;
        let compares = |operator| match value.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Rule::Compares(name.clone(), operator, number)),
            _ => Err(InvalidFilter { what: "expected a number".to_owned(), at: value_at }),
        };
        match operator {
            "=" => Ok(Rule::Equals(name, value)),
            "!=" => Ok(Rule::Not(Box::new(Rule::Equals(name, value)))),
            "^=" => Ok(Rule::Begins(name, value)),
            "<" => compares(Operator::Less),
            "<=" => compares(Operator::AtMost),
            ">" => compares(Operator::Greater),
            _ => compares(Operator::AtLeast),
        }
    }

    fn text(&mut self, what: &str) -> Result<String, InvalidFilter> {
        match self.token()? {
            (_, Token::Word(text) | Token::Quoted(text)) => Ok(text),
            (at, _) => Err(InvalidFilter { what: format!("expected {what}"), at }),
        }
    }

    /// Takes this word if it is next.
    fn takes(&mut self, word: &str) -> Result<bool, InvalidFilter> {
        let before = self.at;
        let found = matches!(self.token()?.1, Token::Word(next) if next == word);
        if !found {
            self.at = before;
        }
        Ok(found)
    }

    /// The next token, and where it begins.
    fn token(&mut self) -> Result<(usize, Token), InvalidFilter> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let rest = rest.trim_start();
        let at = self.text.len() - rest.len();
        self.at = at;
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            self.at += symbol.len();
            return Ok((at, Token::Symbol(symbol)));
        }
        let Some(first) = rest.chars().next() else { return Ok((at, Token::End)) };
        if first == '"' || first == '\'' {
            return self.quoted(rest, first).map(|text| (at, Token::Quoted(text)));
        }
        let length = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
        if length == 0 {
            return Err(InvalidFilter { what: format!("{first:?} has no meaning here"), at });
        }
        self.at += length;
        Ok((at, Token::Word(rest.chars().take_while(|c| is_of_word(*c)).collect())))
    }

    fn quoted(&mut self, rest: &str, quote: char) -> Result<String, InvalidFilter> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = rest.char_indices().skip(1);
        while let Some((place, c)) = chars.next() {
            if c == quote {
                self.at += place + c.len_utf8();
                return Ok(text);
            }
            match c {
                '\\' => match chars.next() {
                    Some((_, escaped @ ('\\' | '"' | '\''))) => text.push(escaped),
                    _ => {
                        let what = "only a quote or \\ can follow a \\".to_owned();
                        return Err(InvalidFilter { what, at: start + place });
                    }
                },
                c => text.push(c),
            }
        }
        Err(InvalidFilter { what: "a quoted text has no end".to_owned(), at: start })
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || "_-.:/@+".contains(c)
}

fn one_or(mut rules: Vec<Rule>, many: fn(Vec<Rule>) -> Rule) -> Rule {
    match rules.pop() {
        Some(rule) if rules.is_empty() => rule,
        Some(rule) => {
            rules.push(rule);
            many(rules)
        }
        None => many(rules),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attributes() -> Vec<(String, String)> {
        let pairs = [
            ("tenant", "acme"),
            ("region", "eu-west"),
            ("size", "10"),
            ("ratio", "-2.5e1"),
            ("empty", ""),
            ("two words", "it's \"x\""),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    #[test]
    fn each_form_matches_what_it_says() {
        for (text, expected) in [
            ("tenant = acme", true),
            ("tenant = 'acme'", true),
            ("tenant=Acme", false),
            ("Tenant = acme", false),
            ("tenant != acme", false),
            ("absent != x", true),
            ("absent = ''", false),
            ("empty = ''", true),
            ("region ^= eu-", true),
            ("region ^= us", false),
            ("absent ^= ''", false),
            ("size < 10", false),
            ("size <= 10.0", true),
            ("size > 9.5", true),
            ("size >= 1e1", true),
            ("ratio < -20", true),
            ("tenant > 1", false),
            ("absent < 1", false),
            ("exists empty", true),
            ("exists absent", false),
            ("not exists absent", true),
            ("not not exists empty", true),
            ("'two words' = 'it\\'s \"x\"'", true),
            ("tenant = x or region ^= eu and size > 5", true),
            ("(tenant = x or region ^= eu) and size > 50", false),
            ("tenant = x and region ^= eu or size = 10", true),
            ("not (tenant = acme and size = 10)", false),
            ("  exists\ttenant\n", true),
        ] {
            let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(filter.matches(&attributes()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let deep = "not ".repeat(MAX_FILTER_DEPTH + 2) + "exists a";
        let long = "x".repeat(MAX_FILTER_BYTES + 1);
        for (text, expected) in [
            ("", "expected a name, \"not\", \"exists\" or \"(\" at byte 0"),
            ("a", "expected an operator at byte 1"),
            ("a (", "expected an operator at byte 2"),
            ("a =", "expected a value at byte 3"),
            ("a = b c = d", "expected \"and\", \"or\" or the end at byte 6"),
            ("a = b and", "expected a name, \"not\", \"exists\" or \"(\" at byte 9"),
            ("(a = b", "expected \")\" at byte 6"),
            ("a < b", "expected a number at byte 3"),
            ("a < inf", "expected a number at byte 3"),
            ("a = 'b", "a quoted text has no end at byte 4"),
            ("a = 'b\\n'", "only a quote or \\ can follow a \\ at byte 6"),
            ("a & b", "'&' has no meaning here at byte 2"),
            (&deep, "more than 16 levels deep at byte 68"),
            (&long, "a filter has at most 4096 bytes at byte 4096"),
        ] {
            let error = Filter::parse(text).expect_err(text).to_string();
            assert_eq!(error, expected, "{text}");
        }
    }

    proptest! {
        /// Any text is a filter or an error, never a panic; and a filter reads back from its own text.
        #[test]
        fn any_text_is_read_without_panic(text in "[a-c'\"\\\\ ()=!<>^é]{0,40}|(not |exists a|a = b| and | or |\\(|\\)){0,12}") {
            if let Ok(filter) = Filter::parse(&text) {
                prop_assert_eq!(&Filter::parse(filter.as_str()).expect("its own text"), &filter);
                filter.matches(&[("a".to_owned(), "b".to_owned())]);
            }
        }
    }
}
