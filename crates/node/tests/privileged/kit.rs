//! One node for one test: its own directories, users, cgroups and port, a registry to join, and the real
//! `space-noded` as a child process that can be killed and started again.

use std::{
    collections::HashMap,
    env, fs,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use aws_lc_rs::digest::{SHA256, digest};
use camino::{Utf8Path, Utf8PathBuf};
use space_fail_point::FailPoint;
use space_node_proto::{
    common::ObservedSandbox,
    node::{
        EnsureSandboxRequest, ListSandboxesRequest, RemoveSandboxRequest, SandboxConfig, TemplateArtifact,
        node_client::NodeClient,
    },
};
use space_types::{ByteSize, SandboxId, TenantId};
use tokio::time::{Instant, sleep};
use tonic::{
    Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{
    authority::{Authority, Signed},
    registry::{NODE_DNS, TOKEN, TestRegistry},
};

/// Long enough for an emulated processor.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
const DISK: ByteSize = ByteSize::mib(64);

static NODES: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Kit {
    directory: tempfile::TempDir,
    authority: Arc<Authority>,
    pub(crate) registry: TestRegistry,
    registry_port: u16,
    port: u16,
    number: u32,
    pub(crate) settings: Settings,
    daemon: Option<Child>,
    image: TemplateArtifact,
}

/// What a test changes of the configuration.
pub(crate) struct Settings {
    pub(crate) jailer: Utf8PathBuf,
    pub(crate) pool: u32,
    pub(crate) boot_ms: u64,
    pub(crate) memory_mib: u64,
    pub(crate) disk_reserve_mib: u64,
    pub(crate) fail_point: Option<FailPoint>,
}

/// Fails the test with what the machine lacks.
pub(crate) fn required(variable: &str) -> Utf8PathBuf {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root, /dev/kvm, cgroup v2 and btrfs: run it with `cargo xtask e2e`"
    );
    let value =
        env::var(variable).unwrap_or_else(|_| panic!("{variable} must say where the binaries or assets are"));
    Utf8PathBuf::from(value)
}

pub(crate) fn sha256(path: &Utf8Path) -> String {
    let content = fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    hex::encode(digest(&SHA256, &content))
}

impl Kit {
    /// A node that has not been started.
    pub(crate) async fn new() -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let assets = required("SPACE_ASSETS");
        let authority = Arc::new(Authority::new());
        let (registry, registry_port) = TestRegistry::serve(Arc::clone(&authority)).await;
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = tempfile::Builder::new().prefix("node-").tempdir().unwrap();
        let image = image();
        let settings = Settings {
            jailer: assets.join("jailer"),
            pool: 1,
            boot_ms: 60_000,
            memory_mib: 4096,
            disk_reserve_mib: 64,
            fail_point: None,
        };
        let number = std::process::id() % 1000 * 20 + NODES.fetch_add(1, Ordering::Relaxed);
        let kit = Self {
            directory,
            authority,
            registry,
            registry_port,
            port,
            number,
            settings,
            daemon: None,
            image,
        };
        fs::write(kit.path("authority.pem"), &kit.authority.pem).unwrap();
        kit
    }

    pub(crate) async fn started() -> Self {
        let mut kit = Self::new().await;
        kit.start();
        kit.ready().await;
        kit
    }

    pub(crate) fn path(&self, name: &str) -> Utf8PathBuf {
        Utf8Path::from_path(self.directory.path()).unwrap().join(name)
    }
    pub(crate) fn vm_cgroup(&self) -> String {
        format!("test-vms-{}", self.number)
    }
    pub(crate) fn worker_cgroup(&self) -> String {
        format!("test-workers-{}", self.number)
    }
    pub(crate) fn first_uid(&self) -> u32 {
        1_000_000 + self.number * 100
    }

    pub(crate) fn start(&mut self) {
        fs::write(self.path("noded.toml"), self.configuration()).unwrap();
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("noded.log")).unwrap();
        let child = Command::new(required("SPACE_BIN").join("space-noded"))
            .args(["--config", self.path("noded.toml").as_str()])
            .envs(self.settings.fail_point.map(|point| ("SPACE_FAIL_POINT", point.name())))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.daemon = Some(child.unwrap());
    }

    fn configuration(&self) -> String {
        let (assets, settings) = (required("SPACE_ASSETS"), &self.settings);
        format!(
            r#"
            name = "test"
            data_dir = "{data}"
            run_dir = "{run}"
            listen = "127.0.0.1:{port}"
            worker = "{bin}/space-sandboxd"
            vm_uids = {{ first = {uid}, count = 40 }}
            worker_uids = {{ first = {worker_uid}, count = 40 }}
            vm_cgroup = "{vm_cgroup}"
            worker_cgroup = "{worker_cgroup}"
            pool = {pool}
            [control]
            url = "https://127.0.0.1:{registry}"
            authority = "{authority}"
            join_token = "{TOKEN}"
            [firecracker]
            binary = "{assets}/firecracker"
            jailer = "{jailer}"
            jailer_sha256 = "{jailer_sha256}"
            kernel = "{assets}/vmlinux"
            initramfs = "{assets}/initramfs.cpio"
            [capacity]
            memory_mib = {memory}
            disk_reserve_mib = {reserve}
            [deadlines]
            boot_ms = {boot}
            firecracker_ms = 30000
            worker_ms = 30000
            worker_idle_ms = 500
            heartbeat_ms = 500
            hint_ms = 3000
            shutdown_ms = 60000
            [telemetry]
            log_filter = "info,space_node=debug"
            "#,
            data = self.path("data"),
            run = self.path("run"),
            port = self.port,
            bin = required("SPACE_BIN"),
            uid = self.first_uid(),
            worker_uid = self.first_uid() + 50,
            vm_cgroup = self.vm_cgroup(),
            worker_cgroup = self.worker_cgroup(),
            pool = settings.pool,
            registry = self.registry_port,
            authority = self.path("authority.pem"),
            jailer = settings.jailer,
            jailer_sha256 = sha256(&settings.jailer),
            memory = settings.memory_mib,
            reserve = settings.disk_reserve_mib,
            boot = settings.boot_ms,
        )
    }

    /// Waits until the node answers.
    pub(crate) async fn ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.try_list().await.is_ok() {
                return;
            }
            let ended = self.daemon.as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none(), "space-noded ended: {ended:?}\n{}", self.log());
            assert!(Instant::now() < deadline, "space-noded does not answer\n{}", self.log());
            // Nobody tells of a listener that opens.
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// As [`Self::ready`], for a daemon that may die before it is.
    pub(crate) async fn ready_or_dead(&mut self) {
        while self.try_list().await.is_err() {
            if self.dies(Duration::from_millis(50)).await {
                return;
            }
        }
    }

    pub(crate) async fn restart(&mut self) {
        self.start();
        self.ready().await;
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.daemon.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM, and waits.
    pub(crate) fn stop(&mut self) {
        let Some(mut child) = self.daemon.take() else { return };
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        child.wait().unwrap();
    }

    /// Waits for the daemon to die by itself; whether it did so within `limit`.
    pub(crate) async fn dies(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if self.daemon.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some()) {
                self.daemon = None;
                return true;
            }
            sleep(Duration::from_millis(50)).await;
        }
        false
    }

    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(self.path("noded.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    pub(crate) fn client_as(&self, caller: &Signed) -> NodeClient<Channel> {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.authority.pem))
            .identity(Identity::from_pem(&caller.certificate, &caller.key))
            .domain_name(NODE_DNS);
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", self.port)).unwrap();
        NodeClient::new(endpoint.tls_config(tls).unwrap().timeout(PATIENCE).connect_lazy())
    }

    pub(crate) fn authority_pem(&self) -> &str {
        &self.authority.pem
    }

    pub(crate) fn caller(&self, uri: &str) -> Signed {
        self.authority.issue(uri, "caller.space.internal")
    }

    pub(crate) fn client(&self) -> NodeClient<Channel> {
        self.client_as(&self.caller("spiffe://space/control"))
    }

    pub(crate) fn request(&self, sandbox: SandboxId) -> EnsureSandboxRequest {
        let config = SandboxConfig {
            vcpus: 1,
            memory_bytes: ByteSize::mib(256).as_bytes(),
            disk_bytes: DISK.as_bytes(),
            template: Some(self.image.clone()),
            hostname: "box".to_owned(),
            env: HashMap::new(),
        };
        // A tenant of its own for each sandbox: its worker comes and goes with it.
        let tenant = TenantId::from_uuid(sandbox.uuid());
        EnsureSandboxRequest {
            sandbox_id: sandbox.to_string(),
            tenant_id: tenant.to_string(),
            generation: 1,
            fence: 1,
            config: Some(config),
        }
    }

    pub(crate) async fn ensure(&self, sandbox: SandboxId) -> Result<ObservedSandbox, Status> {
        self.ensure_with(self.request(sandbox)).await
    }

    pub(crate) async fn ensure_with(&self, request: EnsureSandboxRequest) -> Result<ObservedSandbox, Status> {
        Ok(self.client().ensure_sandbox(request).await?.into_inner())
    }

    pub(crate) async fn remove(&self, sandbox: SandboxId, generation: u64) -> Result<(), Status> {
        let request = RemoveSandboxRequest { sandbox_id: sandbox.to_string(), generation, fence: 1 };
        self.client().remove_sandbox(request).await.map(|_| ())
    }

    pub(crate) async fn try_list(&self) -> Result<Vec<ObservedSandbox>, Status> {
        Ok(self.client().list_sandboxes(ListSandboxesRequest {}).await?.into_inner().sandboxes)
    }

    pub(crate) async fn sandbox(&self, sandbox: SandboxId) -> Option<ObservedSandbox> {
        let all = self.try_list().await.unwrap();
        all.into_iter().find(|seen| seen.sandbox_id == sandbox.to_string())
    }

    /// Waits until `holds` says so of the sandbox.
    pub(crate) async fn until(
        &self,
        sandbox: SandboxId,
        holds: impl Fn(&ObservedSandbox) -> bool,
    ) -> ObservedSandbox {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.sandbox(sandbox).await;
            if let Some(seen) = seen.as_ref().filter(|seen| holds(seen)) {
                return seen.clone();
            }
            assert!(Instant::now() < deadline, "still {seen:?}\n{}", self.log());
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- space-noded's last lines\n{}", self.log());
        }
        self.stop();
        self.clear_away();
    }
}

