//! The machine's name, as a node's default name.

/// The part of the machine's name before the first dot; `node` if the machine has no usable one.
pub fn hostname() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default();
    match admin_api::names::validate_name("node", &name.to_ascii_lowercase()) {
        Ok(()) => name.to_owned(),
        Err(_) => "node".to_owned(),
    }
}
