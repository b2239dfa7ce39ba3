//! Cases side by side, each with a time that it may take.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longer than any case takes that does not hang, on a busy machine too.
const HANG: Duration = Duration::from_secs(180);

/// How a case went wrong.
pub(crate) struct Failure {
    pub(crate) case: String,
    pub(crate) why: String,
}

/// Does `work` with each case, `jobs` at a time; those that failed, panicked or hung, in order. A case
/// that hangs ends the program: its thread cannot be stopped.
pub(crate) fn run<C: Clone + std::fmt::Display + Send + Sync>(
    cases: &[C],
    jobs: usize,
    work: impl Fn(&C) -> Result<(), String> + Sync,
) -> Vec<Failure> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let under_way = Arc::new(Mutex::new(vec![None::<(String, Instant)>; jobs]));
    let watched = Arc::downgrade(&under_way);
    std::thread::spawn(move || {
        while let Some(under_way) = watched.upgrade() {
            for (case, since) in under_way.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten() {
                if since.elapsed() > HANG {
                    println!("FAILED {case}: it hangs, {HANG:?} have passed");
                    std::process::exit(1);
                }
            }
            drop(under_way);
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let (next, failures, under_way, work) = (&next, &failures, &under_way, &work);
            scope.spawn(move || {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let enter = |what| {
                        if let Some(slot) =
                            under_way.lock().unwrap_or_else(PoisonError::into_inner).get_mut(job)
                        {
                            *slot = what;
                        }
                    };
                    enter(Some((case.to_string(), Instant::now())));
                    let done = catch_unwind(AssertUnwindSafe(|| work(case)));
                    enter(None);
                    let why = match done {
                        Ok(Ok(())) => continue,
                        Ok(Err(why)) => why,
                        Err(panic) => format!("panic: {}", message(&*panic)),
                    };
                    let failure = Failure { case: case.to_string(), why };
                    failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
                }
            });
        }
    });
    failures.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}
