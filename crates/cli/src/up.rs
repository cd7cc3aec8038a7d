//! `space up`: everything on this machine, supervised in the foreground.
//!
//! | step | what | when it is there already |
//! |---|---|---|
//! | 1 | the machine is checked, a probe guest included | checked again |
//! | 2 | user `space`, directories | put right |
//! | 3 | a pool that can reflink | used |
//! | 4 | PostgreSQL on a Unix socket | its data is used |
//! | 5 | `space-controld` as `space`; writes the first admin key | started |
//! | 6 | `space-edged` as `space`, joined with a token of its own | started |
//! | 7 | `space-noded` as root, joined with a token | started; adopts running sandboxes |
//! | 8 | credentials for whoever started this | written again |
//! | 9 | the base template is published | left alone if it is the same |
//!
//! Every step can be repeated, so that an interruption anywhere is mended by the next `space up`. Stopping goes
//! backwards and leaves sandboxes running.

mod bootstrap;
mod config;
mod layout;
mod log;
mod pool;
pub(crate) mod postgres;
mod process;
mod programs;
mod user;

use std::time::Duration;

use anyhow::Context;
use camino::{Utf8Path, Utf8PathBuf};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::signal::Signal,
    unistd::Uid,
};
use space_types::ByteSize;

use crate::{
    args::{GlobalArgs, UpArgs},
    assets::Assets,
    doctor,
    error::CliError,
    output, progress,
    session::Interrupts,
};
use layout::Layout;
use process::{Program, Supervised};
use user::{Account, Accounts};

const PROBE_DEADLINE: Duration = Duration::from_secs(90);
/// A start that fails this often will go on failing.
const HOPELESS: u32 = 4;

pub(crate) async fn run(global: &GlobalArgs, args: UpArgs) -> Result<u8, CliError> {
    if !Uid::effective().is_root() {
        return Err(CliError::hinted(anyhow::anyhow!("`space up` needs root"), "run `sudo space up`"));
    }
    let mut interrupts = Interrupts::listen()?;
    let assets = Assets::locate(args.assets.as_deref())?;
    let layout = Layout { data: absolute(&args.data)?, run: absolute(&args.run)? };
    let mut running = Vec::new();
    let outcome = tokio::select! {
        outcome = start(global, &args, &assets, &layout, &mut running) => outcome.map(Some),
        _ = interrupts.next() => Ok(None),
    };
    // Held until everything has stopped, so that the next start finds nothing half-stopped.
    let (code, lock) = match outcome {
        Ok(Some(lock)) => {
            interrupts.next().await;
            eprintln!("space: stopping; sandboxes run on");
            (Ok(0), Some(lock))
        }
        Ok(None) => (Ok(crate::session::INTERRUPTED), None),
        Err(error) => (Err(error), None),
    };
    stop(running).await;
    drop(lock);
    code
}

/// Runs the steps. What was started is in `running`, also when a later step fails or is interrupted.
async fn start(
    global: &GlobalArgs,
    args: &UpArgs,
    assets: &Assets,
    layout: &Layout,
    running: &mut Vec<Supervised>,
) -> Result<Flock<std::fs::File>, CliError> {
    pool::load_modules().await;
    check(args, assets).await?;
    let Accounts { control: account, edge } = Accounts::ensure(&layout.data)?;
    layout.make(&account, &edge)?;
    let lock = lock(layout)?;
    pool::ensure(layout, args.pool_size.map(ByteSize::gib)).await?;

    let postgres = postgres::prepare(layout, &account).await?;
    running.push(Supervised::start(postgres, layout.log("postgres"))?);
    let programs = programs::ensure(layout)?;
    config::write(layout, args, assets, &programs)?;
    bootstrap::forget_last_start(layout)?;
    running.push(Supervised::start(
        daemon("space-controld", layout, &programs, Some(&account)),
        layout.log("space-controld"),
    )?);
    settled(running, "starting the control plane", bootstrap::control_is_up(layout)).await?;
    layout.admit_edge(&edge)?;
    running.push(Supervised::start(
        daemon("space-edged", layout, &programs, Some(&edge)),
        layout.log("space-edged"),
    )?);
    let start = std::time::SystemTime::now();
    running
        .push(Supervised::start(daemon("space-noded", layout, &programs, None), layout.log("space-noded"))?);
    let client = bootstrap::credentials(layout, args.listen)?;
    settled(running, "waiting for the node", bootstrap::node_is_ready(&client, start)).await?;
    settled(running, "publishing the base template", bootstrap::publish_base(&client, assets)).await?;
    announce(global, args, layout)?;
    Ok(lock)
}

