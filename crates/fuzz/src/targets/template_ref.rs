//! Names of templates, which become names of files.
//!
//! - What parses prints as it parses.
//! - Nothing in a name, a tag or a digest leads out of a directory or is hidden in it.

use space_types::TemplateRef;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(reference) = text.parse::<TemplateRef>() else { return };
    assert_eq!(reference.to_string().parse(), Ok(reference.clone()));
    is_a_file_name(reference.name());
    match &reference {
        TemplateRef::Tag { name, tag } => {
            is_a_file_name(tag);
            assert!(text == format!("{name}:{tag}") || text == name && tag == TemplateRef::DEFAULT_TAG);
        }
        TemplateRef::Exact { name, digest } => {
            assert_eq!(text, format!("{name}@{digest}"));
            assert!(digest.hex().len() == 64 && digest.hex().bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
    }
}

fn is_a_file_name(part: &str) {
    let plain = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    assert!(plain && (1..=63).contains(&part.len()) && !part.starts_with('.'), "{part:?}");
}
