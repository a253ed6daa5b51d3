//! Does the quota file of an image say what the files of the image use?
//!
//! Invariants: files are counted from their inodes, as `ondisk::quota` says; those that the quota
//! file says are not counted yet are left out.

use crate::finding::{Finding, ImageName};
use crate::image::Image;
use crate::walker::Walker;
use ondisk::damage::Damage;
use ondisk::quota::{
    QUOTAS_PER_BLOCK, QuotaHeader, QuotaKey, QuotaKind, QuotaRecord, counted, default_slot, key_at,
};
use std::collections::BTreeMap;
use units::Fbn;

/// Compares an image's quota file with its inodes.
pub(crate) fn check(walker: &mut Walker<'_, '_, '_>, name: ImageName, image: &Image) {
    if image.quotas.is_empty() {
        return;
    }
    let header = match image.quotas.get(&0).map(|block| QuotaHeader::from_block(block)) {
        Some(Ok(header)) => header,
        Some(Err(damage)) => return tell(walker, name, 0, damage),
        None => {
            let damage = Damage::Field { structure: "quota header", field: "magic" };
            return tell(walker, name, 0, damage);
        }
    };
    let mut recorded: BTreeMap<QuotaKey, (u64, u64)> = BTreeMap::new();
    for (fbn, block) in &image.quotas {
        for slot in 0..QUOTAS_PER_BLOCK {
            let key = key_at(Fbn(*fbn), slot);
            let is_used = key.is_some() || QuotaKind::ALL.map(default_slot).contains(&slot);
            if !is_used {
                continue;
            }
            match (QuotaRecord::from_block(block, slot), key) {
                (Ok(record), Some(key)) => {
                    if record.is_set() && !is_there(image, key) {
                        walker.tell(Finding::QuotaLimits { image: name, key });
                    }
                    let used = (record.used_blocks.get(), record.used_files.get());
                    if used != (0, 0) {
                        recorded.insert(key, used);
                    }
                }
                (Ok(_), None) => {}
                (Err(damage), _) => tell(walker, name, *fbn, damage),
            }
        }
    }
    let mut used: BTreeMap<QuotaKey, (u64, u64)> = BTreeMap::new();
    for (_, record) in image.inodes.range(..header.counted_inodes.get()) {
        let Some((owner, blocks, files)) = counted(record) else { continue };
        for key in owner.keys() {
            let sum = used.entry(key).or_default();
            *sum = (sum.0 + blocks, sum.1 + files);
        }
    }
    used.retain(|_, sum| *sum != (0, 0));
    let keys: std::collections::BTreeSet<QuotaKey> =
        recorded.keys().chain(used.keys()).copied().collect();
    for key in keys {
        let of = |sums: &BTreeMap<QuotaKey, (u64, u64)>| sums.get(&key).copied().unwrap_or((0, 0));
        let (recorded, counted) = (of(&recorded), of(&used));
        if recorded != counted {
            walker.tell(Finding::QuotaUsage { image: name, key, recorded, counted });
        }
    }
}

/// Whether a tree is there; users and groups always are.
fn is_there(image: &Image, key: QuotaKey) -> bool {
    let found = image.inodes.get(&u64::from(key.id));
    key.kind != QuotaKind::Tree || found.is_some_and(|found| found.tree.get() == key.id)
}

fn tell(walker: &mut Walker<'_, '_, '_>, image: ImageName, block: u64, damage: Damage) {
    walker.tell(Finding::QuotaDamaged { image, block, damage });
}
