//! Reads what Redis answers.

use std::time::Duration;

use redis::{FromRedisValue, ServerError, Value, from_redis_value_ref};

use super::super::{Enlisted, Error, Renewed, ServerRow};
use crate::ids::{BootId, ServerId};

/// A row's state, as it is written.
pub(super) fn state(draining: bool) -> &'static str {
    if draining { "draining" } else { "up" }
}

/// The other servers in an entry that was written; nothing says that it is new.
pub(super) fn others(value: &Value) -> Result<Vec<ServerId>, Error> {
    if *value == Value::Nil { Ok(Vec::new()) } else { ids(value) }
}

/// A list of server ids.
pub(super) fn ids(value: &Value) -> Result<Vec<ServerId>, Error> {
    Ok(read::<Vec<String>>(value)?.iter().filter_map(|id| id.parse().ok()).collect())
}

/// A user's entry: comma-separated ids, or nothing. What is no id was not written by a server, and is passed over.
pub(super) fn entry(value: &Value) -> Vec<ServerId> {
    let text = match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
        _ => "",
    };
    text.split(',').filter_map(|id| id.parse().ok()).collect()
}

/// A number; none where there is nothing, or something else.
pub(super) fn number(value: &Value) -> Option<u64> {
    read(value).ok()
}

/// The answer of `enlist.lua`.
pub(super) fn enlisted(value: &Value) -> Result<Enlisted, Error> {
    if matches!(value, Value::Array(items) if items.is_empty()) {
        return Ok(Enlisted::Ours);
    }
    let (boot, left): (String, i64) = read(value)?;
    let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
    Ok(Enlisted::Held { boot: parse_boot(&boot)?, left })
}

/// The answer of `renew.lua`.
pub(super) fn renewed(value: &Value, own: BootId) -> Result<Renewed, Error> {
    match read::<String>(value)?.as_str() {
        "" => Ok(Renewed::Restored),
        boot => match parse_boot(boot)? {
            boot if boot == own => Ok(Renewed::Kept),
            other => Ok(Renewed::Usurped(other)),
        },
    }
}

/// A server's row; none if it is missing or nobody of ours wrote it.
pub(super) fn row(id: ServerId, value: &Value) -> Option<ServerRow> {
    let fields: std::collections::HashMap<String, String> = read(value).ok()?;
    Some(ServerRow {
        id,
        boot: fields.get("boot")?.parse().ok()?,
        relay: fields.get("relay")?.clone(),
        draining: fields.get("state")? == state(true),
        version: fields.get("version")?.clone(),
    })
}

/// A plain text.
pub(super) fn text(value: &Value) -> Result<String, Error> {
    read(value)
}

/// One field of an `INFO` answer, if it is in there.
pub(super) fn info(value: &Value, field: &str) -> Option<String> {
    let text: String = read(value).ok()?;
    let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(found.trim().to_owned())
}

/// An error as Redis words it.
pub(super) fn refusal(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default()).trim_end().to_owned()
}

fn parse_boot(text: &str) -> Result<BootId, Error> {
    text.parse().map_err(|_| Error::Refused("a server's row has a malformed boot id".into()))
}

fn read<T: FromRedisValue>(value: &Value) -> Result<T, Error> {
    from_redis_value_ref(value).map_err(|error| Error::Refused(error.to_string()))
}
