//! The document that is checked in, and the page.

use super::kit::World;

#[test]
fn the_document_that_is_checked_in_is_the_codes() {
    // Asked for when the test runs: checkouts may share what was compiled.
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let path = std::path::Path::new(&here).join("../../openapi/space-v1.json");
    let now = crate::openapi_json();
    if std::env::var_os("SPACE_UPDATE").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(checked_in == now, "openapi/space-v1.json differs: run this test with SPACE_UPDATE=1");
}

#[test]
fn every_operation_says_how_it_fails() {
    let document: serde_json::Value = serde_json::from_str(&crate::openapi_json()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(operation["responses"]["default"].is_object(), "{method} {path}");
            assert!(operation["summary"].is_string(), "{method} {path}");
        }
    }
}

#[test]
fn the_documents_words_are_those_on_the_wire() {
    let document: serde_json::Value = serde_json::from_str(&crate::openapi_json()).unwrap();
    let words = |schema: &str| document["components"]["schemas"][schema]["enum"].clone();
    assert_eq!(words("ProblemCode"), serde_json::to_value(space_api::ProblemCode::ALL).unwrap());
    assert_eq!(words("Scope"), serde_json::to_value(space_api::scopes::Scope::ALL).unwrap());
    assert_eq!(words("EventKind"), serde_json::to_value(space_api::events::EventKind::ALL).unwrap());
    assert_eq!(words("Reason"), serde_json::to_value(space_types::Reason::ALL).unwrap());
}

#[tokio::test]
async fn the_page_and_the_document_need_no_key_and_no_other_host() {
    let world = World::start().await;
    let nobody = world.admin.with_key("");
    let document = nobody.get("/openapi.json").await.expect(200);
    assert!(document["paths"]["/v1/sandboxes"].is_object());
    let response = nobody.http.get(format!("{}/docs", nobody.base)).send().await.unwrap();
    let html = response.text().await.unwrap();
    assert!(html.contains("/v1/sandboxes/{sandbox_id}/exec"));
    assert!(!html.contains("http://") && !html.contains("https://") && !html.contains("<script"));
}
