//! Random events on the members of a group, against a model that knows what each disk holds.
//!
//! The model has no states and no masks: each disk has the number of the last write that it has of
//! each region. Whatever happens, a disk that may be used in a region must have its last write; and
//! a start after a crash, which knows the labels alone, must believe no disk that has not.

use super::*;
use crate::membership::standing::{Found, TRANSITIONS, at_start};
use ondisk::label::{DiskLabel, DiskRole};
use platform::Disk;
use platform::simulated::SimulatedWorld;
use std::array;
use std::collections::BTreeSet;

const MEMBERS: usize = 5;
const TOLERATED: usize = 2;
const REGIONS: usize = 6;

/// Numbers of writes, by region.
type Content = [u64; REGIONS];

/// A disk, and what it holds.
struct Holder {
    device: Arc<Device>,
    /// As it answers now.
    now: Content,
    /// As it is after a power cut, at least.
    durable: Content,
}

/// What the labels say.
#[derive(Clone)]
struct Labels {
    told: Told,
    seats: [usize; MEMBERS],
}

struct Model {
    world: SimulatedWorld,
    state: GroupState,
    disks: Vec<Holder>,
    /// The disk that has each place.
    seats: [usize; MEMBERS],
    labels: Labels,
    /// The last write of each region, and the consistency point that made it.
    truth: Content,
    written_by: Content,
    writes: u64,
    cp: u64,
    /// The last consistency point that completed; `None` before the first write of a start.
    complete: Option<u64>,
}

fn write_rebuilt(world: &SimulatedWorld, device: &Arc<Device>, regions: u64) {
    let change = |label: &mut DiskLabel| label.rebuilt_regions = regions.into();
    world.wait(|done| device.update_label(change, done)).unwrap();
}

impl Model {
    fn new(seed: u64) -> Self {
        let labels = Labels { told: Told::default(), seats: array::from_fn(|member| member) };
        let mut model = Self {
            world: SimulatedWorld::new(seed),
            state: GroupState::new(0),
            disks: Vec::new(),
            seats: labels.seats,
            labels,
            truth: [0; REGIONS],
            written_by: [0; REGIONS],
            writes: 0,
            cp: 1,
            complete: None,
        };
        (0..MEMBERS).for_each(|_| _ = model.add_disk());
        model
    }

    fn choose(&self, count: u64) -> u64 {
        use platform::Entropy;
        self.world.next_u64() % count
    }

    /// A disk with garbage.
    fn add_disk(&mut self) -> usize {
        let at = self.disks.len();
        let disk: Arc<dyn Disk> = self.world.add_disk(&format!("d{at}"), media::DISK_BLOCKS_MIN);
        let mut label = DiskLabel::empty();
        label.disk = units::DiskUuid([at as u8 + 1; 16]);
        label.aggregate = units::AggregateUuid([200; 16]);
        assert!(label.set_name("pool"));
        label.groups_count = 1.into();
        // What it says of places the model keeps itself.
        label.role = DiskRole::Spare.number();
        label.data_regions = (REGIONS as u64).into();
        let device = self.world.wait(|done| media::initialize(disk, label, done)).unwrap();
        let now = if at < MEMBERS { [0; REGIONS] } else { [u64::MAX; REGIONS] };
        self.disks.push(Holder { device: Arc::new(device), now, durable: now });
        at
    }

    fn disk_of(&self, device: &Arc<Device>) -> usize {
        self.disks.iter().position(|disk| Arc::ptr_eq(&disk.device, device)).unwrap()
    }

    /// The disk that is filled beside a member, and that member.
    fn copy(&self) -> Option<(usize, usize)> {
        self.state.copy().map(|(member, copy)| (member, self.disk_of(&copy.device())))
    }

    fn tell(&mut self) {
        self.labels = Labels { told: self.state.told(), seats: self.seats };
        (0..MEMBERS).for_each(|member| self.state.tell_whole(member));
        self.state.fillings_mut().for_each(|(_, rebuild)| rebuild.is_told = true);
    }

    /// What a disk holds may be what it held at the last flush.
    fn cut(&mut self, disk: usize) {
        for region in 0..REGIONS {
            let is_lost = self.choose(2) == 0;
            let holder = &mut self.disks[disk];
            if is_lost {
                holder.now[region] = holder.durable[region];
            }
        }
        self.disks[disk].durable = self.disks[disk].now;
    }

    /// Gives the last write of a region to all disks that are used there.
    fn write_to_all(&mut self, region: usize) {
        let missing = self.state.missing_at(region as u64);
        let there = (0..MEMBERS).filter(|member| !missing.contains(*member));
        let mut disks: Vec<usize> = there.map(|member| self.seats[member]).collect();
        let copy = self.state.copy().filter(|(_, copy)| copy.has(region as u64));
        disks.extend(copy.map(|(_, copy)| self.disk_of(&copy.device())));
        disks.into_iter().for_each(|disk| self.disks[disk].now[region] = self.truth[region]);
    }

