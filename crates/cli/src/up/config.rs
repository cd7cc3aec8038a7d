//! The daemons' configuration, written anew at each start: it follows from the arguments alone. Whatever else an
//! operator wants to set goes into `SPACE_CONTROLD__…`, `SPACE_EDGED__…` and `SPACE_NODED__…` variables, which the daemons read.

use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;

use super::{
    layout::{self, Layout},
    postgres,
};
use crate::{args::UpArgs, assets::Assets};

#[derive(Serialize)]
struct Control {
    data_dir: Utf8PathBuf,
    admin_key_file: Utf8PathBuf,
    join_token_file: Utf8PathBuf,
    edge_join_token_file: Utf8PathBuf,
    database: Database,
    http: Http,
    ports: Ports,
}

#[derive(Serialize)]
struct Ports {
    base_url: String,
}

#[derive(Serialize)]
struct Edge {
    name: String,
    data_dir: Utf8PathBuf,
    listen: std::net::SocketAddr,
    domain: String,
    control: Registry,
}

#[derive(Serialize)]
struct Database {
    url: String,
}

#[derive(Serialize)]
struct Http {
    listen: std::net::SocketAddr,
}

#[derive(Serialize)]
struct Node {
    name: String,
    data_dir: Utf8PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    backing_dir: Option<Utf8PathBuf>,
    run_dir: Utf8PathBuf,
    worker: Utf8PathBuf,
    metrics_listen: std::net::SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<u32>,
    control: Registry,
    firecracker: Firecracker,
}

#[derive(Serialize)]
struct Registry {
    url: String,
    authority: Utf8PathBuf,
    join_token_file: Utf8PathBuf,
}

#[derive(Serialize)]
struct Firecracker {
    binary: Utf8PathBuf,
    jailer: Utf8PathBuf,
    kernel: Utf8PathBuf,
    initramfs: Utf8PathBuf,
}

/// Of the node: for whoever can log in here, as all of its kind.
const METRICS: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8708);

/// Writes all files. They hold no secret: those are in files of their own, which these name.
pub(super) fn write(
    layout: &Layout,
    args: &UpArgs,
    assets: &Assets,
    programs: &Utf8Path,
) -> anyhow::Result<()> {
    write_one(layout, "space-controld", &control(layout, args))?;
    write_one(layout, "space-edged", &edge(layout, args))?;
    // The pool is a file on the file system that everything else shares.
    let backing = layout.pool().exists().then(|| layout.data.clone());
    write_one(layout, "space-noded", &node(layout, args, assets, programs, backing))
}

fn write_one(layout: &Layout, name: &str, config: &impl Serialize) -> anyhow::Result<()> {
    layout::write(&layout.config(name), toml::to_string(config)?.as_bytes(), 0o644, None)
}

fn control(layout: &Layout, args: &UpArgs) -> Control {
    // No TCP: the host is the socket's directory, and the server believes the kernel about who connects.
    let url = format!("postgres:///{}?host={}&user=space", postgres::DATABASE, layout.postgres_socket_dir());
    Control {
        data_dir: layout.control(),
        admin_key_file: layout.control_admin_key(),
        join_token_file: layout.join_token(),
        edge_join_token_file: layout.edge_join_token(),
        database: Database { url },
        http: Http { listen: args.listen },
        ports: Ports { base_url: ports_url(args) },
    }
}

/// Under which names the edge serves ports, as a client writes it.
pub(super) fn ports_url(args: &UpArgs) -> String {
    format!("http://{}:{}", args.domain, args.edge_listen.port())
}

fn edge(layout: &Layout, args: &UpArgs) -> Edge {
    Edge {
        name: "local".to_owned(),
        data_dir: layout.edge(),
        listen: args.edge_listen,
        domain: args.domain.clone(),
        control: registry(layout.edge_authority(), layout.edge_token()),
    }
}

fn registry(authority: Utf8PathBuf, join_token_file: Utf8PathBuf) -> Registry {
    Registry { url: "https://127.0.0.1:8701".to_owned(), authority, join_token_file }
}

fn node(
    layout: &Layout,
    args: &UpArgs,
    assets: &Assets,
    programs: &Utf8Path,
    backing: Option<Utf8PathBuf>,
) -> Node {
    Node {
        name: "local".to_owned(),
        data_dir: layout.node(),
        backing_dir: backing,
        run_dir: layout.run.clone(),
        worker: programs.join("space-sandboxd"),
        metrics_listen: METRICS,
        pool: args.spare_vms,
        control: registry(layout.authority(), layout.join_token()),
        firecracker: Firecracker {
            binary: assets.firecracker(),
            jailer: assets.jailer(),
            kernel: assets.kernel(),
            initramfs: assets.initramfs(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_as_the_daemons_read_them() {
        let layout = Layout { data: "/data".into(), run: "/run/space".into() };
        let args = UpArgs {
            data: "/data".into(),
            run: "/run/space".into(),
            assets: None,
            listen: "127.0.0.1:8700".parse().unwrap(),
            edge_listen: "127.0.0.1:8710".parse().unwrap(),
            domain: "localhost".to_owned(),
            pool_size: None,
            spare_vms: Some(3),
            skip_doctor: false,
        };
        let assets = Assets::locate(Some("/assets".into())).unwrap();
        let control = toml::to_string(&control(&layout, &args)).unwrap();
        let edge = toml::to_string(&edge(&layout, &args)).unwrap();
        let node =
            toml::to_string(&node(&layout, &args, &assets, "/bin".into(), Some("/data".into()))).unwrap();
        insta::assert_snapshot!(format!(
            "# space-controld.toml\n{control}\n# space-edged.toml\n{edge}\n# space-noded.toml\n{node}"
        ));
    }
}
