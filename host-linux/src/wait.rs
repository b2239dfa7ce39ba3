//! Time, and sleeping until the device interrupts.

use amdev_core::bus::{BusError, Clock};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a wait looks at the eventfd before it sleeps: what takes no longer needs no wake-up.
const SPIN: Duration = Duration::from_micros(20);
/// Shorter delays are spun: a sleep takes longer than that.
const SHORTEST_SLEEP_US: u64 = 60;

/// Time as it passes here.
pub(crate) struct RealClock(Instant);

impl Default for RealClock {
    fn default() -> Self {
        RealClock(Instant::now())
    }
}

impl Clock for RealClock {
    fn now_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
    fn wait_us(&self, us: u64) {
        if us >= SHORTEST_SLEEP_US {
            std::thread::sleep(Duration::from_micros(us));
            return;
        }
        let end = Instant::now() + Duration::from_micros(us);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
}

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// The interrupt came.
    Interrupt,
    /// One of the other descriptors has something to say.
    Other,
    /// Nothing happened.
    Timeout,
}

/// The eventfd that an interrupt of the device writes to.
pub(crate) struct Msi(OwnedFd);

impl Msi {
    pub(crate) fn new() -> Result<Msi, Errno> {
        Ok(Msi(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Whether it was written to since the last look.
    pub(crate) fn taken(&self) -> Result<bool, BusError> {
        match rustix::io::read(&self.0, &mut [0; 8]) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(e) => Err(BusError::Os(e.raw_os_error())),
        }
    }

    /// Looks for a moment, then sleeps until the interrupt, one of `others`, or `end`.
    pub(crate) fn wait(&self, end: Instant, others: &[BorrowedFd<'_>]) -> Result<Woken, BusError> {
        let spin_until = end.min(Instant::now() + SPIN);
        loop {
            if self.taken()? {
                return Ok(Woken::Interrupt);
            }
            if Instant::now() >= spin_until {
                break;
            }
            std::hint::spin_loop();
        }
        let mut fds = vec![PollFd::new(&self.0, PollFlags::IN)];
        fds.extend(others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut fds, Some(&time)) {
                Ok(0) => return Ok(Woken::Timeout),
                Ok(_) if fds.iter().skip(1).any(|fd| !fd.revents().is_empty()) => return Ok(Woken::Other),
                Ok(_) if self.taken()? => return Ok(Woken::Interrupt),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(BusError::Os(e.raw_os_error())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_wakes_once_and_another_descriptor_is_told_from_it() {
        let (msi, other) = (Msi::new().unwrap(), Msi::new().unwrap());
        let soon = || Instant::now() + Duration::from_millis(20);
        assert_eq!(msi.wait(soon(), &[other.fd()]), Ok(Woken::Timeout));
        rustix::io::write(&msi.0, &2u64.to_ne_bytes()).unwrap();
        assert_eq!(msi.wait(soon(), &[other.fd()]), Ok(Woken::Interrupt));
        assert_eq!(msi.wait(soon(), &[other.fd()]), Ok(Woken::Timeout));
        rustix::io::write(&other.0, &1u64.to_ne_bytes()).unwrap();
        assert_eq!(msi.wait(soon(), &[other.fd()]), Ok(Woken::Other));
    }
}
