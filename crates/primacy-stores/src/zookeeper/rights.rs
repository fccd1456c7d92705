//! Permissions on an election's znode. By default, any user may make the znode before the nodes do; so a node with a login checks whether
//! other identities than its own may change its content.

use zookeeper_client::{Acl, Permission};

/// Returns the first permission beyond reading that is granted to an identity other than `own` and the trusted one, `SCHEME:ID`.
pub(crate) fn of_others<'a>(acls: &'a [Acl], own: &[Acl], trusted: Option<&str>) -> Option<&'a Acl> {
    let is_own = |acl: &Acl| own.iter().any(|own| own.auth_id() == acl.auth_id());
    let is_trusted = |acl: &Acl| trusted.is_some_and(|trusted| trusted == name(acl));
    acls.iter()
        .filter(|acl| acl.permission() & Permission::READ != acl.permission())
        .find(|acl| !is_own(acl) && !is_trusted(acl))
}

/// Returns the first such permission by the user's name alone, when no entry shows the user's full identity.
pub(crate) fn of_others_than<'a>(acls: &'a [Acl], user: &str, trusted: Option<&str>) -> Option<&'a Acl> {
    let is_own = |acl: &&Acl| {
        acl.scheme() == "digest" && acl.id().strip_prefix(user).is_some_and(|hash| hash.starts_with(':'))
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
        acl.permission().to_string().to_lowercase().replace('|', ", ")
    )
}

fn name(acl: &Acl) -> String {
    format!("{}:{}", acl.scheme(), acl.id())
}

#[cfg(test)]
mod tests {
    use zookeeper_client::AuthId;

    use super::*;

    fn acl(permission: Permission, scheme: &str, id: &str) -> Acl {
        Acl::new(permission, AuthId::new(scheme, id))
    }

    #[test]
    fn rights_of_others_are_found_unless_they_only_read_or_are_trusted() {
        let own = [acl(Permission::ALL, "digest", "ann:hash")];
        let world = |permission| [own[0].clone(), acl(permission, "world", "anyone")];
        assert_eq!(of_others(&own, &own, None), None);
        assert_eq!(of_others(&world(Permission::READ), &own, None), None);
        for permission in [Permission::WRITE, Permission::CREATE, Permission::DELETE, Permission::ADMIN] {
            let acls = world(permission | Permission::READ);
            assert_eq!(of_others(&acls, &own, None), Some(&acls[1]));
            assert_eq!(of_others(&acls, &own, Some("world:anyone")), None);
            let why = advice("/e", &acls[1]);
            assert!(
                why.contains("gives world:anyone the right to read, ") && why.contains("?owner=world:anyone"),
                "{why}"
            );
        }
        let other = [acl(Permission::ALL, "digest", "ann:another-hash")];
        assert_eq!(of_others(&other, &own, None), Some(&other[0]), "of another password");
        assert_eq!(of_others_than(&own, "ann", None), None);
        assert_eq!(of_others_than(&own, "an", None), Some(&own[0]));
    }
}
