//! Configuration: one TOML file, then environment variables over it.
//!
//! A variable names a key by its path with `__` between the parts: with the prefix `SPACE_CONTROLD`,
//! `SPACE_CONTROLD__HTTP__LISTEN` sets `http.listen`. A value that parses as TOML (a number, a boolean, a
//! list) is taken as that; anything else is a string. Types that derive `Deserialize` with
//! `deny_unknown_fields` refuse what they do not know, whichever of the two said it.

use camino::{Utf8Path, Utf8PathBuf};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}")]
    Read {
        path: Utf8PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} is not TOML")]
    Parse {
        path: Utf8PathBuf,
        #[source]
        source: toml::de::Error,
    },
    #[error("{variable} goes below {key}, which is no table")]
    NotATable { variable: String, key: String },
    #[error("the configuration is not valid")]
    Invalid(#[source] toml::de::Error),
}

/// Reads `file` (none: an empty document), lays the process's environment over it and builds `T`.
pub fn load<T: DeserializeOwned>(file: Option<&Utf8Path>, prefix: &str) -> Result<T, ConfigError> {
    load_with(
        file,
        prefix,
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
    )
}

/// As [`load`], with the environment given: for tests.
pub fn load_with<T: DeserializeOwned>(
    file: Option<&Utf8Path>,
    prefix: &str,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<T, ConfigError> {
    let mut table = file.map_or_else(|| Ok(Table::new()), read)?;
    let prefix = format!("{prefix}__");
    for (variable, value) in environment {
        if let Some(path) = variable.strip_prefix(&prefix) {
            set(&mut table, &variable, &path.to_ascii_lowercase(), parse_value(&value))?;
        }
    }
    table.try_into().map_err(ConfigError::Invalid)
}

fn read(path: &Utf8Path) -> Result<Table, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    text.parse().map_err(|source| ConfigError::Parse { path: path.to_owned(), source })
}

fn set(table: &mut Table, variable: &str, path: &str, value: Value) -> Result<(), ConfigError> {
    let Some((head, rest)) = path.split_once("__") else {
        table.insert(path.to_owned(), value);
        return Ok(());
    };
    let below = table.entry(head).or_insert_with(|| Value::Table(Table::new()));
    let below = below
        .as_table_mut()
        .ok_or_else(|| ConfigError::NotATable { variable: variable.to_owned(), key: head.to_owned() })?;
    set(below, variable, rest, value)
}

fn parse_value(text: &str) -> Value {
    let document = format!("v = {text}\n").parse::<Table>();
    document.ok().and_then(|mut table| table.remove("v")).unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        name: String,
        #[serde(default)]
        http: Http,
    }

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Http {
        listen: String,
        workers: u32,
    }

    fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn file(text: &str) -> (tempfile::TempDir, Utf8PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(dir.path().join("config.toml")).unwrap();
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let (_dir, path) = file("name = 'a'\n[http]\nlisten = '127.0.0.1:1'\nworkers = 1\n");
        let overrides =
            env(&[("SPACE_X__HTTP__LISTEN", "[::1]:8700"), ("SPACE_X__HTTP__WORKERS", "4"), ("OTHER", "1")]);
        let config: Example = load_with(Some(&path), "SPACE_X", overrides).unwrap();
        assert_eq!(config.http, Http { listen: "[::1]:8700".into(), workers: 4 });
        assert_eq!(config.name, "a");
    }

    #[test]
    fn an_unknown_key_is_refused_and_named() {
        let (_dir, path) = file("name = 'a'\n[http]\nlistne = ''\n");
        let error = load_with::<Example>(Some(&path), "SPACE_X", []).unwrap_err();
        let ConfigError::Invalid(source) = error else { panic!("{error}") };
        assert!(source.to_string().contains("listne"), "{source}");
    }

    #[test]
    fn an_unknown_variable_is_refused_too() {
        let overrides = env(&[("SPACE_X__NAME", "a"), ("SPACE_X__HTTPS", "1")]);
        assert!(matches!(load_with::<Example>(None, "SPACE_X", overrides), Err(ConfigError::Invalid(_))));
    }

    #[test]
    fn a_variable_below_a_plain_value_is_an_error() {
        let overrides = env(&[("SPACE_X__NAME", "a"), ("SPACE_X__NAME__FIRST", "b")]);
        assert!(matches!(
            load_with::<Example>(None, "SPACE_X", overrides),
            Err(ConfigError::NotATable { .. })
        ));
    }
}
