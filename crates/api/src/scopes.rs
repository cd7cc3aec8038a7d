//! Scopes: what a key may do within its tenant. A closed set; a release that adds one decides in its migration
//! which keys get it.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! scopes {
    // `tt` for the code: the schema's derive doesn't see through a `literal`, and would name the variant.
    ($($(#[$doc:meta])* $name:ident = $code:tt;)*) => {
        /// One thing that a key may do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        pub enum Scope {
            $($(#[$doc])* #[serde(rename = $code)] $name,)*
        }

        impl Scope {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }
        }
    };
}

scopes! {
    /// List and read sandboxes, operations and events.
    SandboxesRead = "sandboxes:read";
    /// Create and delete sandboxes.
    SandboxesWrite = "sandboxes:write";
    /// Run commands, write to them, signal them, read their output.
    Commands = "commands";
    /// Read and write files of sandboxes.
    Files = "files";
    /// Make, list, rotate and revoke keys.
    Keys = "keys";
    /// Create, change and delete projects, and set their quotas.
    Projects = "projects";
    /// Read quotas and what was used.
    UsageRead = "usage:read";
    /// Make ports of sandboxes public or private, and make and revoke tokens for them.
    Ports = "ports";
}

impl Scope {
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|scope| scope.code() == code)
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// Scopes without order or repetition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScopeSet(u16);

impl ScopeSet {
    pub fn all() -> Self {
        Scope::ALL.iter().copied().collect()
    }

    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// The first of these that the other set lacks.
    pub fn first_beyond(self, other: Self) -> Option<Scope> {
        self.to_vec().into_iter().find(|scope| !other.contains(*scope))
    }

    pub const fn without(self, scope: Scope) -> Self {
        Self(self.0 & !scope.bit())
    }

    /// In the order of [`Scope::ALL`].
    pub fn to_vec(self) -> Vec<Scope> {
        Scope::ALL.iter().copied().filter(|scope| self.contains(*scope)).collect()
    }
}

impl FromIterator<Scope> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_parse_back() {
        for scope in Scope::ALL {
            assert_eq!(Scope::from_code(scope.code()), Some(*scope));
            assert_eq!(serde_json::to_string(scope).unwrap(), format!("\"{scope}\""));
        }
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let some: ScopeSet = [Scope::Keys, Scope::Commands, Scope::Keys].into_iter().collect();
        assert_eq!(some.to_vec(), [Scope::Commands, Scope::Keys]);
        assert_eq!(some.first_beyond(ScopeSet::all()), None);
        assert_eq!(ScopeSet::all().without(Scope::Files).first_beyond(some), Some(Scope::SandboxesRead));
        assert_eq!(some.first_beyond(some.without(Scope::Keys)), Some(Scope::Keys));
    }
}
