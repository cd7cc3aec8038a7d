//! Keeps the certificate of one tenant's worker current, beside the loop that serves the worker.
//!
//! Control may be away for longer than a worker lives. So a renewal is a task that nobody waits for, and a worker
//! that is started again gets the certificate that the last one had for as long as it is good.

use std::{net::IpAddr, pin::Pin, time::Duration};

use space_runtime::telemetry::chain;
use space_types::TenantId;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::certificate::{CertificateError, WorkerCertificate, obtain};
use crate::enrol::ControlLink;

/// After a renewal that failed; the old certificate has a third of its life left.
const AGAIN: Duration = Duration::from_secs(30);

type Signed = Result<WorkerCertificate, CertificateError>;
type Sign = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Signed> + Send>> + Send + Sync>;

pub(super) struct Renewal {
    tenant: TenantId,
    sign: Sign,
    kept: Option<WorkerCertificate>,
    due: Instant,
    /// At most one.
    under_way: JoinSet<Signed>,
}

impl std::fmt::Debug for Renewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewal")
            .field("tenant", &self.tenant)
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

impl Renewal {
    /// For a worker that listens on `address`.
    pub(super) fn new(control: ControlLink, tenant: TenantId, address: IpAddr) -> Self {
        let sign: Sign = Box::new(move || {
            let control = control.clone();
            Box::pin(async move { obtain(&control, tenant, address).await })
        });
        Self::by(tenant, sign)
    }

    fn by(tenant: TenantId, sign: Sign) -> Self {
        Self { tenant, sign, kept: None, due: Instant::now(), under_way: JoinSet::new() }
    }

    /// A certificate to start with: the one that is kept, or a new one. Cancel safe.
    pub(super) async fn current(&mut self) -> Signed {
        if let Some(kept) = self.kept.as_ref().filter(|kept| kept.expires_at > Instant::now()) {
            return Ok(kept.clone());
        }
        let signed = (self.sign)().await?;
        Ok(self.keep(signed))
    }

    /// The next certificate, when it is due and control has signed it. Cancel safe: what is under way goes on.
    pub(super) async fn next(&mut self) -> WorkerCertificate {
        loop {
            if self.under_way.is_empty() {
                sleep_until(self.due).await;
                self.under_way.spawn((self.sign)());
            }
            match self.under_way.join_next().await {
                Some(Ok(Ok(signed))) => return self.keep(signed),
                Some(Ok(Err(error))) => {
                    tracing::warn!(tenant = %self.tenant, error = %chain(&error), "cannot renew a worker's certificate");
                }
                Some(Err(error)) => {
                    tracing::error!(tenant = %self.tenant, %error, "a renewal panicked");
                }
                None => {}
            }
            self.due = Instant::now() + AGAIN;
        }
    }

    fn keep(&mut self, signed: WorkerCertificate) -> WorkerCertificate {
        self.due = signed.renew_at;
        self.kept.insert(signed).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::{sync::Notify, time::timeout};

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn certificate(name: &str, renew_in: Duration, good_for: Duration) -> WorkerCertificate {
        WorkerCertificate {
            certificate_pem: name.to_owned(),
            private_key_pem: String::new(),
            authority_pem: String::new(),
            renew_at: Instant::now() + renew_in,
            expires_at: Instant::now() + good_for,
        }
    }

    /// Control answers each call once `answer` is notified, and counts them.
    fn renewal(answer: &Arc<Notify>, calls: &Arc<AtomicUsize>) -> Renewal {
        let (answer, calls) = (Arc::clone(answer), Arc::clone(calls));
        let sign: Sign = Box::new(move || {
            let (answer, calls) = (Arc::clone(&answer), Arc::clone(&calls));
            Box::pin(async move {
                calls.fetch_add(1, Ordering::Relaxed);
                answer.notified().await;
                Ok(certificate("new", HOUR, HOUR))
            })
        });
        Renewal::by(TenantId::new(), sign)
    }

    #[tokio::test]
    async fn a_renewal_goes_on_while_other_work_is_done() {
        let (answer, calls) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let mut renewal = renewal(&answer, &calls);
        renewal.keep(certificate("old", Duration::ZERO, HOUR));
        for _ in 0..3 {
            // As in a loop that has something else to do each time.
            assert!(timeout(Duration::from_millis(5), renewal.next()).await.is_err());
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1, "asked once");
        answer.notify_one();
        assert_eq!(renewal.next().await.certificate_pem, "new");
    }

    #[tokio::test]
    async fn a_worker_that_dies_in_an_outage_starts_again_with_what_it_had() {
        let (answer, calls) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let mut renewal = renewal(&answer, &calls);
        renewal.keep(certificate("old", Duration::ZERO, HOUR));
        assert_eq!(renewal.current().await.unwrap().certificate_pem, "old");
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        renewal.keep(certificate("expired", Duration::ZERO, Duration::ZERO));
        answer.notify_one();
        assert_eq!(renewal.current().await.unwrap().certificate_pem, "new");
    }
}
