//! Transfers of libusb: the unsafe part.
//!
//! libusb owns a transfer and its buffer from submission until its callback ran. Both live in [`Pending`],
//! which is dropped only after that; what never ends is leaked rather than freed below the kernel's hands.

use crate::error::UsbError;
use crate::port::{Completion, End, Transfer};
use libusb1_sys as sys;
use libusb1_sys::constants as c;
use rusb::{Context, DeviceHandle, UsbContext as _};
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Length of a setup packet in front of a control transfer's data.
const SETUP_LEN: usize = 8;
/// How long transfers that were taken back may take to end when the port is dropped.
const DROP_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends of transfers as callbacks tell them: number, status, bytes.
type Ended = Arc<Mutex<VecDeque<(u64, i32, usize)>>>;

/// What a callback finds in its transfer.
struct Note {
    id: u64,
    ended: Ended,
}

/// A transfer that was handed to libusb.
struct Pending {
    transfer: *mut sys::libusb_transfer,
    /// The buffer; behind a setup packet for control.
    buffer: Vec<u8>,
    /// Where data begin in it.
    data_at: usize,
    is_in: bool,
    /// Kept for the callback.
    _note: Arc<Note>,
}

/// The transfers of one device.
pub(super) struct Transfers {
    handle: Arc<DeviceHandle<Context>>,
    pending: HashMap<u64, Pending>,
    ended: Ended,
    next: u64,
}

/// Runs in whichever thread handles events.
extern "system" fn ended(transfer: *mut sys::libusb_transfer) {
    // SAFETY: libusb calls this with a transfer that `submit` filled in; its `user_data` is the note that
    // lives in the same `Pending`, which is not dropped before this has queued the transfer's end.
    let (note, status, actual) = unsafe {
        let t = &*transfer;
        (&*t.user_data.cast::<Note>(), t.status, t.actual_length)
    };
    let entry = (note.id, status, usize::try_from(actual).unwrap_or(0));
    note.ended.lock().unwrap_or_else(PoisonError::into_inner).push_back(entry);
}

/// How libusb's status reads here.
pub(super) fn end_of(status: i32) -> End {
    match status {
        c::LIBUSB_TRANSFER_COMPLETED => End::Done,
        c::LIBUSB_TRANSFER_STALL => End::Stalled,
        c::LIBUSB_TRANSFER_CANCELLED | c::LIBUSB_TRANSFER_TIMED_OUT => End::Cancelled,
        c::LIBUSB_TRANSFER_NO_DEVICE => End::Gone,
        c::LIBUSB_TRANSFER_OVERFLOW => End::Overflow,
        _ => End::Failed,
    }
}

impl Transfers {
    pub(super) fn new(handle: Arc<DeviceHandle<Context>>) -> Self {
        Transfers { handle, pending: HashMap::new(), ended: Ended::default(), next: 1 }
    }

