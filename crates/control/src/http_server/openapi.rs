//! The OpenAPI document: what surrounds the operations that the handlers describe.

use std::sync::Arc;

use utoipa::{
    Modify, OpenApi,
    openapi::{
        OpenApi as Document,
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "SPACE",
        version = "1",
        description = "Sandboxes: microVMs that are made, run commands and are deleted by HTTP.\n\n\
            Every POST takes an `Idempotency-Key` (1 to 128 visible characters): for 24 hours a repeated request \
            with the same key and body gets the same answer, without secrets; another body is refused.\n\n\
            Errors are `application/problem+json` with a stable `code`. Streams are server-sent events with a \
            comment every 15 seconds. Contents of files travel as plain bytes, of any size; an answer that breaks \
            off before its end is an error, never a short file.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(
        space_api::files::FileChange,
        space_api::sse::Started,
        space_api::sse::Gap,
        space_api::sse::StreamError,
        space_api::commands::Exit,
        space_api::terminal::ServerMessage,
        space_api::terminal::ClientMessage,
    )),
    modifiers(&Bearer)
)]
struct Base;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        document.security = Some(vec![SecurityRequirement::new("key", Vec::<String>::new())]);
    }
}

pub(super) fn base() -> Document {
    Base::openapi()
}

/// The document of the whole API.
pub(crate) fn document() -> Document {
    let router: OpenApiRouter<Arc<App>> = super::api();
    router.into_openapi()
}
