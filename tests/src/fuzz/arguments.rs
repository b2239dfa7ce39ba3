//! What people type: `--arg SPEC`, `--device DEV`, sizes and values.

use amdev_cli::argspec::{ArgSpec, Source};
use amdev_cli::dtype::parse_size;
use amdev_cli::spec::{DeviceSpec, PciAddress};

/// Buffers are made up to this many elements.
const MAX_MADE: usize = 4096;

pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(n) = parse_size(text) {
        assert!(!text.trim().is_empty());
        // A plain number means itself.
        if text.bytes().all(|b| b.is_ascii_digit()) {
            assert_eq!(text.parse(), Ok(n));
        }
    }
    if let Ok(device) = text.parse::<DeviceSpec>() {
        assert_eq!(device.to_string().parse(), Ok(device));
    }
    if let Ok(address) = text.parse::<PciAddress>() {
        assert!(address.device < 32 && address.function < 8);
        assert_eq!(address.to_string().parse(), Ok(address));
    }
    match text.parse::<ArgSpec>() {
        Err(e) => assert!(!e.is_empty()),
        Ok(ArgSpec::Value { dtype, bytes }) => {
            assert_eq!(bytes.len(), dtype.size());
            // What is shown is what would be typed for the same value.
            let shown = dtype.show(&bytes);
            let again = dtype.parse_value(&shown).unwrap_or_else(|e| panic!("{text:?}: {shown:?}: {e}"));
            let nan = dtype.is_float() && shown == "NaN";
            assert!(nan || again == bytes, "{text:?}: {shown:?} is {again:?}, not {bytes:?}");
        }
        Ok(spec @ ArgSpec::Buffer { dtype, source: Source::Generated(_, count), .. }) => {
            assert!(count > 0);
            if count <= MAX_MADE
                && let Ok(bytes) = spec.initial()
            {
                assert_eq!(bytes.len(), count * dtype.size());
            }
        }
        Ok(ArgSpec::Buffer { source: Source::File(path), .. }) => assert!(!path.as_os_str().is_empty()),
    }
}
