//! Compares docs/formats.md with the structures: every table of bytes with offsets and sizes, the
//! pointers' bits, the versions, the features, the limits and the kinds of records. So the document
//! cannot drift from the code.
//!
//! Invariants: a structure is described exactly once, whole and in order; a heading with a size
//! names a structure that is known here.
//!
//! Fails: naming the structure or row, with what the code says.

use ondisk::{
    acl, directory, features, identity, inode, label, log, log_copies, medium, object_range,
    operation, pointer, quota, records, root, scrub, top_areas, versions, xattr,
};
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use units::{Pvbn, Vvbn};

const DOCUMENT: &str = include_str!("../../../docs/formats.md");

/// A field of a structure or bits of a number: where it begins, how much it takes, its name.
type Field = (u64, u64, String);
/// Its size and its fields.
type Layout = (u64, Vec<Field>);

/// The size of what a function from a structure to a field leads to.
const fn size_of_field<T, F>(_: fn(&T) -> &F) -> u64 {
    size_of::<F>() as u64
}

macro_rules! layouts {
    ($($module:ident::$structure:ident { $($field:ident),* $(,)? }),* $(,)?) => {
        BTreeMap::from([$((
            stringify!($structure).to_owned(),
            {
                use $module::$structure as Structure;
                let fields = vec![$((
                    offset_of!(Structure, $field) as u64,
                    size_of_field::<Structure, _>(|value| &value.$field),
                    stringify!($field).to_owned(),
                )),*];
                (size_of::<Structure>() as u64, fields)
            },
        )),*])
    };
}

