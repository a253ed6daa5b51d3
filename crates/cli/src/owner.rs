//! Owners as people write them: `alice`, `1000`, `1000:100`, `alice:staff`.
//!
//! Names are looked up in `/etc/passwd` and `/etc/group` of this machine; users of a directory
//! service are given by number. A user's group is the one that the file names for it.
//!
//! Fails: `NotFound` with what was looked for, `Usage` for text that is no owner.

use admin_api::{AdminError, Code, Owner};

/// The files that names are looked up in.
#[derive(Clone, Debug)]
pub struct Accounts {
    users: String,
    groups: String,
}

impl Accounts {
    /// This machine's. A file that cannot be read holds no names.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    /// Accounts in the formats of passwd(5) and group(5).
    #[must_use]
    pub fn from_texts(users: &str, groups: &str) -> Self {
        Self { users: users.to_owned(), groups: groups.to_owned() }
    }

    /// Reads an owner.
    ///
    /// # Errors
    /// `NotFound` for an unknown name, `Usage` for an empty one.
    pub fn owner(&self, text: &str) -> Result<Owner, AdminError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        if user.is_empty() || group == Some("") {
            return Err(AdminError::usage("cannot read the owner", text)
                .because("an owner is USER, UID, USER:GROUP or UID:GID"));
        }
        let found = line_of(&self.users, user);
        let number = |index: usize| found.as_ref()?.get(index)?.parse::<u32>().ok();
        let uid = user.parse().ok().or_else(|| number(2)).ok_or_else(|| unknown("user", user))?;
        let gid = match group {
            Some(group) => {
                let found = line_of(&self.groups, group);
                let number = || found.as_ref()?.get(2)?.parse().ok();
                group.parse().ok().or_else(number).ok_or_else(|| unknown("group", group))?
            }
            // A number without an account owns with the group of the same number.
            None => number(3).unwrap_or(uid),
        };
        Ok(Owner { uid, gid })
    }
}

impl Accounts {
    /// Reads a user, by name or number.
    ///
    /// # Errors
    /// `NotFound` for an unknown name.
    pub fn user(&self, text: &str) -> Result<u32, AdminError> {
        number(&self.users, text).ok_or_else(|| unknown("user", text))
    }

    /// Reads a group, by name or number.
    ///
    /// # Errors
    /// `NotFound` for an unknown name.
    pub fn group(&self, text: &str) -> Result<u32, AdminError> {
        number(&self.groups, text).ok_or_else(|| unknown("group", text))
    }

    /// The name of a user, if it has one here.
    #[must_use]
    pub fn user_name(&self, id: u32) -> Option<String> {
        name(&self.users, id)
    }

    /// The name of a group, if it has one here.
    #[must_use]
    pub fn group_name(&self, id: u32) -> Option<String> {
        name(&self.groups, id)
    }
}

/// A number as it stands, or that of the account of this name.
fn number(file: &str, text: &str) -> Option<u32> {
    text.parse().ok().or_else(|| line_of(file, text)?.get(2)?.parse().ok())
}

fn name(file: &str, id: u32) -> Option<String> {
    let id = id.to_string();
    let mut lines = file.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    let found = lines.find(|fields| fields.get(2) == Some(&id.as_str()))?;
    found.first().filter(|name| !name.is_empty()).map(|name| (*name).to_owned())
}

fn unknown(noun: &str, name: &str) -> AdminError {
    AdminError::new(Code::NotFound, format!("cannot find {noun}"), name)
        .because("the name is not in this machine's account files")
        .try_next(format!("give the {noun} by number"))
}

/// The fields of the line whose first field is `name` or whose third is, as a number.
fn line_of<'a>(file: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let lines = file.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    lines.into_iter().find(|fields| fields.first() == Some(&name) || fields.get(2) == Some(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        let accounts = Accounts::from_texts(
            "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:100::/home/alice:/bin/sh\nbroken\n",
            "root:x:0:\nstaff:x:50:alice\n",
        );
        let check = |text: &str, uid: u32, gid: u32| {
            assert_eq!(accounts.owner(text), Ok(Owner { uid, gid }), "{text}");
        };
        check("alice", 1000, 100);
        check("1000", 1000, 100);
        check("1234", 1234, 1234);
        check("1234:7", 1234, 7);
        check("alice:staff", 1000, 50);
        for (wrong, code) in [
            ("", Code::Usage),
            (":", Code::Usage),
            ("alice:", Code::Usage),
            ("bob", Code::NotFound),
            ("broken", Code::NotFound),
            ("alice:nobody", Code::NotFound),
            ("-1", Code::NotFound),
        ] {
            assert_eq!(accounts.owner(wrong).unwrap_err().code, code, "{wrong}");
        }
    }
}
