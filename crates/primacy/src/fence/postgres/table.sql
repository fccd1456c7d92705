
-- The table, its partitions, and what inherits from it: a statement runs the guard of the table that it names.
DO $primacy$
DECLARE
    named pg_catalog.regclass;
    guarded pg_catalog.regclass;
    kind pg_catalog."char";
    theirs pg_catalog.text;
    is_whole pg_catalog.bool;
    is_always pg_catalog.bool;
    locking pg_catalog.text;
    called pg_catalog.oid;
    outside pg_catalog.regclass;
BEGIN
    PERFORM pg_catalog.set_config('search_path', pg_catalog.current_setting('primacy_install.path'), true);
    named := :table::pg_catalog.regclass;
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    WITH RECURSIVE tree(relation) AS (
        SELECT named::pg_catalog.oid
        UNION SELECT inhrelid FROM pg_catalog.pg_inherits JOIN tree ON inhparent OPERATOR(pg_catalog.=) relation
    )
    SELECT inhparent::pg_catalog.regclass INTO outside FROM tree JOIN pg_catalog.pg_inherits ON inhrelid OPERATOR(pg_catalog.=) relation
        WHERE inhparent OPERATOR(pg_catalog.<>) ALL (SELECT relation FROM tree) LIMIT 1;
    IF outside IS NOT NULL THEN
        RAISE EXCEPTION 'primacy: a part of % can also be written by the name of %, and would not be guarded there; name that one',
            named, outside;
    END IF;
    FOR guarded, kind IN
        WITH RECURSIVE tree(relation) AS (
            SELECT named::pg_catalog.oid
            UNION SELECT inhrelid FROM pg_catalog.pg_inherits JOIN tree ON inhparent OPERATOR(pg_catalog.=) relation
        )
        SELECT relation::pg_catalog.regclass, relkind FROM tree JOIN pg_catalog.pg_class ON pg_class.oid OPERATOR(pg_catalog.=) relation
    LOOP
        IF kind OPERATOR(pg_catalog.<>) ALL (ARRAY['r', 'p']::pg_catalog."char"[]) THEN
            RAISE EXCEPTION 'primacy: % is no table, and cannot be guarded', guarded;
        END IF;
        -- Before the statement (2), for each insert (4), delete (8), update (16) and truncate (32), without a condition.
        SELECT pg_catalog.pg_get_triggerdef(oid), tgfoid, tgtype OPERATOR(pg_catalog.=) 62 AND tgqual IS NULL
                AND pg_catalog.cardinality(tgattr::pg_catalog.int2[]) OPERATOR(pg_catalog.=) 0,
                tgenabled OPERATOR(pg_catalog.=) 'A' INTO theirs, called, is_whole, is_always
            FROM pg_catalog.pg_trigger WHERE tgrelid OPERATOR(pg_catalog.=) guarded::pg_catalog.oid AND tgname OPERATOR(pg_catalog.=) 'primacy_guard';
        IF theirs IS NULL THEN
            locking := pg_catalog.format('CREATE TRIGGER primacy_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s '
                'FOR EACH STATEMENT EXECUTE FUNCTION %s.primacy_guard(%L)', guarded, :schema_text, :election);
            :locking
        ELSIF pg_catalog.strpos(theirs, pg_catalog.format('primacy_guard(%L)', :election)) OPERATOR(pg_catalog.=) 0 THEN
            RAISE EXCEPTION 'primacy: % is guarded for another election: %', guarded, theirs;
        ELSIF called OPERATOR(pg_catalog.<>) pg_catalog.to_regprocedure(pg_catalog.concat(:schema_text, '.primacy_guard()'))::pg_catalog.oid THEN
            RAISE EXCEPTION 'primacy: % is guarded by a fence in another schema: %', guarded, theirs;
        ELSIF NOT is_whole THEN
            RAISE EXCEPTION 'primacy: the trigger of % does not stand before each write; drop it, and install again: %', guarded, theirs;
        END IF;
        -- Also where session_replication_role turns ordinary triggers off, and where somebody has disabled it. Where it is so already, no
        -- lock is asked for: all later writes would wait behind it for every transaction that has written.
        IF is_always IS NOT TRUE THEN
            locking := pg_catalog.format('ALTER TABLE %s ENABLE ALWAYS TRIGGER primacy_guard', guarded);
            :locking
        END IF;
    END LOOP;
END $primacy$;