    pub(super) fn submit(&mut self, transfer: Transfer) -> Result<u64, UsbError> {
        let id = self.next;
        self.next += 1;
        let (kind, stream) = match &transfer {
            Transfer::Control { .. } => (c::LIBUSB_TRANSFER_TYPE_CONTROL, 0),
            Transfer::Out { stream, .. } | Transfer::In { stream, .. } if *stream > 0 => {
                (c::LIBUSB_TRANSFER_TYPE_BULK_STREAM, *stream)
            }
            _ => (c::LIBUSB_TRANSFER_TYPE_BULK, 0),
        };
        let endpoint = transfer.endpoint();
        let (buffer, data_at, is_in) = match transfer {
            Transfer::Control { setup, data } => {
                let mut buffer = vec![setup.request_type, setup.request];
                for word in [setup.value, setup.index, setup.length] {
                    buffer.extend(word.to_le_bytes());
                }
                buffer.extend(data);
                buffer.resize(SETUP_LEN + usize::from(setup.length), 0);
                (buffer, SETUP_LEN, setup.request_type & 0x80 != 0)
            }
            Transfer::Out { data, .. } => (data, 0, false),
            Transfer::In { length, .. } => (vec![0; length], 0, true),
        };
        let length = i32::try_from(buffer.len())
            .map_err(|_| UsbError::Unsupported("transfer more than 2 GiB at once"))?;
        let note = Arc::new(Note { id, ended: Arc::clone(&self.ended) });
        // SAFETY: takes no pointers; the result is checked.
        let raw = unsafe { sys::libusb_alloc_transfer(0) };
        if raw.is_null() {
            return Err(UsbError::Refused("libusb has no memory for a transfer".into()));
        }
        let mut pending = Pending { transfer: raw, buffer, data_at, is_in, _note: note };
        // SAFETY: `raw` is a fresh transfer, whose fields are written without a reference to it: it is zeroed,
        // which is no callback. Buffer and note are heap memory of `pending`, which does not move when
        // `pending` does, and is kept until the callback ran. The handle outlives `self`.
        let submitted = unsafe {
            (*raw).dev_handle = self.handle.as_raw();
            (*raw).endpoint = endpoint;
            (*raw).transfer_type = kind;
            // Deadlines are the caller's, who takes transfers back.
            (*raw).timeout = 0;
            (*raw).length = length;
            (*raw).buffer = pending.buffer.as_mut_ptr();
            (*raw).callback = ended;
            (*raw).user_data = Arc::as_ptr(&pending._note).cast_mut().cast::<c_void>();
            if stream > 0 {
                sys::libusb_transfer_set_stream_id(raw, stream);
            }
            sys::libusb_submit_transfer(raw)
        };
        if submitted == 0 {
            self.pending.insert(id, pending);
            return Ok(id);
        }
        // SAFETY: it was not taken, so that nobody but us knows of it.
        unsafe { sys::libusb_free_transfer(raw) };
        Err(super::error_of(super::rusb_error(submitted), "submitting a transfer"))
    }

    pub(super) fn cancel(&mut self, id: u64) {
        if let Some(pending) = self.pending.get(&id) {
            // SAFETY: the transfer is alive as long as it is pending. One that has ended meanwhile is
            // reported as such, which is as good.
            unsafe { sys::libusb_cancel_transfer(pending.transfer) };
        }
    }

    fn pop(&mut self) -> Option<Completion> {
        loop {
            let entry = self.ended.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let (id, status, actual) = entry?;
            let Some(pending) = self.pending.remove(&id) else { continue };
            // SAFETY: its callback ran, so that libusb has let go of it.
            unsafe { sys::libusb_free_transfer(pending.transfer) };
            let data = match pending.is_in {
                true => {
                    let range = pending.data_at..pending.data_at + actual;
                    pending.buffer.get(range).unwrap_or_default().to_vec()
                }
                false => Vec::new(),
            };
            return Some(Completion { id, end: end_of(status), actual, data });
        }
    }

    pub(super) fn reap(&mut self, timeout: Duration) -> Result<Option<Completion>, UsbError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(completion) = self.pop() {
                return Ok(Some(completion));
            }
            // Also where there is no time left: what has ended is taken in.
            let left = deadline.saturating_duration_since(Instant::now());
            match self.handle.context().handle_events(Some(left)) {
                Ok(()) | Err(rusb::Error::Interrupted) => {}
                Err(e) => return Err(super::error_of(e, "waiting for transfers")),
            }
            if left.is_zero() {
                return Ok(self.pop());
            }
        }
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        let ids: Vec<u64> = self.pending.keys().copied().collect();
        ids.into_iter().for_each(|id| self.cancel(id));
        let deadline = Instant::now() + DROP_TIMEOUT;
        while !self.pending.is_empty() && Instant::now() < deadline {
            if self.reap(Duration::from_millis(100)).is_err() {
                break;
            }
        }
        // The kernel may still write there.
        self.pending.drain().for_each(|(_, pending)| std::mem::forget(pending));
    }
}

/// Gives each of these endpoints so many streams; how many there are.
pub(super) fn alloc_streams(handle: &DeviceHandle<Context>, streams: u32, endpoints: &[u8]) -> i32 {
    let mut list = endpoints.to_vec();
    let count = i32::try_from(list.len()).unwrap_or(0);
    // SAFETY: the handle is open; the list has `count` bytes and is only read during the call.
    unsafe { sys::libusb_alloc_streams(handle.as_raw(), streams, list.as_mut_ptr(), count) }
}