fn structures() -> BTreeMap<String, Layout> {
    layouts! {
        identity::BlockIdentity {
            checksum, kind, level, reserved_a, volume, reserved_b, pvbn, vvbn, inode, fbn, cp,
            self_check, reserved_c
        },
        identity::ChecksumBlock { identities },
        label::DiskLabel {
            magic, version, reserved_a, checksum, disk, aggregate, aggregate_name,
            created_nanoseconds, sequence, data_regions, reserved_e, group_index, groups_count,
            disk_index, disks_in_group, missing, raid_kind, role, rotational, medium,
            medium_unit_bytes, members, rebuilding, reserved_d, rebuilt_regions, bases, scrub,
            read_errors, write_errors, checksum_errors, sickness, reserved_c, replacement,
            trusted_cp, away, settled, removed_blocks, removed, features, log_copies, log_regions,
            short_number, numbered_disk, reserved_f
        },
        features::FeatureSet { compatible, read_only_compatible, incompatible, names },
        features::FeatureName { class, bit, name },
        scrub::ScrubRecord {
            phase, trusts_data, reserved_a, serial, position, started_nanoseconds,
            ended_nanoseconds, rate, active_seconds, repaired_data, repaired_checksums,
            repaired_parity, damaged, reserved_b
        },
        log_copies::LogCopies { serial, count, whole },
        object_range::ObjectRangeDescriptor {
            magic, version, reserved_a, checksum, identity, size_blocks, blocks_per_object,
            reserved_b, created_nanoseconds, reserved_c
        },
        object_range::ObjectRangeLease {
            magic, version, reserved_a, checksum, owner, incarnation, sequence,
            expires_nanoseconds
        },
        inode::InodeRecord {
            kind, depth, mode, flags, links, generation, uid, gid, size, blocks, atime, mtime,
            ctime, birth, device_major, device_minor, attributes_inode, tree, change,
            create_verifier, reserved_b, payload
        },
        root::FileSystemRoot {
            size_blocks, used_blocks, used_inodes, next_generation, next_snapshot,
            snapshot_count, orphan_count, active_blocks, delayed_blocks, reserved, inode_file,
            snapshot_table
        },
        root::Superblock {
            magic, version, clean, checksum, aggregate, log, cp, time, next_volume, traditional,
            leaving_group, leaves_areas, reserved, root, cp_again, features, padding
        },
        root::VolInfo {
            magic, version, reserved_a, volume, cp, time, discard_tree, reserved_b, discard_next,
            reserved_c, root, padding
        },
        records::ExportRuleRecord {
            address, prefix_bits, read_only, squash, used, flags, reserved, anonymous_uid,
            anonymous_gid
        },
        records::VolumeRecord {
            state, kind, name_size, volume, container_inode, size_blocks, created, name,
            tiering, reallocation, cooling_days, reserved_b, scan_started, scan_next, object_blocks,
            exports, identity, handle_key, features, clone_base, deleted,
            purge_after, autogrow_max_blocks, snapshots_kept, snapshot_autodelete,
            guarantee, reserved_c, split_blocks, padding
        },
        records::CloneBase {
            parent, snapshot, identity, reserved, active_map, discarded
        },
        records::SnapshotRecord {
            state, flags, name_size, snapshot, cp, created, merged_blocks, released_blocks,
            used_blocks, name, used_inodes, identity, reserved_b, inode_file, snapshot_table,
            reserved_c
        },
        quota::QuotaHeader { magic, counted_inodes, reserved },
        quota::QuotaRecord {
            flags, reserved_a, used_blocks, used_files, soft_blocks, hard_blocks, soft_files,
            hard_files, reserved_b
        },
        top_areas::TopAreasBlock { magic, area_stripes, first_stripes, reserved, areas },
        top_areas::TopArea { area, score },
        top_areas::HistogramPage { magic, score_max, counted, empty, bins, reserved },
        top_areas::HistogramBin { count, first, listed },
        top_areas::ListPage { items, reserved },
        log::LogHeader {
            magic, version, reserved_a, checksum, aggregate, log, incarnation, half_blocks,
            notes_blocks, features, copy, first_incarnation, reserved_b
        },
        log::LogBatch {
            magic, checksum, log, incarnation, sequence, block, cp, other_cp, other_sequence,
            byte_count, record_count
        },
        log::LogRecord { cp, byte_count, kind, reserved },
        log::LogNote { magic, checksum, log, epoch, block, cp, block_count, byte_count },
        log::PartialParityRecord { group, disk_count, tetris, rows },
        operation::OperationPrefix { volume, reserved, time },
        operation::FileReference { inode, generation, reserved },
        operation::FileState { mode, uid, gid, reserved, size, atime, mtime, ctime, change },
        operation::CreateRecord {
            prefix, directory, file, state, device_major, device_minor, create_verifier,
            hash_seed, kind, reserved_a, name_size, text_size, lists_size
        },
        operation::InheritedLists { holder, access_size, default_size, reserved },
        operation::NameRecord { prefix, directory, file, name_size, reserved },
        operation::RenameRecord {
            prefix, from_directory, to_directory, source, target, action, reserved_a,
            from_name_size, to_name_size, reserved_b
        },
        operation::SetAttributesRecord { prefix, file, state, flags, reserved },
        operation::WriteRecord {
            prefix, file, offset, size, change, mode_cleared, data_size, flags, reserved
        },
        operation::CommitRecord { prefix, file, state, block_count, reserved },
        operation::AllocateRecord { prefix, file, state, start, end, flags, action, reserved },
        operation::SetXattrRecord { prefix, file, holder, value_size, name_size, reserved },
        operation::RemoveXattrRecord { prefix, file, name_size, reserved },
        operation::SetAclRecord {
            prefix, file, holder, mode, value_size, list, reserved, change
        },
        operation::TreeRecord { prefix, directory },
        acl::AclEntry { tag, permissions, id },
        xattr::XattrListHeader { magic, version, reserved, count, size },
        xattr::XattrHeader { name_size, reserved, value_size },
        directory::DirectoryBlockHeader {
            magic, version, kind, level, count, names_start, fbn, next_free, reserved
        },
        directory::DirectoryMember { number, generation, inode },
        directory::DirectoryRecord { cookie, member, name_offset, name_length, kind },
        directory::DirectoryChild { key, fbn },
        directory::DirectoryRoot {
            this, parent, hash_seed, entry_count, free_head, free_count, hash_algorithm,
            reserved
        },
    }
}