/// Busybox, which is all of them in one, needs no libraries.
fn programs(bin: &Utf8Path) {
    fs::create_dir_all(bin).unwrap();
    fs::copy("/bin/busybox", bin.join("busybox")).expect("busybox-static is needed to make a template");
    for name in ["cat", "echo", "sh", "sleep", "true"] {
        std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap();
    }
}

/// A template as small as one can be: the agent needs directories to mount on, and commands a few programs.
fn image() -> TemplateArtifact {
    static IMAGE: std::sync::OnceLock<TemplateArtifact> = std::sync::OnceLock::new();
    let make = || {
        let directory = tempfile::Builder::new().prefix("template-").tempdir().unwrap().keep();
        let directory = Utf8PathBuf::from_path_buf(directory).unwrap();
        for name in ["dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "var"] {
            fs::create_dir_all(directory.join("tree").join(name)).unwrap();
        }
        programs(&directory.join("tree/bin"));
        let path = directory.join("image");
        let status = Command::new("/usr/sbin/mke2fs")
            .args(["-q", "-t", "ext4", "-d", directory.join("tree").as_str(), path.as_str(), "16M"])
            .status();
        assert!(status.is_ok_and(|status| status.success()), "mke2fs is needed to make a template");
        let digest = format!("sha256:{}", sha256(&path));
        let size_bytes = fs::metadata(&path).unwrap().len();
        TemplateArtifact { digest, location: format!("file://{path}"), size_bytes }
    };
    IMAGE.get_or_init(make).clone()
}
