//! Arguments about sandboxes and commands, and the requests they mean.

use std::collections::BTreeMap;

use clap::Args;
use space_api::{commands::CreateCommand, sandboxes::CreateSandbox, terminal::TerminalSize};
use space_types::{CommandId, SandboxId, SandboxState};

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) sandbox: NewSandboxArgs,
    /// Answer as soon as the sandbox is accepted
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// What sandbox to make.
#[derive(Debug, Clone, Args)]
pub(crate) struct NewSandboxArgs {
    /// What to make it from: name, name:tag or name@sha256:…
    #[arg(long, short, default_value = "base:latest")]
    pub(crate) template: String,
    /// Project, by name or id [default: your key's, else the default one]
    #[arg(long, value_name = "PROJECT", env = "SPACE_PROJECT", hide_env_values = true)]
    pub(crate) project: Option<String>,
    /// Processors
    #[arg(long, default_value_t = 1)]
    pub(crate) vcpus: u32,
    /// Memory in MiB
    #[arg(long, short, value_name = "MIB", default_value_t = 512)]
    pub(crate) memory: u64,
    /// Root drive in MiB [default: 2048, or the template's size if larger]
    #[arg(long, value_name = "MIB")]
    pub(crate) disk: Option<u64>,
    /// Environment of every command in the sandbox; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) sandbox_env: Vec<(String, String)>,
    /// Label to find it again by; repeatable
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) label: Vec<(String, String)>,
    /// How long to wait for it to run
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) wait: u64,
}

impl NewSandboxArgs {
    /// Without its project, which may take a look at the server.
    pub(crate) fn body(&self) -> CreateSandbox {
        CreateSandbox {
            template: self.template.clone(),
            project_id: None,
            vcpus: self.vcpus,
            memory_mib: self.memory,
            disk_mib: self.disk,
            env: map(&self.sandbox_env),
            labels: map(&self.label),
        }
    }
}

/// How to run a command, whichever way the sandbox came about.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommandArgs {
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    /// Forward standard input even from a terminal; what is piped is forwarded anyhow
    #[arg(long, short)]
    pub(crate) interactive: bool,
    /// Never forward standard input
    #[arg(long, short, conflicts_with = "interactive")]
    pub(crate) no_stdin: bool,
}

impl CommandArgs {
    pub(crate) fn body(&self, argv: &[String], stdin: bool) -> CreateCommand {
        CreateCommand { stdin, ..self.settings.body(argv) }
    }
}

/// What any command can be given.
#[derive(Debug, Clone, Args)]
pub(crate) struct SettingArgs {
    /// Variable of the command alone; repeatable
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) env: Vec<(String, String)>,
    /// Absolute working directory [default: the user's home]
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// User, by name or uid [default: the template's]
    #[arg(long, short)]
    pub(crate) user: Option<String>,
    /// End the command after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
}

impl SettingArgs {
    fn body(&self, argv: &[String]) -> CreateCommand {
        CreateCommand {
            argv: argv.to_vec(),
            env: map(&self.env),
            cwd: self.cwd.clone(),
            user: self.user.clone(),
            timeout_seconds: self.timeout,
            ..CreateCommand::default()
        }
    }

    /// On a terminal, of the same kind as this one unless another is given.
    pub(crate) fn terminal_body(&self, argv: &[String], size: TerminalSize) -> CreateCommand {
        let mut body = CreateCommand { terminal: Some(size), ..self.body(argv) };
        if let Ok(kind) = std::env::var("TERM")
            && !kind.is_empty()
        {
            body.env.entry("TERM".to_owned()).or_insert(kind);
        }
        body
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) sandbox: NewSandboxArgs,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
    /// Leave the sandbox in place and print its id at the end, on standard error
    #[arg(long)]
    pub(crate) keep: bool,
    /// Start it without standard input, print the ids of sandbox and command, and leave both
    ///
    /// `space logs SANDBOX COMMAND --follow` shows its output and ends as it does; `space rm SANDBOX` ends all of it.
    #[arg(long, short, conflicts_with = "interactive")]
    pub(crate) detach: bool,
    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGV")]
    pub(crate) argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// The sandbox's id [default: a new one]
    pub(crate) sandbox: Option<SandboxId>,
    #[command(flatten)]
    pub(crate) new: NewSandboxArgs,
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    /// Leave a new sandbox in place and print its id at the end
    #[arg(long, conflicts_with = "sandbox")]
    pub(crate) keep: bool,
    /// Come back to a command that was left
    #[arg(long, value_name = "COMMAND", requires = "sandbox", conflicts_with = "argv")]
    pub(crate) attach: Option<CommandId>,
    /// Program and arguments [default: the user's login shell, else bash, else sh]
    #[arg(last = true, value_name = "ARGV")]
    pub(crate) argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The sandbox's id
    pub(crate) sandbox: SandboxId,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
    /// Run it on a terminal: this one
    #[arg(long, short, conflicts_with_all = ["interactive", "no_stdin"])]
    pub(crate) terminal: bool,
    /// Start it without standard input, print its id, and leave it running
    ///
    /// `space logs SANDBOX COMMAND --follow` shows its output and ends as it does.
    #[arg(long, short, conflicts_with_all = ["interactive", "terminal"])]
    pub(crate) detach: bool,
    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGV")]
    pub(crate) argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only those with this label; repeatable
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) label: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) project: super::ProjectArgs,
    /// Only those in this state [default: all but deleted ones]
    #[arg(long, short, value_parser = parse_state)]
    pub(crate) state: Option<SandboxState>,
    /// Print ids alone
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Its id
    pub(crate) sandbox: SandboxId,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Of this sandbox alone
    pub(crate) sandbox: Option<SandboxId>,
    /// Continue after this sequence number; 0 for all that is kept [default: what happens next]
    #[arg(long, value_name = "SEQUENCE", allow_negative_numbers = false)]
    pub(crate) after: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Their ids
    #[arg(required = true, value_name = "SANDBOX")]
    pub(crate) sandboxes: Vec<SandboxId>,
    /// Answer as soon as deletion is accepted
    #[arg(long)]
    pub(crate) no_wait: bool,
}

fn map(pairs: &[(String, String)]) -> BTreeMap<String, String> {
    pairs.iter().cloned().collect()
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be written NAME=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn parse_state(text: &str) -> Result<SandboxState, String> {
    text.parse().map_err(|_error| format!("one of {}", SandboxState::ALL.map(SandboxState::code).join(", ")))
}
