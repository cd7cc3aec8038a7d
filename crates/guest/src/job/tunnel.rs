//! A TCP connection to the guest's own loopback, copied in both directions at once.
//!
//! ```text
//! host ── Data ──▶ pending ──▶ TCP     Finish: shut down for writing once all was written
//! host ◀── Data ── outgoing ◀── TCP    end of file: Done; the other direction goes on
//! ```
//! Each direction reads only when it has nothing left to write, so both keep one frame at most, and neither
//! waits for the other.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, connect, shutdown,
        socket_with, sockopt,
    },
};
use space_guest_proto::job::{Done, FailureKind, HostJobFrame, OpenTunnel, Opened};

use super::{
    Context, Outcome,
    failure::JobError,
    link::{Link, Outgoing, wait},
};

const CONNECT_TIME: Duration = Duration::from_secs(10);

impl Context {
    pub(super) fn tunnel(&mut self, job: &OpenTunnel) -> Outcome {
        let port = u16::try_from(job.port)
            .map_err(|_out_of_range| JobError::new(FailureKind::Invalid, "port is above 65535"))?;
        let deadline = Instant::now() + CONNECT_TIME;
        let tcp = open(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), deadline)
            .or_else(|_| open(SocketAddr::from((Ipv6Addr::LOCALHOST, port)), deadline))
            .map_err(|error| {
                let text = format!("port {port}: {error}");
                JobError::new(FailureKind::Refused, text)
            })?;
        // Small messages go both ways; whoever speaks through here has batched what it wanted to.
        sockopt::set_tcp_nodelay(&tcp, true).ok();
        self.link.send_opened(Opened::default())?;
        Tunnel { tcp, to_tcp: ToTcp::Open(Bytes::new()), to_host: Some(Sending::new()) }.copy(&mut self.link)
    }
}

fn open(address: SocketAddr, deadline: Instant) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    match connect(&socket, &address) {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    match wait(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(deadline)) {
        Ok(true) => sockopt::socket_error(&socket)?.map(|()| socket),
        Ok(false) | Err(_) => Err(Errno::TIMEDOUT),
    }
}

struct Tunnel {
    tcp: OwnedFd,
    to_tcp: ToTcp,
    /// `None` behind `Done`.
    to_host: Option<Sending>,
}

enum ToTcp {
    /// What is left of the frame that came last.
    Open(Bytes),
    /// `Finish` came; this is left.
    Finishing(Bytes),
    /// Everything was written, or nobody reads it.
    Closed,
}

/// A frame on its way to the host, which may be sent in parts.
struct Sending {
    outgoing: Outgoing,
    sent: usize,
}

impl Sending {
    fn new() -> Self {
        Self { outgoing: Outgoing::new(), sent: 0 }
    }
}

impl Tunnel {
    /// Until both directions have ended.
    fn copy(mut self, link: &mut Link) -> Outcome {
        loop {
            match self.copy_once(link) {
                // `Done` was sent: there is no other word to say.
                _ if self.to_host.is_none() && matches!(self.to_tcp, ToTcp::Closed) => {
                    return Err(JobError::Gone);
                }
                Err(_) if self.to_host.is_none() => return Err(JobError::Gone),
                copied => copied?,
            }
        }
    }

    fn copy_once(&mut self, link: &mut Link) -> Result<(), JobError> {
        self.take_frame(link)?;
        if self.to_host.is_none() && matches!(self.to_tcp, ToTcp::Closed) {
            return Ok(());
        }
        self.wait(link)?;
        self.write_tcp();
        self.send_host(link)
    }

    fn take_frame(&mut self, link: &mut Link) -> Result<(), JobError> {
        loop {
            match &self.to_tcp {
                ToTcp::Open(pending) if pending.is_empty() => {}
                ToTcp::Open(_) | ToTcp::Finishing(_) | ToTcp::Closed => return Ok(()),
            }
            match link.received()? {
                Some(HostJobFrame::Data(data)) => self.to_tcp = ToTcp::Open(data),
                Some(HostJobFrame::Finish) => {
                    self.to_tcp = ToTcp::Finishing(Bytes::new());
                    self.write_tcp();
                }
                Some(HostJobFrame::Open(_)) => {
                    return Err(JobError::new(FailureKind::Invalid, "a second OpenJob"));
                }
                None => return Ok(()),
            }
        }
    }

    fn wait(&mut self, link: &mut Link) -> Result<(), JobError> {
        let mut host = PollFlags::RDHUP;
        let mut tcp = PollFlags::empty();
        match &self.to_tcp {
            ToTcp::Open(pending) if pending.is_empty() => host |= PollFlags::IN,
            ToTcp::Open(_) | ToTcp::Finishing(_) => tcp |= PollFlags::OUT,
            // What still comes is read and dropped, so that the host doesn't wait for ever.
            ToTcp::Closed => host |= PollFlags::IN,
        }
        match &self.to_host {
            Some(sending) if sending.outgoing.is_empty() => tcp |= PollFlags::IN,
            Some(_) => host |= PollFlags::OUT,
            None => {}
        }
        let mut descriptors = [PollFd::from_borrowed_fd(link.socket(), host), PollFd::new(&self.tcp, tcp)];
        // A TCP connection that is over in a direction that has ended here would wake this for nothing.
        let watched = if tcp.is_empty() { 1 } else { 2 };
        wait(descriptors.get_mut(..watched).unwrap_or_default(), None)?;
        let ready = descriptors[0].revents();
        if ready.intersects(PollFlags::IN | PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            link.receive_once(RecvFlags::DONTWAIT)?;
            if matches!(self.to_tcp, ToTcp::Closed) {
                while link.received()?.is_some() {}
            }
        }
        Ok(())
    }

    fn write_tcp(&mut self) {
        let (ToTcp::Open(pending) | ToTcp::Finishing(pending)) = &mut self.to_tcp else { return };
        while !pending.is_empty() {
            match rustix::net::send(&self.tcp, pending, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => pending.advance(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Nobody reads it any more; what comes back still matters.
                Err(_) => {
                    self.to_tcp = ToTcp::Closed;
                    return;
                }
            }
        }
        if matches!(self.to_tcp, ToTcp::Finishing(_)) {
            // It may be gone altogether, which reading tells.
            shutdown(&self.tcp, Shutdown::Write).ok();
            self.to_tcp = ToTcp::Closed;
        }
    }

    /// Reads from TCP when nothing waits, and sends what waits.
    fn send_host(&mut self, link: &mut Link) -> Result<(), JobError> {
        let Some(sending) = &mut self.to_host else { return Ok(()) };
        if sending.outgoing.is_empty() {
            match rustix::net::recv(&self.tcp, sending.outgoing.room(), RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    self.to_host = None;
                    return link.send_done(Done::default());
                }
                Ok((_, read)) => sending.outgoing.filled(read),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(JobError::of(error, "the connection broke")),
            }
        }
        let frame = sending.outgoing.frame();
        let rest = frame.get(sending.sent..).unwrap_or_default();
        match rustix::net::send(link.socket(), rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) if sent == rest.len() => {
                sending.outgoing.clear();
                sending.sent = 0;
                Ok(())
            }
            Ok(sent) => {
                sending.sent += sent;
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(JobError::Gone),
        }
    }
}