    fn write(&mut self, region: usize) {
        if self.complete.is_none() {
            self.complete = Some(self.cp - 1);
            self.state.trust_absent(self.cp - 1);
        }
        // Before the group diverges from a disk that is not there its labels say so.
        self.tell();
        self.writes += 1;
        (self.truth[region], self.written_by[region]) = (self.writes, self.cp);
        self.write_to_all(region);
    }

    fn flush(&mut self) {
        let unused = self.state.unused();
        let used = (0..MEMBERS).filter(|member| !unused.contains(*member));
        let mut disks: Vec<usize> = used.map(|member| self.seats[member]).collect();
        disks.extend(self.copy().map(|(_, disk)| disk));
        for disk in disks {
            self.disks[disk].durable = self.disks[disk].now;
        }
    }

    fn complete(&mut self) {
        self.tell();
        self.flush();
        self.state.fillings_mut().for_each(|(_, rebuild)| rebuild.has_superblock = true);
        self.complete = self.complete.map(|complete| complete.max(self.cp));
        self.state.settle();
        self.tell();
        self.cp += 1;
        (0..MEMBERS).for_each(|member| self.progress(member));
    }

    fn fail(&mut self, member: usize, error: &MediaError) {
        let is_missing = self.state.standing(member).is_missing();
        let may_fail = match is_missing {
            true => self.state.filled(member).is_some(),
            false => self.state.missing_count() < TOLERATED,
        };
        if !may_fail {
            return;
        }
        self.cut(self.seats[member]);
        if let Some(seat) = self.state.fail(member, error, self.complete) {
            self.seats[member] = self.disk_of(&seat.device.unwrap());
        }
    }

    fn come_back(&mut self, member: usize) {
        let way = match self.state.standing(member) {
            Standing::Offline => Way::Resync,
            Standing::Torn | Standing::Failed => Way::Anew,
            _ => return,
        };
        let device = Arc::clone(&self.disks[self.seats[member]].device);
        write_rebuilt(&self.world, &device, 0);
        self.state.take_place(member, Rebuild::new(device, way), Arrival::Returns);
        self.tell();
    }

    fn replace(&mut self, member: usize) {
        let standing = self.state.standing(member);
        if standing.is_missing() && self.state.filled(member).is_none() {
            let disk = self.add_disk();
            let device = Arc::clone(&self.disks[disk].device);
            self.state.take_place(member, Rebuild::new(device, Way::Anew), Arrival::Replaces);
            self.seats[member] = disk;
            self.tell();
        } else if standing == Standing::Online && self.state.copy().is_none() {
            let disk = self.add_disk();
            let device = Arc::clone(&self.disks[disk].device);
            let label = device.label();
            self.state.begin_copy(member, Rebuild::copy(device, label));
            self.tell();
        }
    }

    fn fail_copy(&mut self) {
        if let Some((member, disk)) = self.copy() {
            let device = Arc::clone(&self.disks[disk].device);
            assert!(self.state.fail_copy(member, &device));
        }
    }

    /// Fills a region of a disk.
    fn fill(&mut self, member: usize) {
        let trusted_cp = self.state.lost(member).and_then(|lost| lost.trusted_cp).unwrap_or(0);
        let filled = self.state.fillings_at(member).map(Rebuild::device).next();
        let Some(device) = filled else { return };
        let Some(rebuild) = self.state.filling_mut(member, &device) else { unreachable!() };
        let Some(region) = rebuild.begin() else { return };
        let way = rebuild.way;
        rebuild.finish(region);
        let (disk, region) = (self.disk_of(&device), region as usize);
        if way != Way::Resync || self.written_by[region] > trusted_cp {
            self.disks[disk].now[region] = self.truth[region];
        }
        self.progress(member);
    }

    /// Has the labels say how far the disks have come that are filled at a place.
    fn progress(&mut self, member: usize) {
        let devices: Vec<_> = self.state.fillings_at(member).map(Rebuild::device).collect();
        for device in devices {
            let Some(rebuild) = self.state.filling_mut(member, &device) else { continue };
            let Some(below) = rebuild.label_due() else { continue };
            let disk = self.disk_of(&device);
            self.disks[disk].durable = self.disks[disk].now;
            write_rebuilt(&self.world, &device, below);
            let Some(rebuild) = self.state.filling_mut(member, &device) else { unreachable!() };
            match (rebuild.labelled(below), rebuild.way) {
                (false, _) => {}
                (true, Way::Copy) => {
                    self.state.end_copy(member, &device).unwrap();
                    self.seats[member] = disk;
                    self.tell();
                }
                (true, Way::Anew | Way::Resync) => self.state.fill(member, &device),
            }
        }
    }

