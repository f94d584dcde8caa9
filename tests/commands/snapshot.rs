//! Texts that are kept in files beside the tests, so that a change of them is seen as such. `UPDATE_SNAPSHOTS=1` writes
//! them anew.

use std::fs;
use std::path::{Path, PathBuf};

/// Where they are.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/commands/snapshots")
}

/// Fails unless the text is the one that is kept under this name.
#[track_caller]
pub(crate) fn same(name: &str, text: &str) {
    let path = folder().join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::create_dir_all(folder()).expect("a folder");
        fs::write(&path, text).expect("it can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, kept, "{name} is not what it was; UPDATE_SNAPSHOTS=1 keeps it as it is now");
}
