//! What is read of hostile bytes, without I/O: host names, cookies, queries, tokens, what a
//! proxy in front says. Public for fuzz targets.

pub mod attach;
pub mod cookies;
pub mod host;
pub mod proxy_protocol;
pub mod query;
pub mod set_cookie;
pub mod token;
