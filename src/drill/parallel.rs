//! The same work on many inputs, on every core, with the results in the order of the inputs.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

/// Does `work` on each of `jobs`. What comes out does not depend on how many cores there are.
pub(super) fn in_order<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(jobs.len()));
    let toil = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(place) else { break };
            let result = work(job);
            done.lock().expect("no worker panics while it holds the lock").push((place, result));
        }
    };
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    scope(|workers| {
        for _ in 0..cores.min(jobs.len()) {
            workers.spawn(toil);
        }
    });
    let mut done = done.into_inner().expect("the workers have ended well");
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        let squares: Vec<u64> = jobs.iter().map(|job| job * job).collect();
        assert_eq!(in_order(&jobs, |job| job * job), squares);
        assert_eq!(in_order(&[0_u64; 0], |job| *job), [0; 0]);
    }
}
