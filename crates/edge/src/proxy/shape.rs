//! A request that two readers could read differently is refused: what the edge authorises must be what the guest gets.
//! (A request with both a length and `Transfer-Encoding` reaches us without the length, and its connection is closed
//! behind it, by hyper; RFC 9112, 6.3.)

use http::{Method, Request, Version, header};

use crate::{EdgeCode, answer::Refusal, parse::host::same_authority};

fn malformed(detail: &str) -> Refusal {
    Refusal::new(EdgeCode::RequestMalformed, detail)
}

/// Whom the request is for, as it was sent.
pub(super) fn authority<B>(request: &Request<B>) -> Result<String, Refusal> {
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().map(|host| host.to_str().map_err(|_not_text| malformed("Host is not text.")));
    let host = host.transpose()?;
    if hosts.next().is_some() {
        return Err(malformed("There is more than one Host."));
    }
    if headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH) {
        return Err(malformed("There is both a Content-Length and a Transfer-Encoding."));
    }
    if headers.get_all(header::CONTENT_LENGTH).iter().count() > 1 {
        return Err(malformed("There is more than one Content-Length."));
    }
    let target = request.uri().authority().map(http::uri::Authority::as_str);
    if request.method() == Method::CONNECT {
        // Its Host may be the edge's own, as that of a proxy.
        return target.map(str::to_owned).ok_or_else(|| malformed("CONNECT takes a host and a port."));
    }
    match (target, host) {
        (Some(target), Some(host)) if !same_authority(target, host) => {
            Err(malformed("Host and the request's target are not the same."))
        }
        (Some(target), None) if request.version() == Version::HTTP_2 => Ok(target.to_owned()),
        (Some(_) | None, Some(host)) => Ok(host.to_owned()),
        (Some(_) | None, None) => Err(malformed("There is no Host.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let builder = Request::builder().uri(uri);
        headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(()).unwrap()
    }

    #[test]
    fn there_is_one_host_and_one_only() {
        assert_eq!(authority(&request("/", &[("host", "a:1")])).unwrap(), "a:1");
        assert_eq!(authority(&request("http://A/", &[("host", "a")])).unwrap(), "a");
        for (uri, headers) in [
            ("/", &[][..]),
            ("/", &[("host", "a"), ("host", "a")]),
            ("http://b/", &[("host", "a")]),
            ("http://a/", &[]),
        ] {
            let refusal = authority(&request(uri, headers)).unwrap_err();
            assert_eq!(refusal.code, EdgeCode::RequestMalformed, "{uri} {headers:?}");
        }
    }

    #[test]
    fn there_is_one_length_and_one_only() {
        for more in [("content-length", "1"), ("transfer-encoding", "chunked")] {
            let headers = [("host", "a"), ("content-length", "1"), more];
            authority(&request("/", &headers)).unwrap_err();
        }
    }
}