    /// The power goes, and comes back; a disk may be absent afterwards.
    fn crash(&mut self) {
        (0..self.disks.len()).for_each(|disk| self.cut(disk));
        let Labels { told, seats } = self.labels.clone();
        self.seats = seats;
        let is_told = |mask: u32, member: usize| is_in(mask, member);
        let free = TOLERATED - told.missing.count_ones() as usize;
        let absent = (free > 0 && self.choose(3) == 0).then(|| self.choose(MEMBERS as u64));
        let spare = self.disks.iter().position(|disk| disk.device.label().disk == told.replacement);
        let (state, starting) = (&self.state, 0..MEMBERS);
        let beside = state.copy().map(|(member, _)| member).zip(spare);
        let starting = starting.map(|member| {
            let is_there = absent != Some(member as u64);
            let has_copy = beside.is_some_and(|(at, _)| at == member);
            let is_away = is_told(told.away, member);
            let found = Found {
                is_missing: is_told(told.missing, member),
                is_away,
                is_settled: is_told(told.settled, member),
                is_rebuilding: is_told(told.rebuilding, member),
                is_there,
                has_copy,
            };
            let own = Arc::clone(&self.disks[seats[member]].device);
            let copy = beside.filter(|_| has_copy).map(|(_, spare)| {
                let device = Arc::clone(&self.disks[spare].device);
                let label = device.label();
                Rebuild::copy(device, label)
            });
            Starting {
                standing: at_start(found),
                device: is_there.then_some(own),
                copy,
                trusted_cp: (found.is_missing && is_away).then_some(told.trusted_cp),
            }
        });
        let starting: Vec<Starting> = starting.collect();
        self.state = GroupState::at_start(starting, Some(told), 0);
        self.complete = None;
        // Stripes that were being written are made whole, on the disks that are used.
        let torn: Vec<usize> =
            (0..REGIONS).filter(|region| self.written_by[*region] >= self.cp).collect();
        if !torn.is_empty() {
            self.state.distrust();
        }
        for region in torn {
            self.writes += 1;
            self.truth[region] = self.writes;
            self.write_to_all(region);
        }
        self.flush();
        self.tell();
    }

    fn check(&self) {
        assert!(self.state.missing_count() <= TOLERATED);
        for region in 0..REGIONS {
            let missing = self.state.missing_at(region as u64);
            let after_crash = self.state.missing_after_crash_at(region as u64);
            let is_committed = self.written_by[region] < self.cp;
            for member in 0..MEMBERS {
                let disk = &self.disks[self.seats[member]];
                let (standing, truth) = (self.state.standing(member), self.truth[region]);
                let place = format!("region {region} of member {member}, {standing:?}");
                assert!(missing.contains(member) || disk.now[region] == truth, "{place}");
                let is_believed = !after_crash.contains(member) && is_committed;
                assert!(!is_believed || disk.durable[region] == truth, "{place} after a crash");
            }
            if let Some((_, copy)) = self.state.copy().filter(|(_, copy)| copy.has(region as u64)) {
                let disk = &self.disks[self.disk_of(&copy.device())];
                assert_eq!(disk.now[region], self.truth[region], "region {region} of the copy");
            }
        }
    }

    /// What a start would find, if the labels said what is so now, and all disks were there.
    fn check_start(&self) {
        let told = self.state.told();
        for member in 0..MEMBERS {
            let found = Found {
                is_missing: is_in(told.missing, member),
                is_away: is_in(told.away, member),
                is_settled: is_in(told.settled, member),
                is_rebuilding: is_in(told.rebuilding, member),
                is_there: true,
                has_copy: self.copy().is_some_and(|(at, _)| at == member),
            };
            let expected = match self.state.standing(member) {
                Standing::Unsettled => Standing::Torn,
                same => same,
            };
            assert_eq!(at_start(found), expected, "member {member}");
        }
    }
}

/// Adds the changes that came up to those that were seen.
fn run(seed: u64, seen: &mut BTreeSet<(Standing, Standing)>) {
    let mut model = Model::new(seed);
    for _ in 0..200 {
        let member = model.choose(MEMBERS as u64) as usize;
        let name = || "d".to_owned();
        let before: [Standing; MEMBERS] = array::from_fn(|member| model.state.standing(member));
        match model.choose(16) {
            0..4 => model.write(model.choose(REGIONS as u64) as usize),
            4 => model.complete(),
            5 => model.fail(member, &platform::DiskError::Gone { disk: name() }.into()),
            6 => model.fail(member, &MediaError::Retired { disk: name() }),
            7 => model.come_back(member),
            8 if model.choose(2) == 0 => model.replace(member),
            8 => model.come_back(member),
            9 if model.choose(3) == 0 => model.fail_copy(),
            10 if model.choose(3) == 0 => model.crash(),
            11 => model.tell(),
            _ => (0..MEMBERS).for_each(|member| model.fill(member)),
        }
        model.check();
        model.check_start();
        let changes = before.into_iter().enumerate();
        seen.extend(changes.map(|(member, before)| (before, model.state.standing(member))));
    }
}

#[test]
fn a_member_that_may_be_used_holds_what_its_place_must() {
    let mut seen = BTreeSet::new();
    (0..150).for_each(|seed| run(seed, &mut seen));
    for (from, event, to) in TRANSITIONS {
        assert!(seen.contains(&(from, to)), "{from:?} never became {to:?} by {event:?}");
    }
}
