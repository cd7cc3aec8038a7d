//! One file a parser.

pub(crate) mod archive;
pub(crate) mod byte_range;
pub(crate) mod console;
pub(crate) mod conversation;
pub(crate) mod edge_cookies;
pub(crate) mod edge_credentials;
pub(crate) mod edge_host;
pub(crate) mod edge_proxy_protocol;
pub(crate) mod edge_query;
pub(crate) mod edge_set_cookie;
pub(crate) mod edge_token;
pub(crate) mod event_stream;
pub(crate) mod frames;
pub(crate) mod job_frames;
pub(crate) mod listing;
pub(crate) mod port_name;
pub(crate) mod template_ref;
