//! Join tokens: `space_join_` and 43 characters of base64url.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use space_api::nodes::{CreateJoinToken, JoinToken};

use super::{
    App, AppError,
    auth::{Caller, hash_secret, random_secret},
    error::Answer,
};
use crate::store::idempotency::Claim;

const PREFIX: &str = "space_join_";

/// What is stored of a token, and looked up by. `None`: the text is no token.
pub(crate) fn hash_token(text: &str) -> Option<[u8; 32]> {
    let secret = text.strip_prefix(PREFIX).filter(|rest| rest.len() == 43)?;
    Some(hash_secret(&URL_SAFE_NO_PAD.decode(secret).ok()?))
}

impl App {
    pub(crate) async fn join_token_create(
        &self,
        caller: &Caller,
        request: CreateJoinToken,
        claim: Option<&Claim>,
    ) -> Result<Answer<JoinToken>, AppError> {
        caller.require_admin()?;
        request.validate()?;
        self.join_token_issue(request, claim).await
    }

    /// Without a caller: for the file that a node or an edge which is started alongside joins with.
    pub(crate) async fn join_token_issue(
        &self,
        request: CreateJoinToken,
        claim: Option<&Claim>,
    ) -> Result<Answer<JoinToken>, AppError> {
        let secret = random_secret()?;
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
        let created = self.store.join_token_create(hash_secret(&secret), request, claim).await?;
        Ok(Answer::from_claimed(created)?.map(|expires_at| JoinToken { token: Some(token), expires_at }))
    }
}
