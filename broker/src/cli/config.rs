//! The configuration file, and `broker config`.
//!
//! The arguments of [`Settings`] are the keys. What a file says becomes their defaults, so that clap alone decides who
//! wins: the command line, the environment, the file, the defaults. Start with [`with_file`].

use std::any::TypeId;
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args as _, Command, FromArgMatches as _};
use toml::de::{DeTable, DeValue};

use super::connection::lines;
use super::serve::check_access;
use super::settings::{self, Settings, example};
use super::table;

/// How wide the explained file is.
const WIDTH: usize = 100;

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(clap::Subcommand, Debug)]
enum Subcommand {
    /// Prints a file with every setting, explained, its default commented out.
    Default,
    /// Says whether `serve` would take this file, and if not, why.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Shows what `serve` would run with, given the same arguments, and where each setting comes from.
    Show(Box<settings::Arguments>),
}

/// `matches` are those of this command.
pub(super) fn run(arguments: &Arguments, matches: &ArgMatches) -> Result<ExitCode, Box<dyn Error>> {
    match &arguments.command {
        Subcommand::Default => lines(explained().lines().map(str::to_owned))?,
        Subcommand::Check { file } => check(file)?,
        Subcommand::Show(arguments) => {
            let Some(matches) = matches.subcommand_matches("show") else { return Ok(ExitCode::FAILURE) };
            lines(shown(arguments.config.as_deref(), matches)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The whole command line with what the file says that it names, if it names one, as the defaults of settings.
///
/// # Errors
/// [`FileError`]. What else is wrong with the command line is left for clap to say.
pub(super) fn with_file(command: Command) -> Result<Command, FileError> {
    // What is required may stand in the file.
    let Ok(given) = all_optional(command.clone()).try_get_matches() else { return Ok(command) };
    let (mut names, mut innermost) = (Vec::new(), &given);
    while let Some((name, matches)) = innermost.subcommand() {
        names.push(name);
        innermost = matches;
    }
    match innermost.try_get_one::<PathBuf>("config") {
        Ok(Some(path)) => Ok(with_defaults(command, &names, &File::read(path)?)),
        _ => Ok(command),
    }
}

fn all_optional(command: Command) -> Command {
    let takes_file = command.get_arguments().any(|arg| arg.get_id() == "config");
    let command = if takes_file { command.mut_args(|arg| arg.required(false)) } else { command };
    command.mut_subcommands(all_optional)
}

/// The command with a file's values as the defaults of the subcommand that is reached by these names.
fn with_defaults(command: Command, names: &[&str], file: &File) -> Command {
    match names {
        [first, rest @ ..] => command.mut_subcommand(first, |inner| with_defaults(inner, rest, file)),
        [] => file.values.iter().fold(command, |command, (key, value)| {
            command.mut_arg(key, |arg| arg.required(false).default_value(value))
        }),
    }
}

/// The settings alone.
fn definition() -> Command {
    Settings::augment_args(Command::new("settings").no_binary_name(true))
}

/// Why a file is not taken.
#[derive(thiserror::Error, Debug)]
pub(super) enum FileError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// A line for each mistake.
    #[error("{}", .0.join("\n"))]
    Wrong(Vec<String>),
}

/// What a file says, each value in the words of the command line.
struct File {
    values: BTreeMap<String, String>,
}

impl File {
    /// # Errors
    /// [`FileError`], with all that is wrong.
    fn read(path: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| FileError::Unreadable { path: path.to_owned(), error })?;
        Self::parse(&text).map_err(|wrong| {
            FileError::Wrong(wrong.into_iter().map(|mistake| mistake.told(path, &text)).collect())
        })
    }

    fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let table = DeTable::parse(text).map_err(|error| {
            vec![Mistake { at: error.span().map_or(0, |span| span.start), what: error.message().to_owned() }]
        })?;
        let definition = definition();
        let (mut values, mut wrong) = (BTreeMap::new(), Vec::new());
        for (key, value) in table.get_ref() {
            let (name, given) = (key.get_ref(), &text[value.span()]);
            let said = match definition.get_arguments().find(|arg| arg.get_id() == &**name) {
                Some(arg) => in_words(arg, value.get_ref()).map_err(|allowed| {
                    format!("{name} = {}: {allowed}", given.lines().next().unwrap_or_default())
                }),
                None => {
                    let known: Vec<_> = definition.get_arguments().map(|arg| arg.get_id().as_str()).collect();
                    Err(format!("there is no setting {name:?}; there are {}", known.join(", ")))
                }
            };
            match said {
                Ok(said) => _ = values.insert(name.to_string(), said),
                Err(what) => wrong.push(Mistake { at: key.span().start, what }),
            }
        }
        wrong.sort_by_key(|mistake| mistake.at);
        if wrong.is_empty() { Ok(Self { values }) } else { Err(wrong) }
    }
}

/// Something wrong in a file.
struct Mistake {
    /// The byte where it is.
    at: usize,
    what: String,
}

impl Mistake {
    fn told(&self, path: &Path, text: &str) -> String {
        let line = text.bytes().take(self.at).filter(|byte| *byte == b'\n').count() + 1;
        format!("{}:{line}: {}", path.display(), self.what)
    }
}

/// How a setting is written in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Switch,
    Number,
    /// A number of bytes, or a text with a unit.
    Size,
    Text,
}

