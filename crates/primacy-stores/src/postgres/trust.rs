//! Whether the owner of an object may be trusted with it: an owner can change it at any time.

/// A condition of SQL: whether the role whose oid is the expression `role` is this one, a role that it is a member of, the
/// owner of the database, or a superuser.
///
/// A superuser is a member of every role, and must not trust each of them for that.
#[must_use]
pub fn is_trusted(role: &str) -> String {
    format!(
        "({role} OPERATOR(pg_catalog.=) ANY (SELECT datdba FROM pg_catalog.pg_database \
         WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) \
         OR EXISTS (SELECT FROM pg_catalog.pg_roles WHERE oid OPERATOR(pg_catalog.=) {role} \
         AND (rolsuper OR rolname OPERATOR(pg_catalog.=) ANY (ARRAY[current_user, 'pg_database_owner']))) \
         OR (NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user) \
         AND pg_catalog.pg_has_role({role}, 'USAGE')))"
    )
}
