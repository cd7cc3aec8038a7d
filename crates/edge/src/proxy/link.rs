//! A signed link: `?space_port_token=…`. Whoever follows it gets a cookie and is sent on to the same place without the
//! token, so that it stays in no address bar, history or `Referer`.

use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header, uri::PathAndQuery};
use space_types::PortClaims;

use super::{Journey, credentials::cookie_name};
use crate::{
    Body,
    answer::{self, MARK, Refusal},
    keys::unix_now,
    parse::{query, token},
    routes::Asks,
};

impl Journey<'_> {
    /// Takes any token off the query. Answers if it was a good one; what is no good is as if it were not there.
    pub(super) async fn follow_link<B>(
        &self,
        request: &mut Request<B>,
    ) -> Result<Option<Response<Body>>, Refusal> {
        let uri = request.uri().clone();
        let Some((token, rest)) = uri.query().and_then(query::take_token) else { return Ok(None) };
        *request.uri_mut() = with_query(&uri, &rest);
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(None);
        }
        let claims = token::check(token, &self.proxy.keys.borrow(), self.host, unix_now());
        let Some(claims) = claims else { return Ok(None) };
        match self.proxy.routes.find(self.host, Asks::Bearer).await {
            Ok(route) if claims.epoch >= route.epoch => {}
            // What is wrong is said where the route is asked for.
            Ok(_) | Err(_) => return Ok(None),
        }
        Ok(Some(sent_on(&query::local_target(uri.path(), &rest), &self.cookie(token, claims))))
    }

    fn cookie(&self, token: &str, claims: PortClaims) -> String {
        let tls = self.visitor.tls;
        let (name, secure) = (cookie_name(tls), if tls { "; Secure" } else { "" });
        let left = claims.expires_at.saturating_sub(unix_now()).max(0);
        format!("{name}={token}; Path=/; Max-Age={left}; HttpOnly; SameSite=Lax{secure}")
    }
}

fn sent_on(target: &str, cookie: &str) -> Response<Body> {
    let mut response = Response::new(answer::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    // Both are of characters that were in a request's head, or ours.
    let text = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("/"));
    headers.insert(header::LOCATION, text(target));
    headers.insert(header::SET_COOKIE, text(cookie));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(MARK, HeaderValue::from_static("signed_link"));
    response
}

fn with_query(uri: &Uri, query: &str) -> Uri {
    let text = if query.is_empty() { uri.path().to_owned() } else { format!("{}?{query}", uri.path()) };
    let mut parts = uri.clone().into_parts();
    // Parts of one that was parsed.
    parts.path_and_query = text.parse::<PathAndQuery>().ok();
    Uri::from_parts(parts).unwrap_or_default()
}
