//! The core's boot events as stages with times.

use crate::progress::Progress;
use crate::session::Stage;
use amdev_core::ip::Event;

/// Collects stages and shows them as they pass.
pub(super) struct Stages<'p> {
    progress: &'p mut dyn Progress,
    stages: Vec<Stage>,
    open: Option<(String, u64)>,
}

impl<'p> Stages<'p> {
    pub(super) fn new(progress: &'p mut dyn Progress) -> Self {
        Stages { progress, stages: Vec::new(), open: None }
    }

    pub(super) fn event(&mut self, event: &Event) {
        if let Some((name, since)) = self.open.take() {
            let us = event.at_us.saturating_sub(since);
            self.progress.end(us);
            tracing::info!("stage {name} done in {}", crate::output::micros(us));
            self.stages.push(Stage { name, us });
        }
        if let Some(stage) = event.stage {
            let name = stage.to_string();
            self.progress.begin(&name, None);
            tracing::debug!("stage {name}");
            self.open = Some((name, event.at_us));
        }
    }

    pub(super) fn finish(self) -> Vec<Stage> {
        self.stages
    }
}
