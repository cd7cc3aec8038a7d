//! Putting it together: prepare the machine, agree with the journal, join, serve, and stop without ending a
//! single VM.

use std::{fs, io, os::unix::fs::PermissionsExt, sync::Arc};

use camino::{Utf8Path, Utf8PathBuf};
use space_enrol::{Identity, JoinError, renew_forever};
use space_runtime::{internal, tasks::Tasks, telemetry::chain};
use tokio::sync::watch;

use crate::{
    adopt::{AdoptError, Adopted, Adopter},
    cgroup::CgroupParent,
    config::NodeConfig,
    disk::require_reflinks,
    enrol::{ControlLink, load_or_join},
    fc::vmm_version,
    fence::Fence,
    image::{BootFiles, BootFilesError, ImageStore, check_pinned},
    journal::{Journal, JournalError},
    place::Layout,
    report::{beat_forever, report_forever},
    rpc::{NodeService, ServeError, serve},
    slot::{Releaser, SlotMaker, SlotPool},
    sys::Spawner,
    vm::{Fleet, Ledger, NodeContext, Observations, Offer},
    worker::{WorkerContext, Workers, WorkersError, remove_worker},
};

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("cannot prepare {what}")]
    Prepare {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("the data directory {path} can't reflink files: put it on btrfs")]
    NoReflinks {
        path: Utf8PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("another space-noded uses {0}")]
    Locked(Utf8PathBuf),
    #[error(transparent)]
    BootFiles(#[from] BootFilesError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot agree with the journal about what runs here")]
    Adopt(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot join")]
    Join(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot serve")]
    Serve(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<AdoptError> for DaemonError {
    fn from(error: AdoptError) -> Self {
        Self::Adopt(Box::new(error))
    }
}
impl From<WorkersError> for DaemonError {
    fn from(error: WorkersError) -> Self {
        Self::Adopt(Box::new(error))
    }
}
impl From<JoinError> for DaemonError {
    fn from(error: JoinError) -> Self {
        Self::Join(Box::new(error))
    }
}
impl From<ServeError> for DaemonError {
    fn from(error: ServeError) -> Self {
        Self::Serve(Box::new(error))
    }
}

/// Runs the node until it is told to stop.
pub async fn run(config: NodeConfig, metrics: internal::Metrics, tasks: &Tasks) -> Result<(), DaemonError> {
    let config = Arc::new(config);
    let layout = Layout::new(&config);
    let machine = Machine::prepare(&config, &layout)?;
    let asked = vmm_version(&machine.boot_files.firecracker, config.deadlines.firecracker()).await;
    let vmm_version = asked.map_err(|source| prepare_error("Firecracker", source))?;
    let journal = Journal::open(&layout.journal())?;
    let boot_id = read_boot_id()?;
    let last_boot = journal.exchange_boot_id(boot_id.clone()).await?;
    let releaser =
        Releaser { layout: layout.clone(), journal: journal.clone(), cgroups: machine.vm_cgroups.clone() };
    let adopter = Adopter {
        layout: layout.clone(),
        journal: journal.clone(),
        releaser: releaser.clone(),
        cgroups: machine.vm_cgroups.clone(),
        worker_ip: config.worker_ip,
        rebooted: last_boot.as_ref().is_some_and(|last| *last != boot_id),
    };
    let adopted = adopter.run().await?;

    let identity = load_or_join(&config, &layout.identity()).await?;
    let (identity_sender, identity) = watch::channel(identity);
    let control = ControlLink::new(config.control.clone(), config.deadlines.control(), identity.clone());
    let workers = Arc::new(WorkerContext {
        config: Arc::clone(&config),
        journal: journal.clone(),
        spawner: machine.spawner.clone(),
        cgroups: machine.worker_cgroups.clone(),
        control: control.clone(),
    });
    for tenant in journal.workers().await? {
        if !adopted.running.iter().any(|(record, _)| record.tenant == tenant) {
            remove_worker(&workers, tenant).await?;
        }
    }
    let maker = Arc::new(SlotMaker {
        config: Arc::clone(&config),
        layout: layout.clone(),
        journal: journal.clone(),
        spawner: machine.spawner.clone(),
        boot_files: machine.boot_files.clone(),
        cgroups: machine.vm_cgroups.clone(),
        releaser: releaser.clone(),
    });
    let (pool, pool_task) = SlotPool::new(maker, config.pool, tasks.shutdown_token());
    tasks.spawn("pool", pool_task);
    let images = ImageStore::open(layout.images(), config.room(), config.capacity.disk_reserve());
    let node = Arc::new(NodeContext {
        config: Arc::clone(&config),
        layout: layout.clone(),
        vmm_version,
        journal: journal.clone(),
        images: images.map_err(|source| prepare_error("the images", source))?,
        pool,
        releaser,
        workers: Workers::new(workers, tasks.clone()),
        ledger: Ledger::new(Offer::detect(&config.capacity)),
        observations: Observations::default(),
    });
    let fleet = Fleet::new(Arc::clone(&node), tasks.clone());
    take_up(&node, &fleet, adopted, tasks);
    let fence = Fence::load(journal).await?;
    spawn_reports(&node, &control, &fence, boot_id, tasks);
    let renewal =
        renew_forever(identity_sender, Some(config.advertised_host()), layout.identity(), move |csr_der| {
            let control = control.clone();
            async move { control.renew(csr_der).await }
        });
    tasks.spawn_cancellable("renewal", renewal);
    listen(&config, metrics, NodeService { node, fleet, fence }, identity, tasks).await
}

/// Owners for what was found; control is told of all of it.
fn take_up(node: &Arc<NodeContext>, fleet: &Fleet, adopted: Adopted, tasks: &Tasks) {
    adopted.publish(&node.observations, &node.vmm_version);
    for (record, survivor) in adopted.running {
        fleet.adopt(record.id, survivor);
    }
    for record in adopted.removing {
        let fleet = fleet.clone();
        tasks.spawn("removal", async move {
            if let Err(error) = fleet.remove(record.id, record.generation).await {
                tracing::error!(sandbox = %record.id, error = %chain(&error), "cannot finish a removal");
            }
        });
    }
}

fn spawn_reports(
    node: &Arc<NodeContext>,
    control: &ControlLink,
    fence: &Fence,
    boot_id: String,
    tasks: &Tasks,
) {
    let beats = beat_forever(Arc::clone(node), control.clone(), fence.clone(), boot_id);
    tasks.spawn_cancellable("heartbeat", beats);
    tasks.spawn_cancellable("reports", report_forever(Arc::clone(node), control.clone()));
}

async fn listen(
    config: &NodeConfig,
    metrics: internal::Metrics,
    service: NodeService,
    identity: watch::Receiver<Identity>,
    tasks: &Tasks,
) -> Result<(), DaemonError> {
    if let Some(address) = config.metrics_listen {
        let bound = tokio::net::TcpListener::bind(address).await;
        let listener = bound.map_err(|source| prepare_error("the metrics listener", source))?;
        let router = internal::router(metrics, || async { Ok(()) });
        let shutdown = tasks.shutdown_token();
        tasks.spawn("metrics", async move {
            if let Err(error) = internal::serve(listener, router, shutdown).await {
                tracing::error!(%error, "the metrics listener ended");
            }
        });
    }
    let bound = std::net::TcpListener::bind(config.listen);
    let listener =
        bound.map_err(|source| prepare_error(&format!("the listener on {}", config.listen), source))?;
    tracing::info!(listen = %config.listen, name = config.name, "serving");
    Ok(serve(listener, service, identity, tasks).await?)
}

/// What must be true of the machine before anything is made on it.
struct Machine {
    spawner: Spawner,
    vm_cgroups: CgroupParent,
    worker_cgroups: CgroupParent,
    boot_files: BootFiles,
    _lock: fs::File,
}

impl Machine {
    fn prepare(config: &NodeConfig, layout: &Layout) -> Result<Self, DaemonError> {
        make_private(layout.data())?;
        let lock = lock(layout)?;
        for directory in [
            layout.images(),
            layout.jail_base(),
            layout.jails(),
            layout.spools(),
            layout.namespaces(),
            layout.consoles(),
        ] {
            make_private(&directory)?;
        }
        require_reflinks(&layout.images())
            .map_err(|source| DaemonError::NoReflinks { path: layout.data().to_owned(), source })?;
        check_pinned(&config.firecracker.binary, &config.firecracker.binary_sha256)?;
        check_pinned(&config.firecracker.jailer, &config.firecracker.jailer_sha256)?;
        let boot_files = BootFiles::install(&config.firecracker, &layout.images())?;
        check_pinned(&boot_files.firecracker, &config.firecracker.binary_sha256)?;
        let cgroup = |name: &str| {
            CgroupParent::prepare(name).map_err(|source| prepare_error(&format!("the cgroup {name}"), source))
        };
        Ok(Self {
            spawner: Spawner::start().map_err(|source| prepare_error("the spawning thread", source))?,
            vm_cgroups: cgroup(&config.vm_cgroup)?,
            worker_cgroups: cgroup(&config.worker_cgroup)?,
            boot_files,
            _lock: lock,
        })
    }
}

/// Two daemons on one journal would each remove what the other makes.
fn lock(layout: &Layout) -> Result<fs::File, DaemonError> {
    let path = layout.data().join("lock");
    let file = fs::File::create(&path).map_err(|source| prepare_error("the lock", source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_held) => Err(DaemonError::Locked(layout.data().to_owned())),
    }
}

/// Root's alone: jails hold guests' disks, spools the output of tenants, and a directory that others can enter is one that others can
/// leave things in.
fn make_private(directory: &Utf8Path) -> Result<(), DaemonError> {
    fs::create_dir_all(directory)
        .and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o700)))
        .map_err(|source| prepare_error(directory.as_str(), source))
}

fn read_boot_id() -> Result<String, DaemonError> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_err(|source| prepare_error("the boot id", source))?;
    Ok(text.trim().to_owned())
}

fn prepare_error(what: &str, source: io::Error) -> DaemonError {
    DaemonError::Prepare { what: what.to_owned(), source }
}
