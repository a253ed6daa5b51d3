//! Holds: files that live though their last names were removed, because programs have them open.
//!
//! Invariants: holds are kept in memory. A file that was held when its aggregate was away is held
//! no more; the release of such a hold ends nothing, whoever may have opened the file since.

use crate::background::reap;
use crate::host::Host;
use crate::service::{Addressed, CarryOut, Service, Work};
use affinity::{Access, Outcome};
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Reader};
use file_service::{Caller, Done, FileHandle, Hold, calls};

impl CarryOut for calls::HoldFile {
    fn carry_out(self, service: &Service, _: &Caller, done: Done<Self::Reply>) {
        service.on(self.file, HoldWork(self.file), done);
    }
}

impl CarryOut for calls::ReleaseHold {
    fn carry_out(self, service: &Service, _: &Caller, done: Done<Self::Reply>) {
        service.on(self.hold.file, ReleaseWork(self.hold), done);
    }
}

struct HoldWork(FileHandle);

impl Work<Hold> for HoldWork {
    fn message<P: Pointer>(self, host: Host<P>, done: Done<Hold>) -> Addressed {
        let (file, held, mut done) = (self.0, HeldBlocks::default(), Some(done));
        let affinity = host.logical_affinity();
        let message = move |access: &mut Access<'_>| {
            let logical = host.fronted.front().logical.write(access);
            let reader = Reader { cache: host.fronted.front().cache(), held: &held };
            let environment = &host.served.environment;
            let outcome = host
                .check(logical)
                .and_then(|()| Ok(operations::holds::hold(logical, &reader, environment, file)?));
            match outcome {
                Ok(()) => {
                    if let Some(done) = done.take() {
                        // The aggregate does not come back before this message has ended.
                        done(Ok(Hold { file, losses: host.engine.losses(&file) }));
                    }
                    Outcome::Done
                }
                Err(halt) => host.halt(halt, &held, &mut done),
            }
        };
        (affinity, Box::new(message))
    }
}

struct ReleaseWork(Hold);

impl Work<()> for ReleaseWork {
    fn message<P: Pointer>(self, host: Host<P>, done: Done<()>) -> Addressed {
        let (Hold { file, losses }, mut done) = (self.0, Some(done));
        let affinity = host.logical_affinity();
        let message = move |access: &mut Access<'_>| {
            let logical = host.fronted.front().logical.write(access);
            let environment = &host.served.environment;
            // Holds from before an outage are gone; those that there are now are of others.
            let is_known = losses == host.engine.losses(&file);
            if is_known && operations::holds::release(logical, environment, file) {
                reap(&host, file.inode);
            }
            if let Some(done) = done.take() {
                done(Ok(()));
            }
            Outcome::Done
        };
        (affinity, Box::new(message))
    }
}
