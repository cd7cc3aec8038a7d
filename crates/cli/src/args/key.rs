//! Arguments about API keys.

use clap::{Args, Subcommand};
use space_api::{
    keys::{CreateKey, Role},
    scopes::Scope,
};
use space_types::KeyId;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key; its secret is printed once
    Create(CreateKeyArgs),
    /// List keys, without their secrets
    Ls,
    /// Give a key another secret; it is printed once
    Rotate {
        /// Its id
        id: KeyId,
        /// How long the present secret stays valid beside the new one; 0 for one that leaked
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        overlap: u64,
    },
    /// Revoke a key, at once
    #[command(alias = "rm")]
    Revoke {
        /// Its id
        id: KeyId,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateKeyArgs {
    /// What it is for
    pub(crate) name: String,
    /// Whose it is: a tenant's name or id (for admins) [default: your own]
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// The only project that it sees: a project's name (of your own tenant) or id
    #[arg(long)]
    pub(crate) project: Option<String>,
    /// How far it reaches: member or admin
    #[arg(long, default_value = "member", value_parser = parse_role)]
    pub(crate) role: Role,
    /// What it may do; repeatable [default: all that your own key may]
    #[arg(long, value_parser = parse_scope)]
    pub(crate) scope: Vec<Scope>,
    /// End it after so long [default: when your own key ends, if it does]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) expires_in: Option<u64>,
}

impl CreateKeyArgs {
    /// Without what takes a look at the server.
    pub(crate) fn body(&self) -> CreateKey {
        CreateKey {
            name: self.name.clone(),
            role: self.role,
            scopes: Some(self.scope.clone()).filter(|scopes| !scopes.is_empty()),
            expires_in_seconds: self.expires_in,
            ..CreateKey::default()
        }
    }
}

fn parse_role(text: &str) -> Result<Role, String> {
    Role::from_code(text).ok_or_else(|| "member or admin".to_owned())
}

fn parse_scope(text: &str) -> Result<Scope, String> {
    let codes = || Scope::ALL.iter().map(|scope| scope.code()).collect::<Vec<_>>().join(", ");
    Scope::from_code(text).ok_or_else(|| format!("one of {}", codes()))
}
