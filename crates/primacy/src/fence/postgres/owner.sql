
-- What default privileges have granted on what was made is taken back, before it is looked at who else has rights on it. Nobody's
-- triggers run for that.
DO $primacy$
DECLARE
    own pg_catalog.oid := pg_catalog.to_regnamespace(:schema_text)::pg_catalog.oid;
    made pg_catalog.record;
BEGIN
    -- Rights on the other functions are for their owner alone.
    FOR made IN
        SELECT pg_catalog.format('FUNCTION %s', pg_proc.oid::pg_catalog.regprocedure) AS shown, granted.grantee
            FROM pg_catalog.pg_proc, pg_catalog.aclexplode(proacl) AS granted
            WHERE granted.grantee OPERATOR(pg_catalog.<>) proowner AND pg_catalog.pg_has_role(proowner, 'USAGE') AND proname OPERATOR(pg_catalog.=) ANY (ARRAY[:functions])
            AND pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(:schema_text)::pg_catalog.oid
            AND (proname OPERATOR(pg_catalog.<>) 'primacy_token' OR granted.grantee OPERATOR(pg_catalog.=) 0 OR EXISTS (
                SELECT FROM pg_catalog.pg_default_acl, pg_catalog.aclexplode(defaclacl) AS given WHERE defaclrole OPERATOR(pg_catalog.=) proowner
                AND defaclobjtype OPERATOR(pg_catalog.=) 'f' AND given.grantee OPERATOR(pg_catalog.=) granted.grantee))
        UNION SELECT pg_catalog.format('TABLE %s', pg_class.oid::pg_catalog.regclass), granted.grantee
            FROM pg_catalog.pg_class, pg_catalog.aclexplode(relacl) AS granted, pg_catalog.pg_default_acl, pg_catalog.aclexplode(defaclacl) AS given
            WHERE granted.grantee OPERATOR(pg_catalog.<>) relowner AND granted.grantee OPERATOR(pg_catalog.<>) 0
            AND pg_catalog.pg_has_role(relowner, 'USAGE')
            AND relname OPERATOR(pg_catalog.=) ANY (ARRAY['primacy_fence', 'primacy_fence_hold'])
            AND relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(:schema_text)::pg_catalog.oid
            AND defaclrole OPERATOR(pg_catalog.=) relowner AND defaclobjtype OPERATOR(pg_catalog.=) 'r'
            AND given.grantee OPERATOR(pg_catalog.=) granted.grantee
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON %s FROM %s', made.shown,
            CASE WHEN made.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(made.grantee)) END);
    END LOOP;
    -- Until version 4 everybody could use the schema that was made, and default privileges may say so. Where there is nothing in it but
    -- the fence, only those who may call primacy_token need that, and nobody else makes anything there.
    IF own OPERATOR(pg_catalog.=) 'public'::pg_catalog.regnamespace::pg_catalog.oid
        OR EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace OPERATOR(pg_catalog.=) own
            AND relkind OPERATOR(pg_catalog.<>) 'i' AND relname OPERATOR(pg_catalog.<>) ALL (ARRAY['primacy_fence', 'primacy_fence_hold']))
        OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace OPERATOR(pg_catalog.=) own
            AND proname OPERATOR(pg_catalog.<>) ALL (ARRAY[:functions]))
        OR EXISTS (SELECT FROM pg_catalog.pg_type WHERE typnamespace OPERATOR(pg_catalog.=) own
            AND typrelid OPERATOR(pg_catalog.=) 0 AND typelem OPERATOR(pg_catalog.=) 0) THEN
        RETURN;
    END IF;
    FOR made IN
        WITH granted AS (
            SELECT nspowner, acl.grantee, acl.privilege_type AS may
                FROM pg_catalog.pg_namespace, pg_catalog.aclexplode(coalesce(nspacl, pg_catalog.acldefault('n', nspowner))) AS acl
                WHERE pg_namespace.oid OPERATOR(pg_catalog.=) own AND pg_catalog.pg_has_role(nspowner, 'USAGE')
        ), callers AS (
            SELECT acl.grantee FROM pg_catalog.pg_proc, pg_catalog.aclexplode(proacl) AS acl
                WHERE pronamespace OPERATOR(pg_catalog.=) own AND proname OPERATOR(pg_catalog.=) 'primacy_token'
                AND acl.grantee OPERATOR(pg_catalog.<>) 0
        )
        SELECT pg_catalog.format('GRANT USAGE ON SCHEMA %s TO %I', :schema_text, pg_catalog.pg_get_userbyid(callers.grantee)) AS change
            FROM callers WHERE EXISTS (SELECT FROM granted) AND NOT EXISTS (SELECT FROM granted
                WHERE granted.grantee OPERATOR(pg_catalog.=) callers.grantee AND may OPERATOR(pg_catalog.=) 'USAGE')
        UNION ALL SELECT pg_catalog.format('REVOKE %s ON SCHEMA %s FROM %s', may, :schema_text,
                CASE WHEN grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(grantee)) END)
            FROM granted WHERE grantee OPERATOR(pg_catalog.<>) nspowner
            AND NOT (may OPERATOR(pg_catalog.=) 'USAGE' AND EXISTS (SELECT FROM callers WHERE callers.grantee OPERATOR(pg_catalog.=) granted.grantee))
            AND (grantee OPERATOR(pg_catalog.=) 0 OR EXISTS (
                SELECT FROM pg_catalog.pg_default_acl, pg_catalog.aclexplode(defaclacl) AS given WHERE defaclrole OPERATOR(pg_catalog.=) nspowner
                AND defaclobjtype OPERATOR(pg_catalog.=) 'n' AND given.grantee OPERATOR(pg_catalog.=) granted.grantee))
    LOOP
        EXECUTE made.change;
    END LOOP;
