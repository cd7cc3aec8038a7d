//! The token of a forwarded port, kept good.
//!
//! ```text
//!   connections ──look──▶ the latest token ◀──puts── keeper ──makes──▶ control
//!        └───── refused: another, please ─────▶ keeper
//! ```
//! The keeper is the only one that makes tokens, so a crowd whose token was revoked asks for one together. It makes
//! another in good time, too. A machine that was asleep may wake up later than that; its next connection is refused then,
//! and asks.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use crate::error::CliError;

pub(super) const VALID_SECONDS: u32 = 3600;
/// The rest is for control to come back, if it is away just then.
const RENEWED_AFTER: Duration = Duration::from_mins(45);
/// After a renewal that failed.
const PAUSE: Duration = Duration::from_mins(1);

struct Refused {
    token: Arc<str>,
    another: oneshot::Sender<Result<Arc<str>, CliError>>,
}

pub(super) struct Tokens {
    latest: watch::Receiver<Arc<str>>,
    refused: mpsc::Sender<Refused>,
}

impl Tokens {
    pub(super) fn latest(&self) -> Arc<str> {
        self.latest.borrow().clone()
    }

    /// Another one than `token`, which was refused.
    pub(super) async fn another(&self, token: Arc<str>) -> Result<Arc<str>, CliError> {
        let (another, answer) = oneshot::channel();
        let gone = || anyhow::anyhow!("the forwarding of this port has ended");
        self.refused.send(Refused { token, another }).await.map_err(|_error| gone())?;
        answer.await.map_err(|_error| gone())?
    }
}

/// Tokens that begin with `first`, and who keeps them: a future that has to run for as long as they are used.
pub(super) fn keep<M, F>(first: String, make: M) -> (Tokens, impl Future<Output = ()> + use<M, F>)
where
    M: Fn() -> F,
    F: Future<Output = Result<String, CliError>>,
{
    let (put, latest) = watch::channel(Arc::from(first));
    let (refused, asked) = mpsc::channel(1);
    let keeper = Keeper { put, asked, make, renew_at: Instant::now() + RENEWED_AFTER };
    (Tokens { latest, refused }, keeper.run())
}

struct Keeper<M> {
    put: watch::Sender<Arc<str>>,
    asked: mpsc::Receiver<Refused>,
    make: M,
    renew_at: Instant,
}

impl<M, F> Keeper<M>
where
    M: Fn() -> F,
    F: Future<Output = Result<String, CliError>>,
{
    async fn run(mut self) {
        loop {
            tokio::select! {
                () = sleep_until(self.renew_at) => {
                    // The old one is good for a while. Who is refused with it is told why there is no other.
                    if self.renew().await.is_err() {
                        self.renew_at = Instant::now() + PAUSE;
                    }
                }
                asked = self.asked.recv() => {
                    let Some(Refused { token, another }) = asked else { return };
                    let latest = self.put.borrow().clone();
                    let answer = if latest == token { self.renew().await } else { Ok(latest) };
                    // Whoever asked may have gone.
                    drop(another.send(answer));
                }
            }
        }
    }

    async fn renew(&mut self) -> Result<Arc<str>, CliError> {
        let token: Arc<str> = (self.make)().await?.into();
        self.renew_at = Instant::now() + RENEWED_AFTER;
        self.put.send_replace(token.clone());
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::sleep;

    use super::*;

    /// Each token is the number of its making; those for which `fails` says so are not made.
    fn kept(fails: fn(u32) -> bool) -> Arc<Tokens> {
        let made = Arc::new(AtomicU32::new(0));
        let make = move || {
            let number = made.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                sleep(Duration::from_secs(1)).await;
                if fails(number) {
                    Err(anyhow::anyhow!("no {number}").into())
                } else {
                    Ok(number.to_string())
                }
            }
        };
        let (tokens, keeper) = keep("0".to_owned(), make);
        tokio::spawn(keeper);
        Arc::new(tokens)
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_before_its_end() {
        let tokens = kept(|_| false);
        let valid = Duration::from_secs(VALID_SECONDS.into());
        let mut latest = tokens.latest.clone();
        for number in 1..5 {
            tokio::time::timeout(valid, latest.changed()).await.unwrap().unwrap();
            assert_eq!(&**latest.borrow_and_update(), number.to_string());
        }
        assert_eq!(&*tokens.latest(), "4");
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_fails_is_tried_again_while_the_old_token_is_good() {
        let tokens = kept(|number| number <= 3);
        let valid = Duration::from_secs(VALID_SECONDS.into());
        tokio::time::timeout(valid, tokens.latest.clone().changed()).await.unwrap().unwrap();
        assert_eq!(&*tokens.latest(), "4");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_that_is_refused_asks_for_one_token() {
        let tokens = kept(|_| false);
        let crowd = (0..20).map(|_| tokens.another(Arc::from("0")));
        for another in futures::future::join_all(crowd).await {
            assert_eq!(&*another.unwrap(), "1");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_is_told_why_there_is_no_other() {
        let tokens = kept(|number| number == 1);
        assert_eq!(tokens.another(Arc::from("0")).await.unwrap_err().to_string(), "no 1");
        assert_eq!(&*tokens.another(Arc::from("0")).await.unwrap(), "2");
    }
}
