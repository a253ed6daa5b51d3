//! A policy that gives every client the same access to every volume: for tests, and for trying
//! things out. Only the feature `testing` has it.
//!
//! Invariants: none of its answers depends on the client, or on the volume.

use crate::export::{Export, ExportAccess, ExportPolicy};
use file_service::HandleKey;
use std::net::IpAddr;
use units::VolumeUuid;

/// See the module.
#[derive(Clone, Default, Debug)]
pub struct EveryClient {
    /// The access.
    pub access: ExportAccess,
    /// Names of the volumes, for the list of exports only.
    pub volumes: Vec<String>,
}

impl EveryClient {
    /// The key of all volumes.
    pub const KEY: HandleKey = HandleKey(*b"every client has");
}

impl ExportPolicy for EveryClient {
    fn generation(&self) -> Option<u64> {
        Some(0)
    }

    fn handle_key(&self, _: VolumeUuid) -> Option<HandleKey> {
        Some(Self::KEY)
    }

    fn rule(&self, _: VolumeUuid, _: IpAddr) -> Option<ExportAccess> {
        Some(self.access)
    }

    fn rule_for_export(&self, _: &str, _: IpAddr) -> Option<ExportAccess> {
        Some(self.access)
    }

    fn exports(&self, _: IpAddr) -> Vec<Export> {
        let export = |volume: &String| Export { path: format!("/{volume}"), clients: Vec::new() };
        self.volumes.iter().map(export).collect()
    }
}
