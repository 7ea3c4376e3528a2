//! Worker numbers: one holder each, and a later holder starts above all that was used.

use std::collections::BTreeSet;
use std::time::Duration;

use minichat::ids::{BootId, Snowflakes};

use super::*;
use crate::support::wait::eventually;

on_both!(
    holders_at_once_never_share_a_number,
    an_ended_lease_is_taken_over_above_what_was_noted,
    a_lease_is_renewed_by_its_holder_only,
    a_number_that_is_given_back_is_noted_with_the_time_that_was_used,
    a_burst_that_ran_ahead_of_the_clock_is_noted,
);

const LONG: Duration = Duration::from_secs(60);

/// A lease that has ended when it is answered.
const NONE: Duration = Duration::ZERO;

async fn holders_at_once_never_share_a_number(database: Database) {
    let stores = database.open_twice().await;
    let leases: Vec<_> = (0..20)
        .map(|n| {
            let store = stores[n % 2].clone();
            tokio::spawn(async move { store.lease_worker(BootId::random(), LONG).await.unwrap().worker })
        })
        .collect();
    let mut workers = BTreeSet::new();
    for lease in leases {
        assert!(workers.insert(lease.await.unwrap()));
    }
    assert_eq!(workers, (0..20).collect());
}

async fn an_ended_lease_is_taken_over_above_what_was_noted(database: Database) {
    let store = database.open().await;
    let (first, second) = (BootId(1), BootId(2));
    let span = Duration::from_millis(50);
    let lease = store.lease_worker(first, span).await.unwrap();
    assert_eq!(lease.worker, 0);
    let taken = eventually("the lease ends", async || {
        let lease = store.lease_worker(second, LONG).await.unwrap();
        (lease.worker == 0).then_some(lease)
    })
    .await;
    assert_eq!(taken.above_ms, lease.until_ms);
    assert!(taken.until_ms >= taken.above_ms + LONG.as_millis() as u64);
    assert!(store.renew_worker(first, 0, LONG, 0).await.unwrap().is_none());
    store.release_worker(first, 0, 0).await.unwrap();
    assert!(store.renew_worker(second, 0, LONG, 0).await.unwrap().is_some());
}

async fn a_lease_is_renewed_by_its_holder_only(database: Database) {
    let store = database.open().await;
    let lease = store.lease_worker(BootId(1), LONG).await.unwrap();
    let renewed = store.renew_worker(BootId(1), lease.worker, LONG, lease.above_ms).await.unwrap().unwrap();
    assert_eq!((renewed.worker, renewed.above_ms), (lease.worker, lease.above_ms));
    assert!(renewed.until_ms >= lease.until_ms && renewed.expires >= lease.expires);
    assert!(store.renew_worker(BootId(2), lease.worker, LONG, 0).await.unwrap().is_none());
    assert_eq!(store.lease_worker(BootId(2), LONG).await.unwrap().worker, lease.worker + 1);
}

async fn a_number_that_is_given_back_is_noted_with_the_time_that_was_used(database: Database) {
    let store = database.open().await;
    let lease = store.lease_worker(BootId(1), LONG).await.unwrap();
    let ids = Snowflakes::new(lease);
    let last = ids.next().unwrap();
    store.release_worker(BootId(1), lease.worker, ids.used_ms()).await.unwrap();
    let next = store.lease_worker(BootId(2), LONG).await.unwrap();
    assert_eq!((next.worker, next.above_ms), (lease.worker, ids.used_ms()));
    assert!(Snowflakes::new(next).next().unwrap() > last);
}

async fn a_burst_that_ran_ahead_of_the_clock_is_noted(database: Database) {
    let store = database.open().await;
    let lease = store.lease_worker(BootId(1), NONE).await.unwrap();
    let ahead = lease.until_ms + 3_600_000;
    let renewed = store.renew_worker(BootId(1), lease.worker, NONE, ahead).await.unwrap().unwrap();
    assert_eq!(renewed.until_ms, ahead);
    let next = store.lease_worker(BootId(2), NONE).await.unwrap();
    assert_eq!((next.worker, next.above_ms), (lease.worker, ahead));
}
