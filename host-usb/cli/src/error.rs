//! Errors and exit codes.

/// Exit codes; also the text of `--help`.
pub const EXIT_CODES: &str = "\
Exit codes: 0 done and right; 1 failed, or a result is wrong; 2 wrong usage; \
3 device not found or not usable; 4 firmware missing or bad; 5 this device cannot do that";

/// What went wrong, as far as the exit code tells it apart. Everything else is exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Wrong command line or input file.
    #[error("{0}")]
    Usage(String),
    /// No such device, or it cannot be opened.
    #[error("{0}")]
    Device(String),
    /// Firmware is missing or bad.
    #[error("{0}")]
    Firmware(String),
    /// This device cannot serve the command.
    #[error("{device} cannot serve `{command}`: {why}")]
    Unsupported {
        /// The device, as on the command line.
        device: String,
        /// The command.
        command: &'static str,
        /// Why not.
        why: String,
    },
}

impl CliError {
    /// The process's exit code.
    pub fn code(&self) -> u8 {
        match self {
            CliError::Usage(_) => USAGE,
            CliError::Device(_) => 3,
            CliError::Firmware(_) => FIRMWARE,
            CliError::Unsupported { .. } => 5,
        }
    }
}

/// The exit code of a wrong command line or input file.
pub const USAGE: u8 = 2;
const FIRMWARE: u8 = 4;

/// The exit code of any error.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of).unwrap_or(1)
}

/// The exit code of errors that have one of their own: those of the command line, and those of the
/// core that are about what a person gave.
fn code_of(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    use amdev_core::error::Error;
    use amdev_core::program::ProgramError;
    use amdev_core::queue::QueueError;
    use amdev_core::runtime::RuntimeError;
    if let Some(e) = error.downcast_ref::<CliError>() {
        return Some(e.code());
    }
    if let Some(e) = error.downcast_ref::<RuntimeError>() {
        return match e {
            RuntimeError::Program(_) | RuntimeError::Queue(QueueError::BadLaunch { .. }) => Some(USAGE),
            _ => None,
        };
    }
    if error.is::<ProgramError>() || matches!(error.downcast_ref(), Some(&QueueError::BadLaunch { .. })) {
        return Some(USAGE);
    }
    match error.downcast_ref::<Error>()? {
        Error::Firmware(_)
        | Error::MissingComponent(_)
        | Error::MissingImage(_)
        | Error::ImageTooLarge { .. } => Some(FIRMWARE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn the_exit_code_is_found_below_contexts() {
        let error = Err::<(), _>(CliError::Firmware("gc_11_0_0_mec.bin is missing".into()))
            .context("booting")
            .context("demo")
            .unwrap_err();
        assert_eq!(exit_code(&error), 4);
        assert_eq!(exit_code(&anyhow::anyhow!("anything")), 1);
        let empty = anyhow::Error::from(amdev_core::program::ProgramError::Empty);
        assert_eq!(exit_code(&empty.context("loading k.co")), 2);
        let missing = anyhow::Error::from(amdev_core::error::Error::MissingImage("RLC"));
        assert_eq!(exit_code(&missing), 4);
    }
}
