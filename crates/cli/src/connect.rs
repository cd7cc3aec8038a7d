//! Which server, and with which key: flags, then the environment, then a credentials file.
//!
//! `space up` writes `<data>/credentials.json` for whoever started it. A file of the user's own,
//! `~/.config/space/credentials.json`, comes first, so that a machine with a server can still talk to another.

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
    let url = global.url.clone().or(from_file.url).unwrap_or_else(|| DEFAULT_URL.to_owned());
    let key = global.key.clone().or(from_file.key);
    let config = ClientConfig { patience, ..ClientConfig::new(url, key) };
    Ok(Client::new(config)?)
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
