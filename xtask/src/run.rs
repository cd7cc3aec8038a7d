//! `xtask run`: from a checkout to a program running in a microVM, and a server to play with.
//!
//! Where this machine can boot an ordinary guest, SPACE runs right on it. Everywhere else it runs unchanged
//! inside the emulated host, with its port forwarded. Running this again finds what is up and uses it.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use camino::Utf8PathBuf;

use crate::host::image::{self, HostImage};
use crate::host::machine::{Forward, HostSpec, Machine};
use crate::host::probe;
use crate::setup::Purpose;
use crate::{assets, cache, dist, exec, paths, provision, setup};

const HOST: &str = "run";

/// What the newcomer sees: output that comes while the program runs, not after.
const PROGRAM: &str = "\
import platform, sys, time
print('Python', platform.python_version(), 'on Linux', platform.release(), flush=True)
for n in range(1, 6):
    print(f'{n} squared is {n * n}', flush=True)
    time.sleep(0.5)
print('the sandbox is called', platform.node())
";

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Stop what an earlier run left up.
    #[arg(long)]
    stop: bool,
    /// Where the API listens on this machine.
    #[arg(long, default_value_t = 8700)]
    port: u16,
    /// Memory of the emulated host in MiB.
    #[arg(short, long, default_value_t = 6144)]
    memory: u32,
    /// Use the emulated host even if this machine could do without.
    #[arg(long)]
    emulated: bool,
}

pub(crate) fn run(args: &RunArgs) -> Result<()> {
    if args.stop {
        return stop();
    }
    setup::require(Purpose::Run)?;
    eprintln!("1/4 binaries");
    dist::ready()?;
    eprintln!("2/4 guest kernel, Firecracker, agent, base template");
    assets::ready()?;
    eprintln!("3/4 a place that can boot microVMs");
    let image = image::ready()?;
    let verdict = probe::verdict(&image)?;
    let key = if verdict.guest && !args.emulated {
        eprintln!("this machine's KVM runs ordinary guests: SPACE runs right here");
        on_this_machine(args)?
    } else {
        eprintln!(
            "SPACE runs inside an emulated host, because this machine's KVM is {}.\n\
             Expect everything to be 10 to 20 times slower than on a real processor.",
            verdict.why
        );
        emulated(args, &image)?
    };
    eprintln!("4/4 a Python program in a new sandbox\n");
    let url = format!("http://127.0.0.1:{}", args.port);
    let space = paths::bin().join("space");
    exec::passed_through(
        Command::new(&space)
            .args(["run", "--no-stdin", "--", "python3", "-c", PROGRAM])
            .env("SPACE_URL", &url)
            .env("SPACE_API_KEY", key.trim()),
    )?;
    let key_file = credentials(&url, key.trim())?;
    farewell(&url, &key_file, &space);
    Ok(())
}

fn farewell(url: &str, key_file: &Utf8PathBuf, space: &Utf8PathBuf) {
    println!(
        "\nSPACE is up.\n\
         \n  URL   {url}   (documentation: {url}/docs)\
         \n  key   in {key_file}\n\
         \nTry next:\n\
         \n  export SPACE_CREDENTIALS={key_file}\
         \n  {space} create\
         \n  {space} run -- python3 -c 'print(6 * 7)'\
         \n  {space} ls\n\
         \n`make stop` ends it."
    );
}

/// Where the CLI finds URL and key by itself.
fn credentials(url: &str, key: &str) -> Result<Utf8PathBuf> {
    let path = paths::space().join("credentials.json");
    let text = serde_json::json!({ "url": url, "key": key });
    cache::write_secret(&path, text.to_string().as_bytes())?;
    Ok(path)
}

fn emulated(args: &RunArgs, image: &HostImage) -> Result<String> {
    if let Some(machine) = Machine::find(HOST)? {
        if let Ok(key) = machine.output("cat /var/lib/space/admin.key") {
            let forwards = |forward: &Forward| forward.outer == args.port;
            if machine.spec.forwards.iter().any(forwards) {
                eprintln!("an emulated host is up already; `make stop` ends it");
                return Ok(key);
            }
        }
        machine.stop()?;
    }
    let spec = HostSpec {
        memory: args.memory,
        smp: 1,
        forwards: vec![Forward { outer: args.port, inner: 8700 }],
        keep_data: true,
        payload: Some(provision::payload()?),
    };
    let machine = Machine::start(HOST, &spec, image)?;
    provision::ship(&machine)?;
    if let Err(error) = provision::up(&machine, "") {
        provision::fetch_logs(&machine, &paths::logs().join(HOST))?;
        return Err(error);
    }
    machine.output("cat /var/lib/space/admin.key")
}

fn state() -> Utf8PathBuf {
    paths::space().join("run")
}

/// `space up` in the background, as root; asks sudo when we aren't.
fn on_this_machine(args: &RunArgs) -> Result<String> {
    let (data, log) = (state().join("data"), state().join("up.log"));
    fs::create_dir_all(&data)?;
    let key = data.join("admin.key");
    if TcpStream::connect(("127.0.0.1", args.port)).is_ok() {
        return read_key(&key).context("another program listens on the port of the API");
    }
    if !rustix::process::geteuid().is_root() {
        // Asked for now, while we are in the terminal's foreground.
        exec::passed_through(Command::new("sudo").arg("--validate"))?;
    }
    let output = fs::File::create(&log)?;
    let mut up = setup::sudo(&paths::bin().join("space"));
    up.args(["up", "--data", data.as_str(), "--assets", paths::assets().as_str()])
        .args(["--listen", &format!("127.0.0.1:{}", args.port)])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0);
    let mut child = up.spawn().context("cannot start `space up`")?;
    fs::write(state().join("pid"), child.id().to_string())?;
    let bar = exec::spinner("starting SPACE");
    let deadline = std::time::Instant::now() + Duration::from_mins(3);
    loop {
        let said = fs::read_to_string(&log).unwrap_or_default();
        if said.contains("SPACE is up") {
            bar.finish_and_clear();
            return read_key(&key);
        }
        // The log is a file and tells nobody when it grows; this wait ends early when the server does.
        if let Some(status) = exec::wait_for(&mut child, Duration::from_millis(200))? {
            bail!("`space up` ended with {status}:\n{}", exec::tail(&log, 30));
        }
        if std::time::Instant::now() > deadline {
            bail!("`space up` does not get ready:\n{}", exec::tail(&log, 30));
        }
    }
}

/// The key is for root, or for whoever called sudo.
fn read_key(path: &Utf8PathBuf) -> Result<String> {
    exec::output(setup::sudo("cat".into()).arg(path))
}

fn stop() -> Result<()> {
    let mut found = false;
    if let Some(machine) = Machine::find(HOST)? {
        machine.stop()?;
        found = true;
    }
    let pid_file = state().join("pid");
    if let Ok(pid) = fs::read_to_string(&pid_file) {
        let comm = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if comm.contains("space") {
            exec::output(setup::sudo("kill".into()).arg(&pid))?;
            found = true;
        }
        fs::remove_file(&pid_file)?;
    }
    println!("{}", if found { "stopped" } else { "nothing was up" });
    Ok(())
}
