//! amdev over USB: ASM24 bridges, PCI behind the bridge; the amdev-usb command.
