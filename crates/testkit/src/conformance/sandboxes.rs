//! `Node`: generations and fences order what is asked for, and everything may be asked for twice.

use space_node_proto::{
    common::{ObservedSandbox, Phase},
    node::{EnsureSandboxRequest, ListSandboxesRequest, RemoveSandboxRequest},
};
use space_types::SandboxId;
use tonic::{Code, Status};

use super::{Subject, cases, fails, refuses, within};

pub(super) async fn run(subject: &impl Subject) {
    cases!(subject; a_sandbox_from_its_first_ensure_to_a_late_one, what_names_no_sandbox_is_refused);
}

async fn a_sandbox_from_its_first_ensure_to_a_late_one(subject: &impl Subject) {
    let request = subject.request(SandboxId::new(), subject.tenant());
    // The same request twice at once comes to one sandbox.
    let (first, second) = tokio::join!(ensure(subject, &request), ensure(subject, &request));
    let (first, second) = (first.unwrap_or_else(fails), second.unwrap_or_else(fails));
    assert_eq!((first.phase(), first.generation), (Phase::Running, 1), "{first:?}");
    assert!(!first.data_address.is_empty(), "{first:?}");
    assert_eq!(first, second);
    assert_eq!(ensure(subject, &request).await.unwrap_or_else(fails), first, "a repetition changes nothing");
    assert_eq!(listed(subject, &request.sandbox_id).await, Some(first.clone()));

    let newer = EnsureSandboxRequest { generation: 3, ..request.clone() };
    let taken = ensure(subject, &newer).await.unwrap_or_else(fails);
    assert_eq!((taken.phase(), taken.generation), (Phase::Running, 3), "{taken:?}");
    assert_eq!(taken.data_address, first.data_address);
    older_ones_change_nothing(subject, &newer).await;

    for _ in 0..2 {
        remove(subject, &newer, 4, newer.fence).await.unwrap_or_else(fails);
    }
    assert_eq!(listed(subject, &newer.sandbox_id).await, None);
    for generation in [3, 4] {
        let late = EnsureSandboxRequest { generation, ..request.clone() };
        refuses(ensure(subject, &late).await, Code::FailedPrecondition, None);
    }
    assert_eq!(listed(subject, &newer.sandbox_id).await, None, "a late command brings nothing back");
}

async fn older_ones_change_nothing(subject: &impl Subject, current: &EnsureSandboxRequest) {
    let before = listed(subject, &current.sandbox_id).await;
    let older = EnsureSandboxRequest { generation: current.generation - 1, ..current.clone() };
    refuses(ensure(subject, &older).await, Code::FailedPrecondition, None);
    refuses(remove(subject, current, older.generation, current.fence).await, Code::FailedPrecondition, None);
    // A control that lost its place, whatever generation it has come to.
    let fence = current.fence - 1;
    let fenced = EnsureSandboxRequest { generation: 9, fence, ..current.clone() };
    refuses(ensure(subject, &fenced).await, Code::FailedPrecondition, None);
    refuses(remove(subject, current, 9, fence).await, Code::FailedPrecondition, None);
    assert_eq!(listed(subject, &current.sandbox_id).await, before);
}

async fn what_names_no_sandbox_is_refused(subject: &impl Subject) {
    let request = subject.request(SandboxId::new(), subject.tenant());
    remove(subject, &request, 1, request.fence).await.unwrap_or_else(fails);
    for (sandbox, tenant) in
        [("", &*request.tenant_id), ("../etc", &*request.tenant_id), (&*request.sandbox_id, "nobody")]
    {
        let odd = EnsureSandboxRequest {
            sandbox_id: sandbox.to_owned(),
            tenant_id: tenant.to_owned(),
            generation: 2,
            ..request.clone()
        };
        refuses(ensure(subject, &odd).await, Code::InvalidArgument, None);
    }
    let unnamed = EnsureSandboxRequest { sandbox_id: "../etc".to_owned(), ..request };
    refuses(remove(subject, &unnamed, 1, unnamed.fence).await, Code::InvalidArgument, None);
}

async fn ensure(subject: &impl Subject, request: &EnsureSandboxRequest) -> Result<ObservedSandbox, Status> {
    Ok(within(subject.node().ensure_sandbox(request.clone())).await?.into_inner())
}

async fn remove(
    subject: &impl Subject,
    of: &EnsureSandboxRequest,
    generation: u64,
    fence: u64,
) -> Result<(), Status> {
    let request = RemoveSandboxRequest { sandbox_id: of.sandbox_id.clone(), generation, fence };
    within(subject.node().remove_sandbox(request)).await.map(drop)
}

async fn listed(subject: &impl Subject, sandbox: &str) -> Option<ObservedSandbox> {
    let all = within(subject.node().list_sandboxes(ListSandboxesRequest {})).await.unwrap_or_else(fails);
    all.into_inner().sandboxes.into_iter().find(|seen| seen.sandbox_id == sandbox)
}
