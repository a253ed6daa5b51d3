//! What `/metrics` and `/healthz` show: the node, as management sees it.
//!
//! Invariants: a look waits for neither the engine nor a client, and shows nothing that clients
//! stored: no path, no name of a file, no address. Checks are shown by code and severity only.

use admin_api::StatusReply;
use management::Management;
use metrics_server::{Look, Source};
use std::sync::Arc;
use telemetry::render_prometheus;

/// See the module.
pub(crate) struct NodeMetrics(pub Arc<Management>);

impl Source for NodeMetrics {
    fn look(&self) -> Look {
        let (checks, metrics) = self.0.metrics();
        let mut health = format!("{}\n", StatusReply::health_of(&checks));
        for check in &checks {
            health.push_str(&format!("{} {}\n", check.severity, check.code));
        }
        Look { metrics: render_prometheus(&metrics), health }
    }
}
