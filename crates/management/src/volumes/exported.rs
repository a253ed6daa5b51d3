//! The export rules of volumes, changed.
//!
//! Invariant: NFS clients see a changed rule only when it is durable.

use crate::exports;
use crate::volumes::room::Volumes;
use admin_api::exports::{add_rule, remove_rule};
use admin_api::{
    AdminError, Code, ExportAdd, ExportRemove, ExportRule, VolumeExports, VolumeFilter,
};
use ondisk::records::EXPORT_RULES_MAX;
use platform::mutation::{self, Rule};

impl Volumes {
    pub(crate) fn list_exports(
        &self,
        filter: &VolumeFilter,
    ) -> Result<Vec<VolumeExports>, AdminError> {
        let volumes = self.filtered("cannot list exports of", filter)?;
        let exports = volumes.iter().map(|volume| VolumeExports {
            volume: volume.name(),
            rules: exports::from_records(&volume.name(), &volume.exports()),
        });
        Ok(exports.collect())
    }

    pub(crate) fn add_export(&self, wanted: &ExportAdd) -> Result<VolumeExports, AdminError> {
        self.change_exports("cannot export", &wanted.volume, |rules| {
            add_rule(&wanted.volume, rules, wanted.rule, wanted.index)
        })
    }

    pub(crate) fn remove_export(&self, wanted: &ExportRemove) -> Result<VolumeExports, AdminError> {
        self.change_exports("cannot change exports of", &wanted.volume, |rules| {
            remove_rule(&wanted.volume, rules, wanted.client)
        })
    }

    fn change_exports(
        &self,
        message: &str,
        name: &str,
        change: impl FnOnce(&mut Vec<ExportRule>) -> Result<(), AdminError>,
    ) -> Result<VolumeExports, AdminError> {
        let _turn = self.node.turn();
        let volume = self.find(message, name)?;
        let mut rules = exports::from_records(name, &volume.exports());
        change(&mut rules)?;
        check_rules_count(message, name, &rules)?;
        let records = rules.iter().map(exports::to_record).collect();
        if mutation::broken(Rule::RulesToldEarly) {
            let identity = (volume.environment.identity, volume.handle_key);
            self.node.front_ends.set_exports(name, identity, &rules);
        }
        if mutation::broken(Rule::ChangeAnsweredEarly) {
            self.node.engine.set_exports(name, records, Box::new(drop));
        } else {
            self.node
                .waits
                .request(message, name, |done| self.node.engine.set_exports(name, records, done))?;
        }
        exports::publish(&*self.node.front_ends, &volume);
        tracing::info!(volume = name, rules = rules.len(), "export rules changed");
        Ok(VolumeExports { volume: name.to_owned(), rules })
    }
}

pub(crate) fn check_rules_count(
    message: &str,
    name: &str,
    rules: &[ExportRule],
) -> Result<(), AdminError> {
    if rules.len() <= EXPORT_RULES_MAX {
        return Ok(());
    }
    let cause = format!("a volume has {EXPORT_RULES_MAX} export rules at most");
    Err(AdminError::new(Code::Failed, message, name).because(cause))
}
