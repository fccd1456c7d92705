(WITH RECURSIVE step AS (
    -- What an object names. A foreign key runs nothing of the table that it refers to with the rights of the role that writes.
    SELECT classid, objid, refclassid AS next_class, refobjid AS next FROM pg_catalog.pg_depend
        WHERE refclassid OPERATOR(pg_catalog.=) ANY (ARRAY['pg_catalog.pg_class', 'pg_catalog.pg_proc', 'pg_catalog.pg_type',
            'pg_catalog.pg_operator', 'pg_catalog.pg_opclass', 'pg_catalog.pg_opfamily']::pg_catalog.regclass[]::pg_catalog.oid[])
        AND (refclassid OPERATOR(pg_catalog.<>) 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
            OR classid OPERATOR(pg_catalog.<>) 'pg_catalog.pg_constraint'::pg_catalog.regclass::pg_catalog.oid)
    -- And its parts, which go with it: triggers, rules, policies, constraints, defaults, indexes, statistics, partitions.
    UNION ALL SELECT refclassid, refobjid, classid, objid FROM pg_catalog.pg_depend
        WHERE deptype OPERATOR(pg_catalog.=) ANY (ARRAY['a', 'i', 'P', 'S']::pg_catalog."char"[])
    UNION ALL SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid, inhparent,
        'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid, inhrelid FROM pg_catalog.pg_inherits
), reached AS (
    SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AS class, relation AS object
        FROM pg_catalog.unnest(:relations) AS relation
    UNION SELECT next_class, next FROM reached JOIN step
        ON classid OPERATOR(pg_catalog.=) class AND objid OPERATOR(pg_catalog.=) object
)
SELECT pg_catalog.format('the table %s', oid::pg_catalog.regclass) AS shown, 'table' AS kind, relowner AS owner
    FROM reached JOIN pg_catalog.pg_class ON oid OPERATOR(pg_catalog.=) object
    WHERE class OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
    AND relkind OPERATOR(pg_catalog.=) ANY (ARRAY['r', 'p', 'f', 'v', 'm']::pg_catalog."char"[])
UNION ALL SELECT pg_catalog.format('the function %s', oid::pg_catalog.regprocedure), 'function', proowner
    FROM reached JOIN pg_catalog.pg_proc ON oid OPERATOR(pg_catalog.=) object
    WHERE class OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
UNION ALL SELECT pg_catalog.format('the domain %s', oid::pg_catalog.regtype), 'domain', typowner
    FROM reached JOIN pg_catalog.pg_type ON oid OPERATOR(pg_catalog.=) object
    WHERE class OPERATOR(pg_catalog.=) 'pg_catalog.pg_type'::pg_catalog.regclass::pg_catalog.oid
    AND typtype OPERATOR(pg_catalog.=) 'd')
