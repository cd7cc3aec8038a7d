//! What control is told of an adopted VM, however long its worker takes. No VM is made here: a `sleep` stands in
//! for Firecracker.

use std::{
    cell::RefCell,
    net::TcpListener,
    process::{Child, Command},
    sync::Arc,
    time::Duration,
};

use camino::Utf8Path;
use space_enrol::Identity;
use space_node_proto::{
    common::{ObservedSandbox, Phase as Seen},
    node::SandboxConfig,
};
use space_runtime::tasks::Tasks;
use space_types::{SandboxId, TenantId};
use tokio::sync::watch;

use super::*;
use crate::{
    config::NodeConfig,
    enrol::ControlLink,
    image::{BootFiles, ImageStore},
    slot::{SlotMaker, SlotPool},
    sys::{ProcessIdentity, Spawner},
    vm::{Fleet, Ledger, NodeContext, Offer},
    worker::{WorkerContext, Workers},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A node that reaches no control, in a directory of its own.
struct Kit {
    node: Arc<NodeContext>,
    fleet: Fleet,
    adopter: Adopter,
    tasks: Tasks,
    directory: tempfile::TempDir,
    vmms: RefCell<Vec<Child>>,
}

impl Drop for Kit {
    fn drop(&mut self) {
        for vmm in self.vmms.get_mut() {
            // It may have been killed and reaped with its sandbox.
            drop(vmm.kill().and_then(|()| vmm.wait()));
        }
    }
}

impl Kit {
    fn new() -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let directory = tempfile::tempdir().unwrap();
        let config = Arc::new(config(Utf8Path::from_path(directory.path()).unwrap()));
        let (layout, journal) = (Layout::new(&config), Journal::in_memory().unwrap());
        std::fs::create_dir_all(layout.images()).unwrap();
        let (cgroups, spawner, tasks) = (CgroupParent::unprepared(), Spawner::start().unwrap(), Tasks::new());
        let releaser =
            Releaser { layout: layout.clone(), journal: journal.clone(), cgroups: cgroups.clone() };
        let maker = SlotMaker {
            config: Arc::clone(&config),
            layout: layout.clone(),
            journal: journal.clone(),
            spawner: spawner.clone(),
            boot_files: BootFiles {
                kernel: "/none".into(),
                initramfs: "/none".into(),
                placeholder: "/none".into(),
                firecracker: "/none".into(),
            },
            cgroups: cgroups.clone(),
            releaser: releaser.clone(),
        };
        let workers = WorkerContext {
            config: Arc::clone(&config),
            journal: journal.clone(),
            spawner,
            cgroups: cgroups.clone(),
            control: unreachable_control(&config),
        };
        let adopter = Adopter {
            layout: layout.clone(),
            journal: journal.clone(),
            releaser: releaser.clone(),
            cgroups,
            worker_ip: config.worker_ip,
            rebooted: false,
        };
        let node = Arc::new(NodeContext {
            images: ImageStore::open(layout.images(), config.room(), config.capacity.disk_reserve()).unwrap(),
            pool: SlotPool::new(Arc::new(maker), 0, tasks.shutdown_token()).0,
            ledger: Ledger::new(Offer::detect(&config.capacity)),
            observations: Observations::default(),
            workers: Workers::new(Arc::new(workers), tasks.clone()),
            config,
            layout,
            journal,
            releaser,
            vmm_version: "1.0".to_owned(),
        });
        let fleet = Fleet::new(Arc::clone(&node), tasks.clone());
        Self { node, fleet, adopter, tasks, directory, vmms: RefCell::default() }
    }

    /// A sandbox that the journal has as running, last reported under sequence 2, and its VM.
    async fn running(&self, tenant: TenantId) -> (SandboxRecord, LiveVm) {
        let place = self.node.journal.begin_vm(1).await.unwrap();
        let mut record = SandboxRecord::new(SandboxId::new(), tenant, 1, SandboxConfig::default());
        record.enter(Phase::Booting, "");
        record.enter(Phase::Running, "");
        record.vm = Some(place.vm);
        let claimed = self.node.journal.put_sandbox_and_vm(record.clone(), place.vm, VmStage::Claimed);
        claimed.await.unwrap();
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let jail = JailDir::open(Utf8Path::from_path(self.directory.path()).unwrap(), 0).unwrap();
        let vm = LiveVm {
            place,
            process: Pidfd::find(ProcessIdentity::of(child.id().cast_signed()).unwrap()).unwrap().unwrap(),
            jail: Arc::new(jail),
            cgroup: self.adopter.cgroups.leaf("vm"),
        };
        self.vmms.borrow_mut().push(child);
        (record, vm)
    }

    /// As the daemon does it at its start.
    async fn adopt(&self, record: SandboxRecord, vm: LiveVm) -> ObservedSandbox {
        let kept = self.adopter.keep(record, vm).await.unwrap();
        let adopted = Adopted { running: vec![kept], ..Adopted::default() };
        adopted.publish(&self.node.observations, "1.0");
        let seen = self.seen();
        for (record, survivor) in adopted.running {
            self.fleet.adopt(record.id, survivor);
        }
        seen
    }

    /// What a heartbeat would say now.
    fn seen(&self) -> ObservedSandbox {
        let all = self.node.observations.all();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    }

    async fn end(self, sandbox: SandboxId) {
        self.fleet.remove(sandbox, 9).await.unwrap();
        self.tasks.finish(PATIENCE).await;
    }
}

