//! Several servers as real processes, with one Redis and one PostgreSQL.

mod absent;
mod cost;
mod devices;
mod drain;
mod grpc;
mod identity;
mod lease;
mod losses;
mod membership;
mod moving;
mod presence;
mod pushing;
mod readiness;
mod receipts;
mod redis_trouble;
mod repeats;
mod routing;
mod sharing;
