//! Paths inside a sandbox. A name in Linux is bytes, so a path is too.
//!
//! In a URL its bytes are percent-encoded. In JSON it is a string; where it isn't UTF-8 that string is its lossy form,
//! and a field with `_base64` at its end beside it is exact.

use std::fmt;

use crate::{Base64Bytes, FieldErrors, limits};

/// At most 4,095 bytes, none of them NUL. A relative one begins at the user's home.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(Vec<u8>);

impl FilePath {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub fn is_absolute(&self) -> bool {
        self.0.starts_with(b"/")
    }

    /// The names in it. `a//b`, `a/./b` and `a/b/` have the same.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
    }

    /// What a string and its exact form say together; only one of them has to be there.
    pub(super) fn from_json(text: Option<&str>, exact: Option<&Base64Bytes>) -> Option<Self> {
        exact.map(|bytes| Self(bytes.0.clone())).or_else(|| text.map(Self::from))
    }

    /// As JSON has it.
    pub(super) fn to_json(&self) -> (String, Option<Base64Bytes>) {
        match str::from_utf8(&self.0) {
            Ok(text) => (text.to_owned(), None),
            Err(_) => (self.to_string(), Some(self.0.clone().into())),
        }
    }

    pub(super) fn check(&self, field: &str, errors: &mut FieldErrors) {
        errors.require(
            (1..=limits::PATH_BYTES).contains(&self.0.len()) && !self.0.contains(&0),
            field,
            format!("must be a path of 1 to {} bytes without NUL", limits::PATH_BYTES),
        );
    }
}

impl<T: AsRef<[u8]> + ?Sized> From<&T> for FilePath {
    fn from(bytes: &T) -> Self {
        Self(bytes.as_ref().to_vec())
    }
}

impl From<Vec<u8>> for FilePath {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

/// Lossy where it isn't UTF-8.
impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_text_is_exact_beside_its_lossy_form() {
        let path = FilePath::from(b"/a/\xff");
        let (text, exact) = path.to_json();
        assert_eq!((text.as_str(), exact.clone()), ("/a/\u{fffd}", Some(b"/a/\xff".to_vec().into())));
        assert_eq!(FilePath::from_json(Some(&text), exact.as_ref()), Some(path));
        assert_eq!(FilePath::from("/ü").to_json(), ("/ü".to_owned(), None));
    }

    #[test]
    fn names_are_what_stands_between_slashes() {
        let names = |path: &'static str| FilePath::from(path).names().map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(names("//a/./b/"), [b"a".to_vec(), b"b".to_vec()]);
        assert!(names("/").is_empty());
    }
}
