//! Conditions of SQL: whether the owner of an object is trusted, because an owner can change it at any time.

/// A condition of SQL: whether the login of the session is a superuser, or may become one by `SET ROLE`. Code that runs in such a session
/// may become one too, whatever the current role of the session is: `ALTER DATABASE … SET role`, which the owner of the database may run,
/// changes only the current role.
pub const MAY_BE_SUPERUSER: &str = "(EXISTS (SELECT FROM pg_catalog.pg_roles AS may_be WHERE may_be.rolsuper \
     AND pg_catalog.pg_has_role(session_user, may_be.oid, 'MEMBER')))";

/// A condition of SQL: whether the role whose oid is the expression `role` is a superuser or the login of the session, or, unless that
/// login may be a superuser, the role that the session acts as, the owner of the database, or a role that this one is a member of.
///
/// A trigger, a check or a default that an owner puts on a table runs in the session that writes to it, and may act as its login. A
/// superuser, who is a member of every role, must not trust each of them for that, nor the owner of each database.
#[must_use]
pub fn is_trusted(role: &str) -> String {
    let owner_of_database = "(SELECT datdba FROM pg_catalog.pg_database \
         WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())";
    format!(
        "(EXISTS (SELECT FROM pg_catalog.pg_roles AS owner \
         WHERE owner.oid OPERATOR(pg_catalog.=) \
         CASE WHEN pg_catalog.pg_get_userbyid({role}) OPERATOR(pg_catalog.=) 'pg_database_owner' \
         THEN {owner_of_database} ELSE {role} END \
         AND (owner.rolsuper OR owner.rolname OPERATOR(pg_catalog.=) session_user OR (NOT {MAY_BE_SUPERUSER} \
         AND (owner.oid OPERATOR(pg_catalog.=) {owner_of_database} OR pg_catalog.pg_has_role(owner.oid, 'USAGE'))))))"
    )
}

/// A subquery of SQL: the objects that PostgreSQL may use for a statement on the relations of the array `relations`, as far as the catalog
/// shows: the tables, functions and domains that these depend on, directly or by another object (a trigger, rule, policy, constraint,
/// default, index, partition key, extended statistics, type, operator). The columns: `shown`, `kind` (`table`, `function`, `domain`) and
/// `owner`.
///
/// The planner runs functions too: those of constant arguments, wherever an expression of the table has one.
#[must_use]
pub fn reached(relations: &str) -> String {
    include_str!("reached.sql").trim_end().replace(":relations", relations)
}

/// A subquery of SQL: the functions of event triggers. PostgreSQL runs these, with the rights of the role that sends the statement, for
/// each statement that makes or changes an object or a right. The columns are those of [`reached`].
pub const EVENT_TRIGGERS: &str = "(SELECT pg_catalog.format('the function %s of the event trigger %I', pg_proc.oid::pg_catalog.regprocedure, evtname) AS shown, \
     'function' AS kind, proowner AS owner FROM pg_catalog.pg_event_trigger \
     JOIN pg_catalog.pg_proc ON pg_proc.oid OPERATOR(pg_catalog.=) evtfoid WHERE evtenabled OPERATOR(pg_catalog.<>) 'D')";

/// The statement by which a superuser turns off an event trigger, or takes its function over.
pub const EVENT_TRIGGER_FIX: &str = "Have a superuser disable it (ALTER EVENT TRIGGER NAME DISABLE), or take its function over (ALTER FUNCTION NAME OWNER TO)";