fn config(directory: &Utf8Path) -> NodeConfig {
    let text = format!(
        r#"
        name = "test"
        data_dir = "{directory}/data"
        run_dir = "{directory}/run"
        worker = "/none"
        worker_uids = {{ first = 500000, count = 1 }}
        [control]
        url = "https://127.0.0.1:1"
        [firecracker]
        binary = "/none/firecracker"
        jailer = "/none"
        kernel = "/none"
        initramfs = "/none"
        "#
    );
    let file = directory.join("noded.toml");
    std::fs::write(&file, text).unwrap();
    NodeConfig::load(Some(&file)).unwrap()
}

fn unreachable_control(config: &NodeConfig) -> ControlLink {
    let identity =
        Identity { key_pem: String::new(), certificate_pem: String::new(), authority_pem: String::new() };
    let (_sender, identity) = watch::channel(identity);
    ControlLink::new(config.control.clone(), config.deadlines.control(), identity)
}

#[tokio::test]
async fn an_adopted_vm_is_in_the_first_heartbeat_and_newer_than_before() {
    let (kit, tenant) = (Kit::new(), TenantId::new());
    let (record, vm) = kit.running(tenant).await;
    kit.node.journal.begin_worker(tenant, 1).await.unwrap();
    kit.node.journal.set_worker_port(tenant, 4711).await.unwrap();
    let id = record.id;
    // No owner has run yet when this is taken: nothing is awaited between the two.
    let seen = kit.adopt(record, vm).await;
    assert_eq!((seen.phase(), seen.sequence), (Seen::Running, 3));
    assert_eq!(seen.data_address, "127.0.0.1:4711", "commands go where they went");
    let stored = kit.node.journal.sandbox(id).await.unwrap().unwrap();
    assert_eq!(stored.sequence, 3, "a second start must not say the same");
    kit.end(id).await;
}

#[tokio::test]
async fn a_running_vm_that_gets_no_worker_is_still_said_to_run() {
    let kit = Kit::new();
    // It has the only user there is.
    kit.node.journal.begin_worker(TenantId::new(), 1).await.unwrap();
    let (record, vm) = kit.running(TenantId::new()).await;
    let id = record.id;
    kit.adopt(record, vm).await;
    // The owner answers this only after it has given up on a worker.
    kit.fleet.ensure(ensure(id)).await.unwrap();
    assert_eq!((kit.seen().phase(), kit.seen().sequence), (Seen::Running, 3));
    kit.end(id).await;
}

#[tokio::test]
async fn a_worker_that_lost_its_port_is_reported_at_the_new_one() {
    let (kit, tenant) = (Kit::new(), TenantId::new());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let old = taken.local_addr().unwrap();
    kit.node.journal.begin_worker(tenant, 1).await.unwrap();
    kit.node.journal.set_worker_port(tenant, old.port()).await.unwrap();
    let (record, vm) = kit.running(tenant).await;
    let id = record.id;
    let first = kit.adopt(record, vm).await;
    assert_eq!(first.data_address, old.to_string());
    let answered = kit.fleet.ensure(ensure(id)).await.unwrap();
    let seen = kit.seen();
    assert_eq!(answered, seen);
    assert_ne!(seen.data_address, first.data_address);
    assert!(seen.sequence > first.sequence, "{} is old news to control", seen.sequence);
    let stored = kit.node.journal.sandbox(id).await.unwrap().unwrap();
    assert_eq!(stored.sequence, seen.sequence);
    kit.end(id).await;
}

#[tokio::test]
async fn what_has_ended_or_is_being_removed_is_reported_too() {
    let observations = Observations::default();
    let record = |phase| {
        let mut record = SandboxRecord::new(SandboxId::new(), TenantId::new(), 1, SandboxConfig::default());
        record.enter(phase, "");
        record
    };
    let adopted = Adopted {
        running: Vec::new(),
        ended: vec![record(Phase::Failed(Reason::VmmDied))],
        removing: vec![record(Phase::Removing)],
    };
    adopted.publish(&observations, "1.0");
    assert_eq!(observations.all().len(), 2);
}

/// A repetition of the command that made the sandbox.
fn ensure(sandbox: SandboxId) -> crate::vm::Ensure {
    crate::vm::Ensure { sandbox, tenant: TenantId::new(), generation: 1, config: SandboxConfig::default() }
}
