//! Checks of the node in memory: an image of zeros, which nobody overwrites.

use super::DISK_BYTES;
use crate::check::to_hexadecimal;
use crate::check::{
    CheckBegun, CheckBlocks, CheckHeld, CheckKeep, CheckPin, CheckRead, CheckedState,
};
use crate::error::{AdminError, Code};
use std::collections::BTreeMap;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64};

/// Long enough for any test.
const KEEP_WITHIN_NS: u64 = 60_000_000_000;

/// The checks under way, by aggregate.
#[derive(Default)]
pub(super) struct Checks {
    numbers: BTreeMap<String, u64>,
    last: u64,
}

impl Checks {
    pub(super) fn begin(
        &mut self,
        name: &str,
        disks: Vec<String>,
    ) -> Result<CheckBegun, AdminError> {
        if self.numbers.contains_key(name) {
            let error = AdminError::new(Code::Conflict, "cannot check", name);
            return Err(error.because("another check of it is under way"));
        }
        self.last += 1;
        self.numbers.insert(name.to_owned(), self.last);
        let superblock = to_hexadecimal(&[0; BLOCK_SIZE]);
        let pin = CheckPin { consistency_point: 1, superblock };
        Ok(CheckBegun {
            number: self.last,
            state: CheckedState::InService(pin),
            disks,
            left_out: Vec::new(),
            busy: Vec::new(),
            keep_within_ns: KEEP_WITHIN_NS,
        })
    }

    pub(super) fn keep(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        match self.numbers.get(&request.aggregate) {
            Some(number) if *number == request.number => Ok(CheckHeld::default()),
            _ => {
                let error = AdminError::new(Code::Conflict, "cannot check", &request.aggregate);
                Err(error.because("the check is over"))
            }
        }
    }

    pub(super) fn read(&self, request: &CheckRead) -> Result<CheckBlocks, AdminError> {
        let (aggregate, number) = (request.aggregate.clone(), request.number);
        self.keep(&CheckKeep { aggregate, number })?;
        let bytes = vec![0; request.count as usize * BLOCK_SIZE];
        let size_blocks = DISK_BYTES / BLOCK_SIZE_U64;
        Ok(CheckBlocks { size_blocks, data: to_hexadecimal(&bytes) })
    }

    pub(super) fn end(&mut self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        let held = self.keep(request)?;
        self.numbers.remove(&request.aggregate);
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_check_of_an_aggregate_goes_on_until_it_is_ended() {
        let mut checks = Checks::default();
        let begun = checks.begin("a1", Vec::new()).unwrap();
        assert_eq!(checks.begin("a1", Vec::new()).unwrap_err().code, Code::Conflict);
        let keep = CheckKeep { aggregate: "a1".to_owned(), number: begun.number };
        assert!(checks.keep(&keep).is_ok() && checks.end(&keep).is_ok());
        assert_eq!(checks.end(&keep).unwrap_err().code, Code::Conflict);
    }
}
