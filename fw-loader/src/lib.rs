//! Firmware images of AMD GPUs: found, decompressed, validated and sliced.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
