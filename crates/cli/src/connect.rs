//! Which server, and with which key: flags, then the environment, then a credentials file.
//!
//! `space up` writes `<data>/credentials.json` for whoever started it. A file of the user's own,
//! `~/.config/space/credentials.json`, comes first, so that a machine with a server can still talk to another. The key
//! in such a file is for the server that it names, and is sent to no other.

use std::{fs, io, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use space_api::client::{Client, ClientConfig};

use crate::{args::GlobalArgs, error::CliError};

pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:8700";
const MACHINE_CREDENTIALS: &str = "/var/lib/space/credentials.json";
/// For a server that is just being restarted, and short enough for one that isn't there.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a credentials file holds.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    pub(crate) url: Option<String>,
    pub(crate) key: Option<String>,
}

pub(crate) fn connect(global: &GlobalArgs) -> Result<Client, CliError> {
    connect_patiently(global, PATIENCE)
}

/// The same, repeating calls for so long while the server can't be reached.
pub(crate) fn connect_patiently(global: &GlobalArgs, patience: Duration) -> Result<Client, CliError> {
    let from_file = if global.key.is_some() { Credentials::default() } else { read_credentials()? };
    let of_file = from_file.url.unwrap_or_else(|| DEFAULT_URL.to_owned());
    let url = global.url.clone().unwrap_or_else(|| of_file.clone());
    let key = match (&global.key, from_file.key) {
        (Some(key), _) => Some(key.clone()),
        (None, Some(_)) if !same_server(&url, &of_file) => {
            let error = anyhow::anyhow!(
                "there is no key for {url}: the one in the credentials file is for {of_file}"
            );
            return Err(CliError::hinted(error, "give one with --key or SPACE_API_KEY"));
        }
        (None, key) => key,
    };
    let config = ClientConfig { patience, ..ClientConfig::new(url, key) };
    Ok(Client::new(config)?)
}

/// This machine has several names for itself.
fn same_server(left: &str, right: &str) -> bool {
    let plain = |url: &str| {
        let url = url.trim_end_matches('/').to_ascii_lowercase();
        ["://localhost:", "://[::1]:"].iter().fold(url, |url, name| url.replace(name, "://127.0.0.1:"))
    };
    plain(left) == plain(right)
}

/// The first file there is. One that can't be read by this user is as good as absent.
fn read_credentials() -> Result<Credentials, CliError> {
    for path in candidates() {
        match fs::read(&path) {
            Ok(text) => {
                return serde_json::from_slice(&text).map_err(|source| {
                    anyhow::Error::new(source).context(format!("{} is damaged", path.display())).into()
                });
            }
            Err(error) if is_absent(&error) => {}
            Err(error) => {
                return Err(anyhow::Error::new(error)
                    .context(format!("cannot read {}", path.display()))
                    .into());
            }
        }
    }
    Ok(Credentials::default())
}

fn candidates() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("SPACE_CREDENTIALS") {
        return vec![path.into()];
    }
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    let own = config.map(|config| config.join("space/credentials.json"));
    own.into_iter().chain([PathBuf::from(MACHINE_CREDENTIALS)]).collect()
}

fn is_absent(error: &io::Error) -> bool {
    [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied, io::ErrorKind::NotADirectory]
        .contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_address_alone() {
        for same in ["http://127.0.0.1:8700/", "http://LOCALHOST:8700", "http://[::1]:8700"] {
            assert!(same_server(same, DEFAULT_URL), "{same}");
        }
        for other in [
            "https://127.0.0.1:8700",
            "http://127.0.0.1:8701",
            "http://localhost.evil:8700",
            "http://other:8700",
        ] {
            assert!(!same_server(other, DEFAULT_URL), "{other}");
        }
    }
}
