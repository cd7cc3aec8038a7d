//! The first path: from an HTTP request to output from a real microVM, and what must hold along the way.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use space_api::{
    Base64Bytes, ProblemCode, Signal,
    client::StreamConfig,
    commands::{CreateCommand, WriteStdin},
    operations::OperationStatus,
    sandboxes::{CreateSandbox, ListSandboxes},
    sse::CommandEvent,
};
use space_e2e::{Sandbox, Server, sandbox::small, server::BOOT_SECONDS};
use space_types::SandboxState;

fn argv<const N: usize>(argv: [&str; N]) -> CreateCommand {
    CreateCommand { argv: argv.map(str::to_owned).to_vec(), ..CreateCommand::default() }
}

/// In one sandbox, one after the other: a boot takes seconds where the processor is emulated.
#[tokio::test(flavor = "multi_thread")]
async fn commands_do_as_asked() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    python_runs_and_its_output_comes_back(&sandbox).await.context("python_runs_and_its_output_comes_back")?;
    the_two_streams_stay_apart_and_the_exit_code_passes_through(&sandbox)
        .await
        .context("the_two_streams_stay_apart_and_the_exit_code_passes_through")?;
    a_program_that_is_not_there_exits_as_in_a_shell(&sandbox)
        .await
        .context("a_program_that_is_not_there_exits_as_in_a_shell")?;
    standard_input_reaches_the_command(&sandbox).await.context("standard_input_reaches_the_command")?;
    a_signal_ends_a_command_and_is_named(&sandbox).await.context("a_signal_ends_a_command_and_is_named")?;
    a_command_past_its_time_is_ended(&sandbox).await.context("a_command_past_its_time_is_ended")?;
    a_second_reader_sees_the_same_from_the_start_and_a_late_one_too(&sandbox)
        .await
        .context("a_second_reader_sees_the_same_from_the_start_and_a_late_one_too")?;
    another_tenant_learns_nothing(&sandbox).await.context("another_tenant_learns_nothing")?;
    a_token_for_another_session_opens_nothing(&sandbox)
        .await
        .context("a_token_for_another_session_opens_nothing")?;
    Ok(())
}

async fn python_runs_and_its_output_comes_back(sandbox: &Sandbox) -> Result<()> {
    let outcome = sandbox.run(["python3", "-c", "print(6 * 7)"]).await?;
    assert_eq!((outcome.stdout().as_str(), outcome.exit.code), ("42\n", Some(0)), "{outcome}");
    Ok(())
}

async fn the_two_streams_stay_apart_and_the_exit_code_passes_through(sandbox: &Sandbox) -> Result<()> {
    let outcome = sandbox.sh("echo out; echo err >&2; exit 7").await?;
    assert_eq!((outcome.stdout().as_str(), outcome.stderr().as_str()), ("out\n", "err\n"));
    assert_eq!(outcome.exit.code, Some(7));
    Ok(())
}

async fn a_program_that_is_not_there_exits_as_in_a_shell(sandbox: &Sandbox) -> Result<()> {
    let outcome = sandbox.run(["/no/such/program"]).await?;
    assert_eq!(outcome.exit.code, Some(127), "{outcome}");
    assert!(outcome.exit.error.is_some(), "{outcome}");
    Ok(())
}

async fn standard_input_reaches_the_command(sandbox: &Sandbox) -> Result<()> {
    let client = &sandbox.server.client;
    let command = client.command_create(sandbox.id, &CreateCommand { stdin: true, ..argv(["rev"]) }).await?;
    let mut stream = client.command_attach(&command.attach, None, StreamConfig::default());
    let started = stream.next().await?;
    assert!(matches!(started, Some(CommandEvent::Started(_))), "{started:?}");
    let body = WriteStdin { offset: 0, data: Base64Bytes::from(*b"stressed\n"), eof: true };
    client.stdin_write(sandbox.id, command.command.id, &body).await?;
    let mut text = Vec::new();
    while let Some(event) = stream.next().await? {
        if let CommandEvent::Stdout(output) = event {
            text.extend_from_slice(output.data.as_ref());
        }
    }
    assert_eq!(String::from_utf8(text)?, "desserts\n");
    Ok(())
}

async fn a_signal_ends_a_command_and_is_named(sandbox: &Sandbox) -> Result<()> {
    let client = &sandbox.server.client;
    let created = client.command_create(sandbox.id, &argv(["sleep", "600"])).await?;
    let mut stream = client.command_attach(&created.attach, None, StreamConfig::default());
    stream.next().await?;
    client.command_signal(sandbox.id, created.command.id, "TERM".parse::<Signal>()?).await?;
    let ended = stream.next().await?;
    let Some(CommandEvent::Exit(exit)) = ended else { panic!("{ended:?}") };
    assert_eq!((exit.signal, exit.timed_out), (Some(15), false));
    Ok(())
}

async fn a_command_past_its_time_is_ended(sandbox: &Sandbox) -> Result<()> {
    let outcome = sandbox.sh_for("sleep 600", 1).await?;
    assert!(outcome.exit.timed_out, "{outcome}");
    Ok(())
}

async fn a_second_reader_sees_the_same_from_the_start_and_a_late_one_too(sandbox: &Sandbox) -> Result<()> {
    let client = &sandbox.server.client;
    let created = client.command_create(sandbox.id, &argv(["seq", "1", "2000"])).await?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut stream = client.command_attach(&created.attach, None, StreamConfig::default());
        let mut text = Vec::new();
        while let Some(event) = stream.next().await? {
            if let CommandEvent::Stdout(output) = event {
                text.extend_from_slice(output.data.as_ref());
            }
        }
        seen.push(text);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].iter().filter(|byte| **byte == b'\n').count(), 2000);
    Ok(())
}