/// The cells of a table's row; nothing for other lines.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// The rows of the table under a heading, without its first two lines.
fn table<'a>(lines: &[&'a str], heading: usize) -> Vec<Vec<&'a str>> {
    let rest = lines.iter().skip(heading + 1).skip_while(|line| !line.starts_with('|'));
    rest.map_while(|line| cells(line)).skip(2).collect()
}

/// The rows of the table under the first heading that begins with `title`.
fn table_of(title: &str) -> Vec<Vec<&'static str>> {
    let lines: Vec<&str> = DOCUMENT.lines().collect();
    let heading = lines.iter().position(|line| line.starts_with(title));
    heading.map_or_else(Vec::new, |heading| table(&lines, heading))
}

/// What the document says under headings like "### `Name`: 64 bytes".
fn described(unit: &str) -> BTreeMap<String, Layout> {
    let lines: Vec<&str> = DOCUMENT.lines().collect();
    let mut found = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(title) = line.strip_prefix("### `") else { continue };
        let Some((name, size)) = title.split_once("`: ") else { continue };
        let Some(size) = size.strip_suffix(unit).and_then(|size| size.trim().parse().ok()) else {
            continue;
        };
        let number = |cell: &str| cell.parse::<u64>().unwrap_or(u64::MAX);
        let fields = table(&lines, at).into_iter().map(|row| match row.as_slice() {
            [start, length, field, _] => (number(start), number(length), (*field).to_owned()),
            other => panic!("{name}: a row has {} cells", other.len()),
        });
        let before = found.insert(name.to_owned(), (size, fields.collect()));
        assert!(before.is_none(), "{name} is described twice");
    }
    found
}

#[test]
fn every_structure_is_described_as_it_is() {
    let (structures, described) = (structures(), described("bytes"));
    for (name, layout) in &structures {
        let Some(found) = described.get(name) else { panic!("{name} is not described") };
        assert_eq!(found, layout, "{name}: the document on the left, the code on the right");
    }
    for name in described.keys() {
        assert!(structures.contains_key(name), "{name} is described and not known");
    }
}

/// A field that is missing in the list above, or padding, shows as a gap.
#[test]
fn structures_have_no_gaps() {
    for (name, (size, fields)) in structures() {
        let mut end = 0;
        for (offset, length, field) in fields {
            assert_eq!(offset, end, "{name}: a gap before {field}");
            end = offset + length;
        }
        assert_eq!(end, size, "{name}: a gap at the end");
    }
}

/// The number that a pointer with nothing but ones in one field is.
fn encoded(structure: &str, field: &str) -> Option<u128> {
    let number = pointer::BLOCK_NUMBER_MAX - 1;
    let (mut dual, mut physical) =
        (pointer::DualPointer::default(), pointer::PhysicalPointer::default());
    match (structure, field) {
        ("DualPointer", "vvbn") => dual.vvbn = Vvbn(number),
        ("DualPointer", "pvbn") => dual.pvbn = Pvbn(number),
        ("DualPointer", "flags") => dual.flags = u8::MAX,
        ("DualPointer", "checksum") => dual.checksum = u32::MAX,
        ("PhysicalPointer", "pvbn") => physical.pvbn = Pvbn(number),
        ("PhysicalPointer", "age") => physical.age = pointer::AGE_STAYS,
        ("PhysicalPointer", "check") => physical.check = u16::MAX,
        _ => return None,
    }
    let physical = u64::from_le_bytes(physical.encode());
    Some(u128::from_le_bytes(dual.encode()) | u128::from(physical))
}

