//! Contexts: brokers by name, in a file of the user's. [`Contexts::read`] and [`Contexts::change`] are all there is.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::given::file;
use super::output::plain;

/// A token is far shorter.
const MAX_TOKEN_BYTES: usize = 4_096;

/// Why contexts are of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContextError {
    /// The user has no home.
    #[error("there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is set")]
    NoPlace,
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// There is no context of this name.
    #[error("there is no context {0:?}; `broker context list` shows all")]
    Unknown(String),
}

/// A broker and how to get in.
#[derive(Serialize, Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) realm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    /// Where the token is instead; looked at for every command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_file: Option<PathBuf>,
}

impl Context {
    /// # Errors
    /// If its file cannot be read.
    pub(super) fn token(&self) -> io::Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(self.token.clone()) };
        let token = String::from_utf8(file(path, MAX_TOKEN_BYTES)?);
        let no_text =
            |_| io::Error::other(format!("{}: a token is text", plain(&path.display().to_string())));
        Ok(Some(token.map_err(no_text)?.trim().to_owned()))
    }
}

/// All of them.
#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Contexts {
    /// The one in use where none is named.
    pub(super) current: Option<String>,
    pub(super) contexts: BTreeMap<String, Context>,
}

impl Contexts {
    /// None where there is no file.
    ///
    /// # Errors
    /// [`ContextError::File`].
    pub(super) fn read() -> Result<Self, ContextError> {
        place().map_or_else(|_| Ok(Self::default()), |path| Self::read_from(&path))
    }

    fn read_from(path: &Path) -> Result<Self, ContextError> {
        match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
        .map_err(|source| wrong(path, source))
    }

    /// The one of this name, or the one in use.
    ///
    /// # Errors
    /// [`ContextError::Unknown`].
    pub(super) fn choose(mut self, name: Option<&str>) -> Result<Option<Context>, ContextError> {
        let Some(name) = name.map(str::to_owned).or(self.current) else { return Ok(None) };
        self.contexts.remove(&name).map(Some).ok_or(ContextError::Unknown(name))
    }

    /// Changes them while nobody else does: readers see the file as it was or as it will be.
    ///
    /// # Errors
    /// [`ContextError`]; then nothing was changed.
    pub(super) fn change(
        change: impl FnOnce(&mut Self) -> Result<(), ContextError>,
    ) -> Result<(), ContextError> {
        let path = place()?;
        // Where it is a link, to where files of its kind are kept, that stays one.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let folder = path.parent().unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let locked = made.and_then(|()| File::open(folder)).and_then(|opened| opened.lock().map(|()| opened));
        let _lock = locked.map_err(|source| wrong(folder, source))?;
        let mut contexts = Self::read_from(&path)?;
        change(&mut contexts)?;
        contexts.write(folder, &path).map_err(|source| wrong(&path, source))
    }

    fn write(&self, folder: &Path, path: &Path) -> io::Result<()> {
        // Only its owner can read it, as it is made that way.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        writeln!(file, "{}", serde_json::to_string_pretty(self)?)?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    }
}

fn wrong(path: &Path, source: io::Error) -> ContextError {
    ContextError::File { path: path.display().to_string(), source }
}

/// Where the file is: <https://specifications.freedesktop.org/basedir/latest/>.
fn place() -> Result<PathBuf, ContextError> {
    // A path that is not absolute is to be ignored.
    let given = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".config"));
    let folder = given.or_else(home).ok_or(ContextError::NoPlace)?;
    Ok(folder.join("reprise").join("contexts.json"))
}
