//! Who answers for a quota scope. Names only; pages nobody.

use std::collections::BTreeMap;

/// Owners by quota scope, as the configuration names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners(BTreeMap<String, String>);

impl Owners {
    /// What to do first when a cause wants the owner of `scope` paged.
    #[must_use]
    pub fn page(&self, scope: &str) -> String {
        match self.0.get(scope) {
            Some(owner) => format!("page {owner}, who owns the quota"),
            None => "page whoever owns the quota".to_owned(),
        }
    }
}

impl FromIterator<(String, String)> for Owners {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(owners: T) -> Self {
        Self(owners.into_iter().collect())
    }
}
