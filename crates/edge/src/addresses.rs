//! What one address may take of the edge: connections at once, and requests a second. That is for the good of the others
//! at this edge, and protects no port: whoever has many addresses has as many shares.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use space_runtime::rate::{Buckets, PeerAddress, Rate};

use crate::config::Limits;

#[derive(Debug)]
struct Counts {
    /// Of addresses that have any.
    connections: HashMap<PeerAddress, usize>,
    requests: Buckets<PeerAddress>,
}

#[derive(Debug)]
pub(crate) struct Addresses {
    /// 0: no limit.
    most_connections: usize,
    since: Instant,
    counts: Mutex<Counts>,
}

/// One connection's place among those of its address.
#[derive(Debug)]
pub(crate) struct Place {
    address: PeerAddress,
    addresses: Arc<Addresses>,
}

impl Addresses {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        let second = Duration::from_secs(1);
        let rate = Rate::new(limits.address_requests_per_second, second, limits.address_requests_burst);
        let counts = Counts { connections: HashMap::new(), requests: Buckets::new(rate) };
        let most_connections = limits.address_connections;
        Arc::new(Self { most_connections, since: Instant::now(), counts: Mutex::new(counts) })
    }

    /// `None`: the address has as many connections as it may have.
    pub(crate) fn connect(self: &Arc<Self>, ip: IpAddr) -> Option<Place> {
        let address = PeerAddress::new(ip);
        let mut counts = self.lock();
        let connections = counts.connections.entry(address).or_default();
        if self.most_connections != 0 && *connections >= self.most_connections {
            return None;
        }
        *connections += 1;
        Some(Place { address, addresses: Arc::clone(self) })
    }

    /// Counts a request. One that comes too fast is told how long to wait, and costs nothing.
    pub(crate) fn request(&self, ip: IpAddr) -> Result<(), Duration> {
        let (address, now) = (PeerAddress::new(ip), self.since.elapsed());
        let mut counts = self.lock();
        let wait = counts.requests.wait(&address, now);
        if wait.is_zero() {
            counts.requests.take(address, now);
            Ok(())
        } else {
            Err(wait)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.addresses.lock();
        if let Some(connections) = counts.connections.get_mut(&self.address) {
            *connections -= 1;
            if *connections == 0 {
                counts.connections.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(connections: usize, per_second: u32) -> Arc<Addresses> {
        Addresses::new(&Limits {
            address_connections: connections,
            address_requests_per_second: per_second,
            address_requests_burst: 2,
            ..Limits::default()
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_connections_and_no_more() {
        let addresses = addresses(2, 0);
        let (one, other) = (ip("2001:db8::1"), ip("2001:db8:0:1::1"));
        let first = addresses.connect(one).unwrap();
        let second = addresses.connect(ip("2001:db8::2")).unwrap();
        assert!(addresses.connect(one).is_none(), "of the same /64");
        let elsewhere = addresses.connect(other).unwrap();
        drop(second);
        let again = addresses.connect(one).unwrap();
        drop((first, again, elsewhere));
        assert!(addresses.lock().connections.is_empty(), "who has none is forgotten");
    }

    #[test]
    fn requests_come_no_faster_than_they_may() {
        let addresses = addresses(0, 1);
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        addresses.request(one).unwrap();
        addresses.request(one).unwrap();
        let wait = addresses.request(one).unwrap_err();
        assert!(!wait.is_zero() && wait <= Duration::from_secs(1), "{wait:?}");
        addresses.request(other).unwrap();
    }

    #[test]
    fn zero_is_no_limit() {
        let addresses = addresses(0, 0);
        let places: Vec<_> = (0..5000).map(|_| addresses.connect(ip("192.0.2.1")).unwrap()).collect();
        assert_eq!(places.len(), 5000);
        for _ in 0..5000 {
            addresses.request(ip("192.0.2.1")).unwrap();
        }
    }
}
