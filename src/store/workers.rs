//! Worker numbers for ids, leased beside the highest time that may have been used under each. Leases end by the
//! database's clock.

use std::time::{Duration, Instant};

use super::connection::Arg;
use super::{Error, Store};
use crate::ids::{BootId, Lease};

const RELEASE: &str = "UPDATE workers SET holder = NULL, ends = 0, high = $3 WHERE worker = $2 AND holder = $1";

impl Store {
    /// Leases the lowest free worker number. What may be used under it is noted before the answer, so that the next
    /// holder starts above it, whatever becomes of this one.
    ///
    /// # Errors
    /// [`Error::Unavailable`] also where all 1,024 numbers are leased.
    pub async fn lease_worker(&self, holder: BootId, lease: Duration) -> Result<Lease, Error> {
        let expires = Instant::now() + lease;
        let holder = holder.to_string();
        let args = [Arg::Text(&holder), Arg::millis(lease)];
        let mut db = self.writer().await?;
        let row = db.one(db.dialect().lease_worker, &args).await?;
        let row = row.ok_or_else(|| Error::Unavailable("all worker numbers are leased".into()))?;
        Ok(leased(row, expires))
    }

    /// Renews a lease, given the time up to which ids were made; none where the number is another's now.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn renew_worker(
        &self,
        holder: BootId,
        worker: u16,
        lease: Duration,
        used_ms: u64,
    ) -> Result<Option<Lease>, Error> {
        let expires = Instant::now() + lease;
        let holder = holder.to_string();
        let args = [Arg::Text(&holder), Arg::millis(lease), Arg::Number(worker.into()), Arg::Number(used_ms as i64)];
        let mut db = self.writer().await?;
        let row = db.one(db.dialect().renew_worker, &args).await?;
        Ok(row.map(|row| leased(row, expires)))
    }

    /// Gives a worker number back and notes the time up to which ids were really made. Nothing where it is another's.
    ///
    /// # Errors
    /// Those of the database only.
    pub async fn release_worker(&self, holder: BootId, worker: u16, used_ms: u64) -> Result<(), Error> {
        let holder = holder.to_string();
        let args = [Arg::Text(&holder), Arg::Number(worker.into()), Arg::Number(used_ms as i64)];
        self.writer().await?.execute(RELEASE, &args).await?;
        Ok(())
    }
}

fn leased((worker, above, high): (i64, i64, i64), expires: Instant) -> Lease {
    Lease { worker: worker as u16, above_ms: above as u64, until_ms: high as u64, expires }
}
