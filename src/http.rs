//! What all HTTP calls of this server have in common: they end in time, they read no more than they need, and what went
//! wrong is told in one line that holds no secret of the URL.

use std::error::Error as _;

use reqwest::Response;

/// Reads a body of at most `most` bytes; none where it is larger.
///
/// # Errors
/// What the connection says.
pub async fn bounded(mut response: Response, most: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > most {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// An error with all its causes in one line, without the URL.
pub fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}