#[test]
fn pointers_are_described_as_they_are_encoded() {
    let described = described("bits");
    let sizes: Vec<(&str, u64)> =
        described.iter().map(|(name, (size, _))| (name.as_str(), *size)).collect();
    let dual = pointer::DualPointer::SIZE as u64 * 8;
    let physical = pointer::PhysicalPointer::SIZE as u64 * 8;
    assert_eq!(sizes, [("DualPointer", dual), ("PhysicalPointer", physical)]);
    let mut rows = 0;
    for (name, (_, fields)) in &described {
        for (bit, bits, field) in fields {
            let ones = ((1_u128 << bits) - 1) << bit;
            assert_eq!(encoded(name, field), Some(ones), "{name}.{field}");
            rows += 1;
        }
    }
    assert_eq!(rows, 7);
}

#[test]
fn versions_are_those_of_the_code() {
    let expected: Vec<[String; 3]> = versions::FORMAT_VERSIONS
        .iter()
        .map(|row| [row.number.to_string(), row.date.into(), row.news.into()])
        .collect();
    assert_eq!(table_of("## Versions"), expected);
}

#[test]
fn features_are_those_of_the_code() {
    let expected: Vec<[String; 6]> = features::FEATURES
        .iter()
        .map(|row| {
            let name = format!("`{}`", row.name);
            let (scope, class) = (row.scope.to_string(), row.class.to_string());
            [name, scope, class, row.bit.to_string(), row.date.into(), row.meaning.into()]
        })
        .collect();
    assert_eq!(table_of("## Known features"), expected);
}

macro_rules! constants {
    ($($module:ident::$name:ident),* $(,)?) => {
        [$((
            concat!("`", stringify!($module), "::", stringify!($name), "`"),
            $module::$name.to_string(),
        )),*]
    };
}

#[test]
fn limits_are_those_of_the_code() {
    let expected = constants![
        pointer::BLOCK_NUMBER_MAX,
        label::GROUP_DISKS_MAX,
        label::GROUPS_MAX,
        label::AGGREGATE_NAME_BYTES_MAX,
        medium::MEDIUM_UNIT_BYTES_MAX,
        features::FEATURE_NAMES_MAX,
        features::FEATURE_NAME_BYTES_MAX,
        records::NAME_SIZE_MAX,
        records::SNAPSHOTS_KEPT_MAX,
        records::EXPORT_RULES_MAX,
        records::COOLING_DAYS_MIN,
        records::COOLING_DAYS_MAX,
        top_areas::TOP_AREAS_MAX,
        top_areas::LISTED_MAX,
        inode::PAYLOAD_SIZE,
        inode::DEPTH_MAX,
        directory::NAME_BYTES_MAX,
        directory::DIRECTORY_ENTRIES_MAX,
        directory::DIRECTORY_BLOCKS_MAX,
        directory::LEVEL_MAX,
        acl::ACL_ENTRIES_MAX,
        xattr::XATTR_NAME_SIZE_MAX,
        xattr::XATTR_VALUE_SIZE_MAX,
        log::LOG_HALF_BLOCKS_MIN,
        log::LOG_HALF_BLOCKS_MAX,
        log::LOG_NOTES_BLOCKS_MIN,
        log::LOG_NOTES_BLOCKS_MAX,
        object_range::BLOCKS_PER_OBJECT_MAX,
        object_range::OBJECT_RANGE_BLOCKS_MAX,
    ];
    let rows: Vec<(&str, String)> = table_of("## Limits")
        .into_iter()
        .map(|row| match row.as_slice() {
            [name, value, _] => (*name, (*value).to_owned()),
            other => panic!("a row of limits has {} cells", other.len()),
        })
        .collect();
    assert_eq!(rows, expected);
}

#[test]
fn record_kinds_are_those_of_the_code() {
    let rows: Vec<(u16, &str)> = table_of("### Records of operations")
        .into_iter()
        .filter_map(|row| Some((row.first()?.parse().ok()?, *row.get(1)?)))
        .collect();
    assert_eq!(rows, operation::KINDS);
}