END $primacy$;

-- What stands under these names may have been there before, made by somebody else: a table that others write to, or a function that
-- they can replace. Nothing is written before this, for a trigger of theirs would run with our rights.
DO $primacy$
DECLARE
    schema pg_catalog.text := :schema_text;
    acts_as pg_catalog.name := current_user;
    made pg_catalog.record;
    why pg_catalog.text;
BEGIN
    -- The functions run with the rights of their owner, and the owner of a schema can drop what others have in it and put something
    -- else there. So all of it belongs to this role, or to a superuser, who needs no such way.
    FOR made IN
        :parts
    LOOP
        IF NOT :owned THEN
            RAISE EXCEPTION USING ERRCODE = 'PRM06',
                MESSAGE = pg_catalog.format(CASE WHEN made.kind OPERATOR(pg_catalog.=) 'right'
                    THEN 'primacy: %s belongs to the role %s, who could make another primacy_token, which leaders would call'
                    ELSE 'primacy: %s belongs to the role %s, who could have the fence act with the rights of %s' END,
                    made.shown, :role, current_user),
                HINT = CASE WHEN made.kind OPERATOR(pg_catalog.=) 'right' THEN
                    pg_catalog.format('REVOKE CREATE ON SCHEMA %s FROM %s; or name a schema that is not there, which is made: --schema primacy.',
                        :schema_text, :role)
                    WHEN made.kind OPERATOR(pg_catalog.=) 'schema' THEN
                    pg_catalog.format('Install as that role (pg_database_owner: as the owner of the database), or in a schema of your own, which is made if it is not there: --schema primacy; '
                        'or have that one given to you: ALTER SCHEMA %s OWNER TO %I.', :schema_text, current_user)
                    ELSE 'Install as that role if it is to be trusted with the fence (log in as it), have it removed, or name another --schema.' END;
        END IF;
    END LOOP;
    FOR made IN
        SELECT pg_class.*, pg_class.oid AS relation FROM pg_catalog.pg_class
            WHERE relname OPERATOR(pg_catalog.=) ANY (ARRAY['primacy_fence', 'primacy_fence_hold'])
            AND relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(:schema_text)::pg_catalog.oid
    LOOP
        why := CASE
            WHEN made.relkind OPERATOR(pg_catalog.<>) 'r' THEN 'it is no ordinary table'
            WHEN made.relpersistence OPERATOR(pg_catalog.<>) 'p' THEN 'a crash would empty it, since it is not logged'
            WHEN made.relrowsecurity THEN 'it has row security, which can hide the highest token'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class OPERATOR(pg_catalog.=) made.relation) THEN 'it has rules'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhrelid OPERATOR(pg_catalog.=) made.relation
                OR inhparent OPERATOR(pg_catalog.=) made.relation) THEN 'it inherits, or is inherited from'
            WHEN (SELECT pg_catalog.string_agg(pg_catalog.concat(attname, ' ', pg_catalog.format_type(atttypid, NULL),
                    CASE WHEN attnotnull THEN ' not null' END, CASE WHEN atthasdef THEN ' with a default' END), ', ' ORDER BY attnum)
                FROM pg_catalog.pg_attribute WHERE attrelid OPERATOR(pg_catalog.=) made.relation
                AND attnum OPERATOR(pg_catalog.>) 0 AND NOT attisdropped) OPERATOR(pg_catalog.<>)
                'election text not null, highest bigint not null' THEN 'its columns are others'
            WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid OPERATOR(pg_catalog.=) made.relation
                AND contype OPERATOR(pg_catalog.=) 'p' AND pg_catalog.pg_get_constraintdef(oid) OPERATOR(pg_catalog.=)
                'PRIMARY KEY (election)') THEN 'its primary key is another'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid OPERATOR(pg_catalog.=) made.relation
                AND pg_catalog.pg_get_constraintdef(oid) OPERATOR(pg_catalog.<>) ALL (ARRAY['PRIMARY KEY (election)', 'CHECK ((highest >= 0))',
                    'NOT NULL election', 'NOT NULL highest'])) THEN 'it has a constraint that is not of the fence'
            WHEN (SELECT pg_catalog.count(*) FROM pg_catalog.pg_index WHERE indrelid OPERATOR(pg_catalog.=) made.relation)
                OPERATOR(pg_catalog.<>) 1 THEN 'it has an index that is not of the fence'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_statistic_ext WHERE stxrelid OPERATOR(pg_catalog.=) made.relation) THEN 'it has extended statistics'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid OPERATOR(pg_catalog.=) made.relation AND NOT tgisinternal
                AND tgfoid OPERATOR(pg_catalog.<>) ALL (ARRAY[pg_catalog.to_regprocedure(pg_catalog.concat(:schema_text, '.primacy_fence_keeps()'))::pg_catalog.oid,
                    pg_catalog.to_regprocedure(pg_catalog.concat(:schema_text, '.primacy_fence_raised()'))::pg_catalog.oid]))
                THEN 'it has a trigger that is not of the fence'
            WHEN EXISTS (SELECT FROM pg_catalog.aclexplode(made.relacl) AS granted
                WHERE granted.grantee OPERATOR(pg_catalog.<>) made.relowner AND granted.privilege_type OPERATOR(pg_catalog.<>) 'SELECT')
                OR EXISTS (SELECT FROM pg_catalog.pg_attribute, pg_catalog.aclexplode(attacl) AS granted
                    WHERE attrelid OPERATOR(pg_catalog.=) made.relation AND granted.privilege_type OPERATOR(pg_catalog.<>) 'SELECT')
                THEN 'others than its owner may write to it, or put triggers on it: REVOKE that'
        END;
        IF why IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'PRM06', MESSAGE = pg_catalog.format('primacy: the table %s, of the role %s, is not as this fence makes it: %s',
                made.relation::pg_catalog.regclass, pg_catalog.pg_get_userbyid(made.relowner), why),
                HINT = 'Find out who has made it. Have it changed or removed, or name another --schema.';
        END IF;
    END LOOP;
