//! `[control]` in a daemon's configuration.

use camino::Utf8PathBuf;
use serde::Deserialize;

/// How to reach and trust control.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlConfig {
    /// `https://host:port` of the registry.
    pub url: String,
    /// The name that control's certificate is checked for.
    #[serde(default = "default_server_name")]
    pub server_name: String,
    /// PEM of the authority that signs control's certificate. Needed to join; kept with the identity then.
    pub authority: Option<Utf8PathBuf>,
    /// A one-time token, or the file that holds it. Needed to join.
    pub join_token: Option<String>,
    pub join_token_file: Option<Utf8PathBuf>,
}

fn default_server_name() -> String {
    "control.space.internal".to_owned()
}
