//! The guides say what happens: their transcripts are replayed on a real microVM, and leave nothing behind.

use std::{collections::BTreeSet, env, time::Duration};

use anyhow::{Result, ensure};
use space_api::PageQuery;
use space_e2e::{
    Server,
    guide::{GUIDES, Guide},
    server::BOOT_SECONDS,
};
use space_types::{KeyId, ProjectId, SandboxId};
use tokio::sync::Mutex;

/// For one command: the longest ones boot a sandbox.
const DEADLINE: Duration = Duration::from_secs(BOOT_SECONDS as u64 + 20);
/// As large as a page may be; lists begin with what is newest.
const PAGE: PageQuery = PageQuery { limit: Some(500), cursor: None };

/// What is new on the server is taken for the guide's own, so there is one at a time, however many tests run at once.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A test for each guide, and one that none was forgotten.
macro_rules! guides {
    ($($test:ident = $file:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() -> Result<()> {
                replay($file).await
            }
        )*

        #[test]
        fn every_guide_is_replayed() {
            assert_eq!([$($file),*], GUIDES.map(|(file, _)| file));
        }
    };
}

guides! {
    the_guide_to_commands_is_what_happens = "commands.md";
    the_guide_to_files_is_what_happens = "files.md";
    the_guide_to_keys_is_what_happens = "keys.md";
    the_guide_to_ports_is_what_happens = "ports.md";
    the_guide_to_python_is_what_happens = "python.md";
    the_guide_to_terminals_is_what_happens = "terminals.md";
}

async fn replay(name: &str) -> Result<()> {
    let _alone = ALONE.lock().await;
    let server = Server::get()?;
    let python = env::var("SPACE_PYTHON").unwrap_or_else(|_| "/opt/space/python".to_owned());
    let before = Things::of(&server).await?;
    let variables = [
        ("SPACE_URL", server.url.as_str()),
        ("SPACE_API_KEY", server.key.as_str()),
        ("PYTHONPATH", python.as_str()),
    ];
    let replayed = Guide::find(name)?.replay(&variables, DEADLINE).await;
    let left = Things::of(&server).await?.beyond(&before);
    // Before anything is judged: the next guide starts from a clean server.
    left.remove(&server).await?;
    replayed?;
    ensure!(left == Things::default(), "docs/guides/{name} leaves something behind: {left:?}");
    Ok(())
}

/// What a guide makes, and has to take away again.
#[derive(Debug, Default, PartialEq, Eq)]
struct Things {
    sandboxes: BTreeSet<SandboxId>,
    projects: BTreeSet<ProjectId>,
    /// Those that are not revoked.
    keys: BTreeSet<KeyId>,
}

impl Things {
    async fn of(server: &Server) -> Result<Self> {
        let projects = server.client.project_list(&PAGE).await?.items;
        let keys = server.client.key_list(&PAGE).await?.items;
        Ok(Self {
            sandboxes: server.sandboxes().await?.into_iter().collect(),
            projects: projects.into_iter().map(|project| project.id).collect(),
            keys: keys.into_iter().filter(|key| key.revoked_at.is_none()).map(|key| key.id).collect(),
        })
    }

    fn beyond(self, before: &Self) -> Self {
        Self {
            sandboxes: &self.sandboxes - &before.sandboxes,
            projects: &self.projects - &before.projects,
            keys: &self.keys - &before.keys,
        }
    }

    async fn remove(&self, server: &Server) -> Result<()> {
        for id in &self.sandboxes {
            server.client.sandbox_delete(*id, BOOT_SECONDS).await?;
        }
        for id in &self.keys {
            server.client.key_revoke(*id).await?;
        }
        for id in &self.projects {
            server.client.project_delete(*id).await?;
        }
        Ok(())
    }
}