async fn check(args: &UpArgs, assets: &Assets) -> Result<(), CliError> {
    if args.skip_doctor {
        return Ok(());
    }
    let mut findings = doctor::examine(&args.data, assets, PROBE_DEADLINE).await;
    let failed = doctor::has_failed(&findings);
    findings.retain(|finding| finding.status != doctor::Status::Ok);
    if !findings.is_empty() {
        eprintln!("{}", doctor::render(&findings));
    }
    if failed {
        let error = anyhow::anyhow!("this machine can't run sandboxes yet");
        return Err(CliError::hinted(error, "mend what is said above; `space doctor` checks again"));
    }
    Ok(())
}

/// One `space up` for a run directory. The lock ends with the process.
fn lock(layout: &Layout) -> Result<Flock<std::fs::File>, CliError> {
    let path = layout.lock();
    let file = std::fs::File::create(&path).with_context(|| format!("cannot open {path}"))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, _)| {
        CliError::hinted(
            anyhow::anyhow!("another `space up` runs here"),
            "stop it, or give this one --data and --run of its own",
        )
    })
}

/// Waits for `work`, unless a program that it depends on can't live.
async fn settled<T>(
    running: &mut [Supervised],
    message: &str,
    work: impl Future<Output = anyhow::Result<T>>,
) -> Result<T, CliError> {
    tokio::select! {
        done = progress::during(message, work) => done.map_err(|error| blamed(running, error)),
        error = any_hopeless(running) => Err(error),
    }
}

async fn any_hopeless(running: &mut [Supervised]) -> CliError {
    let died = running.iter_mut().map(|program| {
        Box::pin(async move {
            program.died(HOPELESS).await;
            let error = anyhow::anyhow!("{} does not stay up:\n{}", program.name, program.last_words());
            CliError::hinted(error, format!("its log is {}", program.log()))
        })
    });
    first(died.collect()).await
}

/// The first of several futures to end.
async fn first<T, F: Future<Output = T> + Unpin>(mut futures: Vec<F>) -> T {
    std::future::poll_fn(|context| {
        let polled = futures.iter_mut().map(|future| std::pin::Pin::new(future).poll(context));
        polled.fold(std::task::Poll::Pending, |found, next| if found.is_ready() { found } else { next })
    })
    .await
}

/// The newest program is the one that was waited for.
fn blamed(running: &[Supervised], error: anyhow::Error) -> CliError {
    match running.last() {
        Some(program) => CliError::hinted(error, format!("{}'s log is {}", program.name, program.log())),
        None => error.into(),
    }
}

fn daemon(name: &'static str, layout: &Layout, programs: &Utf8Path, account: Option<&Account>) -> Program {
    Program {
        name,
        path: programs.join(name),
        arguments: vec!["--config".to_owned(), layout.config(name).into_string()],
        account: account.cloned(),
        stop: Signal::SIGTERM,
        patience: Duration::from_secs(20),
        clear_environment: false,
    }
}

/// Backwards: whoever depends on another goes first.
async fn stop(running: Vec<Supervised>) {
    for program in running.into_iter().rev() {
        program.stop().await;
    }
}

fn announce(global: &GlobalArgs, args: &UpArgs, layout: &Layout) -> Result<(), CliError> {
    let url = bootstrap::url(args.listen);
    if global.json {
        let files =
            serde_json::json!({ "admin_key": layout.admin_key(), "credentials": layout.credentials() });
        let ports = config::ports_url(args);
        return Ok(output::json(&serde_json::json!({ "url": url, "ports": ports, "files": files }))?);
    }
    output::line(&format!(
        "SPACE is up at {url} (documentation: {url}/docs)\n\
         Ports of sandboxes are at <port>-<id>.{domain}:{port}.\n\
         The admin key is in {}; `space` finds it by itself.\n\n\
         Try:\n  \
         space run -- python3 -c 'print(6 * 7)'\n  \
         space create\n  \
         space ls\n\n\
         Ctrl-C stops the server; sandboxes run on and are taken over at the next start.",
        layout.admin_key(),
        domain = args.domain,
        port = args.edge_listen.port()
    ));
    Ok(())
}

fn absolute(path: &Utf8Path) -> anyhow::Result<Utf8PathBuf> {
    Ok(camino::absolute_utf8(path)?)
}