impl Kind {
    fn of(arg: &Arg) -> Self {
        let id = arg.get_value_parser().type_id();
        if id == TypeId::of::<bool>() {
            Self::Switch
        } else if id == TypeId::of::<NonZeroUsize>() || id == TypeId::of::<NonZeroU64>() {
            Self::Number
        } else if id == TypeId::of::<u64>() {
            Self::Size
        } else {
            Self::Text
        }
    }

    /// A value in the words of the command line, as the file has it.
    fn written(self, value: &str) -> String {
        match self {
            Self::Switch | Self::Number => value.to_owned(),
            Self::Size | Self::Text => format!("{value:?}"),
        }
    }
}

/// A value of a file in the words of the command line.
///
/// # Errors
/// What is allowed, if it is not.
fn in_words(arg: &Arg, value: &DeValue<'_>) -> Result<String, String> {
    let text = match (Kind::of(arg), value) {
        (Kind::Switch, DeValue::Boolean(value)) => value.to_string(),
        (Kind::Number | Kind::Size, DeValue::Integer(value)) => {
            let number = i128::from_str_radix(value.as_str(), value.radix());
            number.map_or_else(|_| value.as_str().to_owned(), |number| number.to_string())
        }
        (Kind::Size | Kind::Text, DeValue::String(value)) => value.to_string(),
        (Kind::Switch, _) => return Err("give true or false".to_owned()),
        (Kind::Number, _) => return Err("give a whole number, without quotes".to_owned()),
        (Kind::Size, _) => {
            return Err("give a whole number, or a text in quotes such as \"256MiB\"".to_owned());
        }
        (Kind::Text, _) => return Err("give a text, in quotes".to_owned()),
    };
    refusal(arg, &text).map_or(Ok(text), Err)
}

/// What the command line would say of this value.
fn refusal(arg: &Arg, value: &str) -> Option<String> {
    let argument = format!("--{}={value}", arg.get_long()?);
    let arg = arg.clone().required(false).env(Resettable::Reset);
    let alone = Command::new("setting").no_binary_name(true).arg(arg);
    let error = alone.try_get_matches_from([argument]).err()?;
    let allowed = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(allowed)) if !allowed.is_empty() => Some(allowed),
        _ => None,
    };
    Some(match (allowed, error.source()) {
        (Some(allowed), _) => format!("give one of \"{}\"", allowed.join("\", \"")),
        (None, Some(reason)) => reason.to_string(),
        (None, None) => "it must not be empty".to_owned(),
    })
}

fn check(path: &Path) -> Result<(), Box<dyn Error>> {
    let file = File::read(path)?;
    // Whether settings fit together is a question to all of them, and where data is kept may stand elsewhere.
    let alone = definition().mut_args(|arg| arg.env(Resettable::Reset));
    let alone =
        with_defaults(alone.mut_arg("data_dir", |arg| arg.required(false).default_value(".")), &[], &file);
    let settings = Settings::from_arg_matches(&alone.try_get_matches_from([""; 0])?)?;
    check_access(&settings).map_err(|refusal| format!("{}: {refusal}", path.display()))?;
    lines([format!("{}: settings: {}", path.display(), file.values.len())])?;
    Ok(())
}

fn shown(path: Option<&Path>, matches: &ArgMatches) -> Result<Vec<String>, FileError> {
    let file = path.map(File::read).transpose()?;
    let row = |arg: &Arg| {
        let id = arg.get_id().as_str();
        let raw = matches.get_raw(id).into_iter().flatten().next();
        let in_file = file.as_ref().is_some_and(|file| file.values.contains_key(id));
        let from = match matches.value_source(id) {
            None => String::new(),
            Some(ValueSource::CommandLine) => "command line".to_owned(),
            Some(ValueSource::EnvVariable) => environment(arg),
            _ if in_file => path.unwrap_or(Path::new("")).display().to_string(),
            _ => "default".to_owned(),
        };
        [id.to_owned(), raw.map(|raw| raw.to_string_lossy().into_owned()).unwrap_or_default(), from]
    };
    let rows: Vec<_> = definition().get_arguments().map(row).collect();
    Ok(table::lines(["setting", "value", "from"], &rows))
}

fn environment(arg: &Arg) -> String {
    arg.get_env().unwrap_or_default().to_string_lossy().into_owned()
}

/// The file with everything in it, and nothing set.
fn explained() -> String {
    let mut file = paragraph(
        "The settings of `broker serve --config FILE`. This is what `broker config default` prints: every setting \
         there is, with its default commented out. The command line wins over the environment, that over this file. \
         `broker config check FILE` says whether a file is right, `broker config show` where each value comes from.",
    );
    for arg in definition().get_arguments() {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let stop = if help.ends_with('.') { "" } else { "." };
        let key = arg.get_id().as_str();
        let choices: Vec<_> =
            arg.get_possible_values().iter().map(|it| format!("{:?}", it.get_name())).collect();
        let choices = match Kind::of(arg) {
            Kind::Text if !choices.is_empty() => format!(" One of {}.", choices.join(", ")),
            _ => String::new(),
        };
        let default = arg.get_default_values().first().map(|value| value.to_string_lossy());
        let none = if default.is_none() { " No default; for example:" } else { "" };
        let value = Kind::of(arg).written(default.as_deref().unwrap_or(example(key)));
        file.push('\n');
        file.push_str(&paragraph(&format!("{help}{stop}{choices}")));
        file.push_str(&format!("# --{}, {}.{none}\n", arg.get_long().unwrap_or_default(), environment(arg)));
        file.push_str(&format!("#{key} = {value}\n"));
    }
    file
}

/// A text as lines of a comment.
fn paragraph(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), "#".to_owned());
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() >= WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}
