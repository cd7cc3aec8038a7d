//! `xtask run`: from a checkout to a program running in a microVM, and a server to play with.
//!
//! Where this machine can boot an ordinary guest, SPACE runs right on it. Everywhere else it runs unchanged
//! inside the emulated host, with its port forwarded. Running this again finds what is up and uses it.

use std::process::Command;

use anyhow::Result;
use camino::Utf8PathBuf;

use crate::host::image;
use crate::host::machine::{Forward, HostSpec, Machine};
use crate::kvm::{self, Verdict};
use crate::setup::Purpose;
use crate::{assets, cache, dist, exec, local, paths, provision, setup};

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

/// Where `space up` serves ports of sandboxes.
const EDGE_PORT: u16 = 8710;

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Stop what an earlier run left up.
    #[arg(long)]
    stop: bool,
    /// Where the API listens on this machine.
    #[arg(long, default_value_t = 8700)]
    port: u16,
    /// Where SPACE keeps its data if it runs right on this machine. Other users must be able to pass through.
    #[arg(long, env = "SPACE_DATA", value_name = "DIR", default_value = "/var/lib/space")]
    data: Utf8PathBuf,
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
    let data = camino::absolute_utf8(&args.data)?;
    if !args.emulated {
        local::require_passable(&data)?;
    }
    setup::require(Purpose::Run)?;
    eprintln!("1/4 binaries");
    dist::ready()?;
    eprintln!("2/4 guest kernel, Firecracker, agent, base template");
    assets::ready()?;
    eprintln!("3/4 a place that can boot microVMs");
    let verdict = if args.emulated { asked_for() } else { kvm::verdict(&data)? };
    let key = if verdict.usable {
        eprintln!("this machine's KVM runs ordinary guests: SPACE runs right here, its data is in {data}");
        local::up(args.port, &data)?
    } else {
        eprintln!(
            "SPACE runs inside an emulated host: this machine's KVM is {}.\n\
             Expect everything to be 10 to 20 times slower than on a real processor.",
            verdict.why
        );
        emulated(args)?
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

fn asked_for() -> Verdict {
    Verdict { usable: false, why: "not asked (--emulated)".to_owned() }
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

fn emulated(args: &RunArgs) -> Result<String> {
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
        forwards: vec![
            Forward { outer: args.port, inner: 8700 },
            // The same on both sides: the API gives out URLs with it.
            Forward { outer: EDGE_PORT, inner: EDGE_PORT },
        ],
        keep_data: true,
        payload: Some(provision::payload()?),
    };
    let machine = Machine::start(HOST, &spec, &image::ready()?)?;
    provision::ship(&machine)?;
    if let Err(error) = provision::up(&machine, "") {
        provision::fetch_logs(&machine, &paths::logs().join(HOST))?;
        return Err(error);
    }
    machine.output("cat /var/lib/space/admin.key")
}

fn stop() -> Result<()> {
    let mut found = local::stop()?;
    if let Some(machine) = Machine::find(HOST)? {
        machine.stop()?;
        found = true;
    }
    println!("{}", if found { "stopped" } else { "nothing was up" });
    Ok(())
}
