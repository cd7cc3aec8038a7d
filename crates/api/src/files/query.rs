//! Query strings with paths in them. They hold bytes, which a path needs not be text for, so they are read and
//! written here: `application/x-www-form-urlencoded`, where a `+` is a space.

use crate::{FieldErrors, Problem, ProblemCode, limits};

use super::{FileMode, FilePath, check_user};

/// The parameters of one request, taken one by one; what is left at the end does not exist.
pub(super) struct Parameters {
    pairs: Vec<(String, Vec<u8>)>,
    errors: FieldErrors,
}

impl Parameters {
    pub(super) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (String::from_utf8_lossy(&decode(name)).into_owned(), decode(value))
        });
        Self { pairs: pairs.collect(), errors: FieldErrors::default() }
    }

    fn bytes(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.pairs.iter().position(|(found, _)| found == name)?;
        let (_, value) = self.pairs.remove(at);
        if self.pairs.iter().any(|(found, _)| found == name) {
            self.pairs.retain(|(found, _)| found != name);
            self.errors.add(name, "is given twice");
        }
        Some(value)
    }

    /// A path, which has to be there.
    pub(super) fn path(&mut self, name: &str) -> FilePath {
        let path = FilePath::from(self.bytes(name).unwrap_or_default());
        path.check(name, &mut self.errors);
        path
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let text = String::from_utf8(self.bytes(name)?);
        if text.is_err() {
            self.errors.add(name, "must be UTF-8");
        }
        text.ok()
    }

    pub(super) fn user(&mut self) -> Option<String> {
        let user = self.text("user");
        check_user("user", user.as_deref(), &mut self.errors);
        user
    }

    pub(super) fn flag(&mut self, name: &str, otherwise: bool) -> bool {
        match self.text(name).as_deref() {
            None => otherwise,
            Some("true") => true,
            Some("false") => false,
            Some(_) => {
                self.errors.add(name, "must be true or false");
                otherwise
            }
        }
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self, name: &str) -> Option<T> {
        let text = self.text(name)?;
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        if number.is_none() {
            self.errors.add(name, "must be a number");
        }
        number
    }

    pub(super) fn mode(&mut self, name: &str) -> Option<FileMode> {
        let parsed = self.text(name)?.parse::<FileMode>();
        if let Err(error) = &parsed {
            self.errors.add(name, error.to_string());
        }
        parsed.ok()
    }

    pub(super) fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }

    #[expect(clippy::result_large_err, reason = "once a request, and on its way to being rendered")]
    pub(super) fn finish(self) -> Result<(), Problem> {
        if let Some((name, _)) = self.pairs.first() {
            let name: String = name.chars().take(64).collect();
            let detail = format!("no such query parameter: {name}");
            return Err(Problem::new(ProblemCode::UnknownField, detail).with_field(name));
        }
        Ok(self.errors.finish()?)
    }
}

/// A query string as it is written.
#[derive(Default)]
pub(super) struct Query(String);

impl Query {
    pub(super) fn path(self, name: &str, path: &FilePath) -> Self {
        self.bytes(name, path.as_bytes())
    }

    pub(super) fn text(self, name: &str, text: Option<impl ToString>) -> Self {
        match text {
            Some(text) => self.bytes(name, text.to_string().as_bytes()),
            None => self,
        }
    }

    /// Only if it is not as it would be without.
    pub(super) fn flag(self, name: &str, value: bool, otherwise: bool) -> Self {
        self.text(name, (value != otherwise).then_some(value))
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn bytes(mut self, name: &str, value: &[u8]) -> Self {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&percent_encode(value));
        self
    }
}

/// Everything but letters, digits, `-`, `.`, `_`, `~` and `/` as `%XX`.
pub fn percent_encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/') {
            encoded.push(char::from(*byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(DIGITS[usize::from(byte >> 4)]));
            encoded.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    encoded
}

/// A `%` without two hexadecimal digits behind it stands for itself, as the WHATWG's URL standard has it.
fn decode(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match (byte, behind) {
            (b'+', _) => decoded.push(b' '),
            (b'%', [high, low, ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    decoded.push(high << 4 | low);
                    rest = &behind[2..];
                }
                (_, _) => decoded.push(b'%'),
            },
            (other, _) => decoded.push(*other),
        }
    }
    decoded
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Cursors are opaque: the base64 of a path, in the alphabet that URLs don't escape.
pub fn cursor_of(path: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(path)
}

/// The path in a cursor; nothing that can't be one.
pub fn path_of(cursor: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    if cursor.len() > limits::FILES_CURSOR_CHARS {
        return None;
    }
    let path = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(cursor).ok()?;
    ((1..=limits::PATH_BYTES).contains(&path.len()) && !path.contains(&0)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |query: &str, take: fn(&mut Parameters)| {
            let mut parameters = Parameters::parse(query);
            take(&mut parameters);
            let problem = parameters.finish().unwrap_err();
            (problem.code.code(), problem.field.unwrap())
        };
        let path: fn(&mut Parameters) = |parameters| drop(parameters.path("path"));
        let invalid = |field: &str| ("invalid_field", field.to_owned());
        assert_eq!(refused("", path), invalid("path"));
        assert_eq!(refused("path=a%00", path), invalid("path"));
        assert_eq!(refused("path=a&path=b", path), invalid("path"));
        assert_eq!(refused(&format!("path={}", "x".repeat(4096)), path), invalid("path"));
        assert_eq!(refused("path=a&pth=b", path), ("unknown_field", "pth".to_owned()));
        assert_eq!(refused("deep=yes", |found| assert!(!found.flag("deep", false))), invalid("deep"));
        assert_eq!(refused("n=-1", |found| assert!(found.number::<u64>("n").is_none())), invalid("n"));
        assert_eq!(refused("user=a%20b", |found| drop(found.user())), invalid("user"));
        assert_eq!(refused("mode=8", |found| assert!(found.mode("mode").is_none())), invalid("mode"));
    }

    #[test]
    fn a_plus_is_a_space_and_a_stray_percent_sign_itself() {
        assert_eq!(decode("a+b%2Bc%zz%4"), b"a b+c%zz%4");
    }

    #[test]
    fn a_cursor_holds_a_path_and_nothing_else() {
        let longest = vec![0xff; limits::PATH_BYTES];
        assert_eq!(path_of(&cursor_of(&longest)), Some(longest));
        for cursor in
            ["", "!", &cursor_of(b""), &cursor_of(b"a\0"), &cursor_of(&[b'x'; limits::PATH_BYTES + 1])]
        {
            assert_eq!(path_of(cursor), None, "{cursor}");
        }
    }

    proptest! {
        #[test]
        fn any_path_survives_a_query(path in proptest::collection::vec(1_u8..=255, 1..100)) {
            let query = Query::default().path("path", &path.clone().into()).finish();
            let mut parameters = Parameters::parse(&query);
            prop_assert_eq!(parameters.path("path").into_bytes(), path);
        }
    }
}