END $primacy$;

DO $primacy$
DECLARE
    fence pg_catalog.regclass := pg_catalog.to_regclass(pg_catalog.concat(:schema_text, '.primacy_fence'));
    theirs pg_catalog.record;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid OPERATOR(pg_catalog.=) fence::pg_catalog.oid
        AND tgname OPERATOR(pg_catalog.=) 'primacy_keeps') THEN
        CREATE TRIGGER primacy_keeps BEFORE UPDATE OR DELETE ON :schema.primacy_fence
            FOR EACH ROW EXECUTE FUNCTION :schema.primacy_fence_keeps();
        CREATE TRIGGER primacy_keeps_all BEFORE TRUNCATE ON :schema.primacy_fence
            FOR EACH STATEMENT EXECUTE FUNCTION :schema.primacy_fence_keeps();
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid OPERATOR(pg_catalog.=) fence::pg_catalog.oid
        AND tgname OPERATOR(pg_catalog.=) 'primacy_raised') THEN
        CREATE TRIGGER primacy_raised AFTER UPDATE ON :schema.primacy_fence
            FOR EACH ROW EXECUTE FUNCTION :schema.primacy_fence_raised();
        CREATE TRIGGER primacy_keeps BEFORE UPDATE OR DELETE ON :schema.primacy_fence_hold
            FOR EACH ROW EXECUTE FUNCTION :schema.primacy_fence_keeps();
        CREATE TRIGGER primacy_keeps_all BEFORE TRUNCATE ON :schema.primacy_fence_hold
            FOR EACH STATEMENT EXECUTE FUNCTION :schema.primacy_fence_keeps();
    END IF;
    -- Also where session_replication_role turns ordinary triggers off, and where somebody has disabled them.
    FOR theirs IN
        SELECT tgname, tgrelid::pg_catalog.regclass AS relation FROM pg_catalog.pg_trigger WHERE NOT tgisinternal
            AND tgenabled OPERATOR(pg_catalog.<>) 'A' AND tgrelid OPERATOR(pg_catalog.=) ANY (ARRAY[fence::pg_catalog.oid,
                pg_catalog.to_regclass(pg_catalog.concat(:schema_text, '.primacy_fence_hold'))::pg_catalog.oid])
    LOOP
        EXECUTE pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', theirs.relation, theirs.tgname);
    END LOOP;
END $primacy$;
