//! Permissions on an election's znode. By default, any user may make the znode before the nodes do; so a node with a login checks whether
//! other identities than its own may change its content.

use super::client::{Acl, permission};

/// Returns the first permission beyond reading that is granted to an identity other than `own` and the trusted one, `SCHEME:ID`.
pub(crate) fn of_others<'a>(acls: &'a [Acl], own: &[Acl], trusted: Option<&str>) -> Option<&'a Acl> {
    let is_own = |acl: &Acl| own.iter().any(|own| (&own.scheme, &own.id) == (&acl.scheme, &acl.id));
    let is_trusted = |acl: &Acl| trusted.is_some_and(|trusted| trusted == name(acl));
    acls.iter()
        .filter(|acl| acl.permissions & !permission::READ != 0)
        .find(|acl| !is_own(acl) && !is_trusted(acl))
}

/// Returns the first such permission by the user's name alone, when no entry shows the user's full identity.
pub(crate) fn of_others_than<'a>(acls: &'a [Acl], user: &str, trusted: Option<&str>) -> Option<&'a Acl> {
    let is_own = |acl: &&Acl| {
        acl.scheme == "digest" && acl.id.strip_prefix(user).is_some_and(|hash| hash.starts_with(':'))
    };
    let own: Vec<Acl> = acls.iter().filter(is_own).cloned().collect();
    of_others(acls, &own, trusted)
}

/// Returns the remedy.
pub(crate) fn advice(directory: &str, acl: &Acl) -> String {
    let name = name(acl);
    format!(
        "the znode {directory} gives {name} the right to {}, so others than this user can end a lead or take it: have its owner give \
         it the rights auth::cdrwa, remove it while nobody stands, or, where that identity may, write ?owner={name}",
        names(acl.permissions)
    )
}

fn name(acl: &Acl) -> String {
    format!("{}:{}", acl.scheme, acl.id)
}

fn names(permissions: i32) -> String {
    let all = [
        (permission::READ, "read"),
        (permission::WRITE, "write"),
        (permission::CREATE, "create"),
        (permission::DELETE, "delete"),
        (permission::ADMIN, "admin"),
    ];
    let granted = all.into_iter().filter(|(bit, _)| permissions & bit != 0);
    granted.map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(permissions: i32, scheme: &str, id: &str) -> Acl {
        Acl { permissions, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    #[test]
    fn rights_of_others_are_found_unless_they_only_read_or_are_trusted() {
        let own = [acl(permission::ALL, "digest", "ann:hash")];
        let world = |permissions| [own[0].clone(), acl(permissions, "world", "anyone")];
        assert_eq!(of_others(&own, &own, None), None);
        assert_eq!(of_others(&world(permission::READ), &own, None), None);
        for changes in [permission::WRITE, permission::CREATE, permission::DELETE, permission::ADMIN] {
            let acls = world(changes | permission::READ);
            assert_eq!(of_others(&acls, &own, None), Some(&acls[1]));
            assert_eq!(of_others(&acls, &own, Some("world:anyone")), None);
            let why = advice("/e", &acls[1]);
            assert!(
                why.contains("gives world:anyone the right to read, ") && why.contains("?owner=world:anyone"),
                "{why}"
            );
        }
        let other = [acl(permission::ALL, "digest", "ann:another-hash")];
        assert_eq!(of_others(&other, &own, None), Some(&other[0]), "of another password");
        assert_eq!(of_others_than(&own, "ann", None), None);
        assert_eq!(of_others_than(&own, "an", None), Some(&own[0]));
    }
}
