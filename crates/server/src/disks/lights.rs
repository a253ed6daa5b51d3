//! The light that an enclosure has for the slot of a disk, if Linux knows of one.
//!
//! Fails: a light that cannot be set is no light.

use management::Light;
use std::fs;
use std::path::{Path, PathBuf};

/// A light that is lit; it is put out when this is dropped.
struct SlotLight(PathBuf);

impl Light for SlotLight {}

impl Drop for SlotLight {
    fn drop(&mut self) {
        set(&self.0, false);
    }
}

/// Lights the slot of a disk.
pub(crate) fn light(disk: &str) -> Option<Box<dyn Light>> {
    let light = light_of(Path::new(disk)).filter(|light| set(light, true))?;
    Some(Box::new(SlotLight(light)))
}

/// Where Linux has the light of a disk's slot.
fn light_of(disk: &Path) -> Option<PathBuf> {
    let device = disk.canonicalize().ok()?;
    let slots = Path::new("/sys/class/block").join(device.file_name()?).join("device");
    let entries = fs::read_dir(slots).ok()?.filter_map(Result::ok);
    let mut slots =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("enclosure_device"));
    slots.next().map(|slot| slot.path().join("locate")).filter(|light| light.exists())
}

/// False if it cannot be set.
fn set(light: &Path, is_lit: bool) -> bool {
    let written = fs::write(light, if is_lit { "1" } else { "0" });
    if let Err(error) = &written {
        tracing::warn!(light = %light.display(), %error, "the light of a slot cannot be set");
    }
    written.is_ok()
}
