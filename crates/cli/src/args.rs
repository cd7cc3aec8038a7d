//! The command line's grammar. What a thing is called here is what it is called in the API.

mod doctor;
mod files;
mod key;
mod observe;
mod port;
mod sandbox;
mod up;
mod usage;

use clap::{Args, Parser, Subcommand};

pub(crate) use doctor::DoctorArgs;
pub(crate) use files::{CopyArgs, FilesCommand, PlaceArgs, RemotePath, Side};
pub(crate) use key::{CreateKeyArgs, KeyCommand};
pub(crate) use observe::{LogsArgs, TopArgs};
pub(crate) use port::{AccessArgs, ForwardArgs, PortArgs, PortCommand, PortPair};
pub(crate) use sandbox::{
    CommandArgs, CreateArgs, EventsArgs, ExecArgs, ListArgs, RemoveArgs, RunArgs, SandboxArgs, ShellArgs,
};
pub(crate) use up::UpArgs;
pub(crate) use usage::UsageArgs;

/// Sandboxes for code that you don't trust: each a microVM of its own.
#[derive(Debug, Parser)]
#[command(name = "space", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(
    after_help = "Start with `sudo space up` on a machine that can run microVMs; `space doctor` tells whether it can. `space` alone says what to do next."
)]
pub struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Subcommands>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "With every command")]
pub(crate) struct GlobalArgs {
    /// Print JSON, as the API answers it
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Address of the API [default: from the credentials file, else http://127.0.0.1:8700]
    #[arg(long, global = true, value_name = "URL", env = "SPACE_URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// API key [default: from the credentials file]
    #[arg(long, global = true, value_name = "KEY", env = "SPACE_API_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Subcommands {
    /// Run everything on this machine: database, control plane and node
    Up(UpArgs),
    /// Check whether this machine can run sandboxes, and say what is missing
    Doctor(DoctorArgs),
    /// Make a sandbox and print its id
    Create(CreateArgs),
    /// Make a sandbox, run one command in it, and delete it
    Run(RunArgs),
    /// Run a command in a sandbox
    Exec(ExecArgs),
    /// Open a shell in a sandbox, on this terminal
    ///
    /// Without a sandbox one is made, and deleted at the end. `~.` at the start of a line leaves: the command goes
    /// on, and so does its sandbox. `~~` types a `~` there.
    Shell(ShellArgs),
    /// Copy a file or directory into a sandbox or out of it
    ///
    /// A file whose copy breaks is continued; call it again to go on later. What a directory holds is put into
    /// the target as a whole tree, which is not continued.
    Cp(CopyArgs),
    /// Files in a sandbox: list, look, make, move, remove, watch
    #[command(subcommand)]
    Files(FilesCommand),
    /// Ports of sandboxes: bring them here, addresses, tokens, who may reach them
    #[command(subcommand)]
    Port(PortCommand),
    /// List sandboxes
    Ls(ListArgs),
    /// Show a sandbox
    Get(SandboxArgs),
    /// List the commands that a sandbox remembers, the newest first
    Ps(SandboxArgs),
    /// Print what a command put out, as far as it is kept
    ///
    /// Without --follow it ends behind the newest event there was when it was called. It never starts a command.
    Logs(LogsArgs),
    /// Watch sandboxes, or look at the processes of one
    ///
    /// On a terminal the sandboxes are shown anew every two seconds, until Ctrl-C. The processes of one are shown
    /// once: each look runs a command there, which the sandbox remembers in place of an older one.
    Top(TopArgs),
    /// Follow what happens to sandboxes
    Events(EventsArgs),
    /// Delete sandboxes
    Rm(RemoveArgs),
    /// Templates: what sandboxes are made from
    #[command(subcommand)]
    Template(TemplateCommand),
    /// API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Projects: parts of a tenant, with keys and quotas of their own
    #[command(subcommand)]
    Project(ProjectCommand),
    /// Show what your sandboxes may hold together, and what they hold
    Quota(ProjectArgs),
    /// Show what your sandboxes held, by day and project
    Usage(UsageArgs),
    /// Tenants (for admins)
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Nodes (for admins)
    #[command(subcommand)]
    Node(NodeCommand),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// List templates, their tags and releases
    Ls,
    /// Publish a root filesystem as a release (for admins, on the node's machine)
    ///
    /// A directory or a tarball is made into an ext4 image first (needs mke2fs; run it as root, so that
    /// owners are kept). A file that is an image already is published as it is.
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Name and tag of the release; the tag is `latest` unless given
    #[arg(value_name = "NAME[:TAG]")]
    pub(crate) name: String,
    /// ext4 image, directory, or tarball
    #[arg(value_name = "PATH")]
    pub(crate) source: camino::Utf8PathBuf,
    /// Where images are kept; nodes read them from there
    #[arg(long, value_name = "DIR", default_value = "/var/lib/space/templates")]
    pub(crate) store: camino::Utf8PathBuf,
    /// Size of an image made from a directory or tarball [default: the content and a quarter more]
    #[arg(long, value_name = "MIB")]
    pub(crate) size: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectCommand {
    /// Make a project
    Create {
        /// Its name, unique in the tenant
        name: String,
    },
    /// List projects
    Ls,
    /// Delete a project that has no sandboxes
    Rm {
        /// Its name or id
        project: String,
    },
}

/// Which project.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ProjectArgs {
    /// Project, by name or id [default: your key's project, else all of the tenant]
    #[arg(long, value_name = "PROJECT", env = "SPACE_PROJECT", hide_env_values = true)]
    pub(crate) project: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Make a tenant
    Create {
        /// Its unique name
        name: String,
    },
    /// List tenants
    Ls,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes and what they have left
    Ls,
    /// Print a token with which one more node can join
    JoinToken {
        /// How long it is good
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        valid: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The help of a command and of all below it, in order.
    fn help(command: &mut clap::Command, pages: &mut Vec<String>) {
        let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
        pages.push(format!("═══ {name} ═══\n{}\n", command.render_long_help()));
        for below in command.get_subcommands_mut() {
            help(below, pages);
        }
    }

    #[test]
    fn the_help_is_as_it_was() {
        let (mut command, mut pages) = (Cli::command().term_width(100), Vec::new());
        command.build();
        help(&mut command, &mut pages);
        insta::assert_snapshot!(pages.concat());
    }

    #[test]
    fn what_follows_the_command_is_the_commands() {
        let cli = Cli::try_parse_from(["space", "run", "--keep", "ls", "--json", "-l"]).unwrap();
        let Some(Subcommands::Run(run)) = cli.command else { panic!("not run") };
        assert_eq!(
            (run.keep, run.argv, cli.global.json),
            (true, ["ls", "--json", "-l"].map(Into::into).into(), false)
        );
    }

    #[test]
    fn a_double_dash_is_understood() {
        let cli = Cli::try_parse_from(["space", "run", "--", "--version"]).unwrap();
        let Some(Subcommands::Run(run)) = cli.command else { panic!("not run") };
        assert_eq!(run.argv, ["--version"]);
    }
}
