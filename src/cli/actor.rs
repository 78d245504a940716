//! Under whose name a flip stands when nobody gives one. Never `unknown`: a journal has to name people.

/// Where user names stand.
const PASSWD: &str = "/etc/passwd";

/// `WEIR_ACTOR`, `USER` or `LOGNAME`, else the system's name of this user, else `uid N`.
pub fn from_system() -> String {
    let named =
        ["WEIR_ACTOR", "USER", "LOGNAME"].iter().filter_map(|name| std::env::var(name).ok());
    let mut named = named.filter(|value| !value.trim().is_empty());
    named.next().unwrap_or_else(|| {
        let uid = rustix::process::getuid().as_raw();
        let passwd = std::fs::read_to_string(PASSWD).unwrap_or_default();
        name_of(uid, &passwd).map_or_else(|| format!("uid {uid}"), str::to_owned)
    })
}

/// The user's name in a file of `name:password:uid:...` lines.
fn name_of(uid: u32, passwd: &str) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_users_by_number() {
        let passwd = "root:x:0:0::/root:/bin/sh\nbroken\n:x:7:\nalice:x:1000:1000::/:/bin/sh\n";
        for (uid, expected) in [(0, Some("root")), (1000, Some("alice")), (7, None), (5, None)] {
            assert_eq!(name_of(uid, passwd), expected, "{uid}");
        }
    }
}
