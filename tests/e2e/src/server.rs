//! The SPACE under test.

use std::{env, fs, time::Duration};

use anyhow::{Context, Result, bail};
use space_api::{
    Problem,
    client::{Client, ClientConfig},
    keys::CreateKey,
    sandboxes::{CreateSandbox, ListSandboxes},
    tenants::CreateTenant,
};
use space_types::SandboxId;

/// What a sandbox may take to be there. Emulated hosts are slow, and several tests boot at once.
pub const BOOT_SECONDS: u32 = 280;

#[derive(Debug, Clone)]
pub struct Server {
    pub client: Client,
    pub url: String,
    pub key: String,
}

impl Server {
    /// With the admin key that `space up` wrote.
    pub fn get() -> Result<Self> {
        let url = env::var("SPACE_URL").unwrap_or_else(|_| "http://127.0.0.1:8700".to_owned());
        let file = env::var("SPACE_API_KEY_FILE").unwrap_or_else(|_| "/var/lib/space/admin.key".to_owned());
        let key =
            fs::read_to_string(&file).with_context(|| format!("cannot read the admin key from {file}"))?;
        Self::with_key(url, key.trim().to_owned())
    }

    pub fn with_key(url: String, key: String) -> Result<Self> {
        let config = ClientConfig {
            patience: Duration::from_mins(1),
            answer_deadline: Duration::from_mins(1),
            ..ClientConfig::new(url.clone(), Some(key.clone()))
        };
        Ok(Self { client: Client::new(config)?, url, key })
    }

    /// The same server, seen by a member of a tenant made for this test.
    pub async fn as_another_tenant(&self, name: &str) -> Result<Self> {
        let tenant = self.client.tenant_create(&CreateTenant { name: name.to_owned() }).await?;
        let body = CreateKey { tenant_id: Some(tenant.id), name: name.to_owned(), ..CreateKey::default() };
        let key = self.client.key_create(&body).await?;
        Self::with_key(self.url.clone(), key.secret.context("a new key comes with its secret")?)
    }

    /// Every sandbox that is not deleted.
    pub async fn sandboxes(&self) -> Result<Vec<SandboxId>> {
        let page =
            self.client.sandbox_list(&ListSandboxes { limit: Some(500), ..Default::default() }).await?;
        Ok(page.items.into_iter().map(|sandbox| sandbox.id).collect())
    }

    /// The problem that a create is refused with.
    pub async fn create_fails(&self, body: CreateSandbox) -> Result<Problem> {
        match self.client.sandbox_create(&body, BOOT_SECONDS).await {
            Ok(accepted) => bail!("accepted: {accepted:?}"),
            Err(error) => error.problem().cloned().with_context(|| format!("no problem: {error}")),
        }
    }
}
