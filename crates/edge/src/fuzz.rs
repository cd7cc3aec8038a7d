//! What is private here and must stand hostile bytes, for the fuzz targets of `space-fuzz`.

use http::Request;

use crate::proxy::credentials;

/// The edge's own cookies.
pub const COOKIES: [&str; 2] = credentials::COOKIES;

/// What may be a token in `request`, which is left as the guest gets it.
pub fn take_tokens(request: &mut Request<()>, tls: bool) -> Vec<String> {
    credentials::take_tokens(request, Some(credentials::cookie_name(tls)))
}