async fn another_tenant_learns_nothing(sandbox: &Sandbox) -> Result<()> {
    let stranger =
        sandbox.server.as_another_tenant(&format!("stranger-{}", &sandbox.id.label()[20..])).await?;
    let code = |error: space_api::client::ClientError| error.problem().map(|problem| problem.code);
    let client = &stranger.client;
    let not_found = Some(ProblemCode::NotFound);
    assert_eq!(client.sandbox_get(sandbox.id).await.map_err(code).unwrap_err(), not_found);
    assert_eq!(client.sandbox_delete(sandbox.id, 0).await.map_err(code).unwrap_err(), not_found);
    assert_eq!(client.command_run(sandbox.id, &argv(["true"])).await.map_err(code).unwrap_err(), not_found);
    assert!(stranger.sandboxes().await?.is_empty());
    Ok(())
}

async fn a_token_for_another_session_opens_nothing(sandbox: &Sandbox) -> Result<()> {
    let client = &sandbox.server.client;
    let one = client.command_create(sandbox.id, &argv(["true"])).await?;
    let two = client.command_create(sandbox.id, &argv(["true"])).await?;
    let mut mixed = one.attach.clone();
    mixed.token.clone_from(&two.attach.token);
    let refused = client.command_attach(&mixed, None, StreamConfig::default()).next().await.unwrap_err();
    let code = refused.problem().map(|problem| problem.code);
    assert!(matches!(code, Some(ProblemCode::Unauthorized | ProblemCode::Forbidden)), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_names_the_digest_it_runs_and_keeps_its_labels() -> Result<()> {
    let server = Server::get()?;
    let labels = BTreeMap::from([("purpose".to_owned(), "digest".to_owned())]);
    let body = CreateSandbox { labels: labels.clone(), ..small() };
    let sandbox = Sandbox::create_as(&server, body).await?;
    let template = server.client.template_get("base").await?;
    let query = ListSandboxes { label: labels.clone().into_iter().collect(), ..ListSandboxes::default() };
    let listed = server.client.sandbox_list(&query).await?;
    let only = listed.items.first().context("the label finds nothing")?;
    assert_eq!((only.id, &only.labels), (sandbox.id, &labels));
    assert!(template.releases.iter().any(|release| release.digest == only.template.digest), "{template:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_user_and_directory_are_as_asked() -> Result<()> {
    let server = Server::get()?;
    let env = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let body = CreateSandbox { env: [env("FROM", "sandbox"), env("BOTH", "sandbox")].into(), ..small() };
    let sandbox = Sandbox::create_as(&server, body).await?;
    let command = CreateCommand {
        env: [env("BOTH", "command")].into(),
        cwd: Some("/tmp".to_owned()),
        user: Some("root".to_owned()),
        ..argv(["sh", "-c", "echo $FROM $BOTH $PWD $(id -un) $HOME"])
    };
    assert_eq!(sandbox.exec(command).await?.stdout(), "sandbox command /tmp root /root\n");
    assert_eq!(sandbox.sh("id -un; pwd").await?.stdout(), "user\n/home/user\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_sandbox_has_the_right_time_and_its_own_randomness() -> Result<()> {
    let (one, two) = (Sandbox::create().await?, Sandbox::create().await?);
    let guest: i64 = one.sh("date +%s").await?.stdout().trim().parse()?;
    let host = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    assert!(guest.abs_diff(i64::try_from(host)?) <= 2, "guest {guest}, host {host}");
    let random = "head -c 16 /dev/urandom | od -An -tx1";
    assert_ne!(one.sh(random).await?.stdout(), two.sh(random).await?.stdout());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_sandbox_is_shown_as_deleted_and_takes_no_command() -> Result<()> {
    let sandbox = Sandbox::create().await?;
    let server = sandbox.server.clone();
    let id = sandbox.id;
    sandbox.remove().await?;
    assert_eq!(server.client.sandbox_get(id).await?.state, SandboxState::Deleted);
    let refused = server.client.command_run(id, &argv(["true"])).await.unwrap_err();
    assert_eq!(refused.problem().map(|p| p.code), Some(ProblemCode::SandboxNotRunning), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_while_it_boots_wins() -> Result<()> {
    let server = Server::get()?;
    let body = small();
    let accepted = server.client.sandbox_create(&body, 0).await?;
    let deleted = server.client.sandbox_delete(accepted.sandbox.id, BOOT_SECONDS).await?;
    assert_eq!(deleted.operation.status, OperationStatus::Succeeded, "{deleted:?}");
    let create = server.client.operation_finish(accepted.operation.id, Duration::from_secs(30)).await?;
    assert!(create.status.is_done(), "{create:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tenants_commands_run_side_by_side() -> Result<()> {
    let mine = Sandbox::create().await?;
    let other = mine.server.as_another_tenant(&format!("other-{}", &mine.id.label()[20..])).await?;
    let theirs = Sandbox::create_on(&other).await?;
    let (a, b) = tokio::try_join!(mine.sh("echo mine"), theirs.sh("echo theirs"))?;
    assert_eq!((a.stdout().as_str(), b.stdout().as_str()), ("mine\n", "theirs\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn six_sandboxes_at_once_all_answer() -> Result<()> {
    let server = Server::get()?;
    let boots = (0..6).map(|number| {
        let server = server.clone();
        async move {
            let body = CreateSandbox { memory_mib: 128, ..small() };
            let sandbox = Sandbox::create_as(&server, body).await?;
            let said = sandbox.sh(&format!("echo {number}")).await?.stdout();
            anyhow::Ok(said == format!("{number}\n"))
        }
    });
    let answers = futures::future::try_join_all(boots).await?;
    assert_eq!(answers, [true; 6]);
    Ok(())
}
