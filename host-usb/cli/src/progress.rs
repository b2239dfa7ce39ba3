//! Progress on stderr, for people who watch.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Receives the progress of long work.
pub trait Progress {
    /// A stage begins; it has `total` steps if that is known.
    fn begin(&mut self, stage: &str, total: Option<u64>);
    /// `done` steps of the running stage are done.
    fn step(&mut self, done: u64);
    /// The stage ended after so many microseconds of the device's time.
    fn end(&mut self, us: u64);
}

/// Shows nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _stage: &str, _total: Option<u64>) {}
    fn step(&mut self, _done: u64) {}
    fn end(&mut self, _us: u64) {}
}

/// A line for each stage on stderr.
#[derive(Debug)]
pub struct Bars {
    bar: ProgressBar,
    stage: String,
    colour: bool,
}

impl Bars {
    /// Bars in colour or without.
    pub fn new(colour: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Bars { bar, stage: String::new(), colour }
    }

    fn style(&self, total: Option<u64>) -> ProgressStyle {
        let template = match (self.colour, total) {
            (true, Some(_)) => "  {spinner:.cyan} {msg:<24} {bar:30.cyan} {pos}/{len}",
            (true, None) => "  {spinner:.cyan} {msg:<24} {pos}",
            (false, Some(_)) => "  {spinner} {msg:<24} {bar:30} {pos}/{len}",
            (false, None) => "  {spinner} {msg:<24} {pos}",
        };
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
    }
}

impl Progress for Bars {
    fn begin(&mut self, stage: &str, total: Option<u64>) {
        self.stage = stage.to_owned();
        self.bar.reset();
        self.bar.set_style(self.style(total));
        self.bar.set_message(self.stage.clone());
        if let Some(total) = total {
            self.bar.set_length(total);
        }
        self.bar.enable_steady_tick(Duration::from_millis(100));
    }

    fn step(&mut self, done: u64) {
        self.bar.set_position(done);
    }

    fn end(&mut self, us: u64) {
        let (on, off) = if self.colour { ("\u{1b}[32m", "\u{1b}[0m") } else { ("", "") };
        let (stage, time) = (&self.stage, crate::output::micros(us));
        self.bar.println(format!("  {on}done{off} {stage:<24} {time:>12}"));
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
