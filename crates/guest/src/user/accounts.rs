//! Users and groups of the root filesystem, out of `/etc/passwd` and `/etc/group`. Pure; malformed lines are
//! skipped, as the C library does. Other sources (LDAP and the like) are not asked.

/// The account that a command runs as, and a job works for, unless it names one, where the template has it.
const DEFAULT_USER: &str = "user";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: String,
    pub(crate) shell: String,
    /// Supplementary groups, the primary one not among them.
    pub(crate) groups: Vec<u32>,
}

impl Account {
    fn root() -> Self {
        Self {
            name: "root".into(),
            uid: 0,
            gid: 0,
            home: "/root".into(),
            shell: "/bin/sh".into(),
            groups: vec![],
        }
    }
}

/// The account for `wanted`: a name, a uid, or empty for the default. A uid without an account is taken with
/// the group of the same number. `None`: there is no such name.
pub(crate) fn find(wanted: &str, passwd: &str, group: &str) -> Option<Account> {
    let by_name = |name: &str| passwd.lines().filter_map(parse).find(|account| account.name == name);
    let mut account = if wanted.is_empty() {
        by_name(DEFAULT_USER).or_else(|| by_name("root")).unwrap_or_else(Account::root)
    } else if let Some(account) = by_name(wanted) {
        account
    } else if let Ok(uid) = wanted.parse::<u32>() {
        // The kernel takes this number as "no change".
        if uid == u32::MAX {
            return None;
        }
        passwd.lines().filter_map(parse).find(|account| account.uid == uid).unwrap_or_else(|| nameless(uid))
    } else if wanted == "root" {
        Account::root()
    } else {
        return None;
    };
    account.groups = supplementary(&account, group);
    Some(account)
}

/// The name in the first line of `/etc/passwd` or `/etc/group` with this number.
pub(super) fn name_of(number: u32, file: &str) -> Option<&str> {
    file.lines().find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let found: u32 = rest.split(':').nth(1)?.parse().ok()?;
        (found == number && !name.is_empty()).then_some(name)
    })
}

/// The gid of a group by name, or the number itself.
pub(super) fn find_group(wanted: &str, group: &str) -> Option<u32> {
    let named = group.lines().find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (name == wanted).then(|| rest.split(':').nth(1)?.parse().ok()).flatten()
    });
    named.or_else(|| wanted.parse().ok()).filter(|gid| *gid != u32::MAX)
}

fn nameless(uid: u32) -> Account {
    if uid == 0 {
        return Account::root();
    }
    let name = uid.to_string();
    Account { name, uid, gid: uid, home: "/".into(), shell: "/bin/sh".into(), groups: vec![] }
}

/// `name:password:uid:gid:comment:home:shell`
fn parse(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
    let home = fields.nth(1)?;
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    let shell = fields.next().unwrap_or_default();
    Some(Account {
        name: name.to_owned(),
        uid,
        gid,
        home: or(home, "/"),
        shell: or(shell, "/bin/sh"),
        groups: vec![],
    })
}

/// `name:password:gid:member,member`
fn supplementary(account: &Account, group: &str) -> Vec<u32> {
    let mut groups: Vec<u32> = group
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let gid = fields.nth(2)?.parse().ok()?;
            fields.next()?.split(',').any(|member| member == account.name).then_some(gid)
        })
        .filter(|gid| *gid != account.gid)
        .collect();
    groups.sort_unstable();
    groups.dedup();
    // NGROUPS_MAX
    groups.truncate(65536);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
        broken line\nbad:x:nine:9:::\n\
        user:x:1000:1001:,,,:/home/user:\n\
        7:x:2000:2000::/seven:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nsudo:x:27:other,user\nuser:x:1001:user\nusers:x:100:user\n";

    #[test]
    fn the_default_is_the_ordinary_user_where_there_is_one() {
        let account = find("", PASSWD, GROUP).unwrap();
        assert_eq!((account.uid, account.gid, account.home.as_str()), (1000, 1001, "/home/user"));
        assert_eq!((account.shell.as_str(), account.groups), ("/bin/sh", vec![27, 100]));
        assert_eq!(find("", "", "").unwrap().uid, 0);
    }

    #[test]
    fn names_come_before_numbers() {
        assert_eq!(find("7", PASSWD, GROUP).unwrap().uid, 2000);
        assert_eq!(find("1000", PASSWD, GROUP).unwrap().name, "user");
        assert_eq!(find("4711", PASSWD, GROUP).unwrap().gid, 4711);
    }

    #[test]
    fn numbers_have_the_name_of_the_first_line_that_has_them() {
        assert_eq!(name_of(1000, PASSWD), Some("user"));
        assert_eq!(name_of(27, GROUP), Some("sudo"));
        assert_eq!(name_of(9, PASSWD), None);
        assert_eq!(find_group("users", GROUP), Some(100));
        assert_eq!(find_group("4711", GROUP), Some(4711));
        assert_eq!(find_group("nowhere", GROUP).or(find_group("4294967295", GROUP)), None);
    }

    #[test]
    fn unknown_names_and_the_kernels_wildcard_are_nobody() {
        for wanted in ["nobody-here", "bad", "-1", "4294967295", "4294967296"] {
            assert_eq!(find(wanted, PASSWD, GROUP), None, "{wanted}");
        }
    }
}
