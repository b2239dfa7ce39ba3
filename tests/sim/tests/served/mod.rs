//! A running `amdev-sim` that serves a socket. What is asked of it, each test adds.
#![allow(dead_code, reason = "no test uses all of it")]

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Ends with the test.
pub(crate) struct Server {
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) socket: PathBuf,
}

impl Server {
    /// Starts a command, which gets the socket as its last argument, and waits until it serves.
    pub(crate) fn spawn(command: &mut Command, socket: PathBuf) -> Server {
        let mut child = command.arg(&socket).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.starts_with("serving "), "{line}");
        Server { child, out, socket }
    }

    /// Sends a signal, `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// SIGTERM; what it printed last.
    pub(crate) fn stop(mut self) -> Value {
        self.signal("TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.socket.exists(), "the socket is taken away");
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}
