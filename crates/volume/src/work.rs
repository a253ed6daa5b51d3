//! What an image that was set aside is, as its cleaner takes it.

use crate::snapshots::Requests;
use aggregate::FreezeContext;
use cowfs::cleaner::Leaf;
use cowfs::image::{FileWork, ImageFacts};
use cowfs::logical::Image;
use cowfs::pointer::Pointer;
use std::sync::Arc;
use units::Fbn;

/// The files of an image with their dirty blocks, in order.
pub(crate) fn file_work<P: Pointer>(image: &mut Image<P>) -> Vec<FileWork<P>> {
    let inodes = std::mem::take(&mut image.inodes);
    let mut work = Vec::with_capacity(inodes.len());
    for inode in inodes {
        let mut leaves = Vec::new();
        for stripe in &image.stripes {
            if let Some(file) = stripe.get(&inode.number) {
                leaves.extend(file.leaves().map(|(fbn, block, is_reallocated)| {
                    let leaf = if is_reallocated { Leaf::Reallocated } else { Leaf::Block };
                    (fbn, leaf(Arc::clone(block)))
                }));
            }
        }
        // Runs of each stripe one after another: a sort that merges runs is quick with them.
        leaves.sort_by_key(|leaf: &(Fbn, Leaf<P>)| leaf.0);
        work.push(FileWork { inode, leaves });
    }
    work
}

/// What an image is, apart from its files.
pub(crate) fn image_facts<P: Pointer>(
    image: &mut Image<P>,
    requests: &mut Requests<P>,
    context: &FreezeContext,
    counted_portion: u64,
) -> ImageFacts {
    ImageFacts {
        cp: context.cp,
        next_generation: image.next_generation,
        used_inodes: image.used_inodes,
        orphan_count: image.orphan_count,
        snapshots: std::mem::take(&mut requests.create),
        quota_changes: std::mem::take(&mut image.quota_changes),
        counted_portion,
    }
}
