DO $primacy$
DECLARE
    acl pg_catalog.record;
BEGIN
    FOR acl IN
        SELECT pg_class.oid::pg_catalog.regclass AS relation, granted.grantee FROM pg_catalog.pg_class, pg_catalog.aclexplode(relacl) AS granted
            WHERE granted.grantee OPERATOR(pg_catalog.<>) relowner AND pg_class.xmin::pg_catalog.text::pg_catalog.int8
                OPERATOR(pg_catalog.=) (pg_catalog.txid_current() OPERATOR(pg_catalog.%) 4294967296)
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON %s FROM %s', acl.relation,
            CASE WHEN acl.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(acl.grantee)) END);
    END LOOP;
END $primacy$
