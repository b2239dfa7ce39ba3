//! The command line shared by `amdev` and `amdev-usb`.
