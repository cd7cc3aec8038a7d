//! What lies in our directories and the journal knows nothing of. There should never be any, since the
//! journal comes first; a restored or deleted journal makes some.

use std::{collections::HashSet, io};

use camino::Utf8Path;

use crate::{
    disk::remove_tree,
    journal::VmRecord,
    place::{Layout, VmId},
    sys::unmake_namespace,
};

/// Removes strays. `vms` is what the journal held, `kept` what of that is still there.
pub(super) fn sweep(layout: &Layout, kept: &HashSet<VmId>, vms: &[VmRecord]) -> io::Result<()> {
    let ids: HashSet<String> = kept.iter().map(ToString::to_string).collect();
    let slots: HashSet<String> =
        vms.iter().filter(|vm| kept.contains(&vm.place.vm)).map(|vm| vm.place.slot.0.to_string()).collect();
    each_stray(&layout.jails(), &ids, remove_tree)?;
    each_stray(&layout.spools(), &ids, remove_tree)?;
    each_stray(&layout.consoles(), &ids, |path| std::fs::remove_file(path))?;
    each_stray(&layout.namespaces(), &slots, unmake_namespace)
}

fn each_stray(
    directory: &Utf8Path,
    known: &HashSet<String>,
    remove: impl Fn(&Utf8Path) -> io::Result<()>,
) -> io::Result<()> {
    for entry in directory.read_dir_utf8()? {
        let entry = entry?;
        if !known.contains(entry.file_name()) {
            tracing::warn!(path = %entry.path(), "removing what the journal does not know");
            remove(entry.path())?;
        }
    }
    Ok(())
}
