//! The guest's network: the same addresses in every sandbox, so that a snapshot can be restored anywhere.

use std::{io, net::Ipv4Addr};

use super::Warnings;
use crate::sys::interface::Interfaces;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 100, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 100, 1);
/// A /30: guest and gateway.
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 252);

/// Brings up `lo` and `eth0`. A guest without a network is a guest all the same.
pub(super) fn configure(warnings: &mut Warnings) {
    let interfaces = match Interfaces::open() {
        Ok(interfaces) => interfaces,
        Err(error) => {
            warnings.check("open a socket for interfaces", Err(error));
            return;
        }
    };
    warnings.check("bring up lo", interfaces.set_up("lo"));
    warnings.check("configure eth0", ethernet(&interfaces));
}

fn ethernet(interfaces: &Interfaces) -> io::Result<()> {
    interfaces.set_address("eth0", ADDRESS, MASK)?;
    interfaces.set_up("eth0")?;
    interfaces.add_default_route(GATEWAY)
}
