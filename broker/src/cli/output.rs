//! Standard output for people: lines, colours where there is a terminal, and one line that is written over.
//!
//! Texts may come from anywhere, policies and payloads included, so nothing in them can steer the terminal.

use std::io::{self, IsTerminal as _, Write as _};

/// How a text is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    /// As it is.
    Plain,
    /// A heading.
    Strong,
    /// It went well.
    Good,
    /// Not yet.
    Waiting,
    /// It went badly.
    Bad,
    /// Beside the point.
    Quiet,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Good => "32",
            Self::Waiting => "33",
            Self::Bad => "31",
            Self::Quiet => "2",
        }
    }
}

/// What a command tells.
#[derive(Debug)]
pub(super) struct Output {
    terminal: bool,
    colour: bool,
    status: String,
}

impl Output {
    /// On the standard output of this process. `NO_COLOR` is respected (<https://no-color.org>).
    pub(super) fn new() -> Self {
        let terminal = is_terminal();
        let colourless = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { terminal, colour: terminal && !colourless, status: String::new() }
    }

    /// Without colours.
    pub(super) fn plain() -> Self {
        Self { terminal: false, colour: false, status: String::new() }
    }

    /// Writes one line.
    ///
    /// # Errors
    /// If nobody reads any more.
    pub(super) fn line(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.terminal {
            writeln!(out, "\r\x1b[K{text}")?;
            write!(out, "{}", self.status)?;
        } else {
            writeln!(out, "{text}")?;
        }
        out.flush()
    }

    /// Changes the line below all others; empty takes it away. Without a terminal there is none.
    ///
    /// # Errors
    /// If nobody reads any more.
    pub(super) fn status(&mut self, text: String) -> io::Result<()> {
        if !self.terminal || self.status == text {
            return Ok(());
        }
        self.status = text;
        let mut out = io::stdout().lock();
        write!(out, "\r\x1b[K{}", self.status)?;
        out.flush()
    }

    /// The text in its colour, without control characters.
    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        let text = plain(text);
        if self.colour && tone != Tone::Plain && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", tone.code())
        } else {
            text
        }
    }
}

/// Whether standard output is a terminal that knows more than lines.
fn is_terminal() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stdout().is_terminal() && !dumb
}

/// A terminal that shows one picture after the other. What was there before is there again once it is dropped.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    /// `None` if there is no terminal.
    ///
    /// # Errors
    /// If nobody reads any more.
    pub(super) fn open() -> io::Result<Option<Self>> {
        if !is_terminal() {
            return Ok(None);
        }
        let screen = Self(());
        // The other screen, without a cursor and with lines that end where the screen does.
        let mut out = io::stdout().lock();
        write!(out, "\x1b[?1049h\x1b[?25l\x1b[?7l")?;
        out.flush()?;
        Ok(Some(screen))
    }

    /// Shows these lines, painted, and nothing else.
    ///
    /// # Errors
    /// If nobody reads any more.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut picture = "\x1b[H".to_owned();
        for line in lines {
            picture.push_str(line);
            picture.push_str("\x1b[K\r\n");
        }
        picture.push_str("\x1b[J");
        let mut out = io::stdout().lock();
        out.write_all(picture.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout().lock();
        _ = write!(out, "\x1b[?7h\x1b[?25h\x1b[?1049l");
        _ = out.flush();
    }
}

/// A text without anything that a terminal would act upon.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// JSON text with the control characters escaped that JSON itself would let pass, but no terminal and no header.
pub(super) fn escaped(json: &str) -> String {
    json.chars()
        .map(|c| match c {
            '\u{7f}'..='\u{9f}' => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text cannot move the cursor or change colours.
    #[test]
    fn texts_cannot_steer_the_terminal() {
        assert_eq!(
            plain("a\x1b[31mb\r\nc\u{9b}d Łucja 花子"),
            "a\u{fffd}[31mb\u{fffd}\u{fffd}c\u{fffd}d Łucja 花子"
        );
    }

    /// What JSON would let pass is written in its other form.
    #[test]
    fn json_is_the_same_without_control_characters() {
        assert_eq!(escaped("{\n\"a\":\"\u{9b}\u{7f}é\"}"), "{\n\"a\":\"\\u009b\\u007fé\"}");
    }

    /// Colours are only where they were asked for.
    #[test]
    fn without_a_terminal_text_is_plain() {
        let output = |colour| Output { terminal: false, colour, status: String::new() };
        assert_eq!(output(false).paint(Tone::Bad, "x"), "x");
        assert_eq!(output(true).paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
    }
}
