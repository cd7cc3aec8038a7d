//! One file for each command, named as the command is.

mod completions;
mod cp;
mod create;
mod events;
mod exec;
mod files;
mod get;
mod key;
mod logs;
mod ls;
mod next;
mod node;
mod port;
mod project;
mod ps;
mod quota;
mod rm;
mod run;
mod shell;
mod template;
mod tenant;
mod top;
mod usage;

use space_api::{Problem, ProblemCode, operations::Operation};

use crate::{
    args::{Cli, Subcommands},
    connect::connect,
    error::CliError,
};

/// Does what was asked and answers the exit code.
pub(crate) async fn run(cli: Cli) -> Result<u8, CliError> {
    let global = cli.global;
    let client = || connect(&global);
    let Some(command) = cli.command else { return next::run(&global).await };
    match command {
        Subcommands::Up(args) => crate::up::run(&global, args).await,
        Subcommands::Doctor(args) => crate::doctor::run(&global, &args).await,
        Subcommands::Create(args) => create::run(&client()?, &global, &args).await,
        Subcommands::Run(args) => run::run(&client()?, &global, &args).await,
        Subcommands::Exec(args) => exec::run(&client()?, &global, &args).await,
        Subcommands::Shell(args) => shell::run(&client()?, &args).await,
        Subcommands::Cp(args) => cp::run(&client()?, &global, &args).await,
        Subcommands::Files(command) => files::run(&client()?, &global, &command).await,
        Subcommands::Port(command) => port::run(&client()?, &global, &command).await,
        Subcommands::Ls(args) => ls::run(&client()?, &global, args).await,
        Subcommands::Get(args) => get::run(&client()?, &global, &args).await,
        Subcommands::Ps(args) => ps::run(&client()?, &global, &args).await,
        Subcommands::Logs(args) => logs::run(&client()?, &global, &args).await,
        Subcommands::Top(args) => top::run(&client()?, &global, &args).await,
        Subcommands::Events(args) => events::run(&client()?, &global, &args).await,
        Subcommands::Rm(args) => rm::run(&client()?, &global, &args).await,
        Subcommands::Template(command) => template::run(&client()?, &global, &command).await,
        Subcommands::Key(command) => key::run(&client()?, &global, &command).await,
        Subcommands::Project(command) => project::run(&client()?, &global, &command).await,
        Subcommands::Quota(args) => quota::run(&client()?, &global, &args).await,
        Subcommands::Usage(args) => usage::run(&client()?, &global, &args).await,
        Subcommands::Tenant(command) => tenant::run(&client()?, &global, &command).await,
        Subcommands::Node(command) => node::run(&client()?, &global, &command).await,
        Subcommands::Completions { shell } => Ok(completions::run(shell)),
    }
}

/// A failed operation as an error.
fn succeeded(operation: &Operation) -> Result<(), CliError> {
    if let Some(problem) = &operation.problem {
        return Err(problem.clone().into());
    }
    if operation.status == space_api::operations::OperationStatus::Failed {
        let detail = format!("{} failed and does not say why", operation.id);
        return Err(Problem::new(ProblemCode::Internal, detail).into());
    }
    Ok(())
}
