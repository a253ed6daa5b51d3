//! The states of a member of a group, and what changes them.
//!
//! A disk that has a place is in one of eight states ([`Standing`]). The table [`TRANSITIONS`] has
//! every change that there may be; `docs/disk-states.md` has its diagram, and a test compares the
//! two. What a member is at a start follows from its label, and from whether it was found
//! ([`at_start`]).
//!
//! Invariant: a change that the table does not have ends the process: what a disk holds would be
//! believed for no reason.

/// What a member of a group is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Standing {
    /// It is read and written.
    Online,
    /// It is online, and a replacement beside it is being filled with what it holds.
    Replacing,
    /// It went, and the consistency point that it missed is not complete.
    Unsettled,
    /// It is known which consistency points it holds, so it is resynchronised when it is back.
    Offline,
    /// It went, and what it holds is not known: all of it is written when it is back.
    Torn,
    /// It failed, or was failed: it is taken back only if somebody asks for that.
    Failed,
    /// It is back, and what it missed is being written.
    Resyncing,
    /// All that its place must hold is being written to it.
    Rebuilding,
}

/// What happens to a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// All of it is out of reach.
    Goes,
    /// It does not do what it should, or was failed by order.
    Fails,
    /// The consistency point that it missed is complete.
    Settles,
    /// After a crash stripes of its group are made whole that were being written in part.
    Distrusted,
    /// It has its place again.
    Returns,
    /// Another disk has its place.
    Replaced,
    /// A replacement begins to be filled beside it.
    CopyBegins,
    /// The replacement failed.
    CopyFails,
    /// The replacement holds everything, and has the place.
    CopyEnds,
    /// It holds everything.
    Filled,
}

/// Every change that there may be.
pub(crate) const TRANSITIONS: [(Standing, Event, Standing); 27] = {
    use Event::*;
    use Standing::*;
    [
        (Online, Goes, Unsettled),
        (Online, Fails, Failed),
        (Online, CopyBegins, Replacing),
        // The replacement takes the place as it is.
        (Replacing, Goes, Rebuilding),
        (Replacing, Fails, Rebuilding),
        (Replacing, CopyFails, Online),
        (Replacing, CopyEnds, Online),
        (Unsettled, Settles, Offline),
        (Unsettled, Distrusted, Torn),
        (Unsettled, Replaced, Rebuilding),
        (Offline, Distrusted, Torn),
        (Offline, Returns, Resyncing),
        (Offline, Replaced, Rebuilding),
        (Torn, Distrusted, Torn),
        (Torn, Returns, Rebuilding),
        (Torn, Replaced, Rebuilding),
        (Failed, Returns, Rebuilding),
        (Failed, Replaced, Rebuilding),
        // What it held when it went first it still holds, or something later.
        (Resyncing, Goes, Unsettled),
        (Resyncing, Fails, Failed),
        (Resyncing, Distrusted, Rebuilding),
        (Resyncing, Filled, Online),
        // If it held the place before.
        (Rebuilding, Goes, Torn),
        // If it never held anything as a whole.
        (Rebuilding, Goes, Failed),
        (Rebuilding, Fails, Failed),
        (Rebuilding, Distrusted, Rebuilding),
        (Rebuilding, Filled, Online),
    ]
};

impl Standing {
    /// Whether an event may lead to another state.
    pub(crate) fn may_become(self, event: Event, then: Self) -> bool {
        TRANSITIONS.contains(&(self, event, then))
    }

    /// Whether blocks of the group are missing because of it, as far as it is not filled.
    pub(crate) const fn is_missing(self) -> bool {
        !matches!(self, Self::Online | Self::Replacing)
    }
}

/// What a start finds of a member: what the label of its group that counts says of it, and whether
/// its disk is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// It is marked missing.
    pub is_missing: bool,
    /// It is missing because it went, and may be taken back.
    pub is_away: bool,
    /// It is known which consistency points it holds.
    pub is_settled: bool,
    /// It is being filled.
    pub is_rebuilding: bool,
    /// Its disk is there.
    pub is_there: bool,
    /// The spare is there that is filled beside it.
    pub has_copy: bool,
}

/// What may be asked of what was found; `None` if it does not matter.
type Asked = [Option<bool>; 6];

/// What a member is at a start: the first row counts that fits what was found. Columns: missing,
/// away, settled, rebuilding, there, copy.
pub(crate) const AT_START: [(Asked, Standing); 8] = {
    const ANY: Option<bool> = None;
    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);
    [
        // Missing, away, settled, rebuilding, there, copy.
        ([NO, ANY, ANY, ANY, YES, NO], Standing::Online),
        ([NO, ANY, ANY, ANY, YES, YES], Standing::Replacing),
        // It went while nothing was written, or this is a start after a crash, of which the notes
        // of stripes tell.
        ([NO, ANY, ANY, ANY, NO, ANY], Standing::Offline),
        ([YES, YES, YES, YES, YES, ANY], Standing::Resyncing),
        ([YES, ANY, ANY, YES, YES, ANY], Standing::Rebuilding),
        ([YES, YES, YES, ANY, ANY, ANY], Standing::Offline),
        ([YES, YES, NO, ANY, ANY, ANY], Standing::Torn),
        ([YES, NO, ANY, ANY, ANY, ANY], Standing::Failed),
    ]
};

/// What a member is at a start.
pub(crate) fn at_start(found: Found) -> Standing {
    let Found { is_missing, is_away, is_settled, is_rebuilding, is_there, has_copy } = found;
    let facts = [is_missing, is_away, is_settled, is_rebuilding, is_there, has_copy];
    let fits = |asked: &Asked| {
        asked.iter().zip(facts).all(|(asked, fact)| asked.is_none_or(|asked| asked == fact))
    };
    let Some((_, standing)) = AT_START.iter().find(|(asked, _)| fits(asked)) else {
        unreachable!("the table has a row for whatever is found")
    };
    *standing
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../docs/disk-states.md");

    /// The states and their changes in the language of Graphviz.
    fn dot() -> String {
        let mut text = String::from("digraph member {\n");
        for (from, event, to) in TRANSITIONS {
            text.push_str(&format!("    {from:?} -> {to:?} [label={event:?}];\n"));
        }
        text.push_str("}\n");
        text
    }

    fn rows_at_start() -> String {
        let cell = |asked: Option<bool>| match asked {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        let row = |(asked, standing): (Asked, Standing)| {
            let cells: Vec<&str> = asked.into_iter().map(cell).collect();
            format!("| {} | {standing:?} |\n", cells.join(" | "))
        };
        AT_START.into_iter().map(row).collect()
    }

    #[test]
    fn the_document_has_what_the_tables_have() {
        for text in [dot(), rows_at_start()] {
            assert!(DOCUMENT.contains(&text), "the document lacks\n{text}");
        }
    }

    #[test]
    fn a_start_has_a_state_for_whatever_it_finds() {
        for facts in 0..64 {
            let is = |at: u32| facts >> at & 1 == 1;
            let found = Found {
                is_missing: is(0),
                is_away: is(1),
                is_settled: is(2),
                is_rebuilding: is(3),
                is_there: is(4),
                has_copy: is(5),
            };
            let standing = at_start(found);
            let is_filled = matches!(standing, Standing::Resyncing | Standing::Rebuilding);
            assert!(found.is_there || !is_filled, "{found:?}");
            assert_eq!(standing.is_missing(), found.is_missing || !found.is_there, "{found:?}");
        }
    }
}
