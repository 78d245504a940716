//! What the gate hears beside decisions: notices of an end, and the model that answered.

use super::Gate;
use crate::admission::events::ScopeId;
use crate::dialect::Notices;
use crate::signal::Mono;

impl Gate {
    /// An answer of the scope's provider carried these notices.
    pub fn handle_notices(&mut self, scope: ScopeId, notices: &Notices, now: Mono) {
        let now = self.clamp(now);
        if let Some(scope) = self.scopes.get_mut(scope.0) {
            scope.said.noticed(notices, now);
        }
    }

    /// A good answer to a request for the model `asked` names the model `by`.
    pub fn handle_model(&mut self, scope: ScopeId, asked: &str, by: &str) {
        if let Some(scope) = self.scopes.get_mut(scope.0) {
            scope.said.answered(asked, by);
        }
    }

    /// A call for the model `asked` was answered with this status.
    pub fn handle_call(&mut self, scope: ScopeId, asked: &str, status: u16) {
        if let Some(scope) = self.scopes.get_mut(scope.0) {
            scope.said.called(asked, status);
        }
    }
}
